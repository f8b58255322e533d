//! The live shell of a terminal on an instance: on a steward ([`live`]), where it is a process that goes on by itself, or
//! wrapped around a provider that can only run one thing at a time ([`wrapped`]). Both pass the same suite; above this
//! nobody knows which it is.

mod live;
mod wrapped;

pub use live::LiveRuntime;
pub use wrapped::WrappedRuntime;

use crate::provider::ProviderError;
use crate::steward::{Seen, StewardError, Told};
use async_trait::async_trait;
use std::fmt::Debug;
use std::sync::Arc;
use stead_model::ids::CommandId;
use stead_model::proto::{CommandInfo, EnvInfo, Exec, Fault, FaultCode, FirstSignal, SetEnv, Size};
use stead_model::state::ShellState;

/// A command as a runtime gets it; the shell in it is the terminal's.
pub type Run = Exec;

/// Where a runtime begins.
#[derive(Debug, Clone)]
pub struct Opening {
    pub shell: stead_model::ids::ShellId,
    pub state: ShellState,
    pub version: u64,
    pub surroundings: crate::provider::Surroundings,
}

/// What a shell is like after some command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub version: u64,
    pub state: ShellState,
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The way there is broken. Whether the command ran is for whoever looks to find out.
    #[error(transparent)]
    Broken(StewardError),
    /// It was understood and refused; nothing ran.
    #[error(transparent)]
    Refused(#[from] Fault),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl From<StewardError> for RuntimeError {
    fn from(error: StewardError) -> Self {
        match error {
            StewardError::Fault(fault) => Self::Refused(fault),
            broken @ (StewardError::Broken(_) | StewardError::Protocol(_) | StewardError::Silent) => {
                Self::Broken(broken)
            }
        }
    }
}

/// Hears what a command has to tell, in order.
pub trait Listener: Send {
    fn hear(&mut self, told: Told);
    /// The output of a command that ended some time ago is no longer kept: what was heard of it is not all, or nothing.
    fn evicted(&mut self) {}
}

impl<F: FnMut(Told) + Send> Listener for F {
    fn hear(&mut self, told: Told) {
        self(told);
    }
}

/// A terminal that somebody looks at.
#[async_trait]
pub trait Sight: Send + Sync + Debug {
    /// The next thing to see. Whoever stops waiting for it loses nothing.
    async fn next(&self) -> Result<Seen, RuntimeError>;
    /// So many bytes have gone where they were to go: there is room for as many again.
    async fn taken(&self, bytes: u64) -> Result<(), RuntimeError>;
    /// Types; returns when the terminal has it.
    async fn press(&self, keys: &[u8]) -> Result<(), RuntimeError>;
    async fn resize(&self, size: Size) -> Result<(), RuntimeError>;
    /// Looks away.
    async fn leave(&self) -> Result<(), RuntimeError>;
}

#[async_trait]
pub trait Runtime: Send + Sync + Debug {
    /// Runs a command to its end. The same id is run once, however often it is asked for; who asks again hears
    /// everything after `after`.
    async fn run(&self, run: &Run, after: u64, listener: &mut dyn Listener) -> Result<CommandInfo, RuntimeError>;
    /// Takes a command, to run now or later, and doesn't wait. Only of a runtime that remembers.
    async fn submit(&self, run: &Run) -> Result<CommandInfo, RuntimeError> {
        let what = format!("`{}` can only be waited for here", run.command);
        Err(Fault::new(FaultCode::Unsupported, what).into())
    }
    /// What became of a command, if this runtime ever got it.
    async fn look_up(&self, command: &CommandId) -> Result<Option<CommandInfo>, RuntimeError>;
    async fn cancel(&self, command: &CommandId, first: FirstSignal) -> Result<CommandInfo, RuntimeError>;
    /// The state after the last finished command.
    async fn capture(&self) -> Result<Captured, RuntimeError>;
    /// Another state from the next command on.
    async fn set_state(&self, state: &ShellState, version: u64) -> Result<(), RuntimeError>;
    /// What it was told of its environment.
    async fn env(&self) -> Result<EnvInfo, RuntimeError>;
    /// Variables and secrets from the next command on, also if one runs now. The state with them.
    async fn set_env(&self, set: SetEnv) -> Result<Captured, RuntimeError>;
    /// Ends the shell and keeps what it knows. Refused while it is busy.
    async fn rest(&self) -> Result<(), RuntimeError>;
    /// Ends the shell with everything in it, and forgets it.
    async fn end(&self) -> Result<(), RuntimeError>;
    /// Whether a command runs or waits in it, or has left a job in the background.
    async fn is_busy(&self) -> Result<bool, RuntimeError>;
    /// Shows the terminal to a person.
    async fn attach(&self, _size: Size) -> Result<Arc<dyn Sight>, RuntimeError> {
        Err(Fault::new(FaultCode::Unsupported, "this provider has no terminal that can be attached to").into())
    }
    /// Whether it can say of every command whether it ever got it, also after it broke.
    fn remembers(&self) -> bool;
    /// Whether the way to it is known to be broken.
    fn is_broken(&self) -> bool;
}
