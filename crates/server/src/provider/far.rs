//! Instances on somebody else's machines: a cloud makes them, our steward is put into them and does what it does
//! everywhere. What differs is where things are kept: the journal and the files of an instance are over there, and a
//! copy of both is here, made complete before the instance sleeps or goes (`far/porter`). So finished commands can be
//! read, files are served and a fresh instance gets them, whatever became of the last one.
//!
//! ```text
//! over there   /var/tmp/.stead/steward       the program, put there by us
//!              /var/tmp/.stead/place         its directory: socket, journal
//!              /var/tmp/.stead/made          the instance that has been prepared, written last
//!              /workspace, /home/agent       the files
//! here         DATA/leases/L/place           the mirror of its journal
//!              WORKSPACES/W/{files,home}     the copy of its files; the truth while there is no instance
//! ```

mod end;
mod find;
mod here;
mod line;
mod manifest;
mod mirror;
mod porter;
mod prepare;

use super::machine::trouble_of;
use super::place::{Places, remove_tree};
use super::{
    Access, Availability, Blueprint, Capabilities, Created, Effect, Found, Handle, Lasting, Metrics, Provider,
    ProviderError, Surroundings, Tree, Trouble,
};
use crate::steward_program::{self, StewardProgram};
use async_trait::async_trait;
use find::{reference, seen};
use mirror::{Mirror, merge};
use porter::{Errand, Orders, Post};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use stead_clouds::{Cloud, CloudError, Condition, Wish};
use stead_model::enclosure::Network;
use stead_model::ids::{InstanceId, LeaseId, ProviderName};
use stead_model::lease::{Caveat, Seen};
use stead_model::project::Demands;
use stead_steward::past::{self, PastShell};

/// Where things are over there.
const BASE: &str = "/var/tmp/.stead";
const PROGRAM: &str = "/var/tmp/.stead/steward";
const PLACE: &str = "/var/tmp/.stead/place";

#[derive(Debug)]
pub struct FarConfig {
    pub name: ProviderName,
    /// `e2b`, `daytona`...
    pub kind: &'static str,
    pub cloud: Arc<dyn Cloud>,
    pub can_pause: bool,
    /// Whether what runs in a sandbox goes on after a pause.
    pub live_pause: bool,
    pub data: PathBuf,
    pub workspaces: PathBuf,
    /// What is put into sandboxes.
    pub program: StewardProgram,
    /// Tells our sandboxes from those of another stead with the same key.
    pub stead: String,
    pub template: Option<String>,
    pub mount_path: String,
    pub network: Option<Network>,
    /// How much may be on its way from a sandbox before it is known to have come.
    pub window: u64,
    /// What is to be known of every sandbox.
    pub caveats: Vec<Caveat>,
    /// What is worth knowing before it is used: a missing key.
    pub missing: Option<(String, String)>,
}

#[derive(Debug)]
pub struct Far {
    config: FarConfig,
    places: Places,
    porters: Mutex<HashMap<LeaseId, (InstanceId, Orders)>>,
    /// Instances that were not destroyed because their files could not be brought here, and how often.
    spared: Mutex<HashMap<InstanceId, u32>>,
}

impl Far {
    pub fn new(config: FarConfig) -> Self {
        let places = Places { data: config.data.clone(), workspaces: config.workspaces.clone() };
        Self { config, places, porters: Mutex::default(), spared: Mutex::default() }
    }

    fn error(&self, what: &'static str, trouble: Trouble, effect: Effect, message: impl Into<String>) -> ProviderError {
        ProviderError::new(&self.config.name, what, trouble, effect, message)
    }

