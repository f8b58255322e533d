//! A shell for a provider that can only run one thing at a time: every command is a fresh bash that is given the state,
//! runs the command, and tells the state, all in one call. The state comes back in a side file; nothing is looked for in
//! the output, so nothing in the output can be taken for it.
//!
//! ```text
//! DIR/d  says what the shell is like      DIR/r  makes it like the terminal      DIR/c  the command
//! base ◄─ d ── r ── (began) ── c ── end, st ◄─ d        or, if the command leaves: EXIT trap ── xend, xt ◄─ d
//! ```

use super::{Captured, Listener, Opening, Run, Runtime, RuntimeError};
use crate::clock::fresh_digits;
use crate::provider::{OneShot, Shot, ShotOutcome};
use crate::steward::Told;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stead_model::env::{Secret, Vars};
use stead_model::frame::{Chunk, Stream};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    At, CommandInfo, Ending, EnvInfo, Event, Fault, FaultCode, FirstSignal, IfBusy, MAX_QUEUE, SecretInfo, SetEnv,
    Status, Stdin, Warning,
};
use stead_model::shell::{Dialect, Lines};
use stead_model::state::restore::{self, Extent};
use stead_model::state::{Bytes, Capture, ShellState};
use stead_model::word::quote;
use tokio_util::sync::CancellationToken;

/// Finished commands that are remembered, so that the same id isn't run again.
const REMEMBERED: usize = 1024;

/// Where standard error waits while our own lines run: a trace of them (`set -x`) is nobody's business.
const STDERR: u8 = 249;

/// A file system in memory, wherever there is Linux.
const IN_MEMORY: &str = "/dev/shm";

#[derive(Debug)]
pub struct WrappedRuntime {
    shots: Arc<dyn OneShot>,
    shell: ShellId,
    env: Vec<(Vec<u8>, Vec<u8>)>,
    scratch: String,
    inner: Mutex<Inner>,
    /// One command at a time, in the order of asking.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Inner {
    state: ShellState,
    version: u64,
    last_status: u8,
    next_number: u64,
    /// Those that run or wait, with what ends them early and what tells that they have ended.
    open: HashMap<CommandId, (CancellationToken, CancellationToken)>,
    /// With what tells the same work from other under the same name.
    ended: Vec<(u64, CommandInfo)>,
    env: Env,
}

/// What the environment call asked for.
#[derive(Debug, Default)]
struct Env {
    seq: u64,
    secrets: BTreeMap<Bytes, (u64, Secret)>,
    /// Asked for since the command that runs began: it can't know.
    since: Vars,
    /// Names and values that were secrets when it began, or became one since.
    hidden: (BTreeSet<Bytes>, Vec<Secret>),
}

impl Inner {
    fn set_env(&mut self, set: SetEnv) {
        let env = &mut self.env;
        for set in set.secrets {
            env.hidden.0.insert(set.name.clone());
            self.state.unset.remove(&set.name);
            self.state.variables.remove(&set.name);
            match set.value {
                Some(value) => {
                    env.hidden.1.push(value.clone());
                    env.secrets.insert(set.name, (set.revision, value));
                }
                None => {
                    env.secrets.remove(&set.name);
                }
            }
        }
        if set.seq != env.seq {
            let vars: Vars = set.vars.into_iter().collect();
            self.state.change_env(Dialect::Bash, &vars, |_| true);
            env.since.extend(vars);
        }
        env.seq = set.seq;
        self.version += 1;
    }

    /// A command begins: it has all there is.
    fn begin_env(&mut self) {
        self.env.since.clear();
        let values = self.env.secrets.values().map(|(_, value)| value.clone()).collect();
        self.env.hidden = (self.env.secrets.keys().cloned().collect(), values);
    }

    fn keep_env(&self, after: &mut ShellState, ending: &mut Ending) {
        let (names, values) = &self.env.hidden;
        for name in after.hide(names, &values.iter().collect::<Vec<_>>()) {
            let message = format!("`{name}` holds the value of a secret: it is not kept");
            ending.warnings.push(Warning { code: "secret_not_kept".to_owned(), message });
        }
        after.change_env(Dialect::Bash, &self.env.since, |_| true);
    }
}

