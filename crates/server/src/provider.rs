//! Compute, whoever runs it. A provider makes an instance, says what became of it, and opens a way into it; it decides
//! nothing and remembers nothing. One contract suite (`tests/contract`) holds for all of them.
//!
//! What a provider says is a claim. Errors say whether the call can have done something: after one that can, the lease
//! driver looks before it believes either way.

pub mod docker;
pub mod fake;
pub mod far;
pub mod local;
mod machine;
pub mod namespace;
mod on_machine;
mod one_shot;
mod place;

pub use machine::Program;
pub use on_machine::OnMachine;
pub use one_shot::ProcessShot;
pub use stead_model::trouble::{Effect, Trouble};

use crate::runtime::{Opening, Runtime};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stead_model::ids::{InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Caveat, Seen};
use stead_model::project::Demands;
use stead_steward::past::PastShell;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// What an instance is to be.
#[derive(Debug, Clone)]
pub struct Blueprint {
    /// Its name, chosen by us: asking twice for one name makes one instance.
    pub instance: InstanceId,
    pub lease: LeaseId,
    /// The version of the lease that it is made for: of two over one lease the higher is the later.
    pub generation: u64,
    /// Whose files it sees.
    pub workspace: String,
    /// What its project asks for; what a provider refuses it is not asked.
    pub demands: Demands,
}

/// An instance as the provider needs it named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pub instance: InstanceId,
    pub lease: LeaseId,
    pub workspace: String,
    /// What the provider called it when it made it; empty before that.
    pub reference: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Created {
    pub reference: String,
    pub metadata: Vec<(String, String)>,
    /// What was asked for and can't be had here.
    pub caveats: Vec<Caveat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub pause: bool,
    /// A pause keeps processes as they are. Else it keeps the disk alone: they end, and shells begin again with their
    /// state.
    pub live_pause: bool,
    pub metrics: bool,
    /// There is a steward inside: shells live on, commands can be followed. Else each command is one call.
    pub steward: bool,
    /// The steward's journal outlives the instance: the next one over it knows what ran.
    pub durable_journal: bool,
    /// Keeps one sandbox from another and from the host.
    pub isolated: bool,
}

/// Absent where it isn't known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Metrics {
    pub cpu_percent: Option<f64>,
    pub memory_used_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub disk_used_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub network_rx_bytes: Option<u64>,
    pub network_tx_bytes: Option<u64>,
}

/// Bytes both ways.
pub trait Channel: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Channel for T {}

/// The way into an instance.
pub enum Access {
    Steward(Box<dyn Channel>),
    OneShot(Arc<dyn OneShot>),
    /// A runtime of the provider's own making.
    Runtime(OpenRuntime),
}

pub type OpenRuntime = Box<dyn Fn(&Opening) -> Arc<dyn Runtime> + Send>;

impl Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Steward(_) => "Steward",
            Self::OneShot(_) => "OneShot",
            Self::Runtime(_) => "Runtime",
        })
    }
}

/// Files beside which a command of a one-shot provider runs, and the command itself.
#[derive(Debug, Clone)]
pub struct Shot {
    /// A directory inside, made private (0700) for it and removed after it; not there before.
    pub dir: String,
    /// Made in that directory before it.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// What `bash -c` gets.
    pub script: String,
    /// Files of that directory to be read after it, as far as they are there.
    pub fetch: Vec<&'static str>,
    pub stdin: Vec<u8>,
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub timeout: Option<Duration>,
    /// Ends it early, where the provider can.
    pub cancel: CancellationToken,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShotOutcome {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Absent when it timed out or its process died by a signal.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub cancelled: bool,
    pub fetched: BTreeMap<String, Vec<u8>>,
}

/// All that some providers can do: run one thing and tell what came of it.
#[async_trait]
pub trait OneShot: Send + Sync + Debug {
    async fn shoot(&self, shot: &Shot) -> Result<ShotOutcome, ProviderError>;
}

/// An instance that a provider has, whether or not a lease knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub handle: Handle,
    pub seen: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// With what is worth knowing about it.
    Works(Vec<String>),
    Missing {
        why: String,
        hint: Option<String>,
    },
    /// It can be had here, but not at the moment: something is used up that others give back.
    NotNow {
        why: String,
    },
}

#[async_trait]
pub trait Provider: Send + Sync + Debug {
    fn name(&self) -> &ProviderName;
    /// `local`, `namespace`...
    fn kind(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;

    /// The first of these that it can't do, as a setting of a project.
    fn refuses(&self, demands: &Demands) -> Option<&'static str> {
        let Demands { image, network, memory, processes, cpu_millis } = demands;
        let asked = [
            ("image", image.is_some()),
            ("network", network.is_some()),
            ("limits.memory", memory.is_some()),
            ("limits.processes", processes.is_some()),
            ("limits.cpu", cpu_millis.is_some()),
        ];
        asked.into_iter().find_map(|(setting, asked)| asked.then_some(setting))
    }

