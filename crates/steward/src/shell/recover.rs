//! Starting over what a steward before us began. Nothing is remembered; everything is read from the journal and held
//! in the keeper.
//!
//! ```text
//! descriptors came back ── process alive ──► adopt it, with the command that it was given; one that was noted as started
//!                       │                    and never given to it waits for its turn, or ends if it was told to
//!                       ├─ not ready yet ──► nothing was given to it, perhaps not even its state: another instead
//!                       └─ process gone ──► its command ended with it
//! none, keeper alive ─────────────────────► it was being let go of, or started: what waits gets a new shell
//! none, keeper dead too ──────────────────► what ran is lost, what waited failed; a new shell at the next command
//! ```

use super::trigger::{self, TriggerFile};
use super::{Entry, Running, Shell, Stage, Start, watch};
use crate::host::{Host, What, uptime};
use crate::journal::{Journal, JournalError, LogPos};
use crate::left_output;
use crate::link::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_model::epilogue::Leftovers;
use stead_model::frame::Stream;
use stead_model::proto::{CancelReason, Ending, Fault, FaultCode, OpenShell, Status};
use stead_model::record::{Cancelling, Head, Record, Spawned, Started, StateMark};
use stead_model::recovery::{Handover, NextStep, OpenCommand, ending_unstarted};
use stead_model::shell::{Dialect, Overlay, Token};
use stead_term::proc;

/// What the records say, taken together.
#[derive(Default)]
struct Past {
    head: Option<Head>,
    incarnation: u64,
    spawned: Option<Spawned>,
    /// One that was to be ended, and perhaps was.
    let_go: Option<Spawned>,
    mark: StateMark,
    commands: BTreeMap<u64, Entry>,
    started: BTreeMap<u64, Started>,
    cancelling: BTreeMap<u64, Cancelling>,
    /// Commands that were noted as started, never given to a shell, and are to end.
    unstarted: Vec<(u64, Ending)>,
    next_number: u64,
    env: super::env::Past,
    masked: BTreeSet<u64>,
    /// No command has been given to the process that was last started.
    untouched: bool,
    /// It may have been, but it has not yet ended one, nor taken an environment.
    unproven: bool,
    /// Its last command ended it, and said so.
    has_left: bool,
}

impl Past {
    /// Why a command is to end, if it was told to.
    fn reason(&self, number: u64) -> Option<CancelReason> {
        self.cancelling.get(&number).map(|cancelling| cancelling.reason)
    }

