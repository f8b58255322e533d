//! A provider over a temporary directory, what it left on the machine, and shells on its instances.

mod machine;

pub(crate) use machine::{groups_named, walk};

use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, InstanceId, LeaseId, ProviderName, ShellId};
use stead_model::lease::Seen;
use stead_model::proto::{CommandInfo, Ending, Exec};
use stead_model::state::ShellState;
use stead_server::clock::{Names, RandomNames};
use stead_server::provider::docker::{Base, ContainerNetwork, Docker, DockerConfig, Way};
use stead_server::provider::fake::{Fake, Shells};
use stead_server::provider::local::{self, LocalConfig};
use stead_server::provider::namespace::{self, NamespaceConfig};
use stead_server::provider::{Access, Availability, Blueprint, Created, Handle, Program, Provider};
use stead_server::runtime::{LiveRuntime, Opening, Runtime, RuntimeError, WrappedRuntime};
use stead_server::steward::{Steward, Told};
use stead_server::steward_program::StewardProgram;
use stead_term::cgroup::Limits;
use stead_term::proc;

/// What a test wants of a provider's configuration.
pub(crate) struct Wish {
    /// The bench's own directory: whoever asks with the same one meets the same clouds.
    pub(crate) bench: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) program: Program,
    pub(crate) limits: Limits,
}

pub(crate) type Make = fn(Wish) -> Arc<dyn Provider>;

fn name(text: &str) -> ProviderName {
    ProviderName::parse(text).unwrap()
}

fn program() -> Program {
    Program { path: PathBuf::from(env!("CARGO_BIN_EXE_stead")), call: vec!["steward".to_owned()] }
}

pub(crate) fn local(wish: Wish) -> Arc<dyn Provider> {
    Arc::new(local::provider(LocalConfig {
        name: name("local"),
        workspaces: wish.data.join("workspaces"),
        data: wish.data,
        program: wish.program,
        path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        limits: wish.limits,
    }))
}

pub(crate) fn namespace(wish: Wish) -> Arc<dyn Provider> {
    let workspaces = wish.data.join("workspaces");
    let config = NamespaceConfig::new(name("namespace"), wish.data, workspaces, wish.program);
    Arc::new(namespace::provider(NamespaceConfig { limits: wish.limits, ..config }))
}

/// Docker, over the socket in the mounted place.
pub(crate) fn docker(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, "STEAD_TEST_DOCKER", |_| {})
}

/// Podman, through its engine alone.
pub(crate) fn podman(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, "STEAD_TEST_PODMAN", |config| config.way = Way::Engine)
}

/// A provider over the engine whose socket the variable names, with an image of this machine's tools in it.
pub(crate) fn containers(wish: Wish, variable: &str, change: impl FnOnce(&mut DockerConfig)) -> Arc<dyn Provider> {
    let socket = std::env::var_os(variable).map_or_else(|| PathBuf::from(format!("/${variable}")), PathBuf::from);
    containers_at(wish, socket, change)
}

pub(crate) fn containers_at(wish: Wish, socket: PathBuf, change: impl FnOnce(&mut DockerConfig)) -> Arc<dyn Provider> {
    if socket.exists() {
        provide_image(&socket);
    }
    let steward = put_inside(&wish.program);
    let workspaces = wish.data.join("workspaces");
    let config = DockerConfig::new(name("docker"), wish.data, workspaces, vec![socket], steward);
    let network = ContainerNetwork::None;
    let mut config = DockerConfig { limits: wish.limits, base: Base::Image(IMAGE.to_owned()), network, ..config };
    change(&mut config);
    Arc::new(Docker::new(config))
}

/// What is put into a container or a sandbox is the static one; a test that wants another says so.
pub(crate) fn put_inside(wanted: &Program) -> StewardProgram {
    match std::env::var_os("STEAD_STATIC_STEWARD") {
        Some(path) if wanted.path == program().path => StewardProgram::at(Path::new(&path)),
        _ => StewardProgram::at(&wanted.path),
    }
}