    /// Whether it can be used on this machine, by trying.
    async fn availability(&self) -> Availability;
    /// Makes an instance, or finds the one of that name.
    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError>;
    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError>;
    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError>;
    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError>;
    /// Ends it. What isn't there is destroyed already.
    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError>;
    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError>;
    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError>;
    /// What an instance that is gone has left in its journal; nothing where it took that with it.
    async fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError>;
    /// Every instance of ours, for recovery and to find orphans.
    async fn list(&self) -> Result<Vec<Found>, ProviderError>;

    /// What a shell starts with there.
    fn surroundings(&self, workspace: &str) -> Surroundings;
    /// The trees that hold a workspace's files on this machine, where there are such.
    fn trees(&self, workspace: &str) -> Vec<Tree>;
    /// Directories that may lie within those trees and are no sandbox's: the server's own, and what others keep there.
    fn private(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Where the steward of a lease keeps its journal, if this machine can read it.
    fn journal(&self, _lease: &LeaseId) -> Option<PathBuf> {
        None
    }
    /// Where a copy of that journal is kept, if it is somewhere else; complete after [`Self::catch_up`].
    fn mirror(&self, _lease: &LeaseId) -> Option<PathBuf> {
        None
    }
    /// Brings all that a running instance has journalled to where it can be read when the instance is gone.
    async fn catch_up(&self, _handle: &Handle) -> Result<(), ProviderError> {
        Ok(())
    }
    /// Brings what a running instance has changed of its files to the trees of this machine.
    async fn fetch(&self, _handle: &Handle) -> Result<(), ProviderError> {
        Ok(())
    }
    /// Takes what has changed in the trees of this machine to a running instance.
    async fn deliver(&self, _handle: &Handle) -> Result<(), ProviderError> {
        Ok(())
    }
    /// The directories of this machine in which a workspace lasts, where there are such. Without them a thread can be
    /// neither copied there nor moved there or away.
    fn lasting(&self, _workspace: &str) -> Option<Lasting> {
        None
    }
    /// Removes a workspace's files, and what is kept for a lease.
    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError>;
}

/// The environment and the directory of a fresh shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub cwd: Vec<u8>,
    /// Where there is room for a moment.
    pub scratch: String,
}

impl Surroundings {
    /// Where whoever works there is at home.
    pub fn home(&self) -> Option<&[u8]> {
        self.env.iter().find(|(name, _)| name == b"HOME").map(|(_, home)| home.as_slice())
    }

    /// A path as the shell knows it: where there is no mount, `/workspace` is a name for the real directory.
    pub fn real(&self, path: &[u8]) -> Vec<u8> {
        exchange(path, WORKSPACE, &self.cwd)
    }

    /// The same path as it is stored and shown, whatever the provider.
    pub fn stored(&self, path: &[u8]) -> Vec<u8> {
        exchange(path, &self.cwd, WORKSPACE)
    }
}

/// What the workspace is called in every sandbox.
pub const WORKSPACE: &[u8] = b"/workspace";

fn exchange(path: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match path.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => [to, rest].concat(),
        _ => path.to_vec(),
    }
}

/// A directory of this machine and where it is in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub inside: String,
    pub outside: PathBuf,
}

/// Where a workspace lasts on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lasting {
    pub files: PathBuf,
    /// Absent where a sandbox has no home of its own.
    pub home: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider `{provider}` can't {what}: {message}")]
pub struct ProviderError {
    pub provider: ProviderName,
    pub what: &'static str,
    pub message: String,
    pub trouble: Trouble,
    pub effect: Effect,
}

impl ProviderError {
    pub fn new(
        provider: &ProviderName,
        what: &'static str,
        trouble: Trouble,
        effect: Effect,
        message: impl Into<String>,
    ) -> Self {
        Self { provider: provider.clone(), what, message: message.into(), trouble, effect }
    }

    pub fn unsupported(provider: &ProviderName, what: &'static str) -> Self {
        Self::new(provider, what, Trouble::Unsupported, Effect::None, "this provider has no such thing")
    }
}

/// What a provider may take for one call.
const PATIENCE: Duration = Duration::from_mins(2);

/// Calls a provider, and doesn't wait for ever.
pub(crate) async fn in_time<T>(
    provider: &ProviderName,
    what: &'static str,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| {
        let message = format!("no answer in {} s", PATIENCE.as_secs());
        Err(ProviderError::new(provider, what, Trouble::TimedOut, Effect::Unknown, message))
    })
}

/// The providers of a configuration, by name.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    by_name: BTreeMap<ProviderName, Arc<dyn Provider>>,
}

impl Providers {
    pub fn new(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        Self { by_name: providers.into_iter().map(|provider| (provider.name().clone(), provider)).collect() }
    }

    pub fn get(&self, name: &ProviderName) -> Option<&Arc<dyn Provider>> {
        self.by_name.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.by_name.values()
    }
}
