//! What the environment call asked for: noted at once, given to the shell between two commands.
//!
//! ```text
//! SetEnv ─► secrets into a memory file, held by the keeper too ─► state and record in the journal ─► answered
//!              shell free: a script and one line ─► it says so ─► record ─► the next command
//!              another process instead: the variables come with its state, the secrets by the script
//! ```
//!
//! The value of a secret is in our memory, in that memory file, and in the shell. As long as a process has one, what goes
//! between us and it (texts, scripts, dumps) lies in a directory in memory, and what it tells of its state is
//! stored without the secrets and without whatever holds the value of one.

use super::spawn::remove;
use super::{Shell, io_fault, journal_fault};
use crate::host::{Host, What};
use crate::journal::{JournalError, Need};
use crate::memory;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use stead_model::env::{Secret, Vars, check};
use stead_model::proto::{Ending, EnvInfo, Fault, FaultCode, SecretInfo, SetEnv, SetSecret, Warning};
use stead_model::record::{EnvRecord, Record, StateMark};
use stead_model::state::{Bytes, ShellState};
use stead_term::{proc, scarce};

/// A shell that is free takes it in a millisecond; an interrupt from one of its children may make it miss the line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lines it may miss before it is replaced.
const MOST_TRIES: u32 = 5;

/// Values that secrets had before; they are looked for in states as long as the process may have them.
const MOST_FORMER: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Env {
    seq: u64,
    pub(super) secrets: BTreeMap<Bytes, Held>,
    former: Vec<Secret>,
    /// What the keeper has of the secrets.
    pub(super) memory: Option<OwnedFd>,
    /// Asked for, and not yet in the process.
    due: Due,
    applying: Option<Applying>,
    /// Where texts and dumps are, once the process has had a secret.
    pub(super) private: Option<PathBuf>,
    /// What was left out of the state and told so.
    told: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Held {
    revision: u64,
    /// `None`: it went with the keeper. Whoever knows it sends it again.
    value: Option<Secret>,
}

#[derive(Debug, Default)]
struct Due {
    vars: Vars,
    secrets: BTreeSet<Bytes>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.vars.is_empty() && self.secrets.is_empty()
    }
}

/// A script on its way.
#[derive(Debug)]
struct Applying {
    number: u64,
    /// Of the state that it makes the process have.
    version: u64,
    due: Due,
    tries: u32,
    /// The shell has said that it ran it; only the record is missing, and the disk may be full.
    run: bool,
}

/// The memory file.
#[derive(Encode, Decode, Default)]
#[cbor(map)]
struct Memory {
    #[n(0)]
    secrets: Vec<(Bytes, u64, Secret)>,
    #[n(1)]
    former: Vec<Secret>,
}

/// What the journal says of it.
#[derive(Debug, Default)]
pub(super) struct Past {
    seq: u64,
    secrets: Vec<(Bytes, u64)>,
    due: Vec<(u64, Due)>,
    private: bool,
}

impl Past {
    pub(super) fn spawning(&mut self) {
        // A new process has the variables by its state. Whether it ever got the secrets is told by a later record.
        let secrets = self.secrets.iter().map(|(name, _)| name.clone()).collect();
        self.due = vec![(0, Due { vars: Vars::new(), secrets })];
        self.private = !self.secrets.is_empty();
    }

    pub(super) fn asked(&mut self, record: EnvRecord) {
        self.seq = record.seq;
        self.secrets = record.secrets;
        let due = Due { vars: record.vars.into_iter().collect(), secrets: record.changed.into_iter().collect() };
        self.due.push((record.state.version, due));
    }

    pub(super) fn applied(&mut self, version: u64) {
        let done = |due: &(u64, Due)| due.0 <= version;
        self.private |= self.due.iter().any(|due| done(due) && !due.1.secrets.is_empty());
        self.due.retain(|due| !done(due));
    }
}

impl Env {
    /// What a steward before us had, from its journal and from the keeper.
    pub(super) fn recover(past: Past, memory: Option<OwnedFd>) -> Self {
        let stored = memory.as_ref().and_then(|fd| memory::read(fd).ok());
        let Memory { secrets, former } = stored.and_then(|stored| minicbor::decode(&stored).ok()).unwrap_or_default();
        let held = |name: &Bytes, revision| {
            let found = secrets.iter().find(|(found, at, _)| found == name && *at == revision);
            Held { revision, value: found.map(|(_, _, value)| value.clone()) }
        };
        let secrets = past.secrets.iter().map(|(name, revision)| (name.clone(), held(name, *revision))).collect();
        let mut due = Due::default();
        for (_, each) in past.due {
            due.vars.extend(each.vars);
            due.secrets.extend(each.secrets);
        }
        Self { seq: past.seq, secrets, former, memory, due, ..Self::default() }
    }