    /// A cloud's error as ours, under what we wanted.
    fn failed(&self, what: &'static str) -> impl Fn(CloudError) -> ProviderError + '_ {
        move |error| self.error(what, error.trouble, error.effect, error.to_string())
    }

    /// Whoever carries things for this instance.
    fn porter(&self, handle: &Handle, id: &str) -> io::Result<Orders> {
        let mut porters = self.porters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((instance, orders)) = porters.get(&handle.lease)
            && *instance == handle.instance
            && orders.are_taken()
        {
            return Ok(orders.clone());
        }
        let orders = porter::hire(Post {
            cloud: Arc::clone(&self.config.cloud),
            id: id.to_owned(),
            instance: handle.instance.clone(),
            program: PROGRAM.to_owned(),
            place: PLACE.to_owned(),
            window: self.config.window,
            lease: self.places.lease(&handle.lease),
            trees: self.all_trees(&handle.workspace),
        })?;
        porters.insert(handle.lease.clone(), (handle.instance.clone(), orders.clone()));
        Ok(orders)
    }

    fn dismiss(&self, lease: &LeaseId) {
        self.porters.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
    }

    async fn send(
        &self,
        handle: &Handle,
        id: &str,
        what: &'static str,
        errands: &[Errand],
    ) -> Result<(), ProviderError> {
        for errand in errands {
            // A line that had broken unnoticed is opened anew, once.
            let orders = self.porter(handle, id).map_err(self.io(what, Effect::None))?;
            if let Err(first) = orders.run(*errand).await {
                tracing::debug!(error = first.message, instance = %handle.instance, "an errand is run once more");
                let again = orders.run(*errand).await;
                again.map_err(|failed| self.error(what, failed.trouble, Effect::None, failed.message))?;
            }
        }
        Ok(())
    }

    fn io(&self, what: &'static str, effect: Effect) -> impl Fn(io::Error) -> ProviderError + '_ {
        move |error| self.error(what, trouble_of(&error), effect, error.to_string())
    }

    /// Does something with this machine's files, away from the tasks that must not wait for a disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        what: &'static str,
        effect: Effect,
        work: impl FnOnce(&Places) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let places = self.places.clone();
        let done = tokio::task::spawn_blocking(move || work(&places)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(self.io(what, effect))
    }

    /// Files, home and memories, here and there.
    fn all_trees(&self, workspace: &str) -> Vec<Tree> {
        let memories = self.places.memories(workspace).into_iter();
        let memories =
            memories.map(|(outside, inside)| Tree { inside: inside.to_string_lossy().into_owned(), outside });
        self.trees(workspace).into_iter().chain(memories).collect()
    }
}

#[async_trait]
impl Provider for Far {
    fn name(&self) -> &ProviderName {
        &self.config.name
    }

    fn kind(&self) -> &'static str {
        self.config.kind
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: self.config.can_pause,
            live_pause: self.config.can_pause && self.config.live_pause,
            metrics: true,
            steward: true,
            durable_journal: false,
            isolated: true,
        }
    }

