//! The shell's terminal, as people see it: what is written to it, what is typed at it, how large it is.
//!
//! While a person's command has the terminal, what it writes is that command's output, moved to its file inside the kernel
//! like any other; the screen reads it from there. What is typed goes to the prompt as long as there is one, else to the
//! shell's terminal.

use super::note::unfinished_at;
use super::pair::NO_PAIR;
use super::prompt::Prompt;
use super::{Shell, io_fault};
use crate::attach::Attached;
use crate::host::{Host, What};
use crate::journal::JournalError;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::proto::{
    Attach, CancelReason, Detached, Event, Fault, FaultCode, FirstSignal, Reply, ShellEnd, Size, Stdin,
};
use stead_model::screen_log::Origin;
use stead_term::fifo::{self, Moved};
use stead_term::pty;

pub(crate) use super::display::Display;

/// What one turn of the loop takes from a terminal.
const SLICE: u64 = 64 << 10;

/// When a command has reported its end, all that it wrote is there, and no terminal holds more than this.
const PRESENT: u64 = 1 << 20;

/// What the emulator may take of one turn.
const TURN: Duration = Duration::from_millis(2);

/// How long a terminal that takes no more keys is left alone.
const AGAIN: Duration = Duration::from_millis(2);

/// A full disk.
const RETRY: Duration = Duration::from_millis(100);

/// How much may wait at a terminal that takes no more keys.
const MOST_WAITING: usize = 64;

const MOST_PEOPLE: usize = 32;
const MOST_EVENTS: usize = 256;

const INTERRUPT: u8 = 0x03;
/// Ctrl-C, Ctrl-\ and Ctrl-Z: the shell may be back at once, and without a report.
const SIGNALS: [u8; 3] = [INTERRUPT, 0x1c, 0x1a];

#[derive(Debug, Default)]
pub(crate) struct Tty {
    /// The smallest of those who look; if nobody does, of those who last did.
    pub(crate) size: Size,
    pub(crate) display: Option<Display>,
    pub(crate) people: Vec<Attached>,
    /// A timer for the next picture is set.
    pub(crate) drawing: bool,
    pub(super) prompt: Option<Prompt>,
    /// The person's command, from Enter to its end.
    pub(super) line: Option<u64>,
    keys: VecDeque<Keys>,
    /// A line was entered: who gets what was typed behind it is not yet known.
    pub(super) held: bool,
    /// In the middle of a paste, in which Enter is only a character.
    pasting: bool,
    /// Whoever typed last.
    pub(super) typist: Option<(u32, u32)>,
    /// Bytes on their way from the terminal to a command's file: reading end, writing end. A steward before us left only
    /// the first.
    basin: Option<(OwnedFd, Option<OwnedFd>)>,
    output: Option<(u64, File)>,
    stalled: bool,
}

#[derive(Debug)]
struct Keys {
    connection: u32,
    request: u32,
    bytes: Vec<u8>,
    passed: usize,
}

/// How far a terminal could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Empty,
    More,
    /// Nobody has it open any more.
    Gone,
    /// The disk is full.
    Stalled,
}

/// Who gets what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Shell,
    Prompt,
    Later,
}

impl Shell {
    /// Programs have written to the terminal.
    pub(crate) fn terminal_ready(&mut self, host: &mut Host) {
        if self.tty.display.as_ref().is_some_and(Display::is_full) || self.tty.stalled {
            host.feeding.insert(self.key);
            return;
        }
        match self.read_terminal(host, SLICE) {
            Read::Empty | Read::More => {}
            Read::Gone => {
                // The end of the process is told elsewhere.
                if let Some(live) = &self.live {
                    let _ = host.poller.remove(&live.terminal);
                }
            }
            Read::Stalled => {
                self.tty.stalled = true;
                if let Some(live) = &self.live {
                    let _ = host.poller.remove(&live.terminal);
                }
                host.after(RETRY, self.key, What::Retry);
            }
        }
    }

    /// The disk may have room again.
    pub(super) fn retry_terminal(&mut self, host: &mut Host) {
        if std::mem::take(&mut self.tty.stalled)
            && let Some(live) = &self.live
        {
            let token = crate::host::Source::Terminal(self.key).token();
            let _ = host.poller.add(&live.terminal, token, stead_term::poll::Interest::Read);
        }
    }

