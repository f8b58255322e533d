//! What the shell says, and what it means for the command it is busy with.

use super::{Shell, Stage};
use crate::host::Host;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use stead_model::effect::Effect;
use stead_model::shell::{Report, Token};
use stead_model::state::{Bytes, Capture};
use stead_term::fifo::{self, Moved};
use stead_term::proc;

/// The reply log is emptied between commands when it has grown to this.
const REPLY_LOG: u64 = 64 << 10;

/// Whether all that the shell has said is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    All,
    /// A part has no room on the disk yet; it is tried again.
    NoRoom,
}

impl Shell {
    /// Replies have come.
    pub(crate) fn replies_ready(&mut self, host: &mut Host) {
        self.read_replies(host);
    }

    /// Replies go to disk first: one that we had read and not acted on when we died would make the next steward believe
    /// that the command never ran.
    pub(super) fn read_replies(&mut self, host: &mut Host) -> Heard {
        let Some(live) = &mut self.live else { return Heard::All };
        loop {
            match fifo::splice(&live.replies, &live.reply_log, live.reply_length, 64 << 10) {
                Ok(Moved::Bytes(bytes)) => {
                    let mut new = vec![0; usize::try_from(bytes).unwrap_or(0)];
                    if let Err(error) = live.reply_log.read_exact_at(&mut new, live.reply_length) {
                        note!("steward: shell {}: reply log: {error}", self.open.shell);
                        return Heard::All;
                    }
                    live.reply_length += bytes;
                    live.reports.push(&new);
                    if bytes < 4096 {
                        break;
                    }
                }
                // A full disk: the reply stays in its FIFO, and we come back to it.
                Ok(Moved::NoSpace) => {
                    host.after(std::time::Duration::from_millis(100), self.key, crate::host::What::Retry);
                    return Heard::NoRoom;
                }
                Ok(Moved::Empty | Moved::Closed) => break,
                Err(error) => {
                    note!("steward: shell {}: replies: {error}", self.open.shell);
                    return Heard::All;
                }
            }
        }
        self.hear(host);
        Heard::All
    }

    pub(super) fn hear(&mut self, host: &mut Host) {
        while let Some(report) = self.live.as_mut().and_then(|live| live.reports.next_report()) {
            self.heard(host, report);
        }
        if let Some(live) = self.live.as_mut().filter(|live| live.reply_length > REPLY_LOG)
            && self.running.is_none()
            && live.reply_log.set_len(0).is_ok()
        {
            live.reply_length = 0;
        }
    }

    pub(super) fn heard(&mut self, host: &mut Host, report: Report) {
        match report.token {
            Token::BaselineReady => self.read_baseline(),
            Token::Ready => self.became_ready(&report),
            Token::Exiting(pid) => {
                if let Some(live) = self.live.as_mut().filter(|live| pid == 0 || pid == live.pid) {
                    live.exiting = Some(report);
                }
            }
            Token::NoDirectory(number) => {
                if let Some(running) = self.running.as_mut().filter(|running| running.number == number) {
                    running.no_directory = true;
                }
            }
            Token::Ended(number) => self.command_reported(host, number, report),
            Token::Captured => {
                if self
                    .running
                    .as_ref()
                    .is_some_and(|running| running.stage == Stage::Capturing && running.cancel.is_none())
                {
                    if let Some(running) = &mut self.running {
                        running.report = running.report.take().map(|ended| Report { status: ended.status, ..report });
                    }
                    self.finish(host);
                }
            }
            Token::Statuses(number) => {
                if let Some(running) = self.running.as_mut().filter(|running| running.number == number) {
                    let statuses = report.oldpwd.as_ref().map_or(&[][..], |statuses| &statuses.0);
                    running.leftovers.take_statuses(report.status, statuses);
                }
            }
            Token::Output(number) => {
                if let Some(running) = self.running.as_mut().filter(|running| running.number == number) {
                    running.leftovers.take_output(report.status, &report.pwd);
                }
            }
            Token::Answer(query) => self.answered(host, query, report),
            Token::EnvApplied(number) => self.env_applied(host, number),
        }
    }

