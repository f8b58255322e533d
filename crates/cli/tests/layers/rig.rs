//! A server's layers over a temporary directory, with a clock that a test can move.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::ids::{ProviderName, ThreadId};
use stead_server::clock::{Clock, RandomNames, SystemClock};
use stead_server::provider::docker::{Base, ContainerNetwork, Docker, DockerConfig};
use stead_server::provider::fake::{Fake, Shells};
use stead_server::provider::local::{self, LocalConfig};
use stead_server::provider::namespace::{self, NamespaceConfig};
use stead_server::provider::{Availability, OnMachine, Program, Provider, Providers};
use stead_server::stead::{Execute, Executed, Parts, Recovered, Sandbox, Settings, Stead, Treatment, Where};
use stead_server::steward_program::StewardProgram;
use stead_server::store::{SqliteStore, Store};
use stead_server::vault::Vault;
use stead_term::cgroup::Limits;

/// Real time, moved by as much as a test wants; or a time that stands still but for that.
#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    by: AtomicU64,
    stands_at: OnceLock<Timestamp>,
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let base = self.stands_at.get().copied().unwrap_or_else(|| SystemClock.now());
        Timestamp(base.0 + self.by.load(Ordering::SeqCst))
    }
}

impl MovedClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.by.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn stop(&self) {
        self.stands_at.get_or_init(|| SystemClock.now());
    }
}

pub(crate) struct Rig {
    dir: tempfile::TempDir,
    pub(crate) clock: Arc<MovedClock>,
    pub(crate) fake: Fake,
    pub(crate) toy: Fake,
    pub(crate) treatments: BTreeMap<ProviderName, Treatment>,
    /// Providers beyond the four.
    more: Vec<Arc<dyn Provider>>,
    default: ProviderName,
    pub(crate) stead: Stead,
}

pub(crate) fn name(text: &str) -> ProviderName {
    ProviderName::parse(text).unwrap()
}

pub(crate) fn thread(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

pub(crate) fn program() -> Program {
    Program { path: PathBuf::from(env!("CARGO_BIN_EXE_stead")), call: vec!["steward".to_owned()] }
}

pub(crate) fn local(data: &Path) -> OnMachine {
    local_named(data, "local")
}

pub(crate) fn local_named(data: &Path, called: &str) -> OnMachine {
    local::provider(LocalConfig {
        name: name(called),
        data: data.join(called),
        workspaces: data.join(called).join("workspaces"),
        program: program(),
        path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        limits: Limits::default(),
    })
}

pub(crate) fn namespace(data: &Path) -> OnMachine {
    namespace::provider(NamespaceConfig::new(
        name("namespace"),
        data.join("namespace"),
        data.join("namespace/workspaces"),
        program(),
    ))
}

/// The socket of an engine for tests, where there is one.
pub(crate) const ENGINE: &str = "STEAD_TEST_DOCKER";

/// Containers of this machine's own tools, on the engine for tests.
pub(crate) fn docker(data: &Path) -> Docker {
    let socket = std::env::var_os(ENGINE).map_or_else(|| PathBuf::from("/nowhere"), PathBuf::from);
    let steward = std::env::var_os("STEAD_STATIC_STEWARD").map_or_else(|| program().path, PathBuf::from);
    let own = data.join("docker");
    let workspaces = own.join("workspaces");
    let config = DockerConfig::new(name("docker"), own, workspaces, vec![socket], StewardProgram::at(&steward));
    Docker::new(DockerConfig { base: Base::Image(IMAGE.to_owned()), network: ContainerNetwork::None, ..config })
}

const IMAGE: &str = "stead/test-host";

/// Whether containers can be had; if not the test says so and is over. The engine gets the image that they need.
pub(crate) async fn can_contain(data: &Path) -> bool {
    let Some(socket) = std::env::var_os(ENGINE) else {
        println!("SKIPPED: no engine in {ENGINE}");
        return false;
    };
    let built = std::process::Command::new(program().path)
        .args(["image", "build", "--from-host", "--if-missing", "--name", IMAGE, "--data"])
        .arg(data)
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    match docker(data).availability().await {
        Availability::Works(_) => true,
        Availability::Missing { why, .. } | Availability::NotNow { why } => {
            println!("SKIPPED: no containers here: {why}");
            false
        }
    }
}

/// Whether this machine can isolate; if not the test says so and is over.
pub(crate) async fn can_isolate(rig: &Rig) -> bool {
    match namespace(rig.path()).availability().await {
        Availability::Works(_) => true,
        Availability::Missing { why, .. } | Availability::NotNow { why } => {
            println!("SKIPPED: no namespaces here: {why}");
            false
        }
    }
}

impl Rig {
    pub(crate) async fn new(default: &str) -> Self {
        Self::with(default, BTreeMap::new()).await
    }

    pub(crate) async fn with(default: &str, treatments: BTreeMap<ProviderName, Treatment>) -> Self {
        Self::over(tempfile::tempdir().unwrap(), default, treatments, Vec::new()).await.0
    }

    /// Over whatever an earlier server left in a directory.
    pub(crate) async fn over(
        dir: tempfile::TempDir,
        default: &str,
        treatments: BTreeMap<ProviderName, Treatment>,
        more: Vec<Arc<dyn Provider>>,
    ) -> (Self, Recovered) {
        let clock = Arc::new(MovedClock::default());
        let fake = Fake::new(name("fake"), Shells::Real(dir.path().join("fake")));
        let toy = Fake::new(name("toy"), Shells::Toy);
        let default = name(default);
        let (stead, recovered) = start(dir.path(), &clock, (&fake, &toy), &more, &default, &treatments).await;
        (Self { dir, clock, fake, toy, treatments, more, default, stead }, recovered)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("stead.db")
    }

    /// Another server over the same data, as after a crash of the one before: nobody told it to stop.
    pub(crate) async fn restart(&mut self) -> Recovered {
        let fakes = (&self.fake, &self.toy);
        let (stead, recovered) =
            start(self.dir.path(), &self.clock, fakes, &self.more, &self.default, &self.treatments).await;
        self.stead = stead;
        recovered
    }

    pub(crate) async fn sandbox(&self, id: &str) -> Sandbox {
        self.stead.get_sandbox(Where::thread(thread(id))).await.unwrap()
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.database()).await.unwrap())
    }
}

