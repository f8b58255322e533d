//! The end of a command: everything it wrote is in the journal, the state it left is stored, then it has ended.

use super::{Death, Running, Shell, Stage, journal_fault, outputs};
use crate::host::{Host, What, now};
use crate::journal::{JournalError, Need};
use crate::kills::{Idle, Span};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use stead_model::effect::Effect;
use stead_model::proto::{Ending, Event, Fault, FaultCode, ShellExit, Status, Warning};
use stead_model::record::{Ended, Record, StateMark};
use stead_model::recovery::{ending_in_doubt, ending_stopped, ending_unstarted, ending_without_shell};
use stead_model::shell::Report;
use stead_model::state::{Bytes, Capture, ShellState};
use stead_term::proc;

use super::pair::{Emptied, NO_PAIR, Upto};
use super::report::Heard;

/// Between two looks whether the keeper has told the exit status of a shell that is gone, and how many find nothing before
/// the status counts as unseen.
const UNREAPED: Duration = Duration::from_millis(100);
const MOST_LOOKS: u32 = 10;

/// How the shell came to be without its command.
#[derive(Debug)]
pub(super) enum Left {
    /// It reported, or was asked and answered.
    Shell(Report),
    /// Its process is gone.
    Died { status: Option<ExitStatus>, exiting: Option<Report> },
    /// It is there, but can't say anything any more.
    Mute,
}

impl Shell {
    /// The report, and the capture if one was due, are there.
    pub(super) fn finish(&mut self, host: &mut Host) {
        let Some(running) = &mut self.running else { return };
        let Some(report) = running.report.clone() else { return };
        running.stage = Stage::Over;
        self.finish_as(host, &Left::Shell(report));
    }

    /// Tries again what a full disk had stopped.
    pub(super) fn finish_if_over(&mut self, host: &mut Host) {
        self.replies_ready(host);
        if self.running.as_ref().is_some_and(|running| running.stage == Stage::Over) {
            self.finish(host);
        }
        if self.live.as_ref().is_some_and(|live| live.gone) {
            self.process_gone(host);
        }
    }

    pub(super) fn finish_as(&mut self, host: &mut Host, left: &Left) {
        let Some(pair) = self.running.as_ref().map(|running| running.pair) else { return };
        let emptied = match self.empty_streams(host, pair) {
            Ok(Emptied::Stalled) | Err(JournalError::NoSpace) => return self.finish_later(host),
            Ok(emptied) => emptied,
            Err(error) => {
                note!("steward: shell {}: output: {error}", self.open.shell);
                Emptied::Open
            }
        };
        let Some(mut running) = self.running.take() else { return };
        let (mut ending, mark) = running.settled.take().unwrap_or_else(|| self.settle(host, &running, left));
        ending.streams_open = emptied != Emptied::Closed;
        self.close_input(host, &mut running);
        if let Err(error) = self.note_end(host, running.number, ending.clone(), mark.clone()) {
            note!("steward: shell {}: {error}", self.open.shell);
            running.settled = Some((ending, mark));
            self.running = Some(running);
            return self.finish_later(host);
        }
        self.wipe();
        if ending.streams_open {
            // More may lie there already, too late to be the command's own.
            host.unread.insert((self.key, pair));
        } else {
            self.release_pair(host, pair);
        }
        if pair == NO_PAIR {
            self.take_typed_ahead();
        }
        let wrote = self.commands.get(&running.number).is_some_and(|entry| entry.bytes != [0, 0]);
        let changed = running.effect == Effect::Unknown || running.cancel.is_some();
        // Even commands that leave nothing behind are to be forgotten one day.
        if wrote || changed || self.spare.is_none() || running.number % 64 == 0 {
            host.chores.insert(self.key);
        }
        self.start_next(host);
    }

    /// Takes all that the command wrote.
    fn empty_streams(&mut self, host: &mut Host, pair: u64) -> Result<Emptied, JournalError> {
        if pair != NO_PAIR {
            return self.empty_pair(host, pair, Upto::Present);
        }
        // What its background children write later is seen on the screen, and is no command's.
        Ok(if self.empty_terminal(host) { Emptied::Closed } else { Emptied::Stalled })
    }

    fn settle(&mut self, host: &mut Host, running: &Running, left: &Left) -> (Ending, StateMark) {
        let mut ending = ending(running, left);
        ending.oom_killed = self.oom_killed(host, running, left);
        ending.warnings = std::mem::take(&mut self.warnings);
        let mark = self.capture_state(running, left, &mut ending);
        (ending, mark)
    }

