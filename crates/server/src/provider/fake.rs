//! `fake`: a provider that keeps the contract, and breaks its word when told to. It delays, fails before or after it has
//! done what was asked, says running of what is gone. For tests; it isolates nothing.

mod toy;

use super::{
    Access, Availability, Blueprint, Capabilities, Created, Effect, Found, Handle, Lasting, Metrics, ProcessShot,
    Provider, ProviderError, Surroundings, Tree, Trouble,
};
use crate::pace::Pace;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_model::ids::{CommandId, InstanceId, LeaseId, ProviderName, ShellId};
use stead_model::lease::Seen;
use stead_steward::past::PastShell;
pub use toy::ToyRuntime;

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mischief {
    /// It takes this long.
    Delay(Duration),
    /// It fails and has done nothing, and says so.
    Refuse(Trouble),
    /// It fails, and who knows whether it did it. It did not.
    FailBefore,
    /// It fails after it has done it.
    FailAfter,
    /// Only for `status`: it says this, whatever is true.
    Say(Seen),
    /// It never answers, and does nothing.
    Hang,
    /// It never answers, and has done it.
    HangAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Create,
    Status,
    Pause,
    Resume,
    Destroy,
    Access,
    /// A command in a toy shell: after a failure the way to the shell is broken.
    Run,
    /// Asking a toy shell for its state.
    Capture,
}

/// What its instances run commands with.
#[derive(Debug, Clone)]
pub enum Shells {
    /// Each command a real bash on this machine, in this directory.
    Real(PathBuf),
    /// A few words of a shell, in memory: for thousands of runs a second.
    Toy,
}

#[derive(Debug, Clone)]
pub struct Fake {
    name: ProviderName,
    shells: Shells,
    capabilities: Capabilities,
    pace: Pace,
    world: Arc<Mutex<World>>,
}

/// What is there, as the fake knows it: the truth that its answers may differ from.
#[derive(Debug, Default)]
pub(super) struct World {
    instances: BTreeMap<InstanceId, Body>,
    /// The toy shells, by what they live in.
    shells: BTreeMap<(Home, ShellId), toy::Shell>,
    mischief: HashMap<Call, VecDeque<Mischief>>,
    calls: HashMap<Call, u64>,
    pranks: u64,
    /// How often each command was carried out.
    executions: BTreeMap<CommandId, u32>,
    repeated: BTreeSet<CommandId>,
    /// Instances of which it was said that they are gone, or destroyed, while they lived.
    denied: BTreeSet<InstanceId>,
}

/// What a toy shell goes with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Instance(InstanceId),
    /// It outlives instances, as a journal on a disk does.
    Lease(LeaseId),
}

impl World {
    fn remove(&mut self, instance: &InstanceId) -> bool {
        self.shells.retain(|(home, _), _| *home != Home::Instance(instance.clone()));
        self.instances.remove(instance).is_some()
    }

    fn execute(&mut self, command: &CommandId) {
        let count = self.executions.entry(command.clone()).or_default();
        *count += 1;
        if *count > 1 {
            self.repeated.insert(command.clone());
        }
    }

    /// Counts a call, and takes what is to go wrong with it.
    fn begin(&mut self, call: Call) -> Option<Mischief> {
        *self.calls.entry(call).or_default() += 1;
        let mischief = self.mischief.get_mut(&call).and_then(VecDeque::pop_front);
        self.pranks += u64::from(mischief.is_some());
        mischief
    }
}

#[derive(Debug)]
pub(super) struct Body {
    handle: Handle,
    paused: bool,
}

impl Fake {
    pub fn new(name: ProviderName, shells: Shells) -> Self {
        // Toy shells live in the instance, as those of a steward do.
        let steward = matches!(shells, Shells::Toy);
        let capabilities = Capabilities {
            pause: true,
            live_pause: true,
            metrics: true,
            steward,
            durable_journal: false,
            isolated: false,
        };
        Self { name, shells, capabilities, pace: Pace::default(), world: Arc::default() }
    }

    pub fn without_pause(mut self) -> Self {
        (self.capabilities.pause, self.capabilities.live_pause) = (false, false);
        self
    }

    /// Its toy shells outlive instances and know every command that they were given, as those of a steward over a disk.
    pub fn durable(mut self) -> Self {
        self.capabilities.durable_journal = true;
        self
    }

