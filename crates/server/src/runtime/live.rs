//! A shell of a steward, which outlives us.

use super::{Captured, Listener, Opening, Run, Runtime, RuntimeError};
use crate::steward::{Next, Steward, StewardError};
use async_trait::async_trait;
use std::sync::Arc;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    Cancel, CommandInfo, Exec, FaultCode, FirstSignal, Follow, OpenShell, Program, Reply, Request, SetState, ShellInfo,
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
        let state = minicbor::decode(&stored.state)
            .map_err(|error| RuntimeError::Broken(StewardError::Protocol(error.to_string())))?;
        Ok(Captured { version: stored.version, state })
    }

    async fn set_state(&self, state: &ShellState, version: u64) -> Result<(), RuntimeError> {
        let state = Bytes(minicbor::to_vec(state).unwrap_or_default());
        self.ask(&Request::SetState(Box::new(SetState { shell: self.shell.clone(), state, version }))).await.map(drop)
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

    fn remembers(&self) -> bool {
        true
    }

    fn is_broken(&self) -> bool {
        self.steward.is_broken()
    }
}