    /// Whether a process of the command was killed for want of memory.
    fn oom_killed(&self, host: &mut Host, running: &Running, left: &Left) -> Option<bool> {
        let (before, reaped_before) = running.killed_before;
        let now = host.kills.count();
        if now > before {
            // What the keeper has seen of it may be on its way still.
            host.link.poll();
        }
        let shell_killed = match left {
            Left::Died { status, .. } => status.and_then(|status| status.signal()) == Some(9),
            Left::Shell(_) | Left::Mute => false,
        };
        let elsewhere = host.link.killed().saturating_sub(reaped_before).saturating_sub(u64::from(shell_killed));
        host.kills.end(self.key, Span { before, now, elsewhere })
    }

    fn finish_later(&mut self, host: &mut Host) {
        host.after(Duration::from_millis(100), self.key, What::Retry);
    }

    /// Works out the state the command left, stores it if it differs, and says which it is.
    fn capture_state(&mut self, running: &Running, left: &Left, ending: &mut Ending) -> StateMark {
        // Of a command that nobody saw the end of, nothing is known to have changed.
        let is_lost = ending.clone().or_lost().status == Status::Lost;
        let mut mark = StateMark { version: self.mark.version + u64::from(!is_lost), ..self.mark.clone() };
        if matches!(left, Left::Shell(_)) {
            self.take_leftovers(&mut mark, &running.leftovers);
        }
        ending.warnings.extend(mark.outputs.iter().flat_map(outputs::warnings));
        let before = self.state.clone();
        let (mut after, mut captured) = (None, true);
        match left {
            Left::Shell(report) => {
                mark.last_status = report.status;
                mark.cwd = self.directory(report);
                mark.oldpwd.clone_from(&report.oldpwd);
                if running.effect == Effect::Unknown {
                    after = self.read_capture("st", ending);
                }
            }
            Left::Died { exiting, .. } => {
                mark.last_status = 0;
                if let Some(report) = exiting {
                    after = self.read_capture("xt", ending);
                    // The EXIT trap sources too, and so doesn't see it.
                    if let (Some(after), Some(debug)) = (&mut after, before.traps.get("DEBUG")) {
                        after.traps.insert("DEBUG".to_owned(), debug.clone());
                    }
                    if running.overlay.is_empty() {
                        mark.cwd = report.pwd.clone();
                        mark.oldpwd.clone_from(&report.oldpwd);
                    }
                }
                captured = after.is_some();
                after = Some(after.unwrap_or_else(|| before.clone()));
            }
            Left::Mute => {
                mark.last_status = 0;
                let message = "the shell could no longer report and was replaced; what the command changed in it, and its exit status, are unknown";
                ending.warnings.push(Warning { code: "shell_mute".into(), message: message.into() });
            }
        }
        if let Some(mut after) = after {
            if !running.overlay.is_empty() && matches!(left, Left::Died { .. }) {
                let names: Vec<Bytes> = running.overlay.env.iter().map(|(name, _)| name.clone()).collect();
                after = after.without_overlay(&before, &names);
            }
            if ending.shell_exited {
                // An `errexit` that ended the shell would end the next one too, at its first failing command.
                after.options.remove("errexit");
            }
            self.keep_env(&mut after, captured, ending);
            // Where nothing was captured, and the state is lost, there is nothing to keep.
            let is_known = captured || !self.is_state_lost();
            if is_known && self.adopt_state(after, &mut mark, ending) && captured {
                ending.warnings.extend(self.state_was_captured());
            }
        }
        ending.state_changed |= mark.cwd != before.cwd || mark.oldpwd != before.oldpwd;
        self.mark = mark.clone();
        self.state.cwd = mark.cwd.clone();
        self.state.oldpwd.clone_from(&mark.oldpwd);
        mark
    }