    fn see(&mut self, record: Record, at: LogPos) {
        match record {
            Record::Head(head) => {
                self.next_number = self.next_number.max(head.next_number);
                self.mark = head.state.clone();
                self.incarnation = head.incarnation;
                self.head = Some(*head);
            }
            Record::Spawning(incarnation) => {
                self.incarnation = incarnation;
                self.mark.forget_process();
                // Named a second time: it is to have no command any more.
                self.let_go = self.spawned.take().filter(|spawned| spawned.incarnation == incarnation);
                self.env.spawning();
                (self.untouched, self.unproven, self.has_left) = (true, true, false);
                // A command that is still open was not read by the process before, or there would be no other yet.
                let commands = &self.commands;
                self.started.retain(|number, _| commands.get(number).is_none_or(|entry| entry.ended.is_some()));
            }
            Record::Spawned(spawned) => {
                self.incarnation = spawned.incarnation;
                self.spawned = Some(spawned);
            }
            Record::Accepted(accepted) => {
                self.next_number = self.next_number.max(accepted.number + 1);
                if accepted.masked == Some(true) {
                    self.masked.insert(accepted.number);
                }
                self.commands.insert(accepted.number, Entry::new(*accepted, at));
            }
            Record::Started(started) => {
                self.untouched = false;
                if let Some(entry) = self.commands.get_mut(&started.number) {
                    entry.start.get_or_insert(Start { at: started.at, uptime: started.uptime });
                    entry.last_seq = entry.start_seq;
                }
                self.started.insert(started.number, started);
            }
            Record::Chunk(chunk) => {
                if let Some(entry) = self.commands.get_mut(&chunk.number) {
                    entry.last_seq = chunk.seq;
                    if let Some(bytes) = entry.bytes.get_mut(super::pair::stream_index(chunk.stream)) {
                        *bytes = chunk.offset + chunk.length;
                    }
                }
            }
            Record::Cancelling(cancelling) => {
                self.cancelling.insert(cancelling.number, cancelling);
            }
            Record::Ended(ended) => {
                self.mark = ended.state;
                self.has_left |= ended.ending.shell_exited || ended.ending.shell_replaced;
                self.unproven &= !self.started.contains_key(&ended.number);
                self.masked.remove(&ended.number);
                self.cancelling.remove(&ended.number);
                if let Some(entry) = self.commands.get_mut(&ended.number) {
                    entry.ended = Some(at);
                    entry.last_seq = ended.seq;
                    entry.exec = None;
                    entry.drained = !ended.ending.streams_open;
                }
                if !ended.ending.streams_open {
                    self.started.remove(&ended.number);
                }
            }
            Record::Drained(number) => {
                self.started.remove(&number);
                if let Some(entry) = self.commands.get_mut(&number) {
                    entry.drained = true;
                }
            }
            Record::Evicted(number) => {
                if let Some(entry) = self.commands.get_mut(&number) {
                    entry.evicted = true;
                }
            }
            Record::Env(env) => {
                self.mark = env.state.clone();
                self.env.asked(*env);
            }
            Record::Sums(sums) => {
                if let Some(entry) = self.commands.get_mut(&sums.number) {
                    entry.sums = Some(sums);
                }
            }
            Record::EnvApplied(version) => {
                self.unproven = false;
                self.env.applied(version);
            }
        }
    }
}

impl Shell {
    /// Brings back the shell whose journal is `key`; `None` if it never got as far as being one.
    pub(crate) fn recover(host: &mut Host, key: u32, store: &mut Store) -> Result<Option<Self>, JournalError> {
        let mut past = Past::default();
        let journal = Journal::open(&host.dir.journal(key), |record, at| past.see(record, at))?;
        let Some(head) = past.head.take() else { return Ok(None) };
        let (program, applet, dialect) = program_of(&head.open);
        let mut shell = Self::bare(host, key, head.open, journal, program, applet, dialect);
        shell.next_number = past.next_number;
        shell.mark = past.mark.clone();
        shell.incarnation = past.incarnation;
        shell.commands = std::mem::take(&mut past.commands);
        let lost = shell.note_damage(&past);
        // A query of ours must not be answered by what was said to the steward before: time since boot only grows.
        shell.next_query = uptime();
        shell.remove_strays()?;
        shell.load_state()?;
        shell.journal.keep_state(shell.mark.stored)?;
        shell.count_bytes();
        shell.unnoted = true;
        shell.note_unnoted(host)?;
        for number in lost {
            shell.end_without_running(host, number, Ending::new(Status::Lost, None));
        }
        shell.queue =
            shell.commands.iter().filter(|(_, entry)| entry.ended.is_none()).map(|(number, _)| *number).collect();
        shell.next_pair = shell.pairs_ever(&past.started) + 1;
        let mut ours = shell.take_parked(store);
        shell.recover_env(host, std::mem::take(&mut past.env), ours.remove("sec"))?;
        for number in &past.masked {
            shell.unmask(*number, ours.remove(&format!("text:{number}")));
        }
        let open = shell.queue.front().copied().filter(|number| past.started.contains_key(number));
        let running = open.filter(|number| !shell.was_not_given(host, *number, &mut past, &mut ours));
        if running.is_some() {
            shell.queue.pop_front();
        }
        shell.end_cancelled(host, &past);
        let names = ["tb", "ppty", "pctl", "plin"];
        let mut of_terminal: Store =
            names.iter().filter_map(|name| Some(((*name).to_owned(), ours.remove(*name)?))).collect();
        shell.adopt_pairs(host, &mut ours, &past.started);
        if let Some(pid) = past.let_go.as_ref().and_then(|spawned| still_there(host, spawned)) {
            super::close::end_session(pid);
        }
        match (ours.remove("ctl"), ours.remove("rep"), ours.remove("pty"), past.spawned.clone()) {
            (Some(ctl), Some(rep), Some(pty), Some(spawned)) if spawned.boot.0 == host.boot => {
                shell.adopt_process(host, &spawned, [ctl, rep, pty], running, &past, &mut ours)?;
            }
            // It was resting.
            (_, _, _, None) if running.is_none() && shell.queue.is_empty() => {}
            // Whoever was let go of had no command any more; whoever was being started had none yet.
            _ if host.kept && running.is_none() => shell.respawn(host),
            _ => shell.all_is_lost(host, past.spawned.as_ref(), running, &past.started)?,
        }
        shell.adopt_terminal(host, &mut of_terminal);
        shell.sweep_run_directory();
        shell.sum_all_later(host);
        Ok(Some(shell))
    }