pub(crate) async fn start(
    dir: &Path,
    clock: &Arc<MovedClock>,
    (fake, toy): (&Fake, &Fake),
    more: &[Arc<dyn Provider>],
    default: &ProviderName,
    treatments: &BTreeMap<ProviderName, Treatment>,
) -> (Stead, Recovered) {
    let four: [Arc<dyn Provider>; 4] =
        [Arc::new(local(dir)), Arc::new(namespace(dir)), Arc::new(fake.clone()), Arc::new(toy.clone())];
    let settings = Settings {
        default_provider: default.clone(),
        treatments: treatments.clone(),
        reap_every: Duration::from_hours(1),
    };
    let store = Arc::new(SqliteStore::open(&dir.join("stead.db")).await.unwrap());
    // Only where it is used: whoever starts asks every provider what it has.
    let containers = (default.as_str() == "docker").then(|| Arc::new(docker(dir)) as Arc<dyn Provider>);
    let providers = Providers::new(four.into_iter().chain(containers).chain(more.iter().cloned()));
    let parts = Parts {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        names: Arc::new(RandomNames),
        vault: Vault::at(dir.join("secret.key")),
        ..Parts::new(store, providers, settings)
    };
    Stead::start(parts).await.unwrap()
}

impl Drop for Rig {
    /// Ends what the test left running, or asleep.
    fn drop(&mut self) {
        let dir = self.dir.path().to_owned();
        let end = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(end_all(&dir));
        });
        let _ = end.join();
    }
}

async fn end_all(dir: &Path) {
    let names =
        std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for called in names.filter(|called| dir.join(called).join("leases").is_dir()) {
        let provider: Box<dyn Provider> = match called.as_str() {
            "namespace" => Box::new(namespace(dir)),
            "docker" => Box::new(docker(dir)),
            _ => Box::new(local_named(dir, &called)),
        };
        for found in provider.list().await.into_iter().flatten() {
            let _ = provider.destroy(&found.handle).await;
        }
    }
}

pub(crate) async fn run(sandbox: &Sandbox, text: &str) -> Executed {
    sandbox.run(Execute::new(text)).await.unwrap_or_else(|error| panic!("{text}: {error}: {error:?}"))
}

/// What a command prints, if it ends well.
pub(crate) async fn out(sandbox: &Sandbox, text: &str) -> String {
    let executed = run(sandbox, text).await;
    assert_eq!(executed.exit_code(), Some(0), "{text}: {}", String::from_utf8_lossy(&executed.stderr));
    String::from_utf8(executed.stdout).unwrap()
}

/// Waits until `check` has an answer.
pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(answer) = check().await {
            return answer;
        }
        assert!(Instant::now() < until, "waited too long for {what}");
        // Between two looks the processor is for whoever is waited for.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