    /// Makes `after` the shell's state, on disk first. Whether it is there.
    fn adopt_state(&mut self, mut after: ShellState, mark: &mut StateMark, ending: &mut Ending) -> bool {
        after.cwd = self.state.cwd.clone();
        after.oldpwd.clone_from(&self.state.oldpwd);
        if after == self.state && !self.is_state_lost() {
            return true;
        }
        let before = std::mem::replace(&mut self.state, after);
        match self.store_state(mark.version) {
            Ok(()) => {
                self.context = self.state.context();
                self.obsolete.push(mark.stored);
                mark.stored = mark.version;
                ending.state_changed = true;
                true
            }
            Err(error) => {
                // The live shell has it, and the next capture tries again; but it would not survive now, so it is not
                // acknowledged.
                let fault = journal_fault(&error);
                ending.warnings.push(Warning { code: "state_not_stored".into(), message: fault.message });
                self.context = self.state.context();
                self.state = before;
                false
            }
        }
    }

    pub(super) fn store_state(&self, version: u64) -> Result<(), JournalError> {
        self.journal.store_state(version, &self.state)
    }

    /// What the shell dumped. Nothing at all means that it can't source our script any more: then it can't run commands
    /// either, and is replaced.
    fn read_capture(&mut self, file: &str, ending: &mut Ending) -> Option<ShellState> {
        let not_captured = |error: &str| Warning {
            code: "state_not_captured".into(),
            message: format!("the shell's state could not be captured ({error}); the last one stands"),
        };
        let Some(baseline) = &self.baseline else {
            ending.warnings.push(not_captured("it is not known what a fresh shell is like"));
            return None;
        };
        let dump = fs::read(self.place(file));
        if dump.as_ref().is_ok_and(|dump| is_unused(dump)) && !self.is_disk_full() {
            ending.shell_replaced = true;
            let message =
                "the shell could no longer be captured and was replaced; what the command changed in it is lost";
            ending.warnings.push(Warning { code: "shell_mute".into(), message: message.into() });
            self.condemn();
            return None;
        }
        let ours = self.lines().exit_trap();
        let debug = fs::read(self.place("t")).unwrap_or_default();
        let capture = dump.map_err(|error| error.to_string()).and_then(|dump| {
            let capture = Capture::parse(self.dialect, &dump, ours.as_bytes());
            capture.and_then(|capture| capture.with_debug_trap(&debug)).map_err(|error| error.to_string())
        });
        match capture {
            Ok(capture) => Some(capture.delta(baseline)),
            Err(error) => {
                ending.warnings.push(not_captured(&error));
                None
            }
        }
    }

    fn is_disk_full(&self) -> bool {
        rustix::fs::statvfs(&self.run).is_ok_and(|disk| disk.f_bavail == 0)
    }

    /// The end goes into the journal; from here on it has happened.
    pub(super) fn note_end(
        &mut self,
        host: &mut Host,
        number: u64,
        ending: Ending,
        mark: StateMark,
    ) -> Result<(), JournalError> {
        self.note_held(host, number)?;
        let ending = self.ending_as_written(ending.or_lost());
        let Some(entry) = self.commands.get_mut(&number) else { return Ok(()) };
        let seq = entry.last_seq + 1;
        let (drained, version) = (!ending.streams_open, mark.version);
        let record = Record::Ended(Box::new(Ended { number, seq, at: now(), ending, state: mark }));
        let at = self.journal.append(&[&record], Need::Last)?;
        entry.last_seq = seq;
        entry.ended = Some(at);
        entry.exec = None;
        entry.drained = drained;
        if entry.masked.take().is_some() {
            host.link.unpark(&self.parked(&format!("text:{number}")));
        }
        self.sum_later(host, number);
        if self.tty.line == Some(number) {
            self.tty.line = None;
        }
        self.tell_people(host, &Event::Advanced(version));
        host.prompts.insert(self.key);
        host.news.insert(self.key);
        Ok(())
    }

    /// A command that never came to run.
    pub(super) fn end_without_running(&mut self, host: &mut Host, number: u64, ending: Ending) {
        let mark = self.mark.clone();
        if let Err(error) = self.note_end(host, number, ending.clone(), mark) {
            // Not back into the queue, from which it would be started: only the record is tried again.
            note!("steward: shell {}: {error}", self.open.shell);
            self.unended.push((number, ending));
            self.finish_later(host);
        }
    }

    /// Notes the ends of commands that never ran, if the disk has room again.
    pub(super) fn end_unended(&mut self, host: &mut Host) {
        for (number, ending) in std::mem::take(&mut self.unended) {
            self.end_without_running(host, number, ending);
        }
    }

    pub(super) fn fail_queue(&mut self, host: &mut Host, fault: &Fault) {
        for number in std::mem::take(&mut self.queue) {
            self.end_without_shell(host, number, fault.clone());
        }
    }

