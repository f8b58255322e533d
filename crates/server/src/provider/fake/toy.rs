//! A shell of a few words, in memory: `cd DIR`, `export NAME=VALUE`, `echo TEXT`, `pwd`, `env`, `exit N`, `false`;
//! anything else is not found. It dies with its instance, unless its provider is durable.

use super::{Call, Fake, Home, Mischief};
use crate::provider::{Effect, Handle, Provider, ProviderError};
use crate::runtime::{Captured, Listener, Opening, Run, Runtime, RuntimeError};
use crate::steward::{StewardError, Told};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_model::frame::{Chunk, Stream};
use stead_model::ids::{CommandId, InstanceId, ShellId};
use stead_model::proto::{
    At, CommandInfo, Ending, EnvInfo, Event, Fault, FaultCode, FirstSignal, SecretInfo, SetEnv, Status,
};
use stead_model::state::{Bytes, ShellState};
use stead_steward::past::PastShell;

#[derive(Debug)]
pub struct ToyRuntime {
    fake: Fake,
    instance: InstanceId,
    home: Home,
    shell: ShellId,
    /// Where a shell is that has been nowhere.
    start: Bytes,
    /// What this runtime ran; one that isn't durable knows no more.
    ran: Mutex<Ran>,
}

type Ran = BTreeMap<CommandId, (CommandInfo, Vec<u8>)>;

#[derive(Debug, Default)]
pub(super) struct Shell {
    version: u64,
    state: ShellState,
    /// What it ran, if it is durable.
    ran: Ran,
    env: EnvInfo,
}

impl Shell {
    pub(super) fn last_words(&self, id: &ShellId) -> PastShell {
        let commands = self.ran.values().map(|(info, _)| info.clone()).collect();
        PastShell {
            shell: id.clone(),
            version: self.version,
            state: Ok(self.state.clone()),
            commands,
            asked: std::collections::BTreeMap::new(),
        }
    }

    fn set_env(&mut self, set: SetEnv) {
        if set.seq != self.env.seq {
            for (name, value) in set.vars {
                self.state.variables.remove(&name);
                if let Some(value) = value {
                    let statement = [b"declare -x ", &*name.0, b"=", &*value.0].concat();
                    self.state.variables.insert(name, Bytes(statement));
                }
            }
        }
        for set in set.secrets {
            self.env.secrets.retain(|secret| secret.name != set.name);
            if set.value.is_some() {
                self.env.secrets.push(SecretInfo { name: set.name, revision: set.revision, held: true });
            }
        }
        (self.env.seq, self.version) = (set.seq, self.version + 1);
    }

    /// Carries a command out: its exit code, and what it prints.
    fn obey(&mut self, text: &str) -> (i32, String) {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        self.version += 1;
        let state = &mut self.state;
        match word {
            "cd" => {
                state.cwd = Bytes::from(rest);
                (0, String::new())
            }
            "export" => {
                let name = rest.split('=').next().unwrap_or_default();
                state.variables.insert(Bytes::from(name), Bytes::from(&format!("declare -x {rest}")));
                (0, String::new())
            }
            "echo" => (0, format!("{rest}\n")),
            "pwd" => (0, format!("{}\n", String::from_utf8_lossy(&state.cwd))),
            "env" => {
                let statements = state.variables.values().map(|statement| String::from_utf8_lossy(statement));
                (0, statements.fold(String::new(), |told, line| told + line.trim_start_matches("declare -x ") + "\n"))
            }
            "exit" => (rest.parse().unwrap_or(2), String::new()),
            "false" => (1, String::new()),
            _ => (127, String::new()),
        }
    }
}

impl ToyRuntime {
    pub(super) fn open(fake: Fake, handle: &Handle, opening: &Opening) -> Self {
        let home = if fake.capabilities.durable_journal {
            Home::Lease(handle.lease.clone())
        } else {
            Home::Instance(handle.instance.clone())
        };
        let start = Bytes::from(&opening.surroundings.cwd);
        {
            let mut world = fake.world();
            if world.instances.contains_key(&handle.instance) {
                let shell = world.shells.entry((home.clone(), opening.shell.clone())).or_default();
                if shell.version < opening.version || shell.version == 0 {
                    (shell.version, shell.state) = (opening.version, opening.state.clone());
                    if shell.state.cwd.is_empty() {
                        shell.state.cwd = start.clone();
                    }
                }
            }
        }
        let (instance, shell) = (handle.instance.clone(), opening.shell.clone());
        Self { fake, instance, home, shell, start, ran: Mutex::default() }
    }

    /// The shell, as long as its instance lives and is awake.
    fn with_shell<T>(&self, work: impl FnOnce(&mut Shell) -> T) -> Result<T, RuntimeError> {
        let mut world = self.fake.world();
        match world.instances.get(&self.instance) {
            None => Err(broken("the instance is gone")),
            Some(body) if body.paused => Err(broken("the instance is asleep")),
            Some(_) => Ok(work(world.shells.entry((self.home.clone(), self.shell.clone())).or_default())),
        }
    }