    /// Takes all that is there at this moment. `false`: the disk is full.
    pub(super) fn empty_terminal(&mut self, host: &mut Host) -> bool {
        self.read_terminal(host, PRESENT) != Read::Stalled
    }

    fn read_terminal(&mut self, host: &mut Host, most: u64) -> Read {
        let number = self.running.as_ref().filter(|running| running.pair == NO_PAIR).map(|running| running.number);
        let mut taken = 0;
        while taken < most {
            let read = match number {
                Some(number) => self.move_output(host, number),
                None => self.read_noise(host),
            };
            match read {
                Ok(Moved::Bytes(bytes)) => taken += bytes,
                Ok(Moved::Empty) => return Read::Empty,
                Ok(Moved::Closed) => return Read::Gone,
                Ok(Moved::NoSpace) | Err(JournalError::NoSpace) => return Read::Stalled,
                Err(error) => {
                    note!("steward: shell {}: terminal: {error}", self.open.shell);
                    return Read::Gone;
                }
            }
        }
        Read::More
    }

    /// What is written to the terminal while no command has it: by background jobs, by the shell itself, by a program of
    /// an agent that asks for a password.
    fn read_noise(&mut self, host: &mut Host) -> Result<Moved, JournalError> {
        let Some(live) = &self.live else { return Ok(Moved::Closed) };
        let mut buffer = [0_u8; 4096];
        match rustix::io::read(&live.terminal, &mut buffer) {
            Ok(0) | Err(Errno::IO) => Ok(Moved::Closed),
            Ok(read) => {
                let bytes = buffer.get(..read).unwrap_or_default();
                if !live.ready {
                    // Its first prompt, before it was told to have none.
                    return Ok(Moved::Bytes(read as u64));
                }
                self.show(host, Origin::Shell, None, bytes);
                if bytes.ends_with(b"\n") {
                    // It stands where the prompt stood.
                    self.redraw_soon(host);
                }
                Ok(Moved::Bytes(read as u64))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Moved::Empty),
            Err(error) => Err(JournalError::io(&self.run, error.into())),
        }
    }

    /// Moves output of the person's command to its file, notes it, and shows it.
    fn move_output(&mut self, host: &mut Host, number: u64) -> Result<Moved, JournalError> {
        self.note_unnoted(host)?;
        if self.unnoted {
            return Ok(Moved::NoSpace);
        }
        let failed = |source: io::Error| JournalError::Io { path: self.run.clone(), source };
        let filled = match &self.tty.basin {
            Some((out, _)) => fifo::pending(out).map_err(failed)?,
            None => 0,
        };
        if filled == 0 {
            match self.fill_basin(host).map_err(|source| JournalError::Io { path: self.run.clone(), source })? {
                Moved::Bytes(_) => {}
                end @ (Moved::Empty | Moved::Closed | Moved::NoSpace) => return Ok(end),
            }
        }
        if self.tty.output.as_ref().is_none_or(|(of, _)| *of != number) {
            self.tty.output = Some((number, self.journal.open_stream(number, Stream::Stdout)?.0));
        }
        let (Some((out, _)), Some((_, file))) = (&self.tty.basin, &self.tty.output) else { return Ok(Moved::Empty) };
        let Some(entry) = self.commands.get_mut(&number) else { return Ok(Moved::Empty) };
        let (offset, held) = (entry.bytes[0], entry.held[0]);
        let failed = |source: io::Error| JournalError::Io { path: self.run.clone(), source };
        let bytes = match fifo::splice(out, file, offset + held, SLICE).map_err(failed)? {
            Moved::Bytes(bytes) => bytes,
            end @ (Moved::Empty | Moved::Closed | Moved::NoSpace) => return Ok(end),
        };
        entry.held[0] = unfinished_at(file, offset, held + bytes);
        let whole = held + bytes - entry.held[0];
        entry.bytes[0] += whole;
        self.stream_bytes += whole;
        if let Err(error) = self.note_chunk(host, number, Stream::Stdout, offset, whole) {
            self.take_back(number, 0, whole);
            return Err(error);
        }
        self.show_noted(host, number, offset, whole);
        Ok(Moved::Bytes(bytes))
    }

