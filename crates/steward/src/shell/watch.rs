//! Noticing a shell that is back at its top without having reported, without asking the kernel what it does.
//!
//! A blank line is put into the control FIFO. As long as the shell is busy the line stays there; when it is gone the
//! shell has come back to read. (It may have read the line together with the trigger, if it was slow; so the verdict
//! needs more than one look, and a shell that sleeps with the command's streams closed.)

use super::{Shell, Stage};
use crate::host::{Host, What};
use rustix::process::Signal;
use std::io::Write;
use std::time::Duration;
use stead_term::{fifo, oom, proc};

/// Long enough that hardly any command is looked at, short enough that a person doesn't notice.
pub(super) const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_secs(1);

/// Between two looks at a shell that seems to be back.
const AGAIN: Duration = Duration::from_millis(50);

/// Looks that find it silent before it is given up.
const ENOUGH: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The blank line is in the FIFO.
    probed: bool,
    /// A question that a shell at its top would answer.
    pub(super) query: Option<u64>,
    silent: u32,
    wait: Duration,
}

impl Watch {
    /// The question has been put already.
    pub(super) fn asked(query: u64) -> Self {
        Self { query: Some(query), ..Self::default() }
    }
}

impl Shell {
    pub(crate) fn watch(&mut self, host: &mut Host, number: u64) {
        let Some(running) = self.running.as_ref().filter(|running| running.number == number) else { return };
        // A cancellation watches for itself.
        if running.cancel.is_some() || matches!(running.stage, Stage::CatchingUp(_) | Stage::Over) {
            host.after(LONGEST, self.key, What::Watch(number));
            return;
        }
        let held = self.is_held(host, running.pair);
        let Some(live) = &mut self.live else { return };
        // What has run for a moment is to go before its shell when memory runs out.
        oom::expose_children(live.pid);
        let stat = match proc::look(live.pid) {
            Ok(Some(stat)) => stat,
            Ok(None) => return,
            Err(_) => return host.after(LONGEST, self.key, What::Watch(number)),
        };
        if stat.state == b'T' {
            // `suspend`: nobody else is there to wake it.
            proc::signal(live.pid, Signal::CONT);
        }
        let unread = fifo::pending(&live.control).unwrap_or(1) > 0;
        let asleep = stat.state == b'S' && (!held || proc::reads_stdin(live.pid));
        let Some(running) = &mut self.running else { return };
        let watch = &mut running.watch;
        if !watch.probed {
            watch.probed = true;
            watch.wait = FIRST;
            if live.control.write_all(b"\n").is_ok() {
                live.said += 1;
            }
            host.after(AGAIN, self.key, What::Watch(number));
            return;
        }
        if unread || !asleep {
            watch.silent = 0;
            watch.wait = (watch.wait * 2).min(LONGEST);
            host.after(watch.wait, self.key, What::Watch(number));
            return;
        }
        watch.silent += 1;
        if watch.silent >= ENOUGH {
            // It may have spoken just now.
            self.replies_ready(host);
            if self.running.as_ref().is_some_and(|running| running.number == number) {
                self.fell_silent(host);
            }
            return;
        }
        if watch.silent == 2 {
            self.next_query += 1;
            let query = self.next_query;
            watch.query = Some(query);
            self.say(&|lines| lines.query(query));
        }
        host.after(AGAIN, self.key, What::Watch(number));
    }
}