    /// The cloud's template is the image, and how large a sandbox is comes with it.
    fn refuses(&self, demands: &Demands) -> Option<&'static str> {
        let Demands { image: _, network: _, memory, processes, cpu_millis } = demands;
        let limits = [
            ("limits.memory", memory.is_some()),
            ("limits.processes", processes.is_some()),
            ("limits.cpu", cpu_millis.is_some()),
        ];
        limits.into_iter().find_map(|(setting, asked)| asked.then_some(setting))
    }

    async fn availability(&self) -> Availability {
        if let Some((why, hint)) = &self.config.missing {
            return Availability::Missing { why: why.clone(), hint: Some(hint.clone()) };
        }
        if let Err(error) = self.on_disk("use its directory", Effect::None, Places::probe).await {
            return Availability::Missing { why: error.message, hint: None };
        }
        if let Err(missing) = self.program().await {
            return Availability::Missing { why: missing, hint: Some(steward_program::HINT.to_owned()) };
        }
        match self.config.cloud.check().await {
            Ok(notes) => Availability::Works(notes),
            Err(error) => Availability::Missing { why: error.to_string(), hint: None },
        }
    }

    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        const WHAT: &str = "make a sandbox";
        if let Some((why, hint)) = &self.config.missing {
            return Err(self.error(WHAT, Trouble::Denied, Effect::None, format!("{why}; {hint}")));
        }
        let program = self.program().await.map_err(|why| {
            self.error(WHAT, Trouble::Unavailable, Effect::None, format!("{why}; {}", steward_program::HINT))
        })?;
        let (lease, workspace) = (blueprint.lease.clone(), blueprint.workspace.clone());
        self.on_disk(WHAT, Effect::None, move |places| places.make(&lease, &workspace)).await?;
        let _turn = self.turn(&blueprint.lease, WHAT).await?;
        // Where there is no room for what it will say, nothing is made that would have to be paid for.
        let (lease, instance) = (blueprint.lease.clone(), blueprint.instance.clone());
        let begin = move |places: &Places| Mirror::open(&places.lease(&lease), &instance).map(drop);
        self.on_disk(WHAT, Effect::None, begin).await?;
        // Two over one lease can't be: one that was taken for dead goes first.
        self.end_others(blueprint).await?;
        let Demands { image, network, memory: _, processes: _, cpu_millis: _ } = &blueprint.demands;
        let wish = Wish {
            labels: self.labels(Some((&blueprint.instance, &blueprint.lease, &blueprint.workspace))),
            template: image.clone().or_else(|| self.config.template.clone()),
            network: network.or(self.config.network).map(|network| network != Network::None),
            ..Wish::default()
        };
        let id = self.config.cloud.create(&wish).await.map_err(self.failed(WHAT))?;
        let handle = Handle {
            instance: blueprint.instance.clone(),
            lease: blueprint.lease.clone(),
            workspace: blueprint.workspace.clone(),
            reference: reference(&blueprint.instance, &id),
        };
        self.prepare(&handle, &id, &program).await?;
        let metadata = vec![("id".to_owned(), id)];
        let mut caveats = self.config.caveats.clone();
        caveats.extend(self.places.caveats(&blueprint.workspace));
        Ok(Created { reference: handle.reference, metadata, caveats })
    }

    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        const WHAT: &str = "look at an instance";
        let Some(id) = self.id(handle, WHAT).await? else { return Ok(Seen::Gone) };
        match self.look(&id, WHAT).await? {
            Condition::Running | Condition::Unclear => self.listen_to(handle, &id).await,
            condition @ (Condition::Paused | Condition::Gone) => Ok(seen(condition)),
        }
    }

    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "pause";
        if !self.config.can_pause {
            return Err(ProviderError::unsupported(&self.config.name, WHAT));
        }
        let id = self.require(handle, WHAT).await?;
        match self.look(&id, WHAT).await? {
            Condition::Paused => return Ok(()),
            Condition::Gone => {
                return Err(self.error(WHAT, Trouble::NotFound, Effect::None, "there is no such instance"));
            }
            Condition::Running | Condition::Unclear => {}
        }
        self.send(handle, &id, WHAT, &[Errand::CatchUp, Errand::Fetch]).await?;
        self.dismiss(&handle.lease);
        self.config.cloud.pause(&id).await.map_err(self.failed(WHAT))
    }

    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "resume";
        let id = self.require(handle, WHAT).await?;
        self.config.cloud.resume(&id).await.map_err(self.failed(WHAT))?;
        // Where only its disk was kept, the steward begins again over what it had written.
        self.start_steward(&id).await?;
        // What was written to its files while it slept.
        self.send(handle, &id, WHAT, &[Errand::CatchUp, Errand::Deliver]).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        let _turn = self.turn(&handle.lease, "destroy").await?;
        self.end(handle).await
    }

    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError> {
        const WHAT: &str = "connect";
        let id = self.require(handle, WHAT).await?;
        match self.look(&id, WHAT).await? {
            Condition::Running | Condition::Unclear => {}
            Condition::Paused => {
                return Err(self.error(WHAT, Trouble::Conflict, Effect::None, "the instance is paused"));
            }
            Condition::Gone => {
                return Err(self.error(WHAT, Trouble::NotFound, Effect::None, "there is no such instance"));
            }
        }
        // The first process of a sandbox is the cloud's: it may run on when steward and keeper have been killed.
        let started = self.start_steward(&id).await;
        started.map_err(|error| ProviderError { what: WHAT, effect: Effect::None, ..error })?;
        let channel = self.config.cloud.open(&id, PROGRAM, &["connect", "--dir", PLACE]).await;
        let channel = channel.map_err(self.failed(WHAT))?;
        // From now on what happens there is mirrored.
        self.send(handle, &id, WHAT, &[Errand::CatchUp]).await?;
        Ok(Access::Steward(Box::new(channel)))
    }

    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        const WHAT: &str = "measure";
        let id = self.require(handle, WHAT).await?;
        let metrics = self.config.cloud.metrics(&id).await.map_err(self.failed(WHAT))?;
        Ok(Metrics {
            cpu_percent: metrics.cpu_percent,
            memory_used_bytes: metrics.memory_used_bytes,
            memory_limit_bytes: metrics.memory_limit_bytes,
            disk_used_bytes: metrics.disk_used_bytes,
            processes: None,
            network_rx_bytes: metrics.network_rx_bytes,
            network_tx_bytes: metrics.network_tx_bytes,
        })
    }

    async fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        let lease = handle.lease.clone();
        let read = move |places: &Places| past::read(&places.steward(&lease)).map_err(io::Error::other);
        Ok(merge(self.on_disk("read a journal", Effect::None, read).await?))
    }

    async fn list(&self) -> Result<Vec<Found>, ProviderError> {
        if self.config.missing.is_some() {
            // Nothing was ever made without a key.
            return Ok(Vec::new());
        }
        let listed = self.config.cloud.list(&self.labels(None)).await.map_err(self.failed("list"))?;
        let found = listed.into_iter().filter(|listed| listed.condition != Condition::Gone).filter_map(|listed| {
            let instance = InstanceId::parse(listed.labels.get("stead-instance")?).ok()?;
            let handle = Handle {
                lease: LeaseId::parse(listed.labels.get("stead-lease")?).ok()?,
                workspace: listed.labels.get("stead-workspace")?.clone(),
                reference: reference(&instance, &listed.id),
                instance,
            };
            Some(Found { handle, seen: seen(listed.condition) })
        });
        Ok(found.collect())
    }

    fn surroundings(&self, _: &str) -> Surroundings {
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", prepare::HOME),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm-256color"),
        ];
        Surroundings {
            env: env.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect(),
            cwd: self.config.mount_path.clone().into_bytes(),
            scratch: "/tmp".to_owned(),
        }
    }

    fn trees(&self, workspace: &str) -> Vec<Tree> {
        vec![
            Tree { inside: self.config.mount_path.clone(), outside: self.places.files(workspace) },
            Tree { inside: prepare::HOME.to_owned(), outside: self.places.home(workspace) },
        ]
    }

    fn mirror(&self, lease: &LeaseId) -> Option<PathBuf> {
        Some(self.places.steward(lease))
    }

    async fn catch_up(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "bring a journal here";
        let id = self.require(handle, WHAT).await?;
        self.send(handle, &id, WHAT, &[Errand::CatchUp]).await
    }

    async fn fetch(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "bring files here";
        let id = self.require(handle, WHAT).await?;
        self.send(handle, &id, WHAT, &[Errand::Fetch]).await
    }

    async fn deliver(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "take files there";
        let id = self.require(handle, WHAT).await?;
        self.send(handle, &id, WHAT, &[Errand::Deliver]).await
    }

    fn lasting(&self, workspace: &str) -> Option<Lasting> {
        Some(Lasting { files: self.places.files(workspace), home: Some(self.places.home(workspace)) })
    }

    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        const WHAT: &str = "remove files";
        for found in self.list().await?.into_iter().filter(|found| found.handle.lease == *lease) {
            if self.status(&found.handle).await? != Seen::Gone {
                return Err(self.error(WHAT, Trouble::Conflict, Effect::None, "an instance uses them"));
            }
            // Lost, and the cloud has not missed it yet: what is left of it there goes too.
            self.destroy(&found.handle).await?;
        }
        self.dismiss(lease);
        let (lease, workspace) = (lease.clone(), workspace.map(str::to_owned));
        let remove = move |places: &Places| {
            remove_tree(&places.lease(&lease))?;
            workspace.map_or(Ok(()), |workspace| remove_tree(&places.workspace(&workspace)))
        };
        self.on_disk(WHAT, Effect::Unknown, remove).await
    }
}

impl Far {
    async fn program(&self) -> Result<PathBuf, String> {
        let program = self.config.program.clone();
        let found = tokio::task::spawn_blocking(move || program.find()).await;
        found.map_err(|error| error.to_string())?.map_err(|error| super::local::chain(&error))
    }

    /// One at a time makes or ends what runs over a lease.
    async fn turn(&self, lease: &LeaseId, what: &'static str) -> Result<Option<File>, ProviderError> {
        let lease = lease.clone();
        self.on_disk(what, Effect::None, move |places| places.turn(&lease)).await
    }
}
