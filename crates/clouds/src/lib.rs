//! Clouds that sandboxes can be had from, each behind the same few calls: make one, look at it, let it sleep, end it, put a
//! file into it, run something in it, and speak to a program in it.
//!
//! What a cloud answers is a claim. An error says whether the call can have done something, so that whoever asked knows
//! to look; nothing here decides, remembers or resumes by itself. Calls that may be made twice are tried again within a
//! budget ([`retry`]); one that runs something never is.

pub mod agentbay;
pub mod daytona;
pub mod e2b;
pub mod retry;
pub mod wire;

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
pub use stead_model::trouble::{Effect, Trouble};
use tokio::io::{AsyncRead, AsyncWrite};

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("can't {what}: {message}")]
pub struct CloudError {
    pub what: &'static str,
    pub trouble: Trouble,
    pub effect: Effect,
    /// For people. Never has a key in it.
    pub message: String,
    /// How long the cloud asks us to wait, where it does.
    pub after: Option<Duration>,
}

impl CloudError {
    pub fn new(what: &'static str, trouble: Trouble, effect: Effect, message: impl Into<String>) -> Self {
        Self { what, trouble, effect, message: message.into(), after: None }
    }

    pub fn unsupported(what: &'static str) -> Self {
        Self::new(what, Trouble::Unsupported, Effect::None, "this cloud has no such thing")
    }
}

/// What a sandbox is to be. Its labels are how it is found again, by us alone.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Given to every sandbox of one stead and one name; asking twice with the same labels makes one sandbox.
    pub labels: BTreeMap<String, String>,
    /// The cloud's word for what it is made of; its own default without one.
    pub template: Option<String>,
    /// Whether it may reach the network; the cloud's own default without a word.
    pub network: Option<bool>,
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
}

/// As the cloud tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Running,
    Paused,
    Gone,
    /// On its way to something, or the cloud doesn't know.
    Unclear,
}

/// A sandbox of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    pub labels: BTreeMap<String, String>,
    pub condition: Condition,
}

/// What came of something that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub exit_code: i32,
    /// Both streams, as far as the cloud tells them apart; stdout first where it doesn't mix them.
    pub output: Vec<u8>,
}

/// Absent where the cloud doesn't say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Metrics {
    pub cpu_percent: Option<f64>,
    pub memory_used_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub disk_used_bytes: Option<u64>,
    pub network_rx_bytes: Option<u64>,
    pub network_tx_bytes: Option<u64>,
}

/// Standard input and output of a program inside, byte for byte. It ends when either side does; what was on its way then
/// may be lost, and whoever speaks over it must bear that.
pub trait Channel: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Channel for T {}

#[async_trait]
pub trait Cloud: Send + Sync + Debug {
    /// Whether it can be used as it is configured, by asking; with what is worth knowing.
    async fn check(&self) -> Result<Vec<String>, CloudError>;
    /// Makes a sandbox, or finds the one with the same labels; returns when it can be used. Its id.
    async fn create(&self, wish: &Wish) -> Result<String, CloudError>;
    async fn look(&self, id: &str) -> Result<Condition, CloudError>;
    /// Returns when it sleeps. One that sleeps already is paused.
    async fn pause(&self, id: &str) -> Result<(), CloudError>;
    /// Returns when it can be used again.
    async fn resume(&self, id: &str) -> Result<(), CloudError>;
    /// What isn't there is destroyed already.
    async fn destroy(&self, id: &str) -> Result<(), CloudError>;
    /// Every sandbox that has these labels, whatever it is doing.
    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Listed>, CloudError>;
    /// Puts a file where none is seen half-written; makes the directories above it.
    async fn upload(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError>;
    /// Runs a short script with `sh -c` and waits for it; never tried again.
    async fn run(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError>;
    /// Starts a program and speaks to it. `program` is the steward, which some clouds need in between.
    async fn open(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Box<dyn Channel>, CloudError>;
    /// Something is still being done there: it is not to be ended or put to sleep for being idle.
    async fn keep_awake(&self, id: &str) -> Result<(), CloudError>;
    async fn metrics(&self, id: &str) -> Result<Metrics, CloudError>;
}