impl WrappedRuntime {
    pub fn open(shots: Arc<dyn OneShot>, opening: &Opening) -> Self {
        let mut state = opening.state.clone();
        if state.cwd.is_empty() {
            state.cwd = Bytes::from(&opening.surroundings.cwd);
        }
        let inner = Inner {
            state,
            version: opening.version,
            last_status: 0,
            next_number: 1,
            open: HashMap::new(),
            ended: Vec::new(),
            env: Env::default(),
        };
        Self {
            shots,
            shell: opening.shell.clone(),
            env: opening.surroundings.env.clone(),
            scratch: opening.surroundings.scratch.clone(),
            inner: Mutex::new(inner),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a command in, or says what is known of it.
    fn admit(&self, run: &Run) -> Result<Admitted, Fault> {
        let mut inner = self.inner();
        if let Some((work, info)) = inner.ended.iter().find(|(_, info)| info.command == run.command) {
            if *work != work_of(run) {
                return Err(Fault::new(FaultCode::Conflict, "the id is taken by another command"));
            }
            return Ok(Admitted::Before(Box::new(info.clone())));
        }
        if let Some((_, ended)) = inner.open.get(&run.command) {
            return Ok(Admitted::Beside(ended.clone()));
        }
        if matches!(run.stdin, Stdin::Open | Stdin::Terminal) {
            return Err(Fault::new(FaultCode::Unsupported, "this provider can't write to a running command"));
        }
        run.check()?;
        if !inner.open.is_empty() && run.if_busy == IfBusy::Reject {
            return Err(Fault::new(FaultCode::Busy, "the shell is busy with another command"));
        }
        if inner.open.len() > MAX_QUEUE {
            return Err(Fault::new(FaultCode::LimitReached, format!("{MAX_QUEUE} commands are waiting already")));
        }
        let cancel = CancellationToken::new();
        inner.open.insert(run.command.clone(), (cancel.clone(), CancellationToken::new()));
        let number = inner.next_number;
        inner.next_number += 1;
        Ok(Admitted::Now { number, cancel })
    }

    fn blank(&self, run: &Run, number: u64) -> CommandInfo {
        CommandInfo {
            command: run.command.clone(),
            shell: self.shell.clone(),
            number,
            status: Status::Queued,
            ending: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            last_seq: 0,
            cwd: Bytes::default(),
            state_version: 0,
            accepted_at: now(),
            started_at: None,
            ended_at: None,
            stalled: false,
            evicted: false,
            state: None,
            sums: None,
        }
    }

    /// What became of the shell, from the files it left.
    fn conclude(&self, run: &Run, dir: &str, outcome: &ShotOutcome) -> Ending {
        let mut inner = self.inner();
        let before = inner.state.clone();
        let fetched = |name: &str| outcome.fetched.get(name).map(Vec::as_slice);
        let mut ending = if outcome.cancelled {
            Ending::new(Status::Cancelled, Some(130))
        } else if outcome.timed_out {
            Ending::new(Status::TimedOut, Some(-1))
        } else if fetched("nocwd").is_some() {
            let message = "the directory that was asked for is not there";
            let error = Some(Fault::new(FaultCode::NoDirectory, message));
            Ending { error, ..Ending::new(Status::Failed, None) }
        } else {
            match (fetched("end"), fetched("xend")) {
                (Some(end), _) => Ending::new(Status::Exited, end_of(end).0),
                (None, Some(end)) => Ending { shell_exited: true, ..Ending::new(Status::Exited, end_of(end).0) },
                // Killed, or gone by `exec`.
                (None, None) => {
                    let code = outcome.exit_code.or(outcome.signal.map(|signal| 128 + signal));
                    Ending { shell_exited: true, signal: outcome.signal, ..Ending::new(Status::Exited, code) }
                }
            }
        };
        if let Some(began) = fetched("began").filter(|began| **began != *before.cwd.0) {
            let (wanted, now) = (before.cwd.escape_ascii(), began.escape_ascii());
            let message = format!("`{wanted}` is gone; the shell is in `{now}`");
            ending.warnings.push(Warning { code: "cwd_missing".to_owned(), message });
        }
        let end = fetched("end").or(fetched("xend")).filter(|_| ending.status == Status::Exited);
        if let Some(end) = end {
            let (code, pwd, oldpwd) = end_of(end);
            let dump = if fetched("end").is_some() { "st" } else { "xt" };
            match captured(dir, fetched("base"), fetched(dump), fetched("t")) {
                Some(mut after) => {
                    (after.cwd, after.oldpwd) = (pwd, oldpwd);
                    let names: Vec<_> = run.env.iter().map(|(name, _)| name.clone()).collect();
                    if run.cwd.is_some() || !names.is_empty() {
                        let directory = (after.cwd.clone(), after.oldpwd.clone());
                        after = after.without_overlay(&before, &names);
                        if run.cwd.is_none() {
                            (after.cwd, after.oldpwd) = directory;
                        }
                    }
                    if ending.shell_exited {
                        // An `errexit` that ended the shell would end the next one too, at its first failing command.
                        after.options.remove("errexit");
                    }
                    inner.keep_env(&mut after, &mut ending);
                    ending.state_changed = after != before;
                    inner.state = after;
                }
                None => ending.warnings.push(Warning {
                    code: "state_not_captured".to_owned(),
                    message: "the shell did not tell its state; the one before it is kept".to_owned(),
                }),
            }
            inner.last_status =
                code.and_then(|code| u8::try_from(code).ok()).filter(|_| !ending.shell_exited).unwrap_or(0);
        }
        if !matches!(ending.status, Status::Failed | Status::Lost) {
            inner.version += 1;
        }
        ending
    }
}

enum Admitted {
    Now {
        number: u64,
        cancel: CancellationToken,
    },
    Before(Box<CommandInfo>),
    /// Somebody else has asked for it; it is theirs until this.
    Beside(CancellationToken),
}

/// Takes a command out again, however its turn ended.
struct Leave<'a>(&'a WrappedRuntime, &'a CommandId);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some((_, ended)) = self.0.inner().open.remove(self.1) {
            ended.cancel();
        }
    }
}