    /// Tells of damage in the journal. The commands whose records it took with it: nobody can say how they ended, or
    /// whether they were ever given to a shell, so they are not to be run.
    fn note_damage(&mut self, past: &Past) -> Vec<u64> {
        let Some(first) = self.journal.damage().first().copied() else { return Vec::new() };
        let (places, shell) = (self.journal.damage().len(), &self.open.shell);
        let (segment, offset) = (first.segment, first.offset);
        note!(
            "steward: shell {shell}: its journal is damaged in {places} places, first at byte {offset} of log {segment}"
        );
        self.warn("journal_damaged", format!("records were lost in {places} places of the journal of this shell"));
        // One of the records that were lost may have been the newest command.
        self.next_number += places as u64;
        let last = self.journal.damage().last().copied().unwrap_or(first);
        let newest = past.started.keys().chain(self.commands.iter().filter(|(_, e)| e.ended.is_some()).map(|(n, _)| n));
        let newest = newest.max().copied().unwrap_or(0);
        let is_lost = |number: u64, entry: &Entry| {
            let unknown = !past.started.contains_key(&number) && entry.first < last;
            entry.ended.is_none() && (number < newest || unknown)
        };
        self.commands.iter().filter(|(number, entry)| is_lost(**number, entry)).map(|(number, _)| *number).collect()
    }

    /// Whether a command that was noted as started certainly never reached the shell. It stays in the queue then, as if
    /// it had not been started; what was made for it is removed.
    fn was_not_given(&mut self, host: &Host, number: u64, past: &mut Past, parked: &mut Store) -> bool {
        let seen = self.commands.get(&number).is_some_and(Entry::has_written);
        let handover = trigger::handover(parked.get(trigger::PARKED));
        let open = OpenCommand { handover, seen, cancelled: past.reason(number), overdue: self.is_overdue(number) };
        match open.next_step() {
            NextStep::Adopt | NextStep::AdoptInDoubt => return false,
            NextStep::Start => {}
            NextStep::End(ending) => past.unstarted.push((number, ending)),
        }
        past.started.remove(&number);
        for end in ["i", "q"] {
            if parked.remove(&format!("{end}:{number}")).is_some() {
                host.link.unpark(&self.parked(&format!("{end}:{number}")));
            }
        }
        super::spawn::remove(&self.place(&format!("i.{number}")));
        true
    }

    /// Ends the commands that were told to, or whose time is over, and that no shell has had.
    fn end_cancelled(&mut self, host: &mut Host, past: &Past) {
        let overdue = |number: u64| self.is_overdue(number).then_some(CancelReason::TimedOut);
        let told = |number: &u64| {
            let reason = past.reason(*number).or_else(|| overdue(*number));
            reason.map(|reason| (*number, ending_unstarted(reason)))
        };
        let waiting: Vec<_> = self.queue.iter().filter_map(told).collect();
        for (number, ending) in past.unstarted.iter().cloned().chain(waiting) {
            if let Some(place) = self.queue.iter().position(|queued| *queued == number) {
                self.queue.remove(place);
                self.end_without_running(host, number, ending);
            }
        }
    }