    fn names(&self) -> BTreeSet<Bytes> {
        let leaving = self.applying.iter().flat_map(|applying| &applying.due.secrets);
        self.secrets.keys().chain(&self.due.secrets).chain(leaving).cloned().collect()
    }

    pub(super) fn values(&self) -> Vec<&Secret> {
        self.secrets.values().filter_map(|held| held.value.as_ref()).chain(&self.former).collect()
    }

    pub(super) fn info(&self) -> EnvInfo {
        let info = |(name, held): (&Bytes, &Held)| SecretInfo {
            name: name.clone(),
            revision: held.revision,
            held: held.value.is_some(),
        };
        EnvInfo { seq: self.seq, secrets: self.secrets.iter().map(info).collect(), takes_secrets: memory::is_there() }
    }

    pub(super) fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(AsFd::as_fd)
    }

    /// The process is gone, or not there yet: what was on its way to it is in the state that the next one gets.
    pub(super) fn without_process(&mut self) {
        (self.due, self.applying) = (Due::default(), None);
    }
}

impl Shell {
    /// Takes what the environment call asks for. Nothing has changed if it fails.
    pub(crate) fn put_env(&mut self, host: &mut Host, set: SetEnv) -> Result<(), Fault> {
        let vars = set.vars.iter().map(|(name, value)| (name, value.as_deref()));
        let secrets = set.secrets.iter().map(|set| (&set.name, set.value.as_ref().map(Secret::reveal)));
        check(vars.chain(secrets)).map_err(|error| Fault::new(FaultCode::Invalid, error.to_string()))?;
        let vars: Vars = if set.seq == self.env.seq { Vars::new() } else { set.vars.into_iter().collect() };
        let changed: Vec<SetSecret> = set.secrets.into_iter().filter(|set| self.is_news(set)).collect();
        if vars.is_empty() && changed.is_empty() && set.seq == self.env.seq {
            return Ok(());
        }
        self.require_state()?;
        if self.running.as_ref().is_some_and(|running| running.settled.is_some()) {
            return Err(journal_fault(&JournalError::NoSpace));
        }
        if changed.iter().any(|set| set.value.is_some()) {
            // Where there is no memory to speak through, none is taken.
            memory::directory(&host.dir, self.key).map_err(|error| {
                let fault = io_fault("secrets can't be kept off the disk here", &error);
                let passes = fault.code == FaultCode::NoSpace || scarce::is_passing(&error);
                if passes { fault } else { Fault { code: FaultCode::Unsupported, ..fault } }
            })?;
        }
        self.roll(host)?;
        let (secrets, former) = self.with_changed(&changed);
        let memory = self.park_secrets(host, &secrets, &former)?;
        let seq = set.seq;
        let names: Vec<Bytes> = changed.iter().map(|set| set.name.clone()).collect();
        if let Err(error) = self.note_env(seq, &vars, &names, &secrets) {
            // A revision that no record names is nobody's; the memory file that the records are about is put back.
            if let Some(before) = &self.env.memory {
                let _ = host.link.park(&self.parked("sec"), before);
            }
            return Err(journal_fault(&error));
        }
        (self.env.seq, self.env.secrets, self.env.former) = (seq, secrets, former);
        self.env.memory = memory;
        if self.env.memory.is_none() {
            host.link.unpark(&self.parked("sec"));
        }
        if self.live.is_some() {
            self.env.due.vars.extend(vars);
            self.env.due.secrets.extend(names);
        }
        self.start_next(host);
        Ok(())
    }

    fn is_news(&self, set: &SetSecret) -> bool {
        match (self.env.secrets.get(&set.name), &set.value) {
            (None, None) => false,
            (None, Some(_)) | (Some(_), None) => true,
            (Some(held), Some(_)) => held.revision != set.revision || held.value.is_none(),
        }
    }

    fn with_changed(&self, changed: &[SetSecret]) -> (BTreeMap<Bytes, Held>, Vec<Secret>) {
        let (mut secrets, mut former) = (self.env.secrets.clone(), self.env.former.clone());
        for set in changed {
            let before = match &set.value {
                Some(value) => {
                    let held = Held { revision: set.revision, value: Some(value.clone()) };
                    secrets.insert(set.name.clone(), held)
                }
                None => secrets.remove(&set.name),
            };
            former.extend(before.and_then(|held| held.value));
        }
        let old = former.len().saturating_sub(MOST_FORMER);
        former.drain(..old);
        (secrets, former)
    }