#[async_trait]
impl Runtime for WrappedRuntime {
    async fn run(&self, run: &Run, after: u64, listener: &mut dyn Listener) -> Result<CommandInfo, RuntimeError> {
        let (number, cancel) = match self.admit(run)? {
            Admitted::Now { number, cancel } => (number, cancel),
            Admitted::Before(info) => return Ok(*info),
            Admitted::Beside(ended) => {
                ended.cancelled().await;
                // One that was given up on the way: nobody can say whether it ran.
                let ending = Some(Ending::new(Status::Lost, None));
                let lost = CommandInfo { status: Status::Lost, ending, ..self.blank(run, 0) };
                return Ok(self.look_up(&run.command).await?.unwrap_or(lost));
            }
        };
        let _leave = Leave(self, &run.command);
        let mut info = self.blank(run, number);
        let turn = tokio::select! {
            biased;
            // First: a command that was cancelled while it waited is not started when its turn comes at that moment.
            () = cancel.cancelled() => None,
            turn = self.turn.lock() => Some(turn),
        };
        let mut ending = Ending::new(Status::Cancelled, Some(-1));
        let mut outcome = ShotOutcome::default();
        if turn.is_some() {
            info.started_at = Some(now());
            let shot = {
                let mut inner = self.inner();
                inner.begin_env();
                // What a command with secrets says of itself must not come to a disk.
                let scratch = if inner.env.secrets.is_empty() { &self.scratch } else { IN_MEMORY };
                let dir = format!("{scratch}/.stead-{}-{number}", fresh_digits());
                let secrets =
                    inner.env.secrets.iter().map(|(name, (_, value))| (name.0.clone(), value.reveal().to_vec()));
                let env: Vec<_> = self.env.iter().cloned().chain(secrets).collect();
                shot(run, dir, &inner.state, inner.last_status, &env, cancel)
            };
            outcome = self.shots.shoot(&shot).await?;
            ending = self.conclude(run, &shot.dir, &outcome);
        }
        info.ended_at = Some(now());
        info.status = ending.status;
        info.ending = Some(ending);
        (info.stdout_bytes, info.stderr_bytes) = (outcome.stdout.len() as u64, outcome.stderr.len() as u64);
        {
            let inner = self.inner();
            info.cwd = inner.state.cwd.clone();
            info.state_version = inner.version;
        }
        for told in story(&mut info, outcome) {
            if told.seq().is_some_and(|seq| seq > after) {
                listener.hear(told);
            }
        }
        let mut inner = self.inner();
        if inner.ended.len() >= REMEMBERED {
            inner.ended.remove(0);
        }
        inner.ended.push((work_of(run), info.clone()));
        Ok(info)
    }

