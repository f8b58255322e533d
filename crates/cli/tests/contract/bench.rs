//! A provider over a temporary directory, what it left on the machine, and shells on its instances.

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, InstanceId, LeaseId, ProviderName, ShellId};
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
use stead_term::proc::{self, Stat};

/// What a test wants of a provider's configuration.
pub(crate) struct Wish {
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
    // What is put into a container is the static one; a test that wants another says so.
    let steward = match std::env::var_os("STEAD_STATIC_STEWARD") {
        Some(path) if wish.program.path == program().path => PathBuf::from(path),
        _ => wish.program.path,
    };
    let workspaces = wish.data.join("workspaces");
    let config = DockerConfig::new(name("docker"), wish.data, workspaces, vec![socket], StewardProgram::at(&steward));
    let network = ContainerNetwork::None;
    let mut config = DockerConfig { limits: wish.limits, base: Base::Image(IMAGE.to_owned()), network, ..config };
    change(&mut config);
    Arc::new(Docker::new(config))
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
        let provider = make(Wish { data: dir.path().join("data"), program: program(), limits });
        match provider.availability().await {
            Availability::Works(_) => Some(Self { dir, make, provider, made: Mutex::default() }),
            Availability::Missing { why, .. } => {
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
        let mut wish = Wish { data: self.data(), program: program(), limits: Limits::default() };
        change(&mut wish);
        (self.make)(wish)
    }

    /// Another provider over the same data.
    pub(crate) fn changed_by(&self, make: Make) -> Arc<dyn Provider> {
        make(Wish { data: self.data(), program: program(), limits: Limits::default() })
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

    /// Takes a sandbox that is somewhere else away, behind the provider's back.
    pub(crate) fn lose(&self, handle: &Handle) {
        let id = handle.reference.split_once('@').unwrap().1;
        crate::sky::lose(&self.data(), id);
    }

    /// Where a workspace's files are on this machine.
    pub(crate) fn files(&self, workspace: &str) -> PathBuf {
        let trees = self.provider.trees(workspace);
        trees.into_iter().find(|tree| tree.inside == "/workspace").unwrap().outside
    }

    /// Every living process that has to do with this bench: started with a path of it, or seeing one as a mount.
    pub(crate) fn processes(&self) -> Vec<Stat> {
        let name = self.dir.path().file_name().unwrap().to_str().unwrap();
        let mark = name.as_bytes();
        let us = std::process::id().to_string();
        let own_mounts = fs::read_link("/proc/self/ns/mnt").unwrap();
        let has =
            |path: String| fs::read(path).is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark));
        // What is mounted from here, not what is mounted here: that is in every world that is being made meanwhile.
        let sees = |pid: &String| {
            let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            text.lines().any(|line| line.split(' ').nth(3).is_some_and(|root| root.contains(name)))
        };
        let ours = |pid: &String| {
            *pid != us
                && (has(format!("/proc/{pid}/cmdline"))
                    || has(format!("/proc/{pid}/environ"))
                    || (fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|mounts| mounts != own_mounts)
                        && sees(pid)))
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(ours);
        let mut pids: Vec<i32> = pids.filter_map(|pid| pid.parse().ok()).collect();
        // Who is just becoming another program shows nothing, but is where it was.
        let leases: Vec<_> = self.made.lock().unwrap().iter().map(|handle| handle.lease.to_string()).collect();
        for group in groups_named(&leases) {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        pids.sort_unstable();
        pids.dedup();
        pids.into_iter().filter_map(proc::stat).filter(|stat| !b"ZX".contains(&stat.state)).collect()
    }

    /// The pids of those processes that have a role of the steward: `keep`, `run`...
    pub(crate) fn playing(&self, role: &str) -> Vec<i32> {
        let is_it = |pid: i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // `stead steward ROLE`, or the static program, which is nothing but a steward.
            let mut words = words.split(|byte| *byte == 0).skip(1).skip_while(|word| *word == b"steward");
            words.next() == Some(role.as_bytes()) && words.next() == Some(b"--dir")
        };
        self.processes().into_iter().map(|stat| stat.pid).filter(|pid| is_it(*pid)).collect()
    }

    /// Processes, control groups, mounts and sockets that are still there.
    pub(crate) fn leftovers(&self, lease: &LeaseId) -> Vec<String> {
        let mark = self.dir.path().file_name().unwrap().to_str().unwrap();
        let processes = self.processes().into_iter().map(|stat| {
            let words = fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
            format!("process {} {}", stat.pid, words.escape_ascii())
        });
        let groups = groups_named(&[lease.to_string()]).into_iter().map(|path| format!("group {}", path.display()));
        let mentions = |path: &str| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().filter(|line| line.contains(mark)).map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
        };
        let sockets = walk(self.dir.path(), &|kind| kind.is_socket());
        let sockets = sockets.into_iter().map(|path| format!("socket {}", path.display()));
        let mut found: Vec<_> = processes.chain(groups).chain(sockets).collect();
        found.extend(mentions("/proc/self/mountinfo"));
        found.extend(mentions("/proc/net/unix"));
        found
    }

    /// SIGKILL for everything, by somebody who isn't us.
    pub(crate) async fn massacre(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.kill_all(|| self.processes().iter().map(|stat| stat.pid).collect()).await;
            // A lock that was on its way from one to another is let go of a moment later.
            if self.provider.list().await.unwrap().is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "something lives that can't be found");
        }
    }

    /// Kills processes that start each other again: none is killed before all are stopped.
    pub(crate) async fn kill_all(&self, who: impl Fn() -> Vec<i32>) {
        let mut all = Vec::new();
        let state = |pid: i32| proc::stat(pid).map_or(b'X', |stat| stat.state);
        until("all processes to be stopped", || {
            let before = all.len();
            all.extend(who());
            all.sort_unstable();
            all.dedup();
            for pid in &all {
                proc::signal(*pid, Signal::STOP);
            }
            all.len() == before && all.iter().all(|pid| b"TZX".contains(&state(*pid)))
        })
        .await;
        for pid in &all {
            proc::signal(*pid, Signal::KILL);
        }
        until("all processes to be dead", || all.iter().all(|pid| b"ZX".contains(&state(*pid)))).await;
    }
}

impl Drop for Bench {
    /// Ends what the test left running.
    fn drop(&mut self) {
        if crate::sky::clear(&self.data()) {
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

pub(crate) fn groups_named(names: &[String]) -> Vec<PathBuf> {
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|last| names.iter().any(|name| last == name.as_str()));
    walk(Path::new("/sys/fs/cgroup"), &|kind| kind.is_dir()).into_iter().filter(is_it).collect()
}

pub(crate) fn walk(top: &Path, is_it: &dyn Fn(&fs::FileType) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if is_it(&kind) {
            found.push(entry.path());
        }
        if kind.is_dir() {
            found.extend(walk(&entry.path(), is_it));
        }
    }
    found
}
