//! The carrier: on its standard input and output it tells a server that is somewhere else what the journals have and
//! which files there are, and puts files where the server says. A process of its own, so that the steward never waits for
//! a disk, and can be killed at any time: all that it knows is on that disk.

mod journal;
mod tree;

use crate::dir::Dir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use stead_model::carry::{Ask, Done, Known, Said};
use stead_model::frame::{self, Decoder, Frame, Kind};
use stead_model::proto::{Fault, FaultCode};

/// Runs until its input ends. `window`: how much may be said that nobody is known to have heard.
pub(crate) fn run(dir: &Dir, window: u64) -> io::Result<()> {
    let mut carrier = Carrier {
        input: Decoder::default(),
        asked: VecDeque::new(),
        out: Vec::new(),
        request: 0,
        over: false,
        window,
        unheard: 0,
    };
    let mut putting = tree::Putting::default();
    while let Some((request, ask)) = carrier.next_question()? {
        carrier.request = request;
        let done = match ask {
            Ask::Journal(known) => carrier.journal(dir, &known),
            Ask::List(roots) => tree::list(&roots, |entries| carrier.say(&Said::Entries(entries))).map(|()| Done::All),
            Ask::Get(paths) => tree::get(&paths, |content| carrier.say(&Said::Content(content))).map(|()| Done::All),
            Ask::Put(put) => putting.put(&put),
            Ask::Remove(path) => tree::remove(&path).map(|()| Done::All),
            Ask::More(_) => continue,
        };
        carrier.end(done)?;
    }
    Ok(())
}

struct Carrier {
    input: Decoder,
    /// Questions that came before it was their turn.
    asked: VecDeque<(u32, Ask)>,
    out: Vec<u8>,
    request: u32,
    over: bool,
    window: u64,
    unheard: u64,
}

impl Carrier {
    /// None: whoever asked has gone.
    fn next_question(&mut self) -> io::Result<Option<(u32, Ask)>> {
        loop {
            if let Some(question) = self.asked.pop_front() {
                return Ok(Some(question));
            }
            if !self.listen()? {
                return Ok(None);
            }
        }
    }

    /// Hears one thing; false when there will be none.
    fn listen(&mut self) -> io::Result<bool> {
        loop {
            match self.input.next_frame() {
                Ok(Some(frame)) => return self.hear(&frame).map(|()| true),
                Ok(None) if self.over => return Ok(false),
                Ok(None) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            let mut buffer = [0; 16 << 10];
            let read = rustix::io::read(rustix::stdio::stdin(), &mut buffer)?;
            self.over = read == 0;
            self.input.push(buffer.get(..read).unwrap_or_default());
        }
    }

    fn hear(&mut self, frame: &Frame) -> io::Result<()> {
        match (frame.kind, minicbor::decode::<Ask>(&frame.payload)) {
            (Kind::Request, Ok(Ask::More(bytes))) => self.unheard = self.unheard.saturating_sub(bytes),
            (Kind::Request, Ok(ask)) => self.asked.push_back((frame.request, ask)),
            _ => return Err(io::Error::other("that is no question")),
        }
        Ok(())
    }

    /// Waits as long as too much is unheard.
    fn say(&mut self, said: &Said) -> io::Result<()> {
        self.out.clear();
        frame::write(&mut self.out, Kind::Event, self.request, &minicbor::to_vec(said).unwrap_or_default());
        io::stdout().lock().write_all(&self.out)?;
        self.unheard += self.out.len() as u64;
        while self.unheard >= self.window {
            io::stdout().lock().flush()?;
            if !self.listen()? {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    }

    fn end(&mut self, done: io::Result<Done>) -> io::Result<()> {
        self.out.clear();
        match done {
            Ok(done) => {
                frame::write(&mut self.out, Kind::Reply, self.request, &minicbor::to_vec(&done).unwrap_or_default());
            }
            Err(error) => {
                let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                let code = if full { FaultCode::NoSpace } else { FaultCode::Unavailable };
                let fault = Fault::new(code, error.to_string());
                frame::write(&mut self.out, Kind::Fault, self.request, &minicbor::to_vec(&fault).unwrap_or_default());
            }
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&self.out)?;
        stdout.flush()
    }

    /// Tells what is new. If nothing is, waits for news, for another question, or for the time to be over.
    fn journal(&mut self, dir: &Dir, known: &Known) -> io::Result<Done> {
        let until = Instant::now() + Duration::from_millis(known.wait_ms.min(600_000));
        // Watched before it is read, so that nothing falls in between.
        let watch = (known.wait_ms > 0).then(|| watch(dir)).transpose()?;
        loop {
            let told = journal::tell(dir, &known.marks, |said| self.say(said))?;
            let left = until.saturating_duration_since(Instant::now());
            // What has come together with the last question shows no more in what is to be read.
            while let Some(frame) = self.input.next_frame().map_err(io::Error::other)? {
                self.hear(&frame)?;
            }
            let waits = !told && !left.is_zero() && self.asked.is_empty();
            let Some(watch) = watch.as_ref().filter(|_| waits) else { return Ok(Done::All) };
            if !wait(watch, left)? {
                return Ok(Done::All);
            }
        }
    }
}

/// Everything that is written to a journal shows in its directory, or in that of all journals.
fn watch(dir: &Dir) -> io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let news = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF;
    inotify::add_watch(&watch, dir.root().join("journal"), news)?;
    for key in dir.journals()? {
        // One that has gone since has no news.
        let _ = inotify::add_watch(&watch, dir.journal(key), news);
    }
    Ok(watch)
}

/// Whether there may be news; no: somebody asks something else, or the time is over.
fn wait(watch: &OwnedFd, left: Duration) -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(watch, PollFlags::IN), PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    let left =
        Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut fds, Some(&left)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    let [news, asked] = fds.map(|fd| !fd.revents().is_empty());
    if news && !asked {
        let mut buffer = [0; 4096];
        while rustix::io::read(watch, &mut buffer).is_ok_and(|read| read > 0) {}
    }
    Ok(news && !asked)
}