    async fn look_up(&self, command: &CommandId) -> Result<Option<CommandInfo>, RuntimeError> {
        Ok(self.inner().ended.iter().find(|(_, info)| info.command == *command).map(|(_, info)| info.clone()))
    }

    async fn cancel(&self, command: &CommandId, _: FirstSignal) -> Result<CommandInfo, RuntimeError> {
        if let Some((cancel, _)) = self.inner().open.get(command) {
            cancel.cancel();
            let run = Run::new(self.shell.clone(), command.clone(), Vec::new());
            return Ok(CommandInfo { status: Status::Running, ..self.blank(&run, 0) });
        }
        self.look_up(command).await?.ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command").into())
    }

    async fn capture(&self) -> Result<Captured, RuntimeError> {
        let inner = self.inner();
        Ok(Captured { version: inner.version, state: inner.state.clone() })
    }

    async fn set_state(&self, state: &ShellState, version: u64) -> Result<(), RuntimeError> {
        let mut inner = self.inner();
        if !inner.open.is_empty() {
            return Err(Fault::new(FaultCode::Busy, "the shell is busy with a command").into());
        }
        if version <= inner.version {
            let message = format!("the shell is at version {} already", inner.version);
            return Err(Fault::new(FaultCode::Conflict, message).into());
        }
        (inner.state, inner.version, inner.last_status) = (state.clone(), version, 0);
        Ok(())
    }

    async fn env(&self) -> Result<EnvInfo, RuntimeError> {
        let env = &self.inner().env;
        let info = |(name, (revision, _)): (&Bytes, &(u64, Secret))| SecretInfo {
            name: name.clone(),
            revision: *revision,
            held: true,
        };
        Ok(EnvInfo { seq: env.seq, secrets: env.secrets.iter().map(info).collect(), takes_secrets: true })
    }

    async fn set_env(&self, set: SetEnv) -> Result<Captured, RuntimeError> {
        let mut inner = self.inner();
        inner.set_env(set);
        Ok(Captured { version: inner.version, state: inner.state.clone() })
    }

    async fn rest(&self) -> Result<(), RuntimeError> {
        if self.inner().open.is_empty() {
            Ok(())
        } else {
            Err(Fault::new(FaultCode::Busy, "the shell is busy with a command").into())
        }
    }

    async fn end(&self) -> Result<(), RuntimeError> {
        let inner = self.inner();
        for (cancel, _) in inner.open.values() {
            cancel.cancel();
        }
        Ok(())
    }

    async fn is_busy(&self) -> Result<bool, RuntimeError> {
        Ok(!self.inner().open.is_empty())
    }

    fn remembers(&self) -> bool {
        false
    }

    fn is_broken(&self) -> bool {
        false
    }
}

