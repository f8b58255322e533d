//! Stopping a command without losing the shell. The policy (what signal when) is [`stead_model::escalate`]; this is its
//! application to real processes.
//!
//! Rules that make it hold under thousands of random cancellations:
//! 1. No signal before the shell has opened the command's streams: an interrupt that hits it while it reads the
//!    trigger leaves half a line behind.
//! 2. The target is whoever the kernel says has the terminal.
//! 3. After each signal a query: the shell is back at its top when it answers.
//! 4. Over only when the query is answered and no process of the command is left.

use super::finish::Left;
use super::{Cancelling, Shell, Stage};
use crate::host::{Host, What, uptime};
use crate::journal::{JournalError, Need};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use stead_model::effect::Effect;
use stead_model::escalate::{Action, Escalation, Foreground, Phase, ShellTime};
use stead_model::frame::Stream;
use stead_model::proto::{CancelReason, FirstSignal};
use stead_model::record::{Cancelling as CancelRecord, Record};
use stead_model::recovery::ending_unstarted;
use stead_term::proc::{self, Stat};
use stead_term::pty;

const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// How long the loop stands still for a killed program to be gone: most are within a tenth of this.
const MOMENT: Duration = Duration::from_millis(1);

/// How long the shell may take to open the streams of a command that is already to be cancelled.
const BEGIN: Duration = Duration::from_secs(1);

impl Shell {
    /// Cancels a command, queued or running. One that has ended is left as it is. Fails, and does nothing, if it waits in
    /// the queue and there is no room to say that it must not start.
    pub(crate) fn cancel(&mut self, host: &mut Host, number: u64, reason: CancelReason) -> Result<(), JournalError> {
        let record = Record::Cancelling(CancelRecord { number, reason, uptime: uptime(), signalled: None });
        if let Some(place) = self.queue.iter().position(|queued| *queued == number) {
            // Noted first: its end may find no room, and a steward after us would start it.
            self.journal.append(&[&record], Need::Last)?;
            self.queue.remove(place);
            self.end_without_running(host, number, ending_unstarted(reason));
            return Ok(());
        }
        let Some(running) = self.running.as_mut().filter(|running| running.number == number) else { return Ok(()) };
        if let Some(cancel) = &mut running.cancel {
            // Asked again, and harder: go on from there.
            if let CancelReason::Asked(first) = reason {
                cancel.escalation.ask_again(cancel.began.elapsed(), phase(first));
                self.escalate(host, number);
            }
            return Ok(());
        }
        if running.report.is_some() {
            return Ok(());
        }
        if let Err(error) = self.journal.append(&[&record], Need::Last) {
            note!("steward: shell {}: {error}", self.open.shell);
        }
        self.begin_cancel(host, number, reason, Instant::now(), false);
        Ok(())
    }

    /// The time of a command is over.
    pub(crate) fn deadline(&mut self, host: &mut Host, number: u64) {
        if let Err(error) = self.cancel(host, number, CancelReason::TimedOut) {
            note!("steward: shell {}: {error}", self.open.shell);
            host.after(Duration::from_millis(100), self.key, What::Deadline(number));
        }
    }

    /// `signalled`: a steward before us has begun to send signals.
    pub(super) fn begin_cancel(
        &mut self,
        host: &mut Host,
        number: u64,
        reason: CancelReason,
        began: Instant,
        signalled: bool,
    ) {
        let first = match reason {
            CancelReason::Asked(first) => phase(first),
            CancelReason::TimedOut => Phase::Interrupt,
        };
        let escalation = Escalation::new(self.grace(number), first);
        if let Some(running) = &mut self.running {
            running.cancel = Some(Cancelling {
                reason,
                began,
                escalation,
                signalled,
                query: None,
                answered: false,
                replacing: false,
            });
        }
        self.escalate(host, number);
    }

    fn grace(&self, number: u64) -> Duration {
        let exec = self.commands.get(&number).and_then(|entry| entry.exec.as_deref());
        exec.and_then(|exec| exec.grace_ms).map_or(DEFAULT_GRACE, Duration::from_millis)
    }