pub(crate) const IMAGE: &str = "stead/test-host";

/// Builds the image unless the engine has it, as a person would.
fn provide_image(socket: &Path) {
    build_image(socket, &["--from-host", "--if-missing", "--name", IMAGE]);
}

pub(crate) fn build_image(socket: &Path, options: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let built = std::process::Command::new(env!("CARGO_BIN_EXE_stead"))
        .args(["image", "build", "--data"])
        .arg(home.path())
        .args(options)
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

pub(crate) fn fake(wish: Wish) -> Arc<dyn Provider> {
    Arc::new(Fake::new(name("fake"), Shells::Real(wish.data)))
}

pub(crate) struct Bench {
    dir: tempfile::TempDir,
    make: Make,
    pub(crate) provider: Arc<dyn Provider>,
    made: Mutex<Vec<Handle>>,
}

impl Bench {
    /// `None`, and a word about it, where the machine can't.
    pub(crate) async fn new(make: Make) -> Option<Self> {
        Self::with(make, Limits::default()).await
    }

    pub(crate) async fn with(make: Make, limits: Limits) -> Option<Self> {
        Self::within(tempfile::tempdir().unwrap(), make, limits).await
    }

    /// Over a directory in which there is something already.
    pub(crate) async fn within(dir: tempfile::TempDir, make: Make, limits: Limits) -> Option<Self> {
        let bench = dir.path().to_owned();
        let provider = make(Wish { data: bench.join("data"), bench, program: program(), limits });
        match provider.availability().await {
            Availability::Works(_) => Some(Self { dir, make, provider, made: Mutex::default() }),
            Availability::Missing { why, .. } | Availability::NotNow { why } => {
                println!("SKIPPED: no {} here: {why}", provider.kind());
                None
            }
        }
    }

    /// The same provider as another server has it, over the same data.
    pub(crate) fn successor(&self) -> Arc<dyn Provider> {
        self.changed(|_| {})
    }

    pub(crate) fn changed(&self, change: impl FnOnce(&mut Wish)) -> Arc<dyn Provider> {
        let mut wish = self.wish();
        change(&mut wish);
        (self.make)(wish)
    }

    /// Another provider over the same data.
    pub(crate) fn changed_by(&self, make: Make) -> Arc<dyn Provider> {
        make(self.wish())
    }

    fn wish(&self) -> Wish {
        Wish { data: self.data(), bench: self.path().to_owned(), program: program(), limits: Limits::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Whether there are processes between commands; else each command is one call and nothing outlives it.
    pub(crate) fn lives(&self) -> bool {
        self.provider.capabilities().steward
    }

    /// Whether instances are on somebody else's machines, with a copy of what is to outlive them here.
    pub(crate) fn is_afar(&self) -> bool {
        self.provider.mirror(&LeaseId::made_of(RandomNames.entropy())).is_some()
    }

    /// Whether what an instance journalled is there when it is gone.
    pub(crate) fn leaves_words(&self) -> bool {
        self.provider.capabilities().durable_journal || self.is_afar()
    }

    /// What is seen of an instance in which nothing runs any more. Where a pause keeps the disk alone, it is what a pause
    /// leaves.
    pub(crate) fn ended(&self) -> Seen {
        let can = self.provider.capabilities();
        if can.pause && !can.live_pause { Seen::Paused } else { Seen::Gone }
    }

    pub(crate) fn blueprint(&self, workspace: &str) -> Blueprint {
        let blueprint = Blueprint {
            instance: instance(),
            lease: LeaseId::made_of(RandomNames.entropy()),
            generation: 1,
            workspace: workspace.to_owned(),
            demands: stead_model::project::Demands::default(),
        };
        self.remember(&blueprint);
        blueprint
    }

    /// Another instance over the same lease.
    pub(crate) fn next(&self, blueprint: &Blueprint) -> Blueprint {
        let next = Blueprint { instance: instance(), generation: blueprint.generation + 1, ..blueprint.clone() };
        self.remember(&next);
        next
    }

    fn remember(&self, blueprint: &Blueprint) {
        self.made.lock().unwrap().push(handle(blueprint, &Created::default()));
    }

    pub(crate) async fn create(&self, blueprint: &Blueprint) -> Handle {
        handle(blueprint, &self.provider.create(blueprint).await.unwrap())
    }

    /// A fresh instance over a fresh lease.
    pub(crate) async fn instance(&self, workspace: &str) -> Handle {
        self.create(&self.blueprint(workspace)).await
    }

    pub(crate) async fn shell(&self, handle: &Handle, shell: &str) -> Shell {
        let opening = fresh(&*self.provider, handle, shell);
        let mut greetings = 0;
        loop {
            match open(&*self.provider, handle, &opening).await {
                // A steward that is being replaced closes on whoever comes just then.
                Err(RuntimeError::Broken(_)) if greetings < 10 => greetings += 1,
                opened => return Shell::new(opened.unwrap(), &opening),
            }
        }
    }

    /// The same shell after a pause. On this machine the way to it outlasts that; to somewhere else there is another.
    pub(crate) async fn after_pause(&self, handle: &Handle, shell: Shell) -> Shell {
        if self.is_afar() { self.shell(handle, shell.id.as_str()).await } else { shell }
    }

    /// A shell of an instance that was, on the next one over its lease: it knows what is in the journal. Where that was
    /// the first one's own, it is told what the first one left.
    pub(crate) async fn heir(&self, before: &Handle, handle: &Handle, shell: &str) -> Shell {
        if self.provider.capabilities().durable_journal {
            return self.shell(handle, shell).await;
        }
        let words = self.provider.last_words(before).await.unwrap();
        let left = words.into_iter().find(|left| left.shell.as_str() == shell).unwrap();
        let fresh = fresh(&*self.provider, handle, shell);
        let opening = Opening { state: left.state.unwrap(), version: left.version, ..fresh };
        Shell::new(open(&*self.provider, handle, &opening).await.unwrap(), &opening)
    }

    /// Has what an instance did here, where it outlives it.
    pub(crate) async fn bring(&self, handle: &Handle) {
        self.provider.catch_up(handle).await.unwrap();
        self.provider.fetch(handle).await.unwrap();
    }

    /// Has what was done to files here there.
    pub(crate) async fn take(&self, handle: &Handle) {
        self.provider.deliver(handle).await.unwrap();
    }

    /// Takes a sandbox that is somewhere else away, behind the provider's back.
    pub(crate) fn lose(&self, handle: &Handle) {
        crate::sky::lose(self.path(), id_of(handle));
    }

    /// A file of an instance's workspace as it is this moment, for whoever looks from outside.
    pub(crate) fn inside(&self, handle: &Handle, name: &str) -> PathBuf {
        let cwd = self.provider.surroundings(&handle.workspace).cwd;
        let there = crate::sky::outside(self.path(), handle, Path::new(OsStr::from_bytes(&cwd)));
        there.unwrap_or_else(|| self.files(&handle.workspace)).join(name)
    }

    /// Where a workspace's files are on this machine.
    pub(crate) fn files(&self, workspace: &str) -> PathBuf {
        let trees = self.provider.trees(workspace);
        trees.into_iter().find(|tree| tree.inside == "/workspace").unwrap().outside
    }
}

impl Drop for Bench {
    /// Ends what the test left running.
    fn drop(&mut self) {
        if crate::sky::clear(self.path()) {
            return;
        }
        let provider = Arc::clone(&self.provider);
        let made = std::mem::take(&mut *self.made.lock().unwrap());
        let destroy = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for handle in made {
                let _ = runtime.block_on(provider.destroy(&handle));
            }
        };
        let _ = std::thread::spawn(destroy).join();
        for stat in self.processes() {
            proc::signal(stat.pid, Signal::KILL);
        }
    }
}

pub(crate) fn instance() -> InstanceId {
    InstanceId::made_of(RandomNames.entropy())
}

pub(crate) fn handle(blueprint: &Blueprint, created: &Created) -> Handle {
    Handle {
        instance: blueprint.instance.clone(),
        lease: blueprint.lease.clone(),
        workspace: blueprint.workspace.clone(),
        reference: created.reference.clone(),
    }
}

/// What its cloud calls an instance.
pub(crate) fn id_of(handle: &Handle) -> &str {
    handle.reference.split_once('@').unwrap().1
}

pub(crate) fn fresh(provider: &dyn Provider, handle: &Handle, shell: &str) -> Opening {
    Opening {
        shell: ShellId::parse(shell).unwrap(),
        state: ShellState::default(),
        version: 0,
        surroundings: provider.surroundings(&handle.workspace),
    }
}

/// A runtime of whatever kind the instance offers.
pub(crate) async fn open(
    provider: &dyn Provider,
    handle: &Handle,
    opening: &Opening,
) -> Result<Arc<dyn Runtime>, RuntimeError> {
    Ok(match provider.access(handle).await? {
        Access::Steward(channel) => {
            let steward = Arc::new(Steward::greet(channel).await?);
            Arc::new(LiveRuntime::open(steward, opening).await?)
        }
        Access::OneShot(shots) => Arc::new(WrappedRuntime::open(shots, opening)),
        Access::Runtime(make) => make(opening),
    })
}

/// A runtime with words of its own.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) runtime: Arc<dyn Runtime>,
    id: ShellId,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) info: CommandInfo,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn ending(&self) -> &Ending {
        self.info.ending.as_ref().unwrap()
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.ending().exit_code
    }

    /// Code, output and errors as text.
    pub(crate) fn seen(&self) -> (Option<i32>, String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (self.code(), text(&self.stdout), text(&self.stderr))
    }
}

