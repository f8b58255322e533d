//! The engine as others use it: by the program `docker`, and by its own interface on its socket.

use crate::bench::http::client::{Client, Door};
use crate::cargo;
use crate::failed::{Failed, Result, While};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take before we give up.
const PATIENCE: Duration = Duration::from_mins(1);

/// The longest head, or output of a trivial command, that is read.
const LONGEST: usize = 64 << 10;

pub(super) struct Engine {
    socket: PathBuf,
    /// Containers of somebody else, who had them before we came.
    others: usize,
}

impl Engine {
    pub(super) fn at(socket: &Path) -> Result<Self> {
        let mut engine = Self { socket: socket.to_owned(), others: 0 };
        engine.others = engine.count()?;
        Ok(engine)
    }

    /// A connection that stays open.
    pub(super) fn client(&self) -> Result<Client> {
        Client::connect(&Door::Socket(self.socket.clone()), None)
    }

    /// The program, to be told what to do.
    pub(super) fn docker(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket.display())).args(arguments);
        command
    }

    /// Of the program and of the engine.
    pub(super) fn versions(&self) -> Result<String> {
        let form = "`docker` {{.Client.Version}}, engine {{.Server.Version}}";
        Ok(cargo::output(&mut self.docker(&["version", "--format", form]))?.trim().to_owned())
    }

    /// Runs a command in a container: made, started, its output read to the end, and asked how it ended. As `docker exec`
    /// does it, over a connection that is open already.
    pub(super) fn exec(&self, client: &mut Client, container: &str, command: &[&str]) -> Result {
        let wish = json!({ "AttachStdout": true, "AttachStderr": true, "Cmd": command });
        let made = client.send_json(&format!("POST /containers/{container}/exec"), &wish)?;
        let id = text(&made, "Id")?;
        let mut output =
            Stream::open(&self.socket, &format!("POST /exec/{id}/start"), &json!({ "Detach": false, "Tty": false }))?;
        output.read_to_end()?;
        let until = Instant::now() + PATIENCE;
        loop {
            let now = get(client, &format!("/exec/{id}/json"))?;
            match (now.get("Running").and_then(Value::as_bool), now.get("ExitCode").and_then(Value::as_i64)) {
                (Some(false), Some(0)) => return Ok(()),
                (Some(true), _) if Instant::now() < until => {}
                _ => return Err(Failed::new(format!("the command ended as {now}"))),
            }
        }
    }

    /// Makes a container and starts it; back when it has said `word`, with its id.
    pub(super) fn run_until(&self, client: &mut Client, image: &str, word: &str) -> Result<String> {
        let wish = json!({
            "Image": image, "Cmd": ["echo", word], "AttachStdout": true, "HostConfig": { "NetworkMode": "none" },
        });
        let made = client.send_json("POST /containers/create", &wish)?;
        let id = text(&made, "Id")?.to_owned();
        let attach = format!("POST /containers/{id}/attach?stream=1&stdout=1");
        let mut output = Stream::open(&self.socket, &attach, &json!({}))?;
        client.send_json(&format!("POST /containers/{id}/start"), &json!({}))?;
        output.read_until(word.as_bytes())?;
        Ok(id)
    }

    pub(super) fn remove(&self, container: &str) -> Result {
        cargo::output(&mut self.docker(&["rm", "--force", container])).map(drop)
    }

    /// How many containers there are since we came, whatever they do.
    pub(super) fn count(&self) -> Result<usize> {
        let all = get(&mut self.client()?, "/containers/json?all=true")?;
        let all = all.as_array().or_failed("the engine's list of containers is none")?;
        Ok(all.len().saturating_sub(self.others))
    }

    /// Waits until what was ended is gone, so that the next who is timed doesn't wait for it.
    pub(super) fn settle(&self) -> Result {
        let until = Instant::now() + PATIENCE;
        while self.count()? > 0 {
            if Instant::now() > until {
                return Err(Failed::new("a container that was removed is still there"));
            }
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
        Ok(())
    }
}

fn get(client: &mut Client, path: &str) -> Result<Value> {
    let request = client.prepare(&format!("GET {path}"), "", b"");
    let mut answer = Vec::new();
    client.call(&request, &mut |bytes| answer.extend_from_slice(bytes))?;
    serde_json::from_slice(&answer).or_failed(format!("the answer to `GET {path}` is not JSON"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).or_failed(format!("the engine gave no `{key}`"))
}

/// A connection that the engine turns into the output of a process.
struct Stream {
    wire: UnixStream,
    seen: Vec<u8>,
}

impl Stream {
    /// Open when the engine has agreed.
    fn open(socket: &Path, line: &str, body: &Value) -> Result<Self> {
        let mut wire = UnixStream::connect(socket).or_failed("can't connect to the engine")?;
        wire.set_read_timeout(Some(PATIENCE)).or_failed("can't set up the connection")?;
        let body = body.to_string();
        let head = "HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json";
        let request = format!("{line} {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        wire.write_all(request.as_bytes()).or_failed("the engine is gone")?;
        let mut stream = Self { wire, seen: Vec::new() };
        stream.read_until(b"\r\n\r\n")?;
        if stream.seen.starts_with(b"HTTP/1.1 200") {
            return Ok(stream);
        }
        Err(Failed::new(format!("the engine said {}", String::from_utf8_lossy(&stream.seen))))
    }

    fn read_until(&mut self, mark: &[u8]) -> Result {
        while !self.seen.windows(mark.len()).any(|window| window == mark) {
            if self.read()? == 0 {
                let seen = String::from_utf8_lossy(&self.seen);
                return Err(Failed::new(format!("the engine hung up after {seen:?}")));
            }
        }
        Ok(())
    }

    fn read_to_end(&mut self) -> Result {
        while self.read()? > 0 {}
        Ok(())
    }

    fn read(&mut self) -> Result<usize> {
        let mut buffer = [0; 4096];
        let read = self.wire.read(&mut buffer).or_failed("can't read from the engine")?;
        self.seen.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if self.seen.len() > LONGEST {
            return Err(Failed::new("the engine says more than there is to say"));
        }
        Ok(read)
    }
}