    /// One step of the cancellation; each sets the timer for the next.
    pub(crate) fn escalate(&mut self, host: &mut Host, number: u64) {
        let Some(live) = &self.live else { return };
        let (pid, foreground) = (live.pid, pty::foreground(&live.terminal));
        let Some(pair) = self.running.as_ref().filter(|running| running.number == number).map(|running| running.pair)
        else {
            return;
        };
        let begun = self.has_begun(host, pair);
        let Some(running) = &mut self.running else { return };
        let Some(cancel) = &mut running.cancel else { return };
        if cancel.replacing {
            return;
        }
        let elapsed = cancel.began.elapsed();
        if !begun && !cancel.signalled && elapsed < BEGIN {
            host.after(Duration::from_millis(1), self.key, What::Escalate(number));
            return;
        }
        let foreground = match foreground {
            Some(group) if group != pid && proc::same_program(group, pid) => Foreground::Fork(group),
            Some(group) if group != pid => Foreground::Group(group),
            Some(_) | None => Foreground::Shell,
        };
        // One that has answered waits like one that isn't let: for processes that were killed and have yet to go.
        let waiting = ShellTime { wants_processor: true, ..ShellTime::default() };
        let shell = match cancel.escalation.phase(elapsed) {
            Phase::Interrupt | Phase::Terminate => ShellTime::default(),
            Phase::Kill if cancel.answered => waiting,
            Phase::Kill => time_of(pid),
        };
        let (mut action, pause) = cancel.escalation.tick(elapsed, foreground, shell);
        if action == Action::Interrupt(Foreground::Shell) && cancel.signalled && proc::reads_stdin(pid) {
            // It is back already and will answer; ash would take an interrupt now for the end of its input.
            action = Action::Nothing;
        }
        if cancel.answered && action != Action::ReplaceShell {
            // The shell is back; what is left are processes that it no longer waits for.
            return self.sweep(host);
        }
        let first = action != Action::Nothing && !cancel.signalled;
        let reason = cancel.reason;
        if action == Action::ReplaceShell {
            return self.replace_shell(host, number);
        }
        cancel.signalled |= action != Action::Nothing;
        if first {
            self.note_signalled(number, reason, elapsed);
        }
        self.act(host, pid, action);
        if action != Action::Nothing {
            self.next_query += 1;
            let query = self.next_query;
            if let Some(cancel) = self.running.as_mut().and_then(|running| running.cancel.as_mut()) {
                cancel.query = Some(query);
            }
            self.say(&|lines| lines.query(query));
        }
        host.after(pause, self.key, What::Escalate(number));
    }

    /// Nothing else helps: the shell goes, with whatever is left of the command.
    fn replace_shell(&mut self, host: &mut Host, number: u64) {
        let has_answered = |shell: &Self| {
            let running = shell.running.as_ref().filter(|running| running.number == number);
            running.is_none_or(|running| running.report.is_some())
        };
        if !has_answered(self) {
            // It may have done so just now: perhaps it is we who are late.
            self.replies_ready(host);
            if has_answered(self) {
                return;
            }
        }
        if let Some(cancel) = self.running.as_mut().and_then(|running| running.cancel.as_mut()) {
            cancel.replacing = true;
        }
        self.condemn();
        self.signal_processes(host, Signal::KILL);
    }