pub(crate) fn exec(text: impl Into<Vec<u8>>) -> Exec {
    Exec::new(ShellId::parse("main").unwrap(), CommandId::made_of(RandomNames.entropy()), text)
}

impl Shell {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, opening: &Opening) -> Self {
        Self { runtime, id: opening.shell.clone() }
    }

    pub(crate) async fn run(&self, text: impl Into<Vec<u8>>) -> Outcome {
        self.run_exec(exec(text)).await
    }

    pub(crate) async fn run_exec(&self, exec: Exec) -> Outcome {
        let text = exec.text.clone();
        self.try_exec(exec).await.unwrap_or_else(|error| panic!("{text:?}: {error}: {error:?}"))
    }

    pub(crate) async fn try_exec(&self, exec: Exec) -> Result<Outcome, RuntimeError> {
        let exec = Exec { shell: self.id.clone(), ..exec };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut listener = |told: Told| {
            if let Told::Output(chunk) = told {
                let (stream, at) = match chunk.stream {
                    Stream::Stdout => (&mut stdout, chunk.offset),
                    Stream::Stderr => (&mut stderr, chunk.offset),
                };
                assert_eq!(stream.len() as u64, at, "a hole in the output, or a part of it twice");
                stream.extend_from_slice(&chunk.bytes);
            }
        };
        let info = self.runtime.run(&exec, 0, &mut listener).await?;
        Ok(Outcome { info, stdout, stderr })
    }

    /// What a command prints, if it ends well.
    pub(crate) async fn out(&self, text: &str) -> String {
        let outcome = self.run(text).await;
        assert_eq!((outcome.code(), outcome.seen().2), (Some(0), String::new()), "{text}");
        String::from_utf8(outcome.stdout).unwrap()
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Whether a file grows before the time is over: to see that something does not happen takes looking for a while.
pub(crate) async fn grows(file: &Path, within: Duration) -> bool {
    let (before, deadline) = (length(file), Instant::now() + within);
    while Instant::now() < deadline {
        if length(file) > before {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}