    fn ran(&self) -> MutexGuard<'_, Ran> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, command: &CommandId) -> Result<Option<(CommandInfo, Vec<u8>)>, RuntimeError> {
        if self.remembers() {
            return self.with_shell(|shell| shell.ran.get(command).cloned());
        }
        Ok(self.ran().get(command).cloned())
    }

    /// Runs a command and notes it, at one blow.
    fn carry_out(&self, run: &Run) -> Result<(CommandInfo, Vec<u8>), RuntimeError> {
        let durable = self.remembers();
        let told = self.with_shell(|shell| {
            let known = shell.ran.get(&run.command).cloned().or_else(|| self.ran().get(&run.command).cloned());
            if let Some(before) = known {
                return (before, false);
            }
            let before = shell.state.clone();
            let (code, output) = shell.obey(&String::from_utf8_lossy(&run.text));
            let changed = shell.state != before;
            let ending = Ending { state_changed: changed, ..Ending::new(Status::Exited, Some(code)) };
            let info = CommandInfo {
                command: run.command.clone(),
                shell: self.shell.clone(),
                number: shell.version,
                status: Status::Exited,
                ending: Some(ending),
                stdout_bytes: output.len() as u64,
                stderr_bytes: 0,
                last_seq: 3,
                cwd: shell.state.cwd.clone(),
                state_version: shell.version,
                accepted_at: 0,
                started_at: Some(0),
                ended_at: Some(0),
                stalled: false,
                evicted: false,
                state: None,
                sums: None,
            };
            let told = (info, output.into_bytes());
            if durable {
                shell.ran.insert(run.command.clone(), told.clone());
            }
            (told, true)
        })?;
        let (told, new) = told;
        if new {
            self.fake.world().execute(&run.command);
            self.ran().insert(run.command.clone(), told.clone());
        }
        Ok(told)
    }

    /// Lets a call go wrong before it is done; what is to go wrong after it is returned.
    async fn suffer(&self, call: Call) -> Result<Option<Mischief>, RuntimeError> {
        let mischief = self.fake.world().begin(call);
        self.fake.pace.wait().await;
        match mischief {
            Some(Mischief::FailBefore) => Err(broken("as it was told to")),
            Some(Mischief::Refuse(trouble)) => {
                let name = self.fake.name();
                Err(ProviderError::new(name, "reach a shell", trouble, Effect::None, "as it was told to").into())
            }
            Some(Mischief::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(None)
            }
            Some(Mischief::Hang) => std::future::pending().await,
            later @ (Some(Mischief::FailAfter | Mischief::HangAfter | Mischief::Say(_)) | None) => Ok(later),
        }
    }
}

fn broken(why: &str) -> RuntimeError {
    RuntimeError::Broken(StewardError::Broken(why.to_owned()))
}

fn busy_at(version: u64) -> RuntimeError {
    Fault::new(FaultCode::Conflict, format!("the shell is at version {version} already")).into()
}

#[async_trait]
impl Runtime for ToyRuntime {
    async fn run(&self, run: &Run, after: u64, listener: &mut dyn Listener) -> Result<CommandInfo, RuntimeError> {
        let (info, output) = if let Some(known) = self.known(&run.command)? {
            known
        } else {
            tokio::task::yield_now().await;
            let later = self.suffer(Call::Run).await?;
            let told = self.carry_out(run)?;
            self.fake.pace.wait().await;
            match later {
                Some(Mischief::FailAfter) => return Err(broken("as it was told to")),
                Some(Mischief::HangAfter) => std::future::pending().await,
                _ => told,
            }
        };
        let chunk = Chunk { seq: 2, stream: Stream::Stdout, late: false, offset: 0, at: 0, bytes: output };
        let story = [
            Told::Event(Event::Started(At { seq: 1, at: 0 })),
            Told::Output(chunk),
            Told::Event(Event::Ended(At { seq: 3, at: 0 })),
        ];
        for told in story.into_iter().filter(|told| told.seq().is_some_and(|seq| seq > after)) {
            listener.hear(told);
        }
        Ok(info)
    }

    async fn look_up(&self, command: &CommandId) -> Result<Option<CommandInfo>, RuntimeError> {
        Ok(self.known(command)?.map(|(info, _)| info))
    }

    async fn cancel(&self, command: &CommandId, _: FirstSignal) -> Result<CommandInfo, RuntimeError> {
        let known = self.look_up(command).await?;
        known.ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command").into())
    }

    async fn capture(&self) -> Result<Captured, RuntimeError> {
        self.suffer(Call::Capture).await?;
        self.with_shell(|shell| Captured { version: shell.version, state: shell.state.clone() })
    }

    async fn set_state(&self, state: &ShellState, version: u64) -> Result<(), RuntimeError> {
        self.fake.pace.wait().await;
        self.with_shell(|shell| {
            if version <= shell.version {
                return Err(busy_at(shell.version));
            }
            (shell.version, shell.state) = (version, state.clone());
            if shell.state.cwd.is_empty() {
                shell.state.cwd = self.start.clone();
            }
            Ok(())
        })?
    }

    async fn env(&self) -> Result<EnvInfo, RuntimeError> {
        self.with_shell(|shell| EnvInfo { takes_secrets: true, ..shell.env.clone() })
    }

    async fn set_env(&self, set: SetEnv) -> Result<Captured, RuntimeError> {
        self.fake.pace.wait().await;
        self.with_shell(|shell| {
            shell.set_env(set);
            Captured { version: shell.version, state: shell.state.clone() }
        })
    }

    async fn rest(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn end(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn is_busy(&self) -> Result<bool, RuntimeError> {
        Ok(false)
    }

    fn remembers(&self) -> bool {
        self.fake.capabilities.durable_journal
    }

    fn is_broken(&self) -> bool {
        self.with_shell(|_| ()).is_err()
    }
}