    /// Noted before the first signal, which may throw away the report of the command: a steward after us must know that
    /// the command did not end by itself.
    fn note_signalled(&mut self, number: u64, reason: CancelReason, elapsed: Duration) {
        let uptime = uptime().saturating_sub(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        let record = Record::Cancelling(CancelRecord { number, reason, uptime, signalled: Some(true) });
        if let Err(error) = self.journal.append(&[&record], Need::Last) {
            note!("steward: shell {}: {error}", self.open.shell);
        }
    }

    fn act(&mut self, host: &Host, pid: i32, action: Action) {
        let group = |foreground: Foreground| match foreground {
            Foreground::Shell => pid,
            Foreground::Fork(group) | Foreground::Group(group) => group,
        };
        // One that is stopped takes no signal but KILL.
        let wake = |group: i32| proc::signal_group(group, Signal::CONT);
        match action {
            Action::Interrupt(to) => {
                proc::signal_group(group(to), Signal::INT);
                wake(group(to));
            }
            Action::Terminate(to) => {
                proc::signal_group(group(to), Signal::TERM);
                wake(group(to));
                self.interrupt_what_follows(pid);
            }
            Action::KillAll => {
                self.signal_processes(host, Signal::KILL);
                self.interrupt_what_follows(pid);
            }
            Action::ReplaceShell | Action::Nothing => {}
        }
    }

    /// A program that didn't die of an interrupt leaves the shell free to go on with the rest of the command, and bash
    /// drops an interrupt that comes while it waits. So we look, for a moment, until it has the terminal back.
    fn interrupt_what_follows(&self, pid: i32) {
        let Some(live) = &self.live else { return };
        let until = Instant::now() + MOMENT;
        while Instant::now() < until {
            if pty::foreground(&live.terminal) == Some(pid) {
                // One that is back at its top has nothing to go on with; ash would throw away what we asked it.
                if !proc::reads_stdin(pid) {
                    proc::signal_group(pid, Signal::INT);
                }
                return;
            }
        }
    }

    /// Kills the shell itself.
    pub(super) fn condemn(&mut self) {
        if let Some(live) = &mut self.live {
            live.condemned = true;
            proc::signal(live.pid, Signal::KILL);
        }
    }

    fn signal_processes(&self, host: &Host, signal: Signal) {
        for process in self.processes(host) {
            proc::signal(process.pid, signal);
            proc::signal(process.pid, Signal::CONT);
        }
    }

    /// The processes of the running command: those of the shell's session that weren't there before it, and whoever
    /// else holds its output. A daemon that made a session of its own and closed its output has left on purpose.
    fn processes(&self, host: &Host) -> Vec<Stat> {
        let (Some(live), Some(running)) = (&self.live, &self.running) else { return Vec::new() };
        let ours = |stat: &Stat| {
            stat.pid != live.pid
                && stat.state != b'Z'
                && !self.bystanders.contains(&stat.pid)
                && !self.bystanders.contains(&stat.group)
        };
        let mut found: Vec<_> = proc::of_session(live.pid).into_iter().filter(ours).collect();
        if found.is_empty() && self.is_held(host, running.pair) {
            let paths = Stream::BOTH.map(|stream| self.pair_path(running.pair, stream));
            let paths: Vec<_> = paths.iter().map(std::path::PathBuf::as_path).collect();
            let me = i32::try_from(std::process::id()).unwrap_or(0);
            let keeper = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
            found = proc::holders(&paths, &[live.pid, me, keeper]);
            found.retain(|stat| stat.state != b'Z');
        }
        found
    }

    /// The shell is back at its top. What the command left running goes the same way, more quickly; then the state is
    /// captured as after any command.
    pub(super) fn sweep(&mut self, host: &mut Host) {
        let Some(running) = &self.running else { return };
        if matches!(running.stage, Stage::CatchingUp(_)) {
            return self.keep_waiting(host);
        }
        let number = running.number;
        let phase = running.cancel.as_ref().map(|cancel| cancel.escalation.phase(cancel.began.elapsed()));
        if !self.processes(host).is_empty() {
            let signal = if phase >= Some(Phase::Kill) { Signal::KILL } else { Signal::TERM };
            self.signal_processes(host, signal);
            host.after(Duration::from_millis(2), self.key, What::Escalate(number));
            return;
        }
        self.catch_up(host);
    }

    /// An interrupt threw away the rest of the trigger: say it again.
    pub(super) fn catch_up(&mut self, host: &mut Host) {
        self.next_query += 1;
        let query = self.next_query;
        let Some(running) = &mut self.running else { return };
        running.stage = Stage::CatchingUp(query);
        let (number, capture, overlay) =
            (running.number, running.effect == Effect::Unknown, !running.overlay.is_empty());
        self.say(&|lines| if capture { lines.catch_up(query, overlay) } else { lines.query(query) });
        host.after(Duration::from_millis(20), self.key, What::Escalate(number));
    }

    /// The catching up has its limit too.
    fn keep_waiting(&mut self, host: &mut Host) {
        let Some(running) = &mut self.running else { return };
        let number = running.number;
        let over = running.cancel.as_ref().is_some_and(|cancel| cancel.began.elapsed() > self_limit(cancel));
        if over {
            if let Some(cancel) = &mut running.cancel {
                cancel.replacing = true;
            }
            self.condemn();
        } else {
            host.after(Duration::from_millis(20), self.key, What::Escalate(number));
        }
    }

    /// The shell is back at its top without having reported: something interrupted it. That was a signal of ours if there
    /// was one, else the command itself (`kill -INT $$`) or somebody else.
    pub(super) fn came_back_silently(&mut self, host: &mut Host, report: stead_model::shell::Report) {
        let Some(running) = &mut self.running else { return };
        running.report.get_or_insert(report);
        if let Some(cancel) = running.cancel.as_mut().filter(|cancel| cancel.signalled || running.in_doubt) {
            cancel.answered = true;
            self.sweep(host);
        } else {
            // It ended before anything was done to it.
            running.cancel = None;
            self.catch_up(host);
        }
    }

    /// It can't say anything any more: end the command with what is known, and replace the shell.
    pub(super) fn fell_silent(&mut self, host: &mut Host) {
        self.condemn();
        self.finish_as(host, &Left::Mute);
    }
}

fn time_of(pid: i32) -> ShellTime {
    ShellTime {
        ran: proc::time_on_processor(pid).unwrap_or_default(),
        wants_processor: proc::stat(pid).is_some_and(|stat| stat.state == b'R'),
    }
}

/// Twice the grace, and never less than two seconds: capturing a large state takes its time.
fn self_limit(cancel: &Cancelling) -> Duration {
    (cancel.escalation.grace() * 2).max(Duration::from_secs(2))
}

fn phase(first: FirstSignal) -> Phase {
    match first {
        FirstSignal::Interrupt => Phase::Interrupt,
        FirstSignal::Terminate => Phase::Terminate,
        FirstSignal::Kill => Phase::Kill,
    }
}
