//! Where the shell's own outputs go. A command may point them somewhere with `exec 2>file`, and there they stay for the
//! commands after it, as at a prompt.
//!
//! The outputs of an ordinary command are redirected for it alone, so whatever it does to them ends with it, at no cost. One
//! that may redirect the shell gets its pair of FIFOs as the shell's own outputs instead. When it has ended we look where
//! they lead: what is still one of our pipes, or the shell's terminal, is the next command's own again; anything else is
//! kept, and bytes go there and not to the journal.

use super::{Shell, Stage};
use crate::host::{Host, What};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use stead_model::effect::{Effect, may_redirect, speaks_of_redirecting};
use stead_model::proto::Warning;
use stead_model::record::Streams;
use stead_model::shell::{Dialect, Target};
use stead_model::state::Bytes;
use stead_term::proc::{self, Descriptor};
use stead_term::pty;

/// Until the shell has put back what it redirected to speak to us.
const MOMENT: Duration = Duration::from_millis(1);
const LOOKS: u32 = 100;

impl Shell {
    /// Whether a command may redirect the shell itself. Functions of dash and ash are not known: once one may have been
    /// made that does, any command may.
    pub(super) fn may_redirect(&mut self, text: &[u8], effect: Effect) -> bool {
        self.redirects |= self.dialect == Dialect::Posix && effect == Effect::Unknown && speaks_of_redirecting(text);
        let may = self.redirects || may_redirect(text, effect, &self.context);
        // By this name its streams are made the shell's own.
        may && !self.context.redefined.contains(b"command".as_slice())
    }

    /// By what name the shell opens its terminal. It is needed by few commands, and costs a call of the kernel.
    pub(super) fn terminal_name(&self, wanted: bool) -> String {
        let live = self.live.as_ref().filter(|_| wanted);
        live.and_then(|live| pty::name(&live.terminal)).unwrap_or_else(|| "/dev/tty".to_owned())
    }

    /// The command is over, and the shell has its streams: looks where they lead now, and has it let go of those that are
    /// ours. Its answer brings us back to the end of the command.
    pub(super) fn look_at_streams(&mut self, host: &mut Host) {
        let terminal = self.terminal_name(true);
        let streams = (0..LOOKS).find_map(|_| {
            let streams = self.streams_now(&terminal);
            if streams.is_none() {
                rustix::thread::sched_yield();
            }
            streams
        });
        let Some(streams) = streams else {
            host.after(MOMENT, self.key, What::Retry);
            return;
        };
        self.next_query += 1;
        let (query, targets) = (self.next_query, streams.targets);
        let Some(running) = &mut self.running else { return };
        running.stage = Stage::CatchingUp(query);
        running.streams = Some(streams);
        self.say(&|lines| lines.let_go(targets, &terminal, query));
    }

    /// `None`: the shell is just speaking to us, by the very descriptor.
    fn streams_now(&self, terminal: &str) -> Option<Streams> {
        let Some(pid) = self.live.as_ref().map(|live| live.pid) else { return Some(Streams::own()) };
        if proc::descriptor(pid, 0).is_none() {
            // It is gone, or the kernel doesn't tell.
            return Some(Streams::own());
        }
        let found = [1, 2].map(|number| proc::descriptor(pid, number));
        let reply = self.run.join(format!("rep.{}", self.incarnation));
        if found[0].as_ref().is_some_and(|found| found.link == reply.as_os_str().as_bytes()) {
            return None;
        }
        let mut streams = Streams::own();
        let own = streams.targets;
        for (at, found) in found.into_iter().enumerate() {
            let (Some(target), Some(link)) = (streams.targets.get_mut(at), streams.links.get_mut(at)) else { continue };
            let own = own.get(at).copied().unwrap_or_default();
            *target = found.as_ref().map_or(Target::Kept, |found| self.target_of(found, own, terminal));
            if *target == Target::Kept {
                *link = Bytes(found.map(|found| found.link).unwrap_or_default());
            }
        }
        Some(streams)
    }

    fn target_of(&self, found: &Descriptor, own: Target, terminal: &str) -> Target {
        let link = found.link.strip_suffix(b" (deleted)").unwrap_or(&found.link);
        let path = Path::new(OsStr::from_bytes(link));
        let name = path.file_name().and_then(OsStr::to_str).filter(|_| path.parent() == Some(self.run.as_path()));
        match name.and_then(|name| name.split_once('.')) {
            Some(("o", _)) => return Target::Stdout,
            Some(("e", _)) => return Target::Stderr,
            Some(_) | None => {}
        }
        if link == terminal.as_bytes() || link == b"/dev/tty" {
            return own;
        }
        // Let go of already, for a steward that died before it could say so.
        if link == b"/dev/null" && found.both_ways { Target::Stderr } else { Target::Kept }
    }
}

/// Whoever finds a stream empty is to know why.
pub(super) fn warnings(streams: &Streams) -> impl Iterator<Item = Warning> {
    let names = [("stdout_redirected", "standard output", ">"), ("stderr_redirected", "standard error", "2>")];
    let kept =
        streams.targets.iter().zip(&streams.links).zip(names).filter(|((target, _), _)| **target == Target::Kept);
    kept.map(|((_, link), (code, name, sign))| {
        let link = String::from_utf8_lossy(link).into_owned();
        let state = if link.is_empty() { "is closed".to_owned() } else { format!("goes to `{link}`") };
        let message = format!("the shell's {name} {state}, as a command left it; `exec {sign}/dev/tty` brings it back");
        Warning { code: code.into(), message }
    })
}
