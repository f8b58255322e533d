//! The process that holds a program. One thread, one loop over everything that can happen; nothing in it waits for the
//! program or a visitor, but for a few seconds for one that must hear its answer.

use super::goods::{Input, OutOfPlace, Output};
use super::visit::{Heard, Request, Visit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use stead_model::ferry::{Accepted, Reader, Taken};
use stead_term::poll::{readable, timespec};

/// Two callers, each with a few calls that it has given up on. More are turned away.
const MOST_VISITS: usize = 32;

/// How long a program may take to end when its input has.
const FAREWELL: Duration = Duration::from_secs(2);

/// Starts the program, says so, and carries until it is told to close or nobody has asked for `idle`.
pub(super) fn run(dir: &Path, listener: OwnedFd, ready: OwnedFd, words: &[OsString], idle: Duration) -> io::Result<()> {
    let mut ready = fs::File::from(ready);
    let started = Hold::start(UnixListener::from(listener), words, idle);
    let said = match &started {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.to_string(),
    };
    ready.write_all(said.as_bytes())?;
    drop(ready);
    let carried = started.and_then(|mut hold| {
        let carried = hold.carry();
        hold.part();
        carried
    });
    // Its socket, lock and log, and nothing else: it was made for this.
    for name in ["sock", "lock", "log"] {
        let _ = fs::remove_file(dir.join(name));
    }
    let _ = fs::remove_dir(dir);
    carried
}

struct Hold {
    listener: UnixListener,
    visits: Vec<Visit>,
    program: Child,
    /// Of the program and what it has started, as far as that has not left.
    group: Pid,
    /// Readable when the program has ended.
    end: OwnedFd,
    has_ended: bool,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    output: Output,
    input: Input,
    idle: Duration,
    last_asked: Instant,
    is_closing: bool,
}

impl Hold {
    fn start(listener: UnixListener, words: &[OsString], idle: Duration) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
        // What it complains about goes to our log.
        let mut program = Command::new(program);
        program.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.process_group(0).spawn()?;
        let (stdin, stdout) = (program.stdin.take(), program.stdout.take());
        for end in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
            let flags = rustix::fs::fcntl_getfl(end)?;
            rustix::fs::fcntl_setfl(end, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        let group = i32::try_from(program.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("a program without a number"))?;
        let end = rustix::process::pidfd_open(group, PidfdFlags::empty())?;
        let (output, input) = (Output::default(), Input::default());
        let (has_ended, is_closing, last_asked) = (false, false, Instant::now());
        let visits = Vec::new();
        Ok(Self {
            listener,
            visits,
            program,
            group,
            end,
            has_ended,
            stdin,
            stdout,
            output,
            input,
            idle,
            last_asked,
            is_closing,
        })
    }

    fn carry(&mut self) -> io::Result<()> {
        while !self.is_closing {
            let asked_until = self.visits.iter().filter(|visit| visit.request.is_some()).map(|visit| visit.deadline);
            let idle_until = asked_until.fold(self.last_asked, Instant::max) + self.idle;
            let now = Instant::now();
            if idle_until <= now {
                note!("ferry: nobody has asked for {} s", self.idle.as_secs());
                break;
            }
            let until = self.visits.iter().map(|visit| visit.deadline).fold(idle_until, Instant::min);
            self.wait(until.saturating_duration_since(now))?;
            if !self.has_ended && self.program.try_wait()?.is_some() {
                self.has_ended = true;
            }
            self.load();
            self.unload();
            self.receive();
            self.serve();
        }
        Ok(())
    }

    /// Until something can be done.
    fn wait(&self, time: Duration) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        if !self.has_ended {
            fds.push(PollFd::new(&self.end, PollFlags::IN));
        }
        if let Some(stdout) = self.stdout.as_ref().filter(|_| self.output.room() > 0) {
            fds.push(PollFd::new(stdout, PollFlags::IN));
        }
        if let Some(stdin) = &self.stdin {
            // Without input it is still heard when the program closes its end.
            let flags = if self.input.next().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(stdin, flags));
        }
        for visit in &self.visits {
            // One that has asked can only go away; its own end of writing is no news.
            let flags = if visit.request.is_none() { PollFlags::IN } else { PollFlags::empty() };
            fds.push(PollFd::new(&visit.stream, flags));
        }
        match poll(&mut fds, Some(&timespec(time))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what the program has written, as far as there is room.
    fn load(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        while let Some(stdout) = self.stdout.as_mut().filter(|_| self.output.room() > 0) {
            let room = self.output.room().min(buffer.len());
            match stdout.read(buffer.get_mut(..room).unwrap_or_default()) {
                Ok(count) if count > 0 => self.output.extend(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Somebody else may have its output open still; the program itself has said all.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.has_ended => break,
                Ok(_) | Err(_) => {
                    self.stdout = None;
                    self.output.ended = true;
                }
            }
        }
    }

    /// Gives the program what was put for it.
    fn unload(&mut self) {
        while let Some(stdin) = &mut self.stdin {
            if self.input.next().is_empty() {
                if self.input.ended {
                    self.stdin = None;
                } else if reader_is_gone(stdin) {
                    self.stdin = None;
                    self.input.forget();
                }
                return;
            }
            match stdin.write(self.input.next()) {
                Ok(count) => self.input.sent(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.stdin = None;
                    self.input.forget();
                }
            }
        }
    }

    /// New visitors, and what the others say.
    fn receive(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.visits.len() < MOST_VISITS {
                self.visits.extend(Visit::new(stream));
            }
        }
        let mut has_asked = false;
        self.visits.retain(|visit| !has_hung_up(&visit.stream));
        self.visits.retain_mut(|visit| match visit.hear() {
            Heard::Nothing => true,
            Heard::Request => {
                has_asked = true;
                true
            }
            Heard::Lost => false,
        });
        if has_asked {
            self.last_asked = Instant::now();
        }
    }

    /// Answers whom there is an answer for.
    fn serve(&mut self) {
        for visit in std::mem::take(&mut self.visits) {
            let is_late = visit.deadline <= Instant::now();
            let answer = match &visit.request {
                // It connected and said nothing.
                None if is_late => continue,
                None => None,
                Some(request) => self.answer(request, is_late),
            };
            match answer {
                Some(text) => {
                    visit.answer(&text);
                    self.last_asked = Instant::now();
                }
                None => self.visits.push(visit),
            }
        }
    }

    /// What to say to a request; nothing while it is worth waiting.
    fn answer(&mut self, request: &Request, is_late: bool) -> Option<String> {
        match request {
            Request::Hello => Some("hello\n".to_owned()),
            Request::Close => {
                self.is_closing = true;
                Some("closed\n".to_owned())
            }
            Request::Take { from, most } => match self.output.take(*from, *most) {
                Ok((bytes, ended)) if ended || is_late || !bytes.is_empty() => {
                    Some(Taken { from: *from, bytes, ended }.to_text())
                }
                Ok(_) => None,
                Err(OutOfPlace) => Some(format!("refused output at {from} isn't here\n")),
            },
            Request::Put { at, bytes, end } => {
                if let Err(OutOfPlace) = self.input.put(*at, bytes) {
                    return Some(format!("refused input up to {at} never came\n"));
                }
                let offset = self.input.accepted();
                let has_all = offset >= at.saturating_add(bytes.len() as u64);
                self.input.ended |= *end && has_all;
                self.unload();
                let reader = if self.stdin.is_some() || self.input.ended { Reader::Open } else { Reader::Closed };
                let is_answer = has_all || is_late || reader == Reader::Closed || offset > *at;
                is_answer.then(|| Accepted { offset, reader }.to_text())
            }
        }
    }

    /// Lets go of the program: its input ends and its output leads nowhere. One that doesn't end by that is killed, with
    /// all of its group.
    fn part(&mut self) {
        (self.stdin, self.stdout) = (None, None);
        self.visits.clear();
        if !self.has_ended && readable(&self.end, FAREWELL).is_ok() && !matches!(self.program.try_wait(), Ok(Some(_))) {
            let _ = rustix::process::kill_process_group(self.group, rustix::process::Signal::KILL);
            let _ = self.program.wait();
        }
    }
}

/// Whether nobody can ever read what is written there.
fn reader_is_gone(stdin: &ChildStdin) -> bool {
    has_happened(stdin, PollFlags::ERR)
}

/// Whether the other side is gone altogether; one that only says no more waits for an answer.
fn has_hung_up(stream: &UnixStream) -> bool {
    has_happened(stream, PollFlags::HUP | PollFlags::ERR)
}

fn has_happened(fd: impl AsFd, what: PollFlags) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok() && fds[0].revents().intersects(what)
}
