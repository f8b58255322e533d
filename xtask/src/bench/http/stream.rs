//! How fast output gets from a command to a client: a gibibyte of lines by `cat` into a socket, and the same as the
//! events of a command, written to its journal on the way.

use super::client::{BUFFER, Client, Door};
use super::server::Server;
use crate::bench::Effort;
use crate::bench::sample::median;
use crate::failed::{Failed, Result, While};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The baseline of its table.
    Cat,
    /// What the goal is about.
    Events,
    /// Other ways to the same bytes.
    Other,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) taken: Duration,
}

/// Everything that went over one kind of socket.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) socket: &'static str,
    pub(super) mebibytes: u32,
    pub(super) rows: Vec<Row>,
}

const ROUNDS: u32 = 5;

/// Of the file that is printed again and again.
const MEBIBYTES: u32 = 16;

pub(super) fn measure(server: &Server, provider: &str, scratch: &Path, effort: Effort) -> Result<Vec<Streams>> {
    let bench = Bench { server, scratch, file: scratch.join("lines"), times: effort.choose(64, 8) };
    fs::write(&bench.file, lines()).or_failed("can't write what is to be printed")?;
    let mut providers = vec![provider, "local"];
    providers.dedup();
    let doors = [("TCP", &server.tcp), ("unix socket", &server.socket)];
    let mut streams = Vec::new();
    for (socket, door) in doors {
        let mut rows = vec![Measured::new(Kind::Cat, "`cat` into the socket".to_owned())];
        for provider in &providers {
            rows.push(Measured::new(Kind::Events, format!("**ours**, events of `cat` on `{provider}`, as it runs")));
        }
        rows.push(Measured::new(Kind::Other, format!("**ours**, the same events again, after its end, `{provider}`")));
        rows.push(Measured::new(Kind::Other, format!("**ours**, its output as bytes, after its end, `{provider}`")));
        for round in 1..=ROUNDS {
            eprintln!("streams, {socket}: round {round} of {ROUNDS}");
            let mut samples = vec![bench.cat(door)?];
            let (mut after, mut others) = (Vec::new(), Vec::new());
            for (number, provider) in providers.iter().enumerate() {
                let thread = format!("stream-{provider}-{round}-{}", socket.len());
                bench.make_ready(&thread, provider)?;
                let (taken, id) = bench.run(door, &thread)?;
                samples.push(taken);
                if number == 0 {
                    after.push(bench.again(door, &format!("GET /api/commands/{id}/events"))?);
                    others.push(bench.again(door, &format!("GET /api/commands/{id}/output/stdout"))?);
                }
                server.remove_thread(&thread)?;
            }
            samples.extend(after.into_iter().chain(others));
            rows.iter_mut().zip(samples).for_each(|(row, taken)| row.samples.push(taken));
        }
        let rows = rows.into_iter().map(Measured::row).collect();
        streams.push(Streams { socket, mebibytes: bench.mebibytes(), rows });
    }
    Ok(streams)
}

struct Measured {
    kind: Kind,
    name: String,
    samples: Vec<Duration>,
}

impl Measured {
    fn new(kind: Kind, name: String) -> Self {
        Self { kind, name, samples: Vec::new() }
    }

    fn row(self) -> Row {
        Row { kind: self.kind, name: self.name, taken: median(self.samples) }
    }
}

/// Lines as a build prints them, each with something to escape in JSON beside its end.
fn lines() -> Vec<u8> {
    let whole = (MEBIBYTES as usize) << 20;
    let mut text = Vec::with_capacity(whole + 200);
    let mut number = 0;
    while text.len() < whole {
        number += 1;
        let line = format!(
            "[{number:>7}] Compiling src/module_{}/part_{}.rs -> \"target/debug/deps/part-{:08x}.o\" in {} ms\n",
            number % 97,
            number % 1013,
            number * 2_654_435_761_u64 % 0x1_0000_0000,
            number % 251
        );
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(whole);
    text
}

struct Bench<'a> {
    server: &'a Server,
    scratch: &'a Path,
    file: PathBuf,
    times: u32,
}