    /// Lets others go first in the middle of its calls.
    pub fn paced(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// The next call of this kind goes wrong; several wait for their turn.
    pub fn next(&self, call: Call, mischief: Mischief) {
        self.world().mischief.entry(call).or_default().push_back(mischief);
    }

    pub fn behave(&self) {
        self.world().mischief.clear();
    }

    pub fn calls(&self, call: Call) -> u64 {
        self.world().calls.get(&call).copied().unwrap_or(0)
    }

    /// How many calls have gone wrong.
    pub fn pranks(&self) -> u64 {
        self.world().pranks
    }

    /// How often a command was carried out in a toy shell.
    pub fn executions(&self, command: &CommandId) -> u32 {
        self.world().executions.get(command).copied().unwrap_or(0)
    }

    /// Commands that were carried out more than once.
    pub fn repeated(&self) -> Vec<CommandId> {
        self.world().repeated.iter().cloned().collect()
    }

    /// Whether it was ever said of an instance that it is gone, or destroyed, while it lived.
    pub fn has_denied(&self, instance: &InstanceId) -> bool {
        self.world().denied.contains(instance)
    }

    /// An instance dies, and nobody is told.
    pub fn kill(&self, instance: &InstanceId) -> bool {
        self.world().remove(instance)
    }

    /// Paused by somebody else.
    pub fn pause_behind_our_back(&self, instance: &InstanceId, paused: bool) {
        if let Some(body) = self.world().instances.get_mut(instance) {
            body.paused = paused;
        }
    }

    /// An instance that no lease knows.
    pub fn abandon(&self, handle: Handle) {
        let body = Body { handle: handle.clone(), paused: false };
        self.world().instances.insert(handle.instance, body);
    }

    /// What really is there.
    pub fn truth(&self) -> Vec<(Handle, Seen)> {
        let seen = |body: &Body| if body.paused { Seen::Paused } else { Seen::Running };
        self.world().instances.values().map(|body| (body.handle.clone(), seen(body))).collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what was asked, or what mischief wants instead.
    async fn call<T>(
        &self,
        call: Call,
        what: &'static str,
        act: impl FnOnce(&mut World) -> Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        let mischief = self.world().begin(call);
        self.carry_out(mischief, what, act).await
    }

    async fn carry_out<T>(
        &self,
        mischief: Option<Mischief>,
        what: &'static str,
        act: impl FnOnce(&mut World) -> Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        self.pace.wait().await;
        let failed = |trouble, effect| Err(ProviderError::new(&self.name, what, trouble, effect, "as it was told to"));
        let answer = match mischief {
            Some(Mischief::Refuse(trouble)) => failed(trouble, Effect::None),
            Some(Mischief::FailBefore) => failed(Trouble::Unavailable, Effect::Unknown),
            Some(Mischief::FailAfter) => {
                act(&mut self.world())?;
                failed(Trouble::Unavailable, Effect::Unknown)
            }
            Some(Mischief::Hang) => std::future::pending().await,
            Some(Mischief::HangAfter) => {
                let _ = act(&mut self.world());
                std::future::pending().await
            }
            Some(Mischief::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                act(&mut self.world())
            }
            Some(Mischief::Say(_)) | None => act(&mut self.world()),
        };
        self.pace.wait().await;
        answer
    }

    fn missing(&self, what: &'static str) -> ProviderError {
        ProviderError::new(&self.name, what, Trouble::NotFound, Effect::None, "there is no such instance")
    }
}

#[async_trait]
impl Provider for Fake {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn availability(&self) -> Availability {
        Availability::Works(vec!["for tests".to_owned()])
    }

    async fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        if let Shells::Real(dir) = &self.shells {
            let made = std::fs::create_dir_all(dir.join(&blueprint.workspace));
            made.map_err(|error| {
                ProviderError::new(&self.name, "create", Trouble::Unavailable, Effect::None, error.to_string())
            })?;
        }
        self.call(Call::Create, "create", |world| {
            let reference = format!("fake-{}", blueprint.instance);
            let handle = Handle {
                instance: blueprint.instance.clone(),
                lease: blueprint.lease.clone(),
                workspace: blueprint.workspace.clone(),
                reference: reference.clone(),
            };
            let body = Body { handle, paused: false };
            world.instances.entry(blueprint.instance.clone()).or_insert(body);
            let metadata = vec![("kind".to_owned(), "fake".to_owned())];
            Ok(Created { reference, metadata, caveats: Vec::new() })
        })
        .await
    }

    async fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        let mischief = self.world().begin(Call::Status);
        let lie = match mischief {
            Some(Mischief::Say(seen)) => Some(seen),
            _ => None,
        };
        self.carry_out(mischief, "look at an instance", |world| {
            if lie == Some(Seen::Gone) && world.instances.contains_key(&handle.instance) {
                world.denied.insert(handle.instance.clone());
            }
            Ok(lie.unwrap_or(match world.instances.get(&handle.instance) {
                Some(body) if body.paused => Seen::Paused,
                Some(_) => Seen::Running,
                None => Seen::Gone,
            }))
        })
        .await
    }