    pub(super) fn end_without_shell(&mut self, host: &mut Host, number: u64, fault: Fault) {
        let was_started = self.commands.get(&number).is_some_and(|entry| entry.start.is_some());
        self.end_without_running(host, number, ending_without_shell(was_started, fault));
    }

    /// The process has ended. What it was comes from the keeper; give it a moment.
    pub(crate) fn process_gone(&mut self, host: &mut Host) {
        let Some(live) = &mut self.live else { return };
        let pid = live.pid;
        if !live.gone {
            live.gone = true;
            if let Some(process) = &live.process {
                let _ = host.poller.remove(process);
            }
            host.after(UNREAPED, self.key, What::Unreaped(self.incarnation));
        }
        if let Some(status) = host.link.take_status(pid, live.start_time) {
            live.death = Some(Death::Reaped(ExitStatus::from_raw(status)));
        }
        match live.death {
            Some(Death::Reaped(status)) => self.bury(host, Some(status)),
            Some(Death::Unseen) => self.bury(host, None),
            None => {}
        }
    }

    /// Whoever reaped it, it wasn't our keeper: its status is not known, and isn't made up.
    pub(crate) fn unreaped(&mut self, host: &mut Host, incarnation: u64) {
        host.link.poll();
        let Some(live) = self.live.as_mut().filter(|live| live.gone && self.incarnation == incarnation) else { return };
        if live.death.is_none() {
            // As long as it is a child of the keeper nobody has seen its status yet; and the keeper may be slow to tell.
            let keeper = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
            let is_kept = proc::stat(live.pid).is_some_and(|stat| stat.state == b'Z' && Some(stat.parent) == keeper);
            live.looks += u32::from(!is_kept);
            if live.looks >= MOST_LOOKS {
                live.death = Some(Death::Unseen);
            } else {
                host.after(UNREAPED, self.key, What::Unreaped(incarnation));
            }
        }
        self.process_gone(host);
    }

    fn bury(&mut self, host: &mut Host, status: Option<ExitStatus>) {
        if self.read_replies(host) == Heard::NoRoom {
            // What it said before it died tells whether the command ran, and how it ended.
            return;
        }
        let Some(live) = &self.live else { return };
        let (exiting, was_ready, condemned) = (live.exiting.clone(), live.ready, live.condemned);
        if !was_ready && !condemned {
            // One that is killed from outside did not die of its state, or so it is hoped once; nor did one whose keeper was
            // killed with it, so that nobody knows how it ended.
            let killed = status.is_none_or(|status| status.signal() == Some(9));
            if killed && !self.killed_unborn {
                self.killed_unborn = true;
            } else {
                self.stillborn += 1;
            }
        }
        if self.was_never_read() {
            self.start_again(host);
        } else if self.running.is_some() {
            if let Some(running) =
                self.running.as_mut().filter(|running| running.report.is_some() && running.cancel.is_none())
            {
                // It had reported; only the capture is missing.
                let report = running.report.take();
                self.finish_as(
                    host,
                    &Left::Died {
                        status: report.as_ref().map(|r| ExitStatus::from_raw(i32::from(r.status) << 8)),
                        exiting,
                    },
                );
            } else {
                self.finish_as(host, &Left::Died { status, exiting });
            }
            if self.running.is_some() {
                return; // The disk is full; `Retry` comes back here.
            }
        } else if was_ready && !condemned {
            self.warn("shell_restarted", "the shell died between two commands and was started again with its state");
        }
        if was_ready && !condemned {
            self.tell_of_death(host, status);
        }
        self.release(host);
        self.respawn(host);
    }

    /// Whether the shell died before it came to the command: with the whole trigger still in its control FIFO, or without
    /// ever having been ready, which comes before all commands.
    fn was_never_read(&self) -> bool {
        let (Some(live), Some(running)) = (&self.live, &self.running) else { return false };
        let unread = stead_term::fifo::pending(&live.control).unwrap_or(0);
        let untouched = running.said_at.is_some_and(|at| live.said - unread.min(live.said) <= at);
        running.report.is_none() && (untouched || !live.ready)
    }

