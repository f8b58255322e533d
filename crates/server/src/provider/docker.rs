//! `docker`: a steward and its shells in a container of Docker or Podman, by the Engine API on the engine's socket.
//!
//! ```text
//!  container stead-INSTANCE            first process: `steward keep --alone`, which starts the steward
//!    /run/stead/stead   read-only      the static steward, from this machine
//!    /run/stead/place   bind mount     DATA/leases/L/place: socket and journal
//!    /workspace         bind mount     the workspace's files
//!    HOME, /memories    bind mounts
//! ```
//!
//! What lasts is on this machine, so an instance is only compute: it can be killed, removed and made again by anybody.
//! The engine is asked what runs, not our memory. The way in is the socket in the mounted place, and where that can't be
//! opened (another kernel, another user) a process of `steward connect` that the engine starts for us.

mod channel;
mod create;
mod end;
mod engine;
mod image;
mod look;
mod measure;
mod recipe;
mod root;
mod sleep;

pub use image::{ImageError, Images, archive};
pub use root::{Root, Unreadable};

use super::place::Places;
use super::{
    Access, Availability, Blueprint, Capabilities, Created, Found, Handle, Lasting, Metrics, Provider, ProviderError,
    Surroundings, Tree,
};
use crate::steward_program::StewardProgram;
use async_trait::async_trait;
use engine::Engine;
use measure::Readings;
use std::path::{Path, PathBuf};
use stead_model::enclosure::User;
use stead_model::ids::{LeaseId, ProviderName};
use stead_model::lease::Seen;
use stead_model::project::Demands;
use stead_steward::past::PastShell;
use stead_term::cgroup::Limits;

/// What is used where no image is named: what `stead image build` makes.
pub const BASE_IMAGE: &str = "stead/base";

#[derive(Debug, Clone)]
pub struct DockerConfig {
    pub name: ProviderName,
    /// Where journals are.
    pub data: PathBuf,
    /// Where workspaces are; other providers may share it.
    pub workspaces: PathBuf,
    /// Where engines listen, in the order in which they are tried.
    pub sockets: Vec<PathBuf>,
    pub steward: StewardProgram,
    pub base: Base,
    pub limits: Limits,
    pub network: ContainerNetwork,
    /// Absent: whoever the server is, so that what is written inside can be read outside.
    pub user: Option<User>,
    /// Inside: where the workspace is.
    pub mount_path: PathBuf,
    /// Nothing but the mounts and `/tmp` can be written.
    pub read_only_root: bool,
    /// What `/tmp` may hold; absent: it is a part of the container's disk.
    pub tmp_bytes: Option<u64>,
    pub way: Way,
}

/// What containers are made of whose project names no image.
#[derive(Debug, Clone)]
pub enum Base {
    Image(String),
    /// A directory of this machine.
    Root(Root),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerNetwork {
    None,
    /// The host's own, without a wall.
    Host,
    /// The engine's default: a network of its own, with a way out.
    Bridge,
}

/// How the server speaks to a steward in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Over the socket in the mounted place where that works, else through the engine.
    Nearest,
    Engine,
}

impl DockerConfig {
    pub fn new(
        name: ProviderName,
        data: PathBuf,
        workspaces: PathBuf,
        sockets: Vec<PathBuf>,
        steward: StewardProgram,
    ) -> Self {
        Self {
            name,
            data,
            workspaces,
            sockets,
            steward,
            base: Base::Image(BASE_IMAGE.to_owned()),
            limits: Limits::default(),
            network: ContainerNetwork::Bridge,
            user: None,
            mount_path: PathBuf::from("/workspace"),
            read_only_root: false,
            tmp_bytes: None,
            way: Way::Nearest,
        }
    }
}

#[derive(Debug)]
pub struct Docker {
    config: DockerConfig,
    places: Places,
    engine: Engine,
    /// Tells containers of this data directory from those of another server on the same engine.
    owner: String,
    readings: Readings,
    /// Held by whoever makes an image of a root directory.
    imports: tokio::sync::Mutex<()>,
}

impl Docker {
    pub fn new(config: DockerConfig) -> Self {
        let places = Places { data: config.data.clone(), workspaces: config.workspaces.clone() };
        let engine = Engine::new(config.name.clone(), config.sockets.clone());
        let owner = recipe::owner(&config.data);
        Self { config, places, engine, owner, readings: Readings::default(), imports: tokio::sync::Mutex::default() }
    }

    fn home(&self) -> PathBuf {
        match self.user_name() {
            "root" => PathBuf::from("/root"),
            name => Path::new("/home").join(name),
        }
    }

    fn user_name(&self) -> &str {
        let own = if rustix::process::geteuid().is_root() { "root" } else { "agent" };
        self.config.user.as_ref().map_or(own, |user| &user.name)
    }
}

#[async_trait]
impl Provider for Docker {
    fn name(&self) -> &ProviderName {
        &self.config.name
    }

    fn kind(&self) -> &'static str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            live_pause: true,
            metrics: true,
            steward: true,
            durable_journal: true,
            isolated: true,
        }
    }

    fn refuses(&self, demands: &Demands) -> Option<&'static str> {
        let Demands { image: _, network: _, memory: _, processes: _, cpu_millis: _ } = demands;
        None
    }

    async fn availability(&self) -> Availability {
        match self.probe().await {
            Ok(notes) => Availability::Works(notes),
            Err((why, hint)) => Availability::Missing { why, hint },
        }
    }

    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        self.make(blueprint).await
    }

    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        Ok(self.look(&handle.instance, "look at an instance").await?.seen())
    }

    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.put_to_sleep(handle).await
    }

    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.wake(handle).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.end(handle).await
    }

    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError> {
        self.enter(handle).await
    }

    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        self.measure(handle).await
    }

    async fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        self.read_journal(handle).await
    }

    async fn list(&self) -> Result<Vec<Found>, ProviderError> {
        self.list_all().await
    }

    fn surroundings(&self, _: &str) -> Surroundings {
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME", self.home().display().to_string()),
            ("USER", self.user_name().to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "xterm-256color".to_owned()),
        ];
        Surroundings {
            env: env.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect(),
            cwd: self.config.mount_path.clone().into_os_string().into_encoded_bytes(),
            scratch: "/tmp".to_owned(),
        }
    }

    fn trees(&self, workspace: &str) -> Vec<Tree> {
        vec![
            Tree { inside: self.config.mount_path.display().to_string(), outside: self.places.files(workspace) },
            Tree { inside: self.home().display().to_string(), outside: self.places.home(workspace) },
        ]
    }

    fn private(&self) -> Vec<PathBuf> {
        self.places.private()
    }

    fn journal(&self, lease: &LeaseId) -> Option<PathBuf> {
        Some(self.places.steward(lease))
    }

    fn lasting(&self, workspace: &str) -> Option<Lasting> {
        Some(self.places.lasting(workspace))
    }

    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        self.remove(lease, workspace).await
    }
}