impl Bench<'_> {
    fn mebibytes(&self) -> u32 {
        MEBIBYTES * self.times
    }

    fn bytes(&self) -> u64 {
        u64::from(self.mebibytes()) << 20
    }

    /// Straight into a socket of the kind that the door is.
    fn cat(&self, door: &Door) -> Result<Duration> {
        let (mut ours, theirs): (Box<dyn Read>, OwnedFd) = match door {
            Door::Tcp(_) => {
                let listener = TcpListener::bind("127.0.0.1:0").or_failed("can't listen")?;
                let address = listener.local_addr().or_failed("no address")?;
                let theirs = TcpStream::connect(address).or_failed("can't connect")?;
                (Box::new(listener.accept().or_failed("can't accept")?.0), theirs.into())
            }
            Door::Socket(_) => {
                let (ours, theirs) = UnixStream::pair().or_failed("can't make a socket")?;
                (Box::new(ours), theirs.into())
            }
        };
        self.settle()?;
        let begun = Instant::now();
        let mut cat = Command::new("cat");
        cat.args((0..self.times).map(|_| &self.file)).stdin(Stdio::null()).stdout(theirs);
        let mut child = cat.spawn().or_failed("can't start `cat`")?;
        // It has an end of the socket that would never close.
        drop(cat);
        let (mut buffer, mut total) = (vec![0; BUFFER], 0);
        loop {
            let read = ours.read(&mut buffer).or_failed("can't read from `cat`")?;
            if read == 0 {
                break;
            }
            total += read as u64;
        }
        let taken = begun.elapsed();
        child.wait().or_failed("can't wait for `cat`")?;
        self.whole(total)?;
        Ok(taken)
    }

    /// A thread with a warm shell, and the lines in its workspace.
    fn make_ready(&self, thread: &str, provider: &str) -> Result {
        self.server.make_thread(thread, provider)?;
        let mut client = self.server.client(&self.server.socket)?;
        let lines = fs::read(&self.file).or_failed("can't read the lines")?;
        let put = client.prepare(&format!("PUT /api/threads/{thread}/files?path=lines"), "", &lines);
        client.call(&put, &mut |_| {})?;
        client.send_json(&format!("POST /api/threads/{thread}/exec"), &json!({ "command": "cat lines >/dev/null" }))?;
        self.settle()
    }

    /// The events of a command as it runs; and its id.
    fn run(&self, door: &Door, thread: &str) -> Result<(Duration, String)> {
        let mut client = self.server.client(door)?;
        let command = format!("cat{}", " lines".repeat(self.times as usize));
        let id = format!("cmd-{thread}");
        let body = json!({ "command": command, "id": id }).to_string();
        let line = format!("POST /api/threads/{thread}/exec");
        let headers = "Content-Type: application/json\r\nAccept: text/event-stream\r\n";
        let request = client.prepare(&line, headers, body.as_bytes());
        let taken = self.drain(&mut client, &request)?;
        Ok((taken, id))
    }

    fn again(&self, door: &Door, line: &str) -> Result<Duration> {
        let mut client = self.server.client(door)?;
        let request = client.prepare(line, "", b"");
        self.drain(&mut client, &request)
    }

    /// Reads to the end, and looks only at how much it is and at how it ends.
    fn drain(&self, client: &mut Client, request: &[u8]) -> Result<Duration> {
        let (mut total, mut last) = (0, Vec::new());
        let begun = Instant::now();
        client.call(request, &mut |bytes| {
            total += bytes.len() as u64;
            if bytes.len() < MOST_OF_EXIT {
                last.extend_from_slice(bytes);
                let surplus = last.len().saturating_sub(MOST_OF_EXIT);
                last.drain(..surplus);
            } else {
                last.clear();
                last.extend_from_slice(bytes.get(bytes.len() - MOST_OF_EXIT..).unwrap_or_default());
            }
        })?;
        let taken = begun.elapsed();
        let last = String::from_utf8_lossy(&last);
        let told = format!("\"stdout_bytes\":{}", self.bytes());
        let ended = last.contains("event: exit") && last.contains(&told);
        if (ended && total > self.bytes()) || total == self.bytes() {
            return Ok(taken);
        }
        Err(Failed::new(format!("{total} bytes arrived, and at the end: {last}")))
    }

    fn whole(&self, bytes: u64) -> Result {
        let want = self.bytes();
        if bytes == want { Ok(()) } else { Err(Failed::new(format!("{bytes} bytes arrived instead of {want}"))) }
    }

    /// Lets the disk finish with what was written before, so that nobody pays for another's bytes; nor for memory that
    /// this machine, if it is a virtual one, has to have back from its host: as much as will be written is used once.
    fn settle(&self) -> Result {
        let directory = File::open(self.scratch).or_failed("can't open the directory")?;
        rustix::fs::syncfs(&directory).or_failed("can't sync the file system")?;
        let path = self.scratch.join("memory");
        let mut file = File::create(&path).or_failed("can't make a file")?;
        io::copy(&mut io::repeat(0).take(2 * self.bytes()), &mut file).or_failed("can't fill a file")?;
        fs::remove_file(&path).or_failed("can't remove a file")
    }
}

/// The last event is shorter than this.
const MOST_OF_EXIT: usize = 8 << 10;
