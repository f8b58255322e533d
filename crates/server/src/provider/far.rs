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

mod here;
mod line;
mod manifest;
mod mirror;
mod porter;
mod prepare;

use super::place::Places;
use super::{
    Access, Availability, Blueprint, Capabilities, Created, Effect, Found, Handle, Lasting, Metrics, Provider,
    ProviderError, Surroundings, Tree, Trouble,
};
use crate::steward_program::{self, StewardProgram};
use async_trait::async_trait;
use porter::{Errand, Orders, Post};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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

/// How often an instance whose files can't be brought here is not destroyed before it is destroyed without them.
const SPARED: u32 = 3;

/// How often a sandbox that is said to run is asked for a sign of life before it is taken for gone.
const SIGNS: u32 = 3;
const SIGN_WITHIN: Duration = Duration::from_secs(20);
const SIGN_APART: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct FarConfig {
    pub name: ProviderName,
    /// `e2b`, `daytona`...
    pub kind: &'static str,
    pub cloud: Arc<dyn Cloud>,
    pub can_pause: bool,
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

    fn labels(&self, handle: Option<(&InstanceId, &LeaseId, &str)>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            ("stead".to_owned(), self.config.stead.clone()),
            ("stead-provider".to_owned(), self.config.name.to_string()),
        ]);
        if let Some((instance, lease, workspace)) = handle {
            labels.insert("stead-instance".to_owned(), instance.to_string());
            labels.insert("stead-lease".to_owned(), lease.to_string());
            labels.insert("stead-workspace".to_owned(), workspace.to_owned());
        }
        labels
    }

    /// What the cloud calls it; none if it has no such thing.
    async fn id(&self, handle: &Handle, what: &'static str) -> Result<Option<String>, ProviderError> {
        if !handle.reference.is_empty() {
            // Of another instance of the same lease it would be the wrong one.
            let named = handle.reference.split_once('@').filter(|(instance, _)| *instance == handle.instance.as_str());
            return Ok(named.map(|(_, id)| id.to_owned()));
        }
        let mut labels = self.labels(None);
        labels.insert("stead-instance".to_owned(), handle.instance.to_string());
        let found = self.config.cloud.list(&labels).await.map_err(self.failed(what))?;
        Ok(found.into_iter().find(|listed| listed.condition != Condition::Gone).map(|listed| listed.id))
    }

    async fn require(&self, handle: &Handle, what: &'static str) -> Result<String, ProviderError> {
        let id = self.id(handle, what).await?;
        id.ok_or_else(|| self.error(what, Trouble::NotFound, Effect::None, "there is no such instance"))
    }

    async fn look(&self, id: &str, what: &'static str) -> Result<Condition, ProviderError> {
        match self.config.cloud.look(id).await {
            Err(error) if error.trouble == Trouble::NotFound => Ok(Condition::Gone),
            looked => looked.map_err(self.failed(what)),
        }
    }

    /// Whoever carries things for this instance.
    fn porter(&self, handle: &Handle, id: &str) -> std::io::Result<Orders> {
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
        let unavailable = |message: String| self.error(what, Trouble::Unavailable, Effect::None, message);
        for errand in errands {
            // A line that had broken unnoticed is opened anew, once.
            let orders = self.porter(handle, id).map_err(|error| unavailable(error.to_string()))?;
            if let Err(first) = orders.run(*errand).await {
                tracing::debug!(error = first, instance = %handle.instance, "an errand is run once more");
                orders.run(*errand).await.map_err(unavailable)?;
            }
        }
        Ok(())
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
        let denied = |message: &str| self.error(WHAT, Trouble::Denied, Effect::None, message);
        if let Some((why, hint)) = &self.config.missing {
            return Err(denied(&format!("{why}; {hint}")));
        }
        let program = self.program().await.map_err(|why| denied(&format!("{why}; {}", steward_program::HINT)))?;
        let made = self.places.make(&blueprint.lease, &blueprint.workspace);
        made.map_err(|error| self.error(WHAT, super::machine::trouble_of(&error), Effect::None, error.to_string()))?;
        let _turn = self.turn(&blueprint.lease, WHAT).await?;
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
        let place = self.places.steward(&handle.lease);
        let read = tokio::task::spawn_blocking(move || past::read(&place)).await;
        let failed = |message: String| self.error("read a journal", Trouble::Unavailable, Effect::None, message);
        let shells = read.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        Ok(merge(shells))
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
        let lives = self.list().await?.into_iter().any(|found| found.handle.lease == *lease);
        if lives {
            return Err(self.error(WHAT, Trouble::Conflict, Effect::None, "an instance uses them"));
        }
        self.dismiss(lease);
        let (lease, workspace) =
            (self.places.lease(lease), workspace.map(|workspace| self.places.workspace(workspace)));
        let removed = tokio::task::spawn_blocking(move || {
            super::place::remove_tree(&lease)?;
            workspace.map_or(Ok(()), |workspace| super::place::remove_tree(&workspace))
        });
        let failed = |message: String| self.error(WHAT, Trouble::Unavailable, Effect::Unknown, message);
        removed.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
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
        let (places, lease) = (self.places.clone(), lease.clone());
        let turn = tokio::task::spawn_blocking(move || places.turn(&lease)).await;
        let failed = |message: String| self.error(what, Trouble::Unavailable, Effect::None, message);
        turn.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }

    async fn end(&self, handle: &Handle) -> Result<(), ProviderError> {
        const WHAT: &str = "destroy";
        let Some(id) = self.id(handle, WHAT).await? else { return Ok(()) };
        if self.look(&id, WHAT).await? == Condition::Running
            && let Err(error) = self.send(handle, &id, WHAT, &[Errand::CatchUp, Errand::Fetch]).await
        {
            // It may have gone; else it is spared, but not for ever: nobody could get rid of it.
            self.dismiss(&handle.lease);
            if self.listen_to(handle, &id).await? != Seen::Gone && self.spare(&handle.instance) {
                return Err(error);
            }
            tracing::warn!(%error, instance = %handle.instance, "destroyed without what it had not yet told");
        }
        self.dismiss(&handle.lease);
        self.config.cloud.destroy(&id).await.map_err(self.failed(WHAT))?;
        self.spared.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.instance);
        Ok(())
    }

    /// Whether a sandbox that is said to run really does: clouds have been known to say so of what was gone.
    async fn listen_to(&self, handle: &Handle, id: &str) -> Result<Seen, ProviderError> {
        const WHAT: &str = "look at an instance";
        let porter = self.porters.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.lease).cloned();
        if porter.is_some_and(|(instance, orders)| instance == handle.instance && orders.is_heard()) {
            return Ok(Seen::Running);
        }
        for _ in 0..SIGNS {
            match self.config.cloud.run(id, "true", SIGN_WITHIN).await {
                Ok(_) => return Ok(Seen::Running),
                Err(error) if error.trouble == Trouble::NotFound => return Ok(Seen::Gone),
                Err(error) if error.trouble == Trouble::Conflict => return Ok(seen(self.look(id, WHAT).await?)),
                Err(error) if error.trouble == Trouble::Unavailable => {
                    tracing::debug!(%error, instance = %handle.instance, "no sign of life");
                    tokio::time::sleep(SIGN_APART).await;
                }
                Err(_) => return Ok(Seen::Unclear),
            }
        }
        // Whoever makes the next one ends this one first, and brings its files here if it can be reached after all.
        tracing::warn!(instance = %handle.instance, "it is said to run and gives no sign of life");
        Ok(Seen::Gone)
    }

    async fn end_others(&self, blueprint: &Blueprint) -> Result<(), ProviderError> {
        const WHAT: &str = "make a sandbox";
        let mut labels = self.labels(None);
        labels.insert("stead-lease".to_owned(), blueprint.lease.to_string());
        let there = self.config.cloud.list(&labels).await.map_err(self.failed(WHAT))?;
        for other in there {
            let instance = other.labels.get("stead-instance").and_then(|id| InstanceId::parse(id).ok());
            if instance.as_ref() == Some(&blueprint.instance) || other.condition == Condition::Gone {
                continue;
            }
            let Some(instance) = instance else { continue };
            let handle = Handle {
                lease: blueprint.lease.clone(),
                workspace: blueprint.workspace.clone(),
                reference: reference(&instance, &other.id),
                instance,
            };
            self.end(&handle).await?;
        }
        Ok(())
    }

    /// Whether it may live a little longer.
    fn spare(&self, instance: &InstanceId) -> bool {
        let mut spared = self.spared.lock().unwrap_or_else(PoisonError::into_inner);
        let times = spared.entry(instance.clone()).or_default();
        *times += 1;
        *times < SPARED
    }
}

/// What the cloud calls it, and whose it is.
fn reference(instance: &InstanceId, id: &str) -> String {
    format!("{instance}@{id}")
}

fn seen(condition: Condition) -> Seen {
    match condition {
        Condition::Running => Seen::Running,
        Condition::Paused => Seen::Paused,
        Condition::Gone => Seen::Gone,
        Condition::Unclear => Seen::Unclear,
    }
}

/// A shell that lived on several instances has left a journal of each; its state is that of the last.
fn merge(shells: Vec<PastShell>) -> Vec<PastShell> {
    let mut merged: Vec<PastShell> = Vec::new();
    for shell in shells {
        match merged.iter_mut().find(|known| known.shell == shell.shell) {
            None => merged.push(shell),
            Some(known) => {
                known.commands.extend(shell.commands);
                if shell.version >= known.version {
                    (known.version, known.state) = (shell.version, shell.state);
                }
            }
        }
    }
    merged
}