    async fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        if !self.capabilities.pause {
            return Err(ProviderError::unsupported(&self.name, "pause"));
        }
        self.call(Call::Pause, "pause", |world| {
            world.instances.get_mut(&handle.instance).ok_or_else(|| self.missing("pause"))?.paused = true;
            Ok(())
        })
        .await
    }

    async fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.call(Call::Resume, "resume", |world| {
            world.instances.get_mut(&handle.instance).ok_or_else(|| self.missing("resume"))?.paused = false;
            Ok(())
        })
        .await
    }

    async fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        let mischief = self.world().begin(Call::Destroy);
        if mischief == Some(Mischief::Refuse(Trouble::NotFound)) {
            self.world().denied.insert(handle.instance.clone());
        }
        self.carry_out(mischief, "destroy", |world| {
            world.remove(&handle.instance);
            Ok(())
        })
        .await
    }

    async fn access(&self, handle: &Handle) -> Result<Access, ProviderError> {
        self.call(Call::Access, "connect", |world| {
            let body = world.instances.get(&handle.instance).ok_or_else(|| self.missing("connect"))?;
            if body.paused {
                let message = "the instance is paused";
                return Err(ProviderError::new(&self.name, "connect", Trouble::Conflict, Effect::None, message));
            }
            Ok(match &self.shells {
                Shells::Real(dir) => {
                    let cwd = dir.join(&handle.workspace);
                    Access::OneShot(Arc::new(ProcessShot::new(self.name.clone(), cwd)))
                }
                Shells::Toy => {
                    let (fake, handle) = (self.clone(), handle.clone());
                    Access::Runtime(Box::new(move |opening| Arc::new(ToyRuntime::open(fake.clone(), &handle, opening))))
                }
            })
        })
        .await
    }

    async fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        match self.world().instances.get(&handle.instance) {
            Some(_) => Ok(Metrics { cpu_percent: Some(0.0), processes: Some(1), ..Metrics::default() }),
            None => Err(self.missing("measure")),
        }
    }

    async fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        self.pace.wait().await;
        let world = self.world();
        let home = Home::Lease(handle.lease.clone());
        let left = world.shells.iter().filter(|((of, _), _)| *of == home);
        Ok(left.map(|((_, id), shell)| shell.last_words(id)).collect())
    }

    async fn list(&self) -> Result<Vec<Found>, ProviderError> {
        self.pace.wait().await;
        Ok(self.truth().into_iter().map(|(handle, seen)| Found { handle, seen }).collect())
    }

    fn surroundings(&self, workspace: &str) -> Surroundings {
        let cwd = match &self.shells {
            Shells::Real(dir) => dir.join(workspace).into_os_string().into_encoded_bytes(),
            Shells::Toy => super::WORKSPACE.to_vec(),
        };
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("HOME", "/tmp")];
        let env = env.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec();
        Surroundings { env, cwd, scratch: "/tmp".to_owned() }
    }

    fn trees(&self, workspace: &str) -> Vec<Tree> {
        match &self.shells {
            Shells::Real(dir) => {
                vec![Tree { inside: "/workspace".to_owned(), outside: dir.join(workspace) }]
            }
            Shells::Toy => Vec::new(),
        }
    }

    fn lasting(&self, workspace: &str) -> Option<Lasting> {
        match &self.shells {
            Shells::Real(dir) => Some(Lasting { files: dir.join(workspace), home: None }),
            Shells::Toy => None,
        }
    }

    async fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        self.pace.wait().await;
        if self.world().instances.values().any(|body| body.handle.lease == *lease) {
            let message = "the instance still runs";
            return Err(ProviderError::new(&self.name, "remove files", Trouble::Conflict, Effect::None, message));
        }
        self.world().shells.retain(|(home, _), _| *home != Home::Lease(lease.clone()));
        if let (Shells::Real(dir), Some(workspace)) = (&self.shells, workspace) {
            let _ = std::fs::remove_dir_all(dir.join(workspace));
        }
        Ok(())
    }
}