    /// It left before it came to the command (`set -t`, or a kill from outside): the next one gets it.
    fn start_again(&mut self, host: &mut Host) {
        let Some(mut running) = self.running.take() else { return };
        host.kills.forget(self.key);
        // Noted first: who comes after us must not take the command for one that ran.
        if let Err(error) = self.journal.append(&[&Record::Spawning(self.incarnation)], Need::Last) {
            note!("steward: shell {}: {error}", self.open.shell);
        }
        self.close_input(host, &mut running);
        self.release_pair(host, running.pair);
        match running.cancel {
            // What was told to end is not started.
            Some(cancel) => self.end_without_running(host, running.number, ending_unstarted(cancel.reason)),
            None => self.queue.push_front(running.number),
        }
    }

    /// Work that no answer waits for.
    pub(crate) fn chores(&mut self, host: &mut Host) {
        self.note_bystanders();
        host.kills.jobs(self.key, !self.bystanders.is_empty());
        if self.running.is_none() {
            self.note_idle(host);
        }
        if self.spare.is_none() && self.live.is_some() {
            match self.make_pair(host) {
                Ok(pair) => self.spare = Some(pair),
                Err(error) => note!("steward: shell {}: can't make the output FIFOs: {error}", self.open.shell),
            }
        }
        for version in std::mem::take(&mut self.obsolete) {
            if let Err(error) = self.journal.remove_state(version) {
                note!("steward: shell {}: {error}", self.open.shell);
            }
        }
    }

    /// Notes what tells later whether the shell has lost a process since. It is between two commands.
    pub(super) fn note_idle(&self, host: &mut Host) {
        let stat = self.live.as_ref().and_then(|live| proc::stat(live.pid));
        host.kills.idle(self.key, stat.map(|stat| Idle { pid: stat.pid, child_faults: stat.child_faults }));
    }

    /// Whoever is there between two commands belongs to neither.
    pub(super) fn note_bystanders(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(live) = &self.live else { return };
        let mut bystanders: BTreeSet<_> = proc::children(live.pid).into_iter().collect();
        let groups = bystanders.iter().filter_map(|pid| proc::stat(*pid)).map(|stat| stat.group);
        let groups: Vec<_> = groups.filter(|group| *group != live.pid).collect();
        bystanders.extend(groups);
        if bystanders != self.bystanders {
            if let Err(error) = live.trigger.keep_bystanders(&bystanders) {
                note!("steward: shell {}: {error}", self.open.shell);
            }
            self.bystanders = bystanders;
        }
    }
}

/// Whether nothing has been dumped into a file.
fn is_unused(dump: &[u8]) -> bool {
    dump.first().is_none_or(|first| *first == stead_model::shell::UNUSED)
}

/// What is to be told of how it ended.
fn ending(running: &Running, left: &Left) -> Ending {
    if running.no_directory {
        let fault = Fault::new(FaultCode::NoDirectory, "the directory for the command can't be entered");
        return Ending { error: Some(fault), ..Ending::new(Status::Failed, None) };
    }
    // A shell that left by its own EXIT trap has had the command: nothing else makes it do that.
    if running.in_doubt && !matches!(left, Left::Died { exiting: Some(_), .. }) {
        return ending_in_doubt(running.cancel.as_ref().map(|cancel| cancel.reason));
    }
    let stopped = running.cancel.as_ref().filter(|cancel| cancel.signalled).map(|cancel| cancel.reason);
    let replacing = running.cancel.as_ref().is_some_and(|cancel| cancel.replacing);
    let (exit, shell_exited, shell_replaced) = match left {
        Left::Shell(report) => (ShellExit::Code(i32::from(report.status)), false, false),
        Left::Died { status, exiting } => (shell_exit(*status, exiting.as_ref()), !replacing, replacing),
        Left::Mute => (ShellExit::Unseen, false, true),
    };
    let ending = stopped.map_or_else(|| Ending::with_shell(exit), ending_stopped);
    Ending { shell_exited, shell_replaced, ..ending }
}

/// What the keeper saw of a shell's end; if it saw nothing, what the shell said last, in its EXIT trap.
fn shell_exit(status: Option<ExitStatus>, exiting: Option<&Report>) -> ShellExit {
    let code = status.and_then(|status| status.code()).map(ShellExit::Code);
    let signal = status.and_then(|status| status.signal()).map(ShellExit::Signal);
    let said = exiting.map(|report| ShellExit::Code(i32::from(report.status)));
    code.or(signal).or(said).unwrap_or(ShellExit::Unseen)
}
