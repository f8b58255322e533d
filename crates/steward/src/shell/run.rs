//! From a request to a line in the control FIFO.

use super::pair::NO_PAIR;
use super::stored::Trust;
use super::{Entry, Live, Running, Shell, Stage, Start, io_fault, journal_fault, watch};
use crate::host::{Host, What, now, uptime};
use crate::journal::Need;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use stead_model::effect::{Effect, effect_of};
use stead_model::epilogue::{Epilogue, Leftovers};
use stead_model::proto::{Exec, Fault, FaultCode, IfBusy, MAX_QUEUE, Stdin};
use stead_model::record::{Accepted, Record, Started};
use stead_model::shell::{Dialect, Input, Overlay, Trigger, UNUSED};
use stead_model::state::Bytes;

/// A follower hears of the start with the first output or the end; if neither comes soon, by itself. A quick command
/// is spared a wake-up of its client.
const ANNOUNCE: Duration = Duration::from_millis(2);

impl Shell {
    /// Takes a command: notes it, and starts it if the shell is free. Nothing has changed if it fails.
    pub(crate) fn accept(&mut self, host: &mut Host, exec: Exec) -> Result<u64, Fault> {
        exec.check()?;
        let idle = self.running.is_none() && self.queue.is_empty();
        if !idle && exec.if_busy == IfBusy::Reject {
            return Err(Fault::new(FaultCode::Busy, "the shell is busy with another command"));
        }
        if self.queue.len() >= MAX_QUEUE {
            return Err(Fault::new(FaultCode::LimitReached, format!("{MAX_QUEUE} commands are waiting already")));
        }
        self.roll(host)?;
        if self.live.is_none() && idle {
            self.spawn(host)?;
        }
        let number = self.next_number;
        let written = self.as_written(&exec);
        let masked = if written == exec { None } else { Some(self.mask(host, number, &exec)?) };
        let accepted = Accepted {
            number,
            at: now(),
            exec: written,
            masked: masked.is_some().then_some(true),
            queued: (!idle).then_some(true),
        };
        let record = Record::Accepted(Box::new(accepted));
        let first = self.journal.append(&[&record], Need::WithReserve).map_err(|error| journal_fault(&error))?;
        if let Record::Accepted(accepted) = record {
            let entry = Entry { masked, ..Entry::new(Accepted { exec, ..*accepted }, first) };
            self.commands.insert(number, entry);
        }
        self.next_number += 1;
        self.queue.push_back(number);
        self.start_next(host);
        Ok(number)
    }

    /// Begins a new log file if the one there is full.
    pub(super) fn roll(&mut self, host: &Host) -> Result<(), Fault> {
        if self.journal.is_full() {
            self.journal.begin_segment(&self.head()).map_err(|error| journal_fault(&error))?;
            self.note_live(host)?;
            self.note_env_again().map_err(|error| journal_fault(&error))?;
        }
        Ok(())
    }

    /// A new log file must know the process too.
    fn note_live(&mut self, host: &Host) -> Result<(), Fault> {
        let Some(pid) = self.live.as_ref().map(|live| live.pid) else { return Ok(()) };
        let start_time = stead_term::proc::stat(pid).map_or(0, |stat| stat.start_time);
        let record = self.spawned_record(host, pid, start_time);
        self.journal.append(&[&record], Need::Last).map(|_| ()).map_err(|error| journal_fault(&error))
    }

    /// Gives the next command to the shell, if it is free and there is one.
    pub(super) fn start_next(&mut self, host: &mut Host) {
        while self.running.is_none() && self.live.as_ref().is_some_and(Live::can_take) {
            if self.env_first(host) {
                return;
            }
            let Some(number) = self.queue.pop_front() else { return };
            if let Err(fault) = self.start(host, number) {
                self.end_without_shell(host, number, fault);
            }
        }
    }

    fn start(&mut self, host: &mut Host, number: u64) -> Result<(), Fault> {
        let Some(exec) = self.commands.get(&number).and_then(|entry| entry.exec.clone()) else {
            return Err(Fault::new(FaultCode::NotFound, "the command is gone"));
        };
        if host.chores.contains(&self.key) {
            self.note_bystanders();
            host.kills.jobs(self.key, !self.bystanders.is_empty());
        }
        // Once for each process: after that the chores do.
        if self.live.as_ref().is_some_and(|live| live.ready && !host.kills.knows(self.key, live.pid)) {
            self.note_idle(host);
        }
        let overlay = self.overlay(&exec)?;
        let effect = self.effect(&exec, &overlay);
        let pair = if exec.stdin == Stdin::Terminal {
            // What is there already is not this command's.
            self.empty_terminal(host);
            NO_PAIR
        } else {
            self.take_pair(host).map_err(|error| io_fault("can't make the output FIFOs", &error))?
        };
        let prepared = self.prepare(host, (number, pair), &exec, &overlay, effect);
        let input = match prepared {
            Ok(input) => input,
            Err(error) => {
                self.release_pair(host, pair);
                return Err(io_fault("can't prepare the command", &error));
            }
        };
        let start = self.commands.get(&number).and_then(|entry| entry.start);
        let start = start.unwrap_or_else(|| Start { at: now(), uptime: uptime() });
        let killed_before = (host.kills.begin(self.key), host.link.killed());
        let (at, uptime) = (start.at, start.uptime);
        let record = Record::Started(Started { number, pair, at, uptime, oom_kills: killed_before.0 });
        if let Err(error) = self.journal.append(&[&record], Need::Last) {
            host.kills.forget(self.key);
            self.release_pair(host, pair);
            return Err(journal_fault(&error));
        }
        if let Some(entry) = self.commands.get_mut(&number) {
            entry.start = Some(start);
            entry.last_seq = entry.start_seq;
        }
        self.own_pair(pair, number);
        self.running = Some(Running {
            number,
            pair,
            overlay,
            effect,
            input,
            report: None,
            leftovers: Leftovers::default(),
            stage: Stage::Running,
            cancel: None,
            in_doubt: false,
            no_directory: false,
            watch: watch::Watch::default(),
            said_at: self.live.as_ref().map(|live| live.said),
            stalled: false,
            settled: None,
            killed_before,
        });
        self.send_trigger();
        host.after(watch::FIRST, self.key, What::Watch(number));
        host.after(ANNOUNCE, self.key, What::Announce(number));
        if let Some(left) = self.commands.get(&number).and_then(Entry::time_left) {
            host.after(left, self.key, What::Deadline(number));
        }
        Ok(())
    }

