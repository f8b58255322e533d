//! A shell of a steward, which outlives us.

use super::{Captured, Listener, Opening, Run, Runtime, RuntimeError, Sight};
use crate::steward::{Attending, Next, Seen, Steward, StewardError};
use async_trait::async_trait;
use std::sync::Arc;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    Cancel, CommandInfo, EnvInfo, Exec, Fault, FaultCode, FirstSignal, Follow, OpenShell, Program, Reply, Request,
    SetEnv, SetState, ShellInfo, Size, StoredState,
};
use stead_model::state::{Bytes, ShellState};

#[derive(Debug)]
pub struct LiveRuntime {
    steward: Arc<Steward>,
    shell: ShellId,
}

impl LiveRuntime {
    /// Finds the terminal's shell on the steward, or opens it with the state we know. Of two states the later one
    /// counts: the steward's, which saw every command, unless it comes from an older disk.
    pub async fn open(steward: Arc<Steward>, opening: &Opening) -> Result<Self, RuntimeError> {
        let runtime = Self { steward, shell: opening.shell.clone() };
        let env = opening.surroundings.env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
        let stored = Bytes(minicbor::to_vec(&opening.state).unwrap_or_default());
        let fresh = opening.version == 0 && opening.state == ShellState::default();
        let open = OpenShell {
            shell: opening.shell.clone(),
            program: Program::Best,
            env: env.collect(),
            cwd: Bytes::from(&opening.surroundings.cwd),
            state: (!fresh).then(|| stored.clone()),
            version: Some(opening.version),
        };
        let Reply::Shell(info) = runtime.ask(&Request::OpenShell(Box::new(open))).await? else {
            return Err(wrong_answer());
        };
        if info.state_version < opening.version {
            runtime.set_state(&opening.state, opening.version).await?;
        }
        Ok(runtime)
    }

    async fn ask(&self, request: &Request) -> Result<Reply, RuntimeError> {
        Ok(self.steward.request(request).await?)
    }

    async fn info(&self) -> Result<ShellInfo, RuntimeError> {
        let reply = self.ask(&Request::Shell(self.shell.clone())).await?;
        if let Reply::Shell(info) = reply { Ok(*info) } else { Err(wrong_answer()) }
    }
}

fn captured(stored: &StoredState) -> Result<Captured, RuntimeError> {
    let state = minicbor::decode(&stored.state)
        .map_err(|error| RuntimeError::Broken(StewardError::Protocol(error.to_string())))?;
    Ok(Captured { version: stored.version, state })
}

fn wrong_answer() -> RuntimeError {
    RuntimeError::Broken(StewardError::Protocol("it answered another question".to_owned()))
}

#[async_trait]
impl Runtime for LiveRuntime {
    async fn run(&self, run: &Run, after: u64, listener: &mut dyn Listener) -> Result<CommandInfo, RuntimeError> {
        let request = if after == 0 {
            Request::Exec(Box::new(Exec { follow: Some(Steward::credit()), state: Some(true), ..run.clone() }))
        } else {
            let follow = Follow {
                command: run.command.clone(),
                after,
                credit: Steward::credit(),
                late: false,
                state: Some(true),
                index: None,
            };
            Request::Follow(follow)
        };
        let mut following = self.steward.follow(&request).await?;
        loop {
            match following.next().await? {
                Next::Told(told) => listener.hear(told),
                Next::Ended(info) => return Ok(*info),
            }
        }
    }

    async fn submit(&self, run: &Run) -> Result<CommandInfo, RuntimeError> {
        let reply = self.ask(&Request::Exec(Box::new(run.clone()))).await?;
        if let Reply::Command(info) = reply { Ok(*info) } else { Err(wrong_answer()) }
    }

    async fn look_up(&self, command: &CommandId) -> Result<Option<CommandInfo>, RuntimeError> {
        match self.steward.request(&Request::Command(command.clone())).await {
            Ok(Reply::Command(info)) => Ok(Some(*info)),
            Ok(_) => Err(wrong_answer()),
            Err(error) if error.fault() == Some(FaultCode::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn cancel(&self, command: &CommandId, first: FirstSignal) -> Result<CommandInfo, RuntimeError> {
        let reply = self.ask(&Request::Cancel(Cancel { command: command.clone(), first })).await?;
        if let Reply::Command(info) = reply { Ok(*info) } else { Err(wrong_answer()) }
    }

    async fn capture(&self) -> Result<Captured, RuntimeError> {
        let Reply::State(stored) = self.ask(&Request::State(self.shell.clone())).await? else {
            return Err(wrong_answer());
        };
        captured(&stored)
    }

    async fn set_state(&self, state: &ShellState, version: u64) -> Result<(), RuntimeError> {
        let state = Bytes(minicbor::to_vec(state).unwrap_or_default());
        self.ask(&Request::SetState(Box::new(SetState { shell: self.shell.clone(), state, version }))).await.map(drop)
    }

    async fn env(&self) -> Result<EnvInfo, RuntimeError> {
        let env = self.info().await?.env;
        let too_old = "the steward in this sandbox is too old to be told of variables; destroy it to get a new one";
        env.ok_or_else(|| Fault::new(FaultCode::Unsupported, too_old).into())
    }

    async fn set_env(&self, set: SetEnv) -> Result<Captured, RuntimeError> {
        let Reply::State(stored) = self.ask(&Request::SetEnv(Box::new(set))).await? else { return Err(wrong_answer()) };
        captured(&stored)
    }

    async fn rest(&self) -> Result<(), RuntimeError> {
        self.ask(&Request::RestShell(self.shell.clone())).await.map(drop)
    }

    async fn end(&self) -> Result<(), RuntimeError> {
        self.ask(&Request::CloseShell(self.shell.clone())).await.map(drop)
    }

    async fn is_busy(&self) -> Result<bool, RuntimeError> {
        let info = self.info().await?;
        Ok(info.running.is_some() || info.queued > 0 || info.jobs.is_some_and(|jobs| jobs > 0))
    }

    async fn attach(&self, size: Size) -> Result<Arc<dyn Sight>, RuntimeError> {
        Ok(Arc::new(LiveSight(self.steward.attend(self.shell.clone(), size).await?)))
    }

    fn remembers(&self) -> bool {
        true
    }

    fn is_broken(&self) -> bool {
        self.steward.is_broken()
    }
}

#[derive(Debug)]
struct LiveSight(Attending);

#[async_trait]
impl Sight for LiveSight {
    async fn next(&self) -> Result<Seen, RuntimeError> {
        self.0.next().await.map_err(|error| {
            // A steward from before there was anything to attach to can't read the request.
            if error.fault() == Some(FaultCode::Invalid) {
                let message = "the steward of this sandbox is too old to be attached to";
                return Fault::new(FaultCode::Unsupported, message).into();
            }
            error.into()
        })
    }

    async fn taken(&self, bytes: u64) -> Result<(), RuntimeError> {
        Ok(self.0.taken(bytes).await?)
    }

    async fn press(&self, keys: &[u8]) -> Result<(), RuntimeError> {
        Ok(self.0.press(keys).await?)
    }

    async fn resize(&self, size: Size) -> Result<(), RuntimeError> {
        Ok(self.0.resize(size).await?)
    }

    async fn leave(&self) -> Result<(), RuntimeError> {
        Ok(self.0.leave().await?)
    }
}