    /// Shows what has been noted of the output of a person's command.
    pub(super) fn show_noted(&mut self, host: &mut Host, number: u64, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let mut copy = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = match &self.tty.output {
            Some((of, file)) if *of == number => file.read_exact_at(&mut copy, offset),
            _ => File::open(self.journal.stream_path(number, Stream::Stdout))
                .and_then(|file| file.read_exact_at(&mut copy, offset)),
        };
        match read {
            Ok(()) => self.show(host, Origin::Shell, Some(number), &copy),
            Err(error) => note!("steward: shell {}: terminal: {error}", self.open.shell),
        }
    }

    /// Moves bytes from the terminal to a pipe that the keeper has, too.
    fn fill_basin(&mut self, host: &Host) -> io::Result<Moved> {
        let Some(live) = &self.live else { return Ok(Moved::Closed) };
        if self.tty.basin.as_ref().is_none_or(|(_, into)| into.is_none()) {
            let (out, into) = fifo::basin(usize::try_from(SLICE).unwrap_or(0))?;
            host.link.park(&self.parked("tb"), &out)?;
            self.tty.basin = Some((out, Some(into)));
        }
        let Some((_, Some(into))) = &self.tty.basin else { return Ok(Moved::Empty) };
        match fifo::pour(&live.terminal, into, SLICE / 2) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => Ok(Moved::Closed),
            // A kernel that can't do this with a terminal.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                let mut buffer = [0_u8; 4096];
                match rustix::io::read(&live.terminal, &mut buffer) {
                    Ok(0) | Err(Errno::IO) => Ok(Moved::Closed),
                    Ok(read) => {
                        rustix::io::write(into, buffer.get(..read).unwrap_or_default())?;
                        Ok(Moved::Bytes(read as u64))
                    }
                    Err(Errno::AGAIN | Errno::INTR) => Ok(Moved::Empty),
                    Err(error) => Err(error.into()),
                }
            }
            moved => moved,
        }
    }

    /// Puts bytes on the screen.
    pub(super) fn show(&mut self, host: &mut Host, origin: Origin, number: Option<u64>, bytes: &[u8]) {
        self.display(host).write(origin, number, bytes);
        host.feeding.insert(self.key);
        host.news.insert(self.key);
    }

    /// A word of ours, on a line of its own.
    pub(super) fn say_on_screen(&mut self, host: &mut Host, text: &str) {
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        self.show(host, Origin::Steward, None, format!("\x1b[0;2m[stead: {clean}]\x1b[m\r\n").as_bytes());
    }

    /// The screen; one that a steward before us had comes back as it was.
    pub(super) fn display(&mut self, host: &mut Host) -> &mut Display {
        if self.tty.display.is_none() {
            let (display, owed) = Display::open(host.dir.journal(self.key).join("screen"), self.tty.size);
            self.tty.size = display.size();
            self.tty.display = Some(display);
            self.answer(owed);
            self.show_what_is_missing(host);
        }
        let size = self.tty.size;
        self.tty.display.get_or_insert_with(|| Display::open(host.dir.journal(self.key).join("screen"), size).0)
    }

    /// Output that a steward before us noted and did not live to show.
    fn show_what_is_missing(&mut self, host: &mut Host) {
        let Some(number) = self.running.as_ref().filter(|running| running.pair == NO_PAIR).map(|r| r.number) else {
            return;
        };
        let Some(display) = &self.tty.display else { return };
        let shown = if display.counted.number == number { display.counted.bytes } else { 0 };
        let noted = self.commands.get(&number).map_or(0, |entry| entry.bytes[0]);
        let mut missing = vec![0; usize::try_from(noted.saturating_sub(shown)).unwrap_or(0)];
        let read = File::open(self.journal.stream_path(number, Stream::Stdout))
            .and_then(|file| file.read_exact_at(&mut missing, shown));
        if read.is_ok() && !missing.is_empty() {
            self.show(host, Origin::Shell, Some(number), &missing);
        }
    }

    /// A prompt begins a line, whatever the last program left.
    pub(super) fn begin_line(&mut self, host: &mut Host) {
        self.feed_screen(host);
        if self.tty.display.as_ref().is_some_and(|display| !display.is_at_line_start()) {
            self.show(host, Origin::Steward, None, b"\r\n");
        }
    }

    /// What was typed while the person's command ran, and it did not read, is for the prompt.
    pub(super) fn take_typed_ahead(&mut self) {
        let Some(live) = &self.live else { return };
        let bytes = pty::take_input(&live.terminal).unwrap_or_default();
        if !bytes.is_empty() {
            // Nobody waits for an answer: whoever typed it has one.
            self.tty.keys.push_front(Keys { connection: 0, request: 0, bytes, passed: 0 });
        }
    }

    /// The emulator works on; what it has to say to programs is said.
    pub(crate) fn feed_screen(&mut self, host: &mut Host) {
        let Some(display) = &mut self.tty.display else { return };
        let answers = display.feed(Instant::now() + TURN);
        if !answers.is_empty() {
            self.answer(answers);
        }
        if self.tty.display.as_ref().is_some_and(Display::is_behind) {
            host.feeding.insert(self.key);
        }
        if !self.tty.people.is_empty() {
            host.news.insert(self.key);
        }
    }

    fn answer(&mut self, answers: Vec<(Origin, Vec<u8>)>) {
        if answers.is_empty() {
            return;
        }
        for (origin, answer) in answers {
            let terminal = match origin {
                Origin::Shell => self.live.as_ref().map(|live| live.terminal.as_fd()),
                Origin::Prompt => self.tty.prompt.as_ref().map(|prompt| prompt.terminal.as_fd()),
                Origin::Steward => None,
            };
            // One that takes nothing has been asked more than it can hear.
            if let Some(terminal) = terminal {
                let _ = rustix::io::write(terminal, &answer);
            }
        }
        if let Some(display) = &mut self.tty.display {
            display.answered();
        }
    }

    /// Somebody wants to see the terminal.
    pub(crate) fn attach(&mut self, host: &mut Host, from: (u32, u32), attach: &Attach) -> Result<(), Fault> {
        if self.tty.people.len() >= MOST_PEOPLE {
            return Err(Fault::new(FaultCode::LimitReached, format!("{MOST_PEOPLE} people look at it already")));
        }
        self.display(host);
        self.tty.people.push(Attached::new(from, attach));
        self.fit(host);
        self.update_prompt(host);
        host.feeding.insert(self.key);
        host.news.insert(self.key);
        Ok(())
    }

    pub(crate) fn resize(&mut self, host: &mut Host, from: u32, attachment: u32, size: Size) -> Result<(), Fault> {
        let mut people = self.tty.people.iter_mut();
        let person = people.find(|person| (person.connection, person.request) == (from, attachment));
        let person = person.ok_or_else(not_attached)?;
        person.size = size.clamped();
        person.begin_anew();
        self.fit(host);
        host.news.insert(self.key);
        Ok(())
    }

    /// One attachment ends.
    pub(crate) fn detach(&mut self, host: &mut Host, from: u32, attachment: u32) -> Result<(), Fault> {
        let mut people = self.tty.people.iter_mut();
        let person = people.find(|person| (person.connection, person.request) == (from, attachment));
        person.ok_or_else(not_attached)?.over = Some(Detached::Asked);
        self.fit(host);
        host.news.insert(self.key);
        Ok(())
    }

    /// A connection is gone, with whoever looked through it.
    pub(crate) fn hung_up(&mut self, host: &mut Host, connection: u32) {
        let before = self.tty.people.len();
        self.tty.people.retain(|person| person.connection != connection);
        if self.tty.people.len() != before {
            self.fit(host);
        }
    }

    /// All attachments end: nothing is behind the screen any more.
    pub(crate) fn close_terminal(&mut self, host: &mut Host) {
        for person in &mut self.tty.people {
            person.over = Some(Detached::Closed);
        }
        host.news.insert(self.key);
        self.end_prompt(host);
        if self.tty.basin.take().is_some() {
            host.link.unpark(&self.parked("tb"));
        }
    }

    /// The terminal takes the size of the smallest window.
    fn fit(&mut self, host: &mut Host) {
        let sizes = self.tty.people.iter().filter(|person| person.over.is_none()).map(|person| person.size);
        let Some(size) = sizes.reduce(Size::smallest).filter(|size| *size != self.tty.size) else { return };
        self.tty.size = size;
        if let Some(live) = &self.live {
            let _ = pty::resize(&live.terminal, size);
        }
        if let Some(prompt) = &self.tty.prompt {
            let _ = pty::resize(&prompt.terminal, size);
        }
        self.display(host).resize(size);
        for person in &mut self.tty.people {
            person.begin_anew();
            person.events.push(Event::Resized(size));
        }
        host.feeding.insert(self.key);
    }

    /// Those who look are told that the process has ended.
    pub(super) fn tell_of_death(&mut self, host: &mut Host, status: Option<std::process::ExitStatus>) {
        use std::os::unix::process::ExitStatusExt;
        let end = ShellEnd {
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
        };
        self.tell_people(host, &Event::ShellEnded(end));
    }

    pub(super) fn tell_people(&mut self, host: &mut Host, event: &Event) {
        for person in &mut self.tty.people {
            // One who takes nothing needn't hear it all.
            if person.events.len() < MOST_EVENTS {
                person.events.push(event.clone());
            }
        }
        host.news.insert(self.key);
    }

    /// Keys. `Ok`: answered later, through the outbox.
    pub(crate) fn press(
        &mut self,
        host: &mut Host,
        from: (u32, u32),
        attachment: u32,
        bytes: Vec<u8>,
    ) -> Result<(), Fault> {
        let mut people = self.tty.people.iter();
        if !people.any(|person| (person.connection, person.request) == (from.0, attachment)) {
            return Err(not_attached());
        }
        if self.tty.keys.len() >= MOST_WAITING {
            return Err(Fault::new(FaultCode::LimitReached, "the terminal does not take what is typed"));
        }
        self.tty.typist = Some((from.0, attachment));
        self.tty.keys.push_back(Keys { connection: from.0, request: from.1, bytes, passed: 0 });
        self.pass_keys(host);
        Ok(())
    }

    /// Gives what was typed to whoever is to have it.
    pub(crate) fn pass_keys(&mut self, host: &mut Host) {
        loop {
            let target = self.target();
            let Some(keys) = self.tty.keys.front() else { return };
            if target == Target::Later {
                return;
            }
            if target == Target::Prompt && !self.prompt_listens() {
                host.after(AGAIN, self.key, What::Keys);
                return;
            }
            let rest = keys.bytes.get(keys.passed..).unwrap_or_default();
            if rest.is_empty() {
                if let Some(keys) = self.tty.keys.pop_front() {
                    self.outbox.push((keys.connection, keys.request, Ok(Reply::Done)));
                    host.news.insert(self.key);
                }
                continue;
            }
            if target == Target::Shell && self.withdraw(host, rest.contains(&INTERRUPT)) {
                if let Some(keys) = self.tty.keys.front_mut() {
                    keys.passed = keys.bytes.len();
                }
                continue;
            }
            if !self.pass_one(host, target) {
                return;
            }
        }
    }

    fn target(&self) -> Target {
        let runs = self.running.as_ref().is_some_and(|running| running.pair == NO_PAIR);
        if runs || self.tty.line.is_some() {
            Target::Shell
        } else if self.tty.prompt.is_some() && !self.tty.held {
            Target::Prompt
        } else {
            Target::Later
        }
    }

    /// Ctrl-C takes back a line that still waits behind another command.
    fn withdraw(&mut self, host: &mut Host, interrupt: bool) -> bool {
        let Some(number) = self.tty.line.filter(|number| interrupt && self.queue.contains(number)) else {
            return false;
        };
        if let Err(error) = self.cancel(host, number, CancelReason::Asked(FirstSignal::Interrupt)) {
            note!("steward: shell {}: {error}", self.open.shell);
            return true;
        }
        self.show(host, Origin::Steward, None, b"^C\r\n");
        true
    }

    /// Passes on as much of the first keys as may go to one target. `false`: not now.
    fn pass_one(&mut self, host: &mut Host, target: Target) -> bool {
        let Some(keys) = self.tty.keys.front_mut() else { return false };
        let rest = keys.bytes.get(keys.passed..).unwrap_or_default();
        let (part, entered) = match target {
            Target::Prompt => up_to_enter(rest, &mut self.tty.pasting),
            Target::Shell | Target::Later => (rest, false),
        };
        let terminal = match target {
            Target::Prompt => self.tty.prompt.as_ref().map(|prompt| &prompt.terminal),
            Target::Shell | Target::Later => self.live.as_ref().map(|live| &live.terminal),
        };
        let Some(terminal) = terminal else { return false };
        match rustix::io::write(terminal, part) {
            Ok(written) => {
                let whole = written == part.len();
                let signal = part.iter().take(written).any(|byte| SIGNALS.contains(byte));
                keys.passed += written;
                self.tty.held |= whole && entered;
                if signal && target == Target::Shell {
                    self.nudge();
                }
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                host.after(AGAIN, self.key, What::Keys);
                false
            }
            Err(error) => {
                let fault = io_fault("the terminal can't be typed at", &error.into());
                if let Some(keys) = self.tty.keys.pop_front() {
                    self.outbox.push((keys.connection, keys.request, Err(fault)));
                    host.news.insert(self.key);
                }
                true
            }
        }
    }

    /// An interrupt may bring the shell back to its top without a report: ask it to say so when it is.
    fn nudge(&mut self) {
        self.next_query += 1;
        let query = self.next_query;
        let Some(running) = self.running.as_mut().filter(|r| r.pair == NO_PAIR && r.watch.query.is_none()) else {
            return;
        };
        running.watch.query = Some(query);
        self.say(&|lines| lines.query(query));
    }

    /// Whether the shell has the terminal as its input: a person's command has begun, and not ended.
    pub(super) fn has_terminal(&self) -> bool {
        let Some(live) = &self.live else { return false };
        let input = fs::metadata(format!("/proc/{}/fd/0", live.pid));
        let control = live.control.metadata();
        let (Ok(input), Ok(control)) = (input, control) else { return false };
        (input.dev(), input.ino()) != (control.dev(), control.ino())
    }

    /// What the keeper should have of the terminal, besides the shell's own.
    pub(super) fn terminal_descriptors<'a>(&'a self, things: &mut Vec<(String, std::os::fd::BorrowedFd<'a>)>) {
        if let Some((out, _)) = &self.tty.basin {
            things.push((self.parked("tb"), out.as_fd()));
        }
        if let Some(prompt) = &self.tty.prompt {
            things.push((self.parked("ppty"), prompt.terminal.as_fd()));
            things.push((self.parked("pctl"), prompt.control.as_fd()));
            things.push((self.parked("plin"), prompt.lines.as_fd()));
        }
    }

    /// Takes over what a steward before us had of the terminal.
    pub(super) fn adopt_terminal(&mut self, host: &mut Host, parked: &mut crate::link::Store) {
        self.tty.basin = parked.remove("tb").map(|out| (out, None));
        if let Some(live) = &self.live
            && let Ok(size) = pty::size(&live.terminal)
        {
            self.tty.size = size;
        }
        self.tty.line = self
            .commands
            .iter()
            .rev()
            .filter(|(_, entry)| entry.ended.is_none())
            .find(|(_, entry)| entry.exec.as_ref().is_some_and(|exec| exec.stdin == Stdin::Terminal))
            .map(|(number, _)| *number);
        if self.running.is_some() {
            // Its questions may have no answers yet.
            self.display(host);
            host.feeding.insert(self.key);
        }
        self.adopt_prompt(host, parked);
    }
}