    fn command_reported(&mut self, host: &mut Host, number: u64, mut report: Report) {
        let Some(running) = self.running.as_mut().filter(|running| running.number == number) else { return };
        // Behind an epilogue `$?` is that of the epilogue.
        report.status = running.leftovers.status.unwrap_or(report.status);
        // It speaks, so it has not left: that was a subshell.
        if let Some(live) = &mut self.live {
            live.exiting = None;
        }
        running.report = Some(report);
        running.in_doubt = false;
        if let Some(cancel) = &mut running.cancel {
            if cancel.signalled {
                cancel.answered = true;
                self.sweep(host);
                return;
            }
            // It ended by itself before anything was done to it.
            running.cancel = None;
        }
        if running.effect == Effect::Unknown {
            running.stage = Stage::Capturing;
        } else {
            self.finish(host);
        }
    }

    fn answered(&mut self, host: &mut Host, query: u64, report: Report) {
        let Some(running) = &mut self.running else { return };
        match running.stage {
            Stage::CatchingUp(expected) if expected == query => {
                let status = running.report.as_ref().map_or(report.status, |ended| ended.status);
                running.report = Some(Report { status, ..report });
                self.finish(host);
            }
            Stage::Over => {}
            Stage::Running | Stage::Capturing | Stage::CatchingUp(_) => {
                if let Some(cancel) = running.cancel.as_mut().filter(|cancel| cancel.query == Some(query)) {
                    cancel.answered = true;
                    running.report.get_or_insert(report);
                    self.sweep(host);
                } else if running.watch.query == Some(query) {
                    self.came_back_silently(host, report);
                }
            }
        }
    }

    fn read_baseline(&mut self) {
        let ours = self.lines().exit_trap();
        let parsed = fs::read(self.run.join("base"))
            .map_err(|error| error.to_string())
            .and_then(|dump| Capture::parse(self.dialect, &dump, ours.as_bytes()).map_err(|error| error.to_string()));
        match parsed {
            Ok(baseline) => self.baseline = Some(baseline),
            Err(error) => note!("steward: shell {}: baseline: {error}", self.open.shell),
        }
    }

    fn became_ready(&mut self, report: &Report) {
        let Some(live) = &mut self.live else { return };
        live.ready = true;
        self.killed_unborn = false;
        if self.stillborn > 0 {
            self.warn("state_not_restored", "the shell could not start with all of its state; a part was left out");
            self.stillborn = 0;
        }
        if report.pwd != self.mark.cwd {
            let (wanted, now) = (self.mark.cwd.escape_ascii().to_string(), report.pwd.escape_ascii().to_string());
            if !wanted.is_empty() {
                self.warn("cwd_missing", format!("`{wanted}` is gone; the shell is in `{now}`"));
            }
            self.mark.cwd = report.pwd.clone();
            self.state.cwd = self.mark.cwd.clone();
        }
    }

    /// The shell's directory: as it calls it, if that is where the kernel says it is.
    pub(super) fn directory(&self, report: &Report) -> Bytes {
        let Some(pid) = self.live.as_ref().map(|live| live.pid) else { return report.pwd.clone() };
        let Some(link) = proc::cwd(pid) else { return report.pwd.clone() };
        if link == report.pwd.0 {
            return report.pwd.clone();
        }
        // Removed under it: what it was called is where a new shell will look for it.
        if let Some(removed) = link.strip_suffix(b" (deleted)") {
            return Bytes::from(removed);
        }
        let named = fs::metadata(Path::new(std::ffi::OsStr::from_bytes(&report.pwd)));
        let real = fs::metadata(format!("/proc/{pid}/cwd"));
        match (named, real) {
            (Ok(named), Ok(real)) if (named.dev(), named.ino()) == (real.dev(), real.ino()) => report.pwd.clone(),
            _ => Bytes(link),
        }
    }
}
