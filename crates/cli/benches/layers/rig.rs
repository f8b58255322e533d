//! A server's layers over a directory that goes with them, with a clock that can be moved.

use crate::{Failed, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::ids::{LeaseId, ProviderName, ThreadId};
use stead_server::clock::{Clock, RandomNames, SystemClock};
use stead_server::provider::fake::{Fake, Shells};
use stead_server::provider::local::{self, LocalConfig};
use stead_server::provider::namespace::{self, NamespaceConfig};
use stead_server::provider::{Availability, OnMachine, Program, Provider, Providers};
use stead_server::stead::{Execute, NewThread, Parts, Sandbox, Settings, Stead, Where};
use stead_server::steward::Told;
use stead_server::store::SqliteStore;
use stead_term::cgroup::{Cgroups, Limits};
use tempfile::TempDir;

/// Real time, moved by as much as a session needs to be over.
#[derive(Debug, Default)]
pub(crate) struct MovedClock(AtomicU64);

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

impl MovedClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

pub(crate) struct Rig {
    pub(crate) clock: Arc<MovedClock>,
    pub(crate) stead: Stead,
    /// How long the store took to open, and the server over it to start.
    pub(crate) opened: Duration,
    pub(crate) started: Duration,
    default: &'static str,
    directory: Arc<Directory>,
}

/// How long the last process of an instance may take to be gone.
const WITHIN: Duration = Duration::from_secs(2);

/// Where a server keeps everything. What still runs over it ends when it goes.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new(scratch: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(tempfile::Builder::new().prefix("rig-").tempdir_in(scratch)?)))
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.path().join("stead.db")
    }

    fn lease(&self, provider: &str, lease: &LeaseId) -> PathBuf {
        self.0.path().join(provider).join("leases").join(lease.as_str())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let cgroups = Cgroups::detect();
        for provider in ["local", "namespace"] {
            let leases = self.0.path().join(provider).join("leases");
            for lease in std::fs::read_dir(leases).into_iter().flatten().flatten() {
                let place = lease.path().join("place");
                let _ = stead_steward::start::end_enclosure(&place);
                if let Ok(mut client) = stead_steward::client::Client::connect(&place, "bench") {
                    let _ = client.request(&stead_model::proto::Request::Shutdown);
                }
                if let Some(group) = lease.file_name().to_str().and_then(|name| cgroups.find(name)) {
                    let _ = group.remove(WITHIN);
                }
            }
        }
    }
}

impl Rig {
    pub(crate) async fn start(scratch: &Path, default: &'static str) -> Result<Self> {
        Self::over(Directory::new(scratch)?, default).await
    }

    /// A server over what another has left.
    pub(crate) async fn over(directory: Arc<Directory>, default: &'static str) -> Result<Self> {
        let data = directory.0.path();
        let clock = Arc::new(MovedClock::default());
        let providers: [Arc<dyn Provider>; 3] = [
            Arc::new(local(data)?),
            Arc::new(namespace(data)?),
            Arc::new(Fake::new(ProviderName::parse("toy")?, Shells::Toy)),
        ];
        let begun = Instant::now();
        let store = SqliteStore::open(&directory.database()).await?;
        let opened = begun.elapsed();
        let settings = Settings {
            default_provider: ProviderName::parse(default)?,
            treatments: BTreeMap::new(),
            reap_every: Duration::from_hours(24),
        };
        let parts = Parts {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            names: Arc::new(RandomNames),
            ..Parts::new(Arc::new(store), Providers::new(providers), settings)
        };
        let begun = Instant::now();
        let (stead, _) = Stead::start(parts).await?;
        Ok(Self { clock, stead, opened, started: begun.elapsed(), default, directory })
    }

    pub(crate) fn provider(&self) -> &'static str {
        self.default
    }

    pub(crate) async fn sandbox(&self, thread: &ThreadId) -> Result<Sandbox> {
        Ok(self.stead.get_sandbox(Where::thread(thread.clone())).await?)
    }

    pub(crate) async fn thread_on(&self, provider: &str, id: &str) -> Result<ThreadId> {
        let id = ThreadId::parse(id)?;
        let provider = Some(ProviderName::parse(provider)?);
        self.stead.create_thread(NewThread { id: Some(id.clone()), provider, ..NewThread::default() }).await?;
        Ok(id)
    }

    /// Where the files of a thread's lease are.
    pub(crate) async fn lease_of(&self, thread: &ThreadId) -> Result<PathBuf> {
        let thread = self.stead.thread(thread).await?;
        Ok(self.directory.lease(thread.provider.as_str(), &thread.lease))
    }

    /// Where the steward of a thread's instance is.
    pub(crate) async fn place_of(&self, thread: &ThreadId) -> Result<PathBuf> {
        Ok(self.lease_of(thread).await?.join("place"))
    }
}

fn program() -> Program {
    Program { path: PathBuf::from(env!("CARGO_BIN_EXE_stead")), call: vec!["steward".to_owned()] }
}

fn local(data: &Path) -> Result<OnMachine> {
    Ok(local::provider(LocalConfig {
        name: ProviderName::parse("local")?,
        data: data.join("local"),
        workspaces: data.join("local/workspaces"),
        program: program(),
        path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        limits: Limits::default(),
    }))
}

fn namespace(data: &Path) -> Result<OnMachine> {
    let name = ProviderName::parse("namespace")?;
    let (own, workspaces) = (data.join("namespace"), data.join("namespace/workspaces"));
    Ok(namespace::provider(NamespaceConfig::new(name, own, workspaces, program())))
}

/// Those that work here.
pub(crate) async fn providers(scratch: &Path) -> Vec<&'static str> {
    let why = match namespace(&scratch.join("probe")) {
        Ok(namespace) => match namespace.availability().await {
            Availability::Works(_) => return vec!["local", "namespace"],
            Availability::Missing { why, .. } | Availability::NotNow { why } => why,
        },
        Err(error) => error.to_string(),
    };
    crate::table::absent("`namespace`", &why);
    vec!["local"]
}

/// Runs a command that prints one line, and says when the first of it arrived.
pub(crate) async fn first_output(sandbox: &Sandbox, text: &str, line: &str) -> Result<Instant> {
    let (mut first, mut said) = (None, Vec::new());
    let mut hear = |told: Told| {
        if let Told::Output(chunk) = told {
            first.get_or_insert_with(Instant::now);
            said.extend_from_slice(&chunk.bytes);
        }
    };
    sandbox.execute(Execute::new(text), &mut hear).await?;
    match first {
        Some(first) if said == format!("{line}\n").as_bytes() => Ok(first),
        _ => Err(Failed::from(format!("`{text}` printed `{}`", said.escape_ascii()))),
    }
}

/// Runs a command that must succeed.
pub(crate) async fn run(sandbox: &Sandbox, text: &str) -> Result {
    let executed = sandbox.run(Execute::new(text)).await?;
    match executed.exit_code() {
        Some(0) => Ok(()),
        _ => Err(Failed::from(format!("`{text}` ended as {:?}", executed.command.ending))),
    }
}