    fn park_secrets(
        &self,
        host: &Host,
        secrets: &BTreeMap<Bytes, Held>,
        former: &[Secret],
    ) -> Result<Option<OwnedFd>, Fault> {
        if secrets.is_empty() && former.is_empty() {
            return Ok(None);
        }
        let held = |(name, held): (&Bytes, &Held)| Some((name.clone(), held.revision, held.value.clone()?));
        let memory = Memory { secrets: secrets.iter().filter_map(held).collect(), former: former.to_vec() };
        let failed = |error: io::Error| io_fault("the secrets can't be kept", &error);
        let fd = memory::file(&minicbor::to_vec(&memory).unwrap_or_default()).map_err(failed)?;
        host.link.park(&self.parked("sec"), &fd).map_err(failed)?;
        Ok(Some(fd))
    }

    /// The state with it, on disk first; then the record, from which on it holds.
    fn note_env(
        &mut self,
        seq: u64,
        vars: &Vars,
        changed: &[Bytes],
        secrets: &BTreeMap<Bytes, Held>,
    ) -> Result<(), JournalError> {
        let mut state = self.state.clone();
        for name in changed {
            state.unset.remove(name);
        }
        state.hide(&changed.iter().cloned().collect(), &[]);
        let baseline = self.baseline.as_ref();
        let refused = state.change_env(self.dialect, vars, |name| baseline.is_none_or(|fresh| fresh.has(name)));
        let mut mark = StateMark { version: self.mark.version + 1, ..self.mark.clone() };
        if state != self.state {
            self.journal.store_state(mark.version, &state)?;
            mark.stored = mark.version;
        }
        let record = EnvRecord {
            seq,
            vars: vars.clone().into_iter().collect(),
            changed: changed.to_vec(),
            secrets: secrets.iter().map(|(name, held)| (name.clone(), held.revision)).collect(),
            state: mark.clone(),
        };
        self.journal.append(&[&Record::Env(Box::new(record))], Need::WithReserve)?;
        if mark.stored != self.mark.stored {
            self.obsolete.push(self.mark.stored);
        }
        self.mark = mark;
        self.set_state(state);
        self.tell_refused(&refused);
        Ok(())
    }

    /// A new log file must know it too.
    pub(super) fn note_env_again(&mut self) -> Result<(), JournalError> {
        if self.env.seq == 0 && self.env.secrets.is_empty() {
            return Ok(());
        }
        let mut vars = self.env.applying.as_ref().map_or_else(Vars::new, |applying| applying.due.vars.clone());
        vars.extend(self.env.due.vars.clone());
        let mut changed = self.env.due.secrets.clone();
        changed.extend(self.env.applying.iter().flat_map(|applying| applying.due.secrets.clone()));
        let record = EnvRecord {
            seq: self.env.seq,
            vars: vars.into_iter().collect(),
            changed: changed.into_iter().collect(),
            secrets: self.env.secrets.iter().map(|(name, held)| (name.clone(), held.revision)).collect(),
            state: self.mark.clone(),
        };
        self.journal.append(&[&Record::Env(Box::new(record))], Need::Last).map(|_| ())
    }

    fn tell_refused(&mut self, refused: &[Bytes]) {
        for name in refused {
            let message = format!("`{}` is read-only in the shell and stays as it is", name.escape_ascii());
            self.warn("env_not_set", message);
        }
    }

    /// Whether something must be given to the shell before it gets a command; gives it.
    pub(super) fn env_first(&mut self, host: &mut Host) -> bool {
        if self.running.is_some() || !self.live.as_ref().is_some_and(super::Live::can_take) {
            return false;
        }
        if self.env.applying.is_some() {
            return true;
        }
        if self.env.due.is_empty() {
            return false;
        }
        if let Err(error) = self.send_env(host) {
            note!("steward: shell {}: environment: {error}", self.open.shell);
            host.after(Duration::from_millis(100), self.key, What::Retry);
        }
        true
    }