/// The one call that a command is.
fn shot(
    run: &Run,
    dir: String,
    state: &ShellState,
    last_status: u8,
    env: &[(Vec<u8>, Vec<u8>)],
    cancel: CancellationToken,
) -> Shot {
    let lines = Lines::new(Dialect::Bash, &dir, 0);
    let text = run.text.0.clone();
    let mut preamble = Vec::new();
    if let Some(cwd) = &run.cwd {
        preamble.extend_from_slice(b"\\builtin cd -- ");
        preamble.extend_from_slice(&quote(cwd));
        preamble
            .extend_from_slice(format!(" >/dev/null 2>&1 || {{ \\builtin : >{dir}/nocwd; return 1; }}\n").as_bytes());
    }
    let mut body = b"{ ".to_vec();
    for (name, value) in &run.env {
        body.extend_from_slice(&[name.as_ref(), b"=".as_slice(), &quote(value), b" "].concat());
    }
    let source = if run.env.is_empty() { "\\builtin ." } else { "\\builtin command ." };
    body.extend_from_slice(format!("{source} {dir}/c 2>&{STDERR} {STDERR}>&-; }} 2>/dev/null\n").as_bytes());
    let status = if last_status == 0 { String::new() } else { format!("\\builtin . {dir}/s || ") };
    let end = "\\builtin printf '%s\\0' \"$?\" \"$PWD\" \"${OLDPWD-}\"";
    let dump = format!("\\builtin . {dir}/d");
    let script = format!(
        "\\builtin shopt -s expand_aliases\n\
         {dump} >{dir}/base 2>/dev/null\n\
         \\builtin trap '{}' EXIT\n\
         exec {STDERR}>&2 2>/dev/null\n\
         \\builtin . {dir}/r\n\
         \\builtin printf %s \"$PWD\" >{dir}/began\n\
         {status}\\builtin . {dir}/b\n\
         {end} >{dir}/end\n\
         \\builtin trap -p DEBUG >{dir}/t\n\
         {dump} >{dir}/st\n\
         \\builtin trap - EXIT\n\
         \\builtin exit 0\n",
        exit_trap(&dir)
    );
    let leave = format!("{end} >{dir}/xend\n{dump} >{dir}/xt 2>/dev/null\n");
    let files = vec![
        ("d", lines.dump_script().into_bytes()),
        ("r", restore::script(Dialect::Bash, state, Extent::All, b"")),
        ("b", [preamble, body].concat()),
        ("c", text),
        ("s", lines.status_script(last_status).into_bytes()),
        ("x", leave.into_bytes()),
    ];
    let stdin = match &run.stdin {
        Stdin::Bytes(bytes) => bytes.0.clone(),
        Stdin::Empty | Stdin::Open | Stdin::Terminal => Vec::new(),
    };
    Shot {
        dir,
        files,
        script,
        fetch: vec!["base", "began", "end", "st", "t", "xend", "xt", "nocwd"],
        stdin,
        env: env.to_vec(),
        timeout: run.timeout_ms.map(Duration::from_millis),
        cancel,
    }
}

/// The command of our EXIT trap, to be told from the user's own.
fn exit_trap(dir: &str) -> String {
    format!("{{ \\builtin . {dir}/x; }} 2>/dev/null")
}

/// Differs for work that differs. How it is waited for doesn't count.
fn work_of(run: &Run) -> u64 {
    let work = Run { follow: None, if_busy: IfBusy::Queue, ..run.clone() };
    let mut hasher = DefaultHasher::new();
    hasher.write(&minicbor::to_vec(&work).unwrap_or_default());
    hasher.finish()
}

/// Status, directory and the one before it, as the shell wrote them.
fn end_of(end: &[u8]) -> (Option<i32>, Bytes, Option<Bytes>) {
    let mut words = end.split(|byte| *byte == 0);
    let code = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    let pwd = Bytes::from(words.next().unwrap_or_default());
    let oldpwd = words.next().filter(|word| !word.is_empty()).map(Bytes::from);
    (code, pwd, oldpwd)
}

fn captured(dir: &str, base: Option<&[u8]>, dump: Option<&[u8]>, debug: Option<&[u8]>) -> Option<ShellState> {
    let ours = exit_trap(dir);
    let base = Capture::parse(Dialect::Bash, base?, ours.as_bytes()).ok()?;
    let after = Capture::parse(Dialect::Bash, dump?, ours.as_bytes()).ok()?;
    let after = after.with_debug_trap(debug.unwrap_or_default()).ok()?;
    Some(after.delta(&base))
}

/// The events of a command that is over.
fn story(info: &mut CommandInfo, outcome: ShotOutcome) -> Vec<Told> {
    let mut told = Vec::new();
    let mut seq = 0;
    let mut next = || {
        seq += 1;
        seq
    };
    if let Some(at) = info.started_at {
        told.push(Told::Event(Event::Started(At { seq: next(), at })));
    }
    let at = info.ended_at.unwrap_or_default();
    for (stream, bytes) in [(Stream::Stdout, outcome.stdout), (Stream::Stderr, outcome.stderr)] {
        if !bytes.is_empty() {
            told.push(Told::Output(Chunk { seq: next(), stream, late: false, offset: 0, at, bytes }));
        }
    }
    told.push(Told::Event(Event::Ended(At { seq: next(), at })));
    info.last_seq = seq;
    told
}

/// Microseconds since the epoch, as a steward gives them.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