    fn is_overdue(&self, number: u64) -> bool {
        self.commands.get(&number).and_then(Entry::time_left) == Some(Duration::ZERO)
    }

    fn count_bytes(&mut self) {
        let kept = self.commands.values().filter(|entry| !entry.evicted);
        self.stream_bytes = kept.map(|entry| entry.bytes.iter().sum::<u64>()).sum();
    }

    /// Output of commands that a cut log no longer knows: their numbers will be given again.
    fn remove_strays(&self) -> Result<(), JournalError> {
        for number in self.journal.stream_numbers()? {
            // A number below belongs to a command whose records are damaged, and won't be given again.
            let is_cut = self.journal.damage().is_empty() || number >= self.next_number;
            if is_cut && !self.commands.contains_key(&number) {
                self.journal.remove_streams(number)?;
            }
        }
        Ok(())
    }

    /// The highest number of a pair that was ever made and may still be somewhere.
    fn pairs_ever(&self, started: &BTreeMap<u64, Started>) -> u64 {
        let files = fs::read_dir(&self.run).into_iter().flatten().flatten();
        let files = files.filter_map(|entry| entry.file_name().to_str()?.get(2..)?.parse().ok());
        files.chain(started.values().map(|started| started.pair)).max().unwrap_or(0)
    }

    fn take_parked(&self, store: &mut Store) -> Store {
        let prefix = format!("{}:", self.key);
        let names: Vec<_> = store.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        let take = |name: String| Some((name.strip_prefix(&prefix)?.to_owned(), store.remove(&name)?));
        names.into_iter().filter_map(take).collect()
    }

    fn adopt_pairs(&mut self, host: &mut Host, parked: &mut Store, started: &BTreeMap<u64, Started>) {
        let ids: BTreeSet<u64> = parked.keys().filter_map(|name| name.get(2..)?.parse().ok()).collect();
        for id in ids {
            let ends = (parked.remove(&format!("o:{id}")), parked.remove(&format!("e:{id}")));
            let (Some(out), Some(err)) = ends else {
                // Killed between making the first and the second; nobody has been told of it.
                for name in ["o", "e"] {
                    host.link.unpark(&self.parked(&format!("{name}:{id}")));
                    host.heir.take_back(&self.parked(&format!("{name}:{id}")));
                }
                continue;
            };
            let basins = (parked.remove(&format!("bo:{id}")), parked.remove(&format!("be:{id}")));
            if let Err(error) = self.adopt_pair(host, id, [(out, basins.0), (err, basins.1)]) {
                note!("steward: shell {}: output: {error}", self.open.shell);
                continue;
            }
            let owner = started.values().find(|started| started.pair == id).map(|started| started.number);
            match owner {
                Some(number) => self.own_pair(id, number),
                None if self.spare.is_none() => self.spare = Some(id),
                None => self.drop_pair(host, id),
            }
        }
    }