    fn send_env(&mut self, host: &mut Host) -> io::Result<()> {
        if !self.env.due.secrets.is_empty() {
            self.go_private(host)?;
        }
        let traced = self.state.options.get("xtrace").is_some_and(|on| *on);
        let secrets = &self.env.secrets;
        let leaving = self.env.due.secrets.iter().filter(|name| !secrets.contains_key(*name));
        let leaving = leaving.map(|name| (&*name.0, None));
        let vars = self.env.due.vars.iter().map(|(name, value)| (&*name.0, value.as_deref()));
        // One that a command unset stays so in whatever process comes next, until it is set again.
        let wanted = self.env.due.secrets.iter().filter(|name| !self.state.has_unset(name));
        let values = wanted.filter_map(|name| Some((&*name.0, Some(secrets.get(name)?.value.as_ref()?.reveal()))));
        let script = self.lines().env_script(traced, leaving.chain(vars).chain(values));
        memory::write(&self.place("v"), &script)?;
        self.next_query += 1;
        let number = self.next_query;
        let due = std::mem::take(&mut self.env.due);
        self.env.applying = Some(Applying { number, version: self.mark.version, due, tries: 0, run: false });
        self.say(&|lines| lines.apply_env(number));
        host.after(PATIENCE, self.key, What::Env(number));
        Ok(())
    }

    /// The shell has run the script.
    pub(super) fn env_applied(&mut self, host: &mut Host, number: u64) {
        if let Some(applying) = self.env.applying.as_mut().filter(|applying| applying.number == number) {
            applying.run = true;
            self.conclude_env(host);
        }
    }

    /// Notes that it has, before any command can change it again.
    pub(super) fn conclude_env(&mut self, host: &mut Host) {
        let Some(version) = self.env.applying.as_ref().filter(|applying| applying.run).map(|applying| applying.version)
        else {
            return;
        };
        if let Err(error) = self.journal.append(&[&Record::EnvApplied(version)], Need::Last) {
            note!("steward: shell {}: {error}", self.open.shell);
            host.after(Duration::from_millis(100), self.key, What::Retry);
            return;
        }
        self.env.applying = None;
        remove(&self.place("v"));
        self.start_next(host);
    }

    /// It should have said so by now.
    pub(crate) fn env_overdue(&mut self, host: &mut Host, number: u64) {
        let Some(applying) = self.env.applying.as_mut().filter(|applying| applying.number == number && !applying.run)
        else {
            return;
        };
        let Some(live) = &self.live else { return };
        if proc::stat(live.pid).is_some_and(|stat| stat.state == b'T') {
            proc::signal(live.pid, rustix::process::Signal::CONT);
        }
        if live.ready {
            applying.tries += 1;
            if applying.tries > MOST_TRIES {
                self.warn("shell_replaced", "the shell did not take its environment and was started again");
                return self.condemn();
            }
            self.say(&|lines| lines.apply_env(number));
        }
        host.after(PATIENCE, self.key, What::Env(number));
    }

    /// Brings a state that was captured in line with what was asked for: without the secrets, and with the variables that
    /// the command could not see yet.
    pub(super) fn keep_env(&mut self, after: &mut ShellState, captured: bool, ending: &mut Ending) {
        if captured {
            for name in self.env.secrets.keys().filter(|name| !self.env.due.secrets.contains(*name)) {
                if after.variables.contains_key(name) || self.env.secrets.get(name).is_some_and(|s| s.value.is_none()) {
                    after.unset.remove(name);
                } else {
                    after.unset.insert(name.clone());
                }
            }
        }
        for name in after.hide(&self.env.names(), &self.env.values()) {
            if self.env.told.insert(name.clone()) {
                let message =
                    format!("`{name}` holds the value of a secret: it is in the shell, and not kept beyond it");
                ending.warnings.push(Warning { code: "secret_not_kept".into(), message });
            }
        }
        let baseline = self.baseline.as_ref();
        let due = &self.env.due.vars;
        let refused = after.change_env(self.dialect, due, |name| baseline.is_none_or(|fresh| fresh.has(name)));
        self.tell_refused(&refused);
    }

    /// A new process is to have all secrets; it has the variables by its state.
    pub(super) fn env_of_new_process(&mut self) {
        self.env.without_process();
        let held = self.env.secrets.iter().filter(|(_, held)| held.value.is_some());
        self.env.due.secrets = held.map(|(name, _)| name.clone()).collect();
        // What no process has any more need not be looked for.
        self.env.former.clear();
        self.env.told.clear();
    }

    /// What a steward before us had of it.
    pub(super) fn recover_env(&mut self, host: &Host, past: Past, memory: Option<OwnedFd>) -> Result<(), JournalError> {
        let private = past.private;
        self.env = Env::recover(past, memory);
        self.choose_privacy(host, private).map_err(|source| JournalError::Io { path: self.run.clone(), source })
    }

    /// A state that somebody else made, as it may be stored.
    pub(super) fn without_secrets(&self, mut state: ShellState) -> ShellState {
        state.hide(&self.env.names(), &self.env.values());
        state
    }
}
