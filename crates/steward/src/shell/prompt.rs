//! The process of the prompt: see [`stead_model::prompt`] for what is said. It is started when the first person looks, stays
//! as long as the shell is there, and outlives us as the shell does.
//!
//! ```text
//! waiting ── asked ──► asked ── reading ──► reading ── line, end of file ──► waiting
//! ```

use super::pair::NO_PAIR;
use super::spawn::write_private;
use super::{Shell, io_fault};
use crate::host::{Host, Source, What};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::PathBuf;
use std::time::Duration;
use stead_model::ids::CommandId;
use stead_model::prompt::{self, Messages, Said};
use stead_model::proto::{Detached, Entered, Event, Exec, Fault, FaultCode, Stdin};
use stead_model::screen_log::Origin;
use stead_model::shell::Dialect;
use stead_model::state::Bytes;
use stead_term::fifo::{self, Moved};
use stead_term::poll::Interest;
use stead_term::{proc, pty, spawn};

/// How soon a prompt shows itself anew after something was written over it.
const SOON: Duration = Duration::from_millis(50);

/// Until it listens to keys.
const AGAIN: Duration = Duration::from_millis(5);

/// One turn's share of what a prompt shows.
const SLICE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Prompt {
    pid: i32,
    /// Names its lines, with their numbers.
    nonce: u64,
    pub(super) terminal: OwnedFd,
    pub(super) control: File,
    pub(super) lines: OwnedFd,
    log: File,
    length: u64,
    messages: Messages,
    /// The last line, or end of file, that it gave us.
    taken: u64,
    phase: Phase,
    /// The directory and the stored state that it shows.
    shows: (Bytes, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Asked,
    Reading,
}

impl Shell {
    fn prompt_dir(&self) -> PathBuf {
        self.run.join("p")
    }

    /// Sees to it that there is a prompt when there should be one, and that it shows what is.
    pub(crate) fn update_prompt(&mut self, host: &mut Host) {
        if self.screen_is_taken() {
            return;
        }
        if self.tty.prompt.is_none() {
            if self.tty.people.is_empty() {
                return;
            }
            if let Err(error) = self.start_prompt(host) {
                let fault = io_fault("there can be no prompt", &error);
                self.say_on_screen(host, &fault.message);
                return;
            }
        }
        let now = (self.mark.cwd.clone(), self.mark.stored);
        let Some(prompt) = &mut self.tty.prompt else { return };
        match prompt.phase {
            Phase::Asked => {}
            Phase::Reading if prompt.shows == now => {}
            Phase::Reading => self.redraw_prompt(host),
            Phase::Waiting => {
                prompt.phase = Phase::Asked;
                self.begin_line(host);
                self.ask_prompt();
                self.pass_keys(host);
            }
        }
    }

    /// A command draws on the screen, whoever asked for it: there is no place for a prompt until it has ended.
    fn screen_is_taken(&self) -> bool {
        self.tty.line.is_some() || self.running.as_ref().is_some_and(|running| running.pair == NO_PAIR)
    }

    fn ask_prompt(&mut self) {
        self.write_setting();
        let Some(prompt) = &mut self.tty.prompt else { return };
        let line = format!("{}\n", prompt.taken + 1);
        if let Err(error) = prompt.control.write_all(line.as_bytes()) {
            note!("steward: shell {}: prompt: {error}", self.open.shell);
        }
    }

    /// What the prompt reads before it shows itself.
    fn write_setting(&mut self) {
        let dir = self.prompt_dir();
        let written = crate::dir::write_atomically(&dir.join("at"), &self.mark.cwd).and_then(|()| {
            if self.dialect == Dialect::Posix {
                return Ok(());
            }
            crate::dir::write_atomically(&dir.join("ps"), &prompt::setting(&self.state, &self.open.env))
        });
        if let Err(error) = written {
            note!("steward: shell {}: prompt: {error}", self.open.shell);
        }
        if let Some(prompt) = &mut self.tty.prompt {
            prompt.shows = (self.mark.cwd.clone(), self.mark.stored);
        }
    }

    /// Something was written over the prompt.
    pub(super) fn redraw_soon(&mut self, host: &mut Host) {
        if self.tty.prompt.as_ref().is_some_and(|prompt| prompt.phase == Phase::Reading) {
            host.after(SOON, self.key, What::Redraw);
        }
    }

    /// Whether lines are edited at the prompt at this moment; where they are not, keys would be shown twice.
    pub(super) fn prompt_listens(&self) -> bool {
        let Some(prompt) = &self.tty.prompt else { return false };
        self.dialect == Dialect::Posix || (prompt.phase == Phase::Reading && !pty::echoes(&prompt.terminal))
    }

    /// Has a prompt that is being typed at show itself anew, with what was typed so far.
    pub(crate) fn redraw_prompt(&mut self, host: &mut Host) {
        if self.dialect == Dialect::Posix || self.screen_is_taken() || self.tty.held {
            return;
        }
        let Some(prompt) = self.tty.prompt.as_ref().filter(|prompt| prompt.phase == Phase::Reading) else { return };
        // As long as it echoes, it isn't edited yet.
        if pty::echoes(&prompt.terminal) {
            host.after(AGAIN, self.key, What::Redraw);
            return;
        }
        self.write_setting();
        if let Some(prompt) = &mut self.tty.prompt {
            let _ = rustix::io::write(&prompt.terminal, prompt::REDRAW);
            prompt.phase = Phase::Asked;
            self.tty.held = true;
        }
    }

    fn start_prompt(&mut self, host: &mut Host) -> io::Result<()> {
        let dir = self.prompt_dir();
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => DirBuilder::new().recursive(true).mode(0o700).create(&dir)?,
        }
        for name in ["pc", "pl"] {
            fifo::make(&dir.join(name))?;
        }
        let (control, lines) = (fifo::open_both(&dir.join("pc"))?, fifo::open_both(&dir.join("pl"))?);
        let pty = pty::open(self.tty.size.columns, self.tty.size.rows)?;
        pty::without_signals(&pty.user)?;
        write_private(&dir.join("pr"), prompt::script(self.dialect).as_bytes())?;
        let nonce = random()?;
        host.link.park(&self.parked("ppty"), &pty.controller)?;
        host.link.park(&self.parked("pctl"), &control)?;
        host.link.park(&self.parked("plin"), &lines)?;
        let (script, files) = (dir.join("pr").to_string_lossy().into_owned(), dir.to_string_lossy().into_owned());
        let history = host.dir.journal(self.key).join("history").to_string_lossy().into_owned();
        let mut arguments = vec![self.program.file_name().and_then(|name| name.to_str()).unwrap_or("sh")];
        arguments.extend(self.applet);
        if self.dialect == Dialect::Bash {
            arguments.extend(["--norc", "--noprofile"]);
        }
        arguments.extend([script.as_str(), files.as_str(), history.as_str()]);
        let mut env: Vec<_> = self.open.env.iter().map(|(name, value)| (&*name.0, &*value.0)).collect();
        if !self.open.env.iter().any(|(name, _)| name.0 == b"TERM") {
            env.push((b"TERM", b"xterm-256color"));
        }
        let pid = spawn::detached(spawn::Spawn {
            program: &self.program,
            arguments: &arguments,
            env: &env,
            cwd: &PathBuf::from("/"),
            open_files: host.open_files,
            oom_points: stead_term::oom::SHELL,
            stdin: pty.user.try_clone()?,
            stderr: pty.user.try_clone()?,
            terminal: pty.user,
        })?;
        let start_time = proc::stat(pid).map_or(0, |stat| stat.start_time);
        crate::dir::write_atomically(&dir.join("who"), format!("{nonce} {pid} {start_time}").as_bytes())?;
        self.take_prompt(host, pid, nonce, pty.controller, control, lines)
    }

    fn take_prompt(
        &mut self,
        host: &mut Host,
        pid: i32,
        nonce: u64,
        terminal: OwnedFd,
        control: OwnedFd,
        lines: OwnedFd,
    ) -> io::Result<()> {
        let path = self.prompt_dir().join("said");
        let log = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = log.metadata()?.len();
        host.poller.add(&terminal, Source::Prompt(self.key).token(), Interest::Read)?;
        host.poller.add(&lines, Source::PromptSaid(self.key).token(), Interest::Read)?;
        self.tty.held = false;
        self.tty.prompt = Some(Prompt {
            pid,
            nonce,
            terminal,
            control: File::from(control),
            lines,
            log,
            length,
            messages: Messages::default(),
            taken: 0,
            phase: Phase::Waiting,
            shows: (Bytes::default(), 0),
        });
        Ok(())
    }

    /// The prompt shows something.
    pub(crate) fn prompt_ready(&mut self, host: &mut Host) {
        let mut shown = 0;
        while shown < SLICE {
            let Some(prompt) = &self.tty.prompt else { return };
            let mut buffer = [0_u8; 4096];
            match rustix::io::read(&prompt.terminal, &mut buffer) {
                Ok(0) | Err(Errno::IO) => return self.prompt_gone(host),
                Ok(read) => {
                    shown += read;
                    self.show(host, Origin::Prompt, None, buffer.get(..read).unwrap_or_default());
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(error) => {
                    note!("steward: shell {}: prompt: {error}", self.open.shell);
                    return self.prompt_gone(host);
                }
            }
        }
    }

    /// Somebody killed it: there is another where one is looked at.
    fn prompt_gone(&mut self, host: &mut Host) {
        self.prompt_said(host);
        self.end_prompt(host);
        if !self.tty.people.is_empty() {
            self.show(host, Origin::Steward, None, b"\r\n");
            host.after(SOON, self.key, What::Prompt);
        }
    }

    pub(super) fn end_prompt(&mut self, host: &mut Host) {
        let Some(prompt) = self.tty.prompt.take() else { return };
        let _ = host.poller.remove(&prompt.terminal);
        let _ = host.poller.remove(&prompt.lines);
        super::close::end_session(prompt.pid);
        for what in ["ppty", "pctl", "plin"] {
            host.link.unpark(&self.parked(what));
        }
        let _ = fs::remove_dir_all(self.prompt_dir());
        self.tty.held = false;
    }

    /// The prompt has said something: to disk first, then it is listened to.
    pub(crate) fn prompt_said(&mut self, host: &mut Host) {
        loop {
            let Some(prompt) = &mut self.tty.prompt else { return };
            match fifo::splice(&prompt.lines, &prompt.log, prompt.length, 64 << 10) {
                Ok(Moved::Bytes(bytes)) => {
                    let mut new = vec![0; usize::try_from(bytes).unwrap_or(0)];
                    if let Err(error) = prompt.log.read_exact_at(&mut new, prompt.length) {
                        note!("steward: shell {}: prompt: {error}", self.open.shell);
                        return;
                    }
                    prompt.length += bytes;
                    prompt.messages.push(&new);
                }
                Ok(Moved::NoSpace) => {
                    host.after(Duration::from_millis(100), self.key, What::Retry);
                    break;
                }
                Ok(Moved::Empty | Moved::Closed) => break,
                Err(error) => {
                    note!("steward: shell {}: prompt: {error}", self.open.shell);
                    return;
                }
            }
        }
        while let Some(said) = self.tty.prompt.as_mut().and_then(|prompt| prompt.messages.next_message()) {
            self.hear_prompt(host, said);
        }
        self.pass_keys(host);
    }

    fn hear_prompt(&mut self, host: &mut Host, said: Said) {
        let Some(prompt) = &mut self.tty.prompt else { return };
        match said {
            Said::Reading(number) if number > prompt.taken => {
                prompt.phase = Phase::Reading;
                self.tty.held = false;
                self.update_prompt(host);
            }
            Said::Line(number, text) if number > prompt.taken => {
                (prompt.taken, prompt.phase) = (number, Phase::Waiting);
                self.tty.held = false;
                // What it showed of the line comes before what the line does.
                self.prompt_ready(host);
                self.enter(host, number, text);
            }
            Said::EndOfFile(number) if number > prompt.taken => {
                (prompt.taken, prompt.phase) = (number, Phase::Waiting);
                self.tty.held = false;
                self.prompt_ready(host);
                self.end_of_file(host);
            }
            Said::Reading(_) | Said::Line(..) | Said::EndOfFile(_) => {}
        }
    }

    /// A person's line becomes a command like any other.
    fn enter(&mut self, host: &mut Host, line: u64, text: Vec<u8>) {
        let Some(nonce) = self.tty.prompt.as_ref().map(|prompt| prompt.nonce) else { return };
        let busy = self.running.is_some() || !self.queue.is_empty();
        let accepted = line_id(nonce, line).and_then(|id| {
            let entered = Entered { command: id.clone(), text: Bytes::from(&text) };
            let mut exec = Exec::new(self.open.shell.clone(), id.clone(), text);
            exec.stdin = Stdin::Terminal;
            // Set before it may start, and end.
            self.tty.line = Some(self.next_number);
            let number = self.accept(host, exec)?;
            host.named.push((id, (self.key, number)));
            self.tell_people(host, &Event::Entered(Box::new(entered)));
            Ok(number)
        });
        match accepted {
            Ok(number) => {
                if busy && self.queue.contains(&number) {
                    let text = "another command runs; this one waits for it (Ctrl-C takes it back)";
                    self.say_on_screen(host, text);
                }
            }
            Err(fault) => {
                self.tty.line = None;
                self.say_on_screen(host, &fault.message);
                host.prompts.insert(self.key);
            }
        }
    }

    /// Ctrl-D at an empty prompt: whoever typed it leaves.
    fn end_of_file(&mut self, host: &mut Host) {
        let typist = self.tty.typist;
        if let Some(person) = self.tty.people.iter_mut().find(|p| Some((p.connection, p.request)) == typist) {
            person.over = Some(Detached::EndOfFile);
        }
        host.news.insert(self.key);
        host.prompts.insert(self.key);
    }

    /// The prompt of a steward before us, if it is still there.
    pub(super) fn adopt_prompt(&mut self, host: &mut Host, parked: &mut crate::link::Store) {
        let things = (parked.remove("ppty"), parked.remove("pctl"), parked.remove("plin"));
        let who = fs::read_to_string(self.prompt_dir().join("who")).unwrap_or_default();
        let who: Vec<u64> = who.split(' ').filter_map(|number| number.parse().ok()).collect();
        if let ((Some(terminal), Some(control), Some(lines)), [nonce, pid, start_time]) = (things, who.as_slice()) {
            let pid = i32::try_from(*pid).unwrap_or(0);
            let same = proc::stat(pid).is_some_and(|stat| stat.start_time == *start_time);
            let _ = pty::size(&terminal).map(|size| self.tty.size = size);
            match self.take_prompt(host, pid, *nonce, terminal, control, lines) {
                Ok(()) if same => return self.listen_again(host),
                Ok(()) => {}
                Err(error) => note!("steward: shell {}: prompt: {error}", self.open.shell),
            }
            return self.end_prompt(host);
        }
        for what in ["ppty", "pctl", "plin"] {
            host.link.unpark(&self.parked(what));
        }
        let _ = fs::remove_dir_all(self.prompt_dir());
    }

    /// What the prompt said to the steward before us: a line that it did not live to take is taken now.
    fn listen_again(&mut self, host: &mut Host) {
        let Some(prompt) = &mut self.tty.prompt else { return };
        let mut said = Vec::new();
        let _ = File::open(self.run.join("p").join("said")).and_then(|mut log| log.read_to_end(&mut said));
        let mut messages = Messages::default();
        messages.push(&said);
        let mut last = None;
        while let Some(message) = messages.next_message() {
            last = Some(message);
        }
        prompt.messages = messages;
        match last {
            Some(Said::Reading(number)) => {
                prompt.taken = number - 1;
                prompt.phase = Phase::Reading;
                // What it shows, we don't know.
                host.prompts.insert(self.key);
            }
            Some(Said::Line(number, text)) => {
                prompt.taken = number;
                let known = line_id(prompt.nonce, number).is_ok_and(|id| self.commands.values().any(|e| e.id == id));
                if !known {
                    self.enter(host, number, text);
                }
            }
            Some(Said::EndOfFile(number)) => prompt.taken = number,
            None => {}
        }
        host.prompts.insert(self.key);
        self.prompt_said(host);
    }
}

/// The same line has the same name for every steward, so it is run once.
fn line_id(nonce: u64, line: u64) -> Result<CommandId, Fault> {
    CommandId::parse(&format!("cmd-{nonce:012x}{line:04x}"))
        .map_err(|error| Fault::new(FaultCode::Invalid, error.to_string()))
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 6];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