    fn adopt_process(
        &mut self,
        host: &mut Host,
        spawned: &Spawned,
        [ctl, rep, pty]: [OwnedFd; 3],
        running: Option<u64>,
        past: &Past,
        parked: &mut Store,
    ) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { path: self.run.clone(), source };
        let handover = trigger::handover(parked.get(trigger::PARKED));
        let trigger = if let Some(trigger) = parked.remove(trigger::PARKED) {
            trigger
        } else {
            let trigger = TriggerFile::create().map_err(failed)?;
            host.link.park(&self.parked(trigger::PARKED), &trigger).map_err(failed)?;
            trigger
        };
        let same = still_there(host, spawned).is_some();
        let pid = if same { spawned.pid } else { 0 };
        let mut live = self.live_on(host, pid, self.lines(), [ctl, rep, pty, trigger]).map_err(failed)?;
        (live.pid, live.start_time) = (spawned.pid, spawned.start_time);
        self.bystanders = live.trigger.bystanders();
        host.kills.jobs(self.key, !self.bystanders.is_empty());
        let replies = fs::read(self.run.join(format!("replies.{}", self.incarnation))).map_err(failed)?;
        live.reply_length = replies.len() as u64;
        // One that has ended a command was ready. The log may not say so: it is emptied between two commands.
        live.ready = !past.unproven || was_ready(&replies);
        self.live = Some(live);
        if past.unproven {
            self.stillborn = spawned.stillborn.unwrap_or(0);
        }
        self.read_baseline_again();
        if let Some(number) = running {
            self.adopt_command(host, number, handover, past, parked);
        }
        self.hear_again(host, &replies, past);
        let ready = self.live.as_ref().is_some_and(|live| live.ready);
        // Its death has been told with its last command.
        if past.has_left && same {
            self.condemn();
        } else if let Some(live) = self.live.as_mut() {
            live.condemned |= past.has_left;
        }
        if !same {
            self.process_gone(host);
        } else if past.untouched && !ready {
            // The steward before us may have died before it told it to become what it should be. Noted first: who comes
            // after us must not take it for one that died of its state.
            self.journal.append(&[&Record::Spawning(self.incarnation)], crate::journal::Need::Last)?;
            self.condemn();
        } else if self.running.is_none() {
            self.start_next(host);
        }
        Ok(())
    }

    /// A baseline that was being written when we died will be announced again.
    fn read_baseline_again(&mut self) {
        let ours = self.lines().exit_trap();
        let dump = fs::read(self.run.join("base")).unwrap_or_default();
        self.baseline = stead_model::state::Capture::parse(self.dialect, &dump, ours.as_bytes()).ok();
    }

    fn adopt_command(&mut self, host: &mut Host, number: u64, handover: Handover, past: &Past, parked: &mut Store) {
        let Some(started) = past.started.get(&number) else { return };
        let Some(exec) = self.commands.get(&number).and_then(|entry| entry.exec.clone()) else { return };
        let overlay = Overlay { cwd: exec.cwd.clone(), env: exec.env.clone() };
        // It may have been started with a builtin loaded that we don't know of: then a capture comes that we don't wait
        // for, and the next one catches up.
        let effect = self.effect(&exec, &overlay);
        let ends = (parked.remove(&format!("i:{number}")), parked.remove(&format!("q:{number}")));
        let input = self.adopt_input(number, &exec.stdin, ends);
        self.next_query += 1;
        let query = self.next_query;
        let written = self.commands.get(&number).is_some_and(Entry::has_written);
        let in_doubt = handover == Handover::Unknown && !written && !self.is_held(host, started.pair);
        self.running = Some(Running {
            number,
            pair: started.pair,
            overlay,
            effect,
            input,
            stage: Stage::Running,
            report: None,
            leftovers: Leftovers::default(),
            cancel: None,
            in_doubt,
            no_directory: false,
            // If it is answered without a report, the shell is back at its top without one.
            watch: watch::Watch::asked(query),
            said_at: None,
            stalled: false,
            settled: None,
            killed_before: (started.oom_kills, host.link.killed()),
        });
        host.kills.adopt(self.key, started.oom_kills);
        self.say(&|lines| lines.query(query));
        host.after(watch::FIRST, self.key, What::Watch(number));
        if let Some(left) = self.commands.get(&number).and_then(Entry::time_left) {
            host.after(left, self.key, What::Deadline(number));
        }
        if let Some(cancelling) = past.cancelling.get(&number) {
            let ago = Duration::from_micros(uptime().saturating_sub(cancelling.uptime));
            let began = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
            self.begin_cancel(host, number, cancelling.reason, began, cancelling.signalled == Some(true));
        }
    }

    /// What the shell said to the steward before us, as far as it bears on the command that is still open.
    fn hear_again(&mut self, host: &mut Host, replies: &[u8], past: &Past) {
        let mut reports = stead_model::shell::Reports::default();
        reports.push(replies);
        let mut heard = Vec::new();
        while let Some(report) = reports.next_report() {
            heard.push(report);
        }
        if let Some(live) = &mut self.live {
            live.reports = reports;
        }
        for report in heard {
            match report.token {
                // What it means has been told with the first command that ended.
                Token::Ready if past.unproven => self.heard(host, report),
                Token::BaselineReady | Token::Ready | Token::Answer(_) | Token::EnvApplied(_) => {}
                Token::Ended(_)
                | Token::Captured
                | Token::Statuses(_)
                | Token::Output(_)
                | Token::Exiting(_)
                | Token::NoDirectory(_) => {
                    self.heard(host, report);
                }
            }
        }
        self.replies_ready(host);
    }

    /// Keeper and steward both died: the shells have lost their terminal and their control FIFO, and ended.
    fn all_is_lost(
        &mut self,
        host: &mut Host,
        spawned: Option<&Spawned>,
        running: Option<u64>,
        started: &BTreeMap<u64, Started>,
    ) -> Result<(), JournalError> {
        // One that ignores hang-ups may still be there; nobody will ever speak to it again.
        if let Some(pid) = spawned.and_then(|spawned| still_there(host, spawned)) {
            proc::signal(pid, rustix::process::Signal::KILL);
        }
        for started in started.values() {
            self.rescue(host, started)?;
        }
        if let Some(number) = running {
            self.end_without_running(host, number, Ending::new(Status::Lost, None));
        }
        let fault = Fault::new(FaultCode::Unavailable, "the steward and its keeper died before it could run");
        self.fail_queue(host, &fault);
        for started in started.values() {
            self.note_held(host, started.number)?;
            if let Some(entry) = self.commands.get_mut(&started.number) {
                entry.drained = true;
            }
            self.journal.append(&[&Record::Drained(started.number)], crate::journal::Need::Last)?;
        }
        Ok(())
    }

    /// What the heir found in the pipes, and what a process that outlived both has written since.
    fn rescue(&mut self, host: &mut Host, started: &Started) -> Result<(), JournalError> {
        for stream in Stream::BOTH {
            let (file, length) = self.journal.open_stream(started.number, stream)?;
            let failed = |source| JournalError::io(&self.run, source);
            left_output::append(&self.run, started.pair, stream, &file, length).map_err(failed)?;
            self.note_what_is_on_disk(host)?;
        }
        Ok(())
    }

    /// Removes FIFOs that nobody has a descriptor of, and those of earlier incarnations.
    fn sweep_run_directory(&self) {
        let Ok(entries) = fs::read_dir(&self.run) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((kind, number)) = name.split_once('.') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            let kept = match kind {
                "o" | "e" => self.pairs.contains_key(&number),
                "ctl" | "rep" | "replies" => self.live.is_some() && number == self.incarnation,
                "i" => self.running.as_ref().is_some_and(|running| running.number == number),
                _ => true,
            };
            if !kept {
                super::spawn::remove(&entry.path());
            }
        }
    }
}

/// The process, unless it is gone.
fn still_there(host: &Host, spawned: &Spawned) -> Option<i32> {
    let same = proc::stat(spawned.pid).is_some_and(|stat| stat.start_time == spawned.start_time);
    (same && spawned.boot.0 == host.boot).then_some(spawned.pid)
}

/// Whether a shell has ever said that it is ready, or ended a command.
fn was_ready(replies: &[u8]) -> bool {
    let mut reports = stead_model::shell::Reports::default();
    reports.push(replies);
    std::iter::from_fn(|| reports.next_report()).any(|report| matches!(report.token, Token::Ready | Token::Ended(_)))
}

/// The program may have gone since; then the next start says so.
fn program_of(open: &OpenShell) -> (PathBuf, Option<&'static str>, Dialect) {
    super::spawn::find_program(open).unwrap_or_else(|_| {
        let dialect = if open.program == stead_model::proto::Program::Bash { Dialect::Bash } else { Dialect::Posix };
        (PathBuf::from("/bin/sh"), None, dialect)
    })
}