    /// What the command may change; a builtin loaded from a file may change anything. Where the shell may have more than is
    /// stored, what it has is to be captured.
    pub(super) fn effect(&mut self, exec: &Exec, overlay: &Overlay) -> Effect {
        self.loaded |= exec.text.windows(6).any(|word| word == b"enable");
        if self.loaded || self.trust == Trust::Behind || !overlay.is_empty() {
            Effect::Unknown
        } else {
            effect_of(&exec.text, &self.context)
        }
    }

    /// The trigger itself and everything it names, made before it is sent.
    fn prepare(
        &mut self,
        host: &mut Host,
        (number, pair): (u64, u64),
        exec: &Exec,
        overlay: &Overlay,
        effect: Effect,
    ) -> io::Result<Option<super::input::Input>> {
        if self.mark.last_status != 0 {
            let path = self.run.join(format!("s.{}", self.mark.last_status));
            if !path.exists() {
                // Whole or not at all: half of it would return 0, and the command behind `||` would not run.
                crate::dir::write_atomically(&path, self.lines().status_script(self.mark.last_status).as_bytes())?;
            }
        }
        if !overlay.is_empty() {
            let lines = self.lines();
            super::spawn::write_private(&self.place("w"), &lines.overlay_script(number, overlay))?;
            super::spawn::write_private(&self.run.join("u"), &lines.undo_script(&self.state, &self.mark.cwd))?;
        }
        let epilogue = self.epilogue(exec, effect);
        let trigger = self.trigger((number, pair), exec, overlay, effect);
        let line = self.live.as_ref().map(|live| live.lines.trigger(&trigger));
        let capture = trigger.capture;
        if let Some(live) = &mut self.live {
            let mut length = exec.text.len() as u64;
            live.text.write_all_at(&exec.text, 0)?;
            if epilogue != Epilogue::None {
                let epilogue = live.lines.epilogue(epilogue, number, pair);
                live.text.write_all_at(epilogue.as_bytes(), length)?;
                length += epilogue.len() as u64;
            }
            if length < live.text_length {
                live.text.set_len(length)?;
            }
            live.text_length = length;
            if capture {
                // What is in it afterwards is this command's, also for a steward that takes over in between.
                live.dump.write_all_at(&[UNUSED], 0)?;
            }
        }
        if let Some(line) = line {
            self.prepare_trigger(&line)?;
        }
        self.make_input(host, number, &exec.stdin)
    }

    fn trigger(&self, (number, pair): (u64, u64), exec: &Exec, overlay: &Overlay, effect: Effect) -> Trigger<'_> {
        let (targets, held) = self.outputs_of_next();
        Trigger {
            number,
            pair,
            input: match exec.stdin {
                Stdin::Empty => Input::Empty,
                Stdin::Bytes(_) | Stdin::Open => Input::Given,
                Stdin::Terminal => Input::Terminal,
            },
            last_status: self.mark.last_status,
            pipe_status: self.pipe_status_for(&exec.text, effect),
            targets,
            held,
            overlay: !overlay.is_empty(),
            capture: effect == Effect::Unknown,
            eval: self.dialect == Dialect::Bash
                && ["DEBUG", "RETURN"].iter().any(|trap| self.state.traps.contains_key(*trap)),
        }
    }

    /// Writes into the control FIFO. It takes 64 KiB and we never have more than a few lines in it; if it is full
    /// all the same, the shell doesn't read, and the watch or the cancellation will replace it.
    pub(super) fn say(&mut self, line: &dyn Fn(&stead_model::shell::Lines) -> String) {
        if let Some(live) = &mut self.live {
            let line = line(&live.lines);
            match live.control.write_all(line.as_bytes()) {
                Ok(()) => live.said += line.len() as u64,
                Err(error) => note!("steward: shell {}: control FIFO: {error}", self.open.shell),
            }
        }
    }

    /// The directory is made absolute, so that `CDPATH` has no say.
    fn overlay(&self, exec: &Exec) -> Result<Overlay, Fault> {
        let Some(cwd) = &exec.cwd else { return Ok(Overlay { cwd: None, env: exec.env.clone() }) };
        let base = Path::new(std::ffi::OsStr::from_bytes(&self.mark.cwd));
        let cwd = base.join(std::ffi::OsStr::from_bytes(cwd));
        if !cwd.is_dir() {
            return Err(Fault::new(FaultCode::NoDirectory, format!("`{}` is not a directory", cwd.display())));
        }
        Ok(Overlay { cwd: Some(Bytes::from(cwd.as_os_str().as_bytes())), env: exec.env.clone() })
    }
}