fn not_attached() -> Fault {
    Fault::new(FaultCode::NotFound, "this connection has no such attachment")
}

/// As much as belongs to one line, and whether it ends with Enter. In a paste that the terminal marks as one, Enter is
/// only a character.
fn up_to_enter<'a>(bytes: &'a [u8], pasting: &mut bool) -> (&'a [u8], bool) {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(b"\x1b[200~") {
            *pasting = true;
        } else if rest.starts_with(b"\x1b[201~") {
            *pasting = false;
        } else if !*pasting && matches!(rest.first(), Some(b'\r' | b'\n')) {
            return (bytes.get(..=at).unwrap_or(bytes), true);
        }
        at += 1;
    }
    (bytes, false)
}

#[cfg(test)]
mod tests {
    use super::up_to_enter;

    #[test]
    fn keys_are_cut_after_enter_but_not_within_a_paste() {
        let mut pasting = false;
        assert_eq!(up_to_enter(b"cat\rhello\r", &mut pasting), (&b"cat\r"[..], true));
        assert_eq!(up_to_enter(b"half", &mut pasting), (&b"half"[..], false));
        let paste = b"\x1b[200~one\rtwo\r\x1b[201~\rrest";
        assert_eq!(up_to_enter(paste, &mut pasting), (&paste[..paste.len() - 4], true));
        assert!(!up_to_enter(b"\x1b[200~one\r", &mut pasting).1);
        assert!(pasting);
    }
}
