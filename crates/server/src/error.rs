//! What can go wrong for whoever uses the layers, in the words of the contract.

use crate::core::UnknownProvider;
use crate::lease::LeaseError;
use crate::provider::{ProviderError, Trouble};
use crate::runtime::RuntimeError;
use crate::store::StoreError;
use crate::vault::VaultError;
use std::sync::Arc;
use stead_model::env::EnvError;
use stead_model::ids::ProjectId;
use stead_model::proto::{Fault, FaultCode};

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("no {kind} `{id}`")]
    NotFound { kind: &'static str, id: String },
    #[error("{kind} `{id}` exists already")]
    AlreadyExists { kind: &'static str, id: String },
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Invalid(String),
    #[error("terminal `{0}` is busy with a command")]
    TerminalBusy(String),
    #[error("agent session `{0}` is busy with another message")]
    SessionInUse(String),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Refused(#[from] Fault),
    #[error("the way to the shell is broken: {0}")]
    Broken(String),
    /// Input that was sent once, and may have arrived: a second time it might be there twice.
    #[error("`{command}` may have got these bytes, or a part of them, or none: {why}")]
    InputUnclear { command: String, why: String },
    #[error("`{command}`, which prepares every sandbox of provider `{provider}`, ended with {status}: {output}")]
    InitFailed { provider: String, command: String, status: String, output: String },
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error("can't use `{path}`: {message}")]
    Path { path: String, message: String },
    #[error("{0}")]
    PreconditionFailed(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    NoSpace(String),
    #[error("{0}")]
    Limit(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Unsupported(String),
    /// What a terminal agent can't do, or the want of it.
    #[error("{0}")]
    AgentCannot(String),
    #[error("{0}")]
    Io(String),
    #[error(transparent)]
    Env(#[from] EnvError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("project `{0}` is in the trash")]
    Trashed(ProjectId),
    #[error("{0}")]
    Gone(String),
    #[error("the files of this project are being moved or exchanged; try again")]
    Moving,
    #[error("the server is stopping")]
    Stopping,
}

impl Error {
    /// The contract's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::Lease(LeaseError::NotFound(_)) => "not_found",
            Self::AlreadyExists { .. } => "already_exists",
            Self::Conflict(_) | Self::Trashed(_) | Self::Lease(LeaseError::InUse { .. }) => "conflict",
            Self::Gone(_) => "gone",
            Self::Invalid(_)
            | Self::Lease(LeaseError::UnknownProvider(_))
            | Self::Env(EnvError::Nul(_) | EnvError::Twice(_)) => "invalid_request",
            Self::TerminalBusy(_) => "terminal_busy",
            Self::SessionInUse(_) => "session_in_use",
            Self::Lease(LeaseError::Paused(_)) => "paused",
            Self::Lease(LeaseError::Illegal(_)) => "illegal_transition",
            Self::Lease(LeaseError::Provider(error)) => match error.trouble {
                Trouble::Unsupported => "unsupported",
                Trouble::TimedOut => "provider_timeout",
                Trouble::Exhausted => "limit_reached",
                Trouble::UsedUp => "unavailable",
                Trouble::NoSpace => "no_space",
                Trouble::NotFound | Trouble::Conflict | Trouble::Denied | Trouble::Unavailable | Trouble::Broken => {
                    "provider_error"
                }
            },
            Self::Lease(LeaseError::Unclear(_)) | Self::InitFailed { .. } => "provider_error",
            Self::Refused(fault) => match fault.code {
                FaultCode::Invalid | FaultCode::NoDirectory => "invalid_request",
                FaultCode::NotFound => "not_found",
                FaultCode::Conflict => "conflict",
                FaultCode::Busy => "terminal_busy",
                FaultCode::LimitReached => "limit_reached",
                FaultCode::Gone => "gone",
                FaultCode::NoSpace => "no_space",
                FaultCode::Unsupported => "unsupported",
                FaultCode::Damaged => "damaged",
                FaultCode::Version | FaultCode::Unavailable => "unavailable",
            },
            Self::Store(error) | Self::Lease(LeaseError::Store(error)) => match **error {
                StoreError::NotFound { .. } => "not_found",
                StoreError::AlreadyExists { .. } => "already_exists",
                StoreError::Conflict { .. } => "conflict",
                StoreError::NoSpace => "no_space",
                StoreError::Limit { .. } => "limit_reached",
                StoreError::Corrupt { .. }
                | StoreError::Schema { .. }
                | StoreError::Damaged { .. }
                | StoreError::Closed
                | StoreError::Database(_) => "unavailable",
            },
            Self::Path { .. } => "invalid_path",
            Self::PreconditionFailed(_) => "precondition_failed",
            Self::NoSpace(_) => "no_space",
            Self::Limit(_) => "limit_reached",
            Self::Forbidden(_) => "forbidden",
            Self::Unsupported(_) | Self::AgentCannot(_) => "unsupported",
            Self::Env(EnvError::Name(_) | EnvError::Own(_)) => "invalid_env_name",
            Self::TooLarge(_) | Self::Env(EnvError::TooMany(_) | EnvError::TooLong { .. } | EnvError::TooLarge(_)) => {
                "too_large"
            }
            Self::Broken(_)
            | Self::InputUnclear { .. }
            | Self::Io(_)
            | Self::Vault(_)
            | Self::Moving
            | Self::Stopping
            | Self::Lease(LeaseError::Stopping | LeaseError::Destroyed(_)) => "unavailable",
        }
    }
}

impl Error {
    /// The same in other words, where what it says comes from a sandbox.
    pub(crate) fn told_as(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(fault) => Self::Refused(Fault { message: words(fault.message), ..fault }),
            Self::Broken(message) => Self::Broken(words(message)),
            Self::Invalid(message) => Self::Invalid(words(message)),
            other @ (Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Conflict(_)
            | Self::TerminalBusy(_)
            | Self::SessionInUse(_)
            | Self::Lease(_)
            | Self::InputUnclear { .. }
            | Self::InitFailed { .. }
            | Self::Store(_)
            | Self::Path { .. }
            | Self::PreconditionFailed(_)
            | Self::TooLarge(_)
            | Self::NoSpace(_)
            | Self::Limit(_)
            | Self::Forbidden(_)
            | Self::Unsupported(_)
            | Self::AgentCannot(_)
            | Self::Io(_)
            | Self::Env(_)
            | Self::Vault(_)
            | Self::Trashed(_)
            | Self::Gone(_)
            | Self::Moving
            | Self::Stopping) => other,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { kind, id } => Self::NotFound { kind, id },
            StoreError::AlreadyExists { kind, id } => Self::AlreadyExists { kind, id },
            other @ (StoreError::Conflict { .. }
            | StoreError::Limit { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Schema { .. }
            | StoreError::Damaged { .. }
            | StoreError::Closed
            | StoreError::NoSpace
            | StoreError::Database(_)) => Self::Store(Arc::new(other)),
        }
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Broken(error) => Self::Broken(error.to_string()),
            RuntimeError::Refused(fault) => Self::Refused(fault),
            RuntimeError::Provider(error) => error.into(),
        }
    }
}

impl From<ProviderError> for Error {
    fn from(error: ProviderError) -> Self {
        Self::Lease(LeaseError::Provider(error))
    }
}

impl From<UnknownProvider> for Error {
    fn from(error: UnknownProvider) -> Self {
        Self::Lease(error.into())
    }
}
