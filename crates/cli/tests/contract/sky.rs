//! Clouds to test against: one for each bench, so that what one server made there the next one finds. Their sandboxes are
//! on this machine, to be looked into from outside as no provider can.

use crate::bench::{Wish, id_of, put_inside};
use crate::plain_cloud::PlainCloud;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use stead_clouds::{Cloud, agentbay as agentbay_client, daytona as daytona_client, e2b as e2b_client};
use stead_model::env::Secret;
use stead_model::ids::ProviderName;
use stead_server::provider::far::{Far, FarConfig};
use stead_server::provider::{Handle, Provider};
use stead_testclouds::agentbay::{AgentBay, KEY as AGENTBAY_KEY, Switch};
use stead_testclouds::daytona::{API_KEY as DAYTONA_KEY, Daytona};
use stead_testclouds::e2b::{E2b, KEY as E2B_KEY};

#[derive(Debug, Clone)]
enum Sky {
    Plain(Arc<PlainCloud>),
    Daytona(Arc<Daytona>),
    E2b(Arc<E2b>),
    AgentBay(Arc<AgentBay>),
}

static SKIES: Mutex<BTreeMap<PathBuf, Sky>> = Mutex::new(BTreeMap::new());

/// They outlive the runtime of the test that asked for them first.
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// Does something there, and waits for it wherever we are.
fn there<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    std::thread::spawn(move || RUNTIME.block_on(work)).join().unwrap()
}

fn sky(bench: &Path, make: impl FnOnce() -> Sky) -> Sky {
    SKIES.lock().unwrap().entry(bench.to_owned()).or_insert_with(make).clone()
}

fn known(bench: &Path) -> Option<Sky> {
    SKIES.lock().unwrap().get(bench).cloned()
}

/// What a pause keeps there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Processes,
    Disk,
}

fn provider(
    wish: Wish,
    kind: &'static str,
    cloud: Arc<dyn Cloud>,
    window: u64,
    pause_keeps: Keeps,
) -> Arc<dyn Provider> {
    Arc::new(Far::new(FarConfig {
        name: ProviderName::parse(kind).unwrap(),
        kind,
        cloud,
        can_pause: true,
        live_pause: pause_keeps == Keeps::Processes,
        workspaces: wish.data.join("workspaces"),
        data: wish.data,
        program: put_inside(&wish.program),
        stead: "contract".to_owned(),
        template: None,
        mount_path: "/workspace".to_owned(),
        network: None,
        window,
        caveats: Vec::new(),
        missing: None,
    }))
}

pub(crate) fn far(wish: Wish) -> Arc<dyn Provider> {
    let Sky::Plain(cloud) = sky(&wish.bench, || Sky::Plain(Arc::default())) else { panic!("another sky") };
    provider(wish, "far", cloud, 1 << 20, Keeps::Processes)
}

pub(crate) fn daytona(wish: Wish) -> Arc<dyn Provider> {
    let made = sky(&wish.bench, || Sky::Daytona(Arc::new(there(Daytona::start()))));
    let Sky::Daytona(server) = made else { panic!("another sky") };
    let key = Secret::new(DAYTONA_KEY);
    let config = daytona_client::Config { api_url: server.url.clone(), ..daytona_client::Config::new(key) };
    provider(wish, "daytona", Arc::new(daytona_client::cloud(config).unwrap()), 128 << 10, Keeps::Disk)
}

pub(crate) fn e2b(wish: Wish) -> Arc<dyn Provider> {
    let made = sky(&wish.bench, || Sky::E2b(Arc::new(there(E2b::start()))));
    let Sky::E2b(server) = made else { panic!("another sky") };
    let config = e2b_client::Config {
        api_url: server.url.clone(),
        sandbox_url: Some(server.url.clone()),
        ..e2b_client::Config::of(Secret::new(E2B_KEY), "e2b.test")
    };
    provider(wish, "e2b", Arc::new(e2b_client::cloud(config).unwrap()), 1 << 20, Keeps::Processes)
}

pub(crate) fn agentbay(wish: Wish) -> Arc<dyn Provider> {
    let start = async {
        let server = AgentBay::start().await;
        server.switch(Switch::MayPause, true);
        server
    };
    let made = sky(&wish.bench, || Sky::AgentBay(Arc::new(there(start))));
    let Sky::AgentBay(server) = made else { panic!("another sky") };
    let key = Secret::new(AGENTBAY_KEY);
    let config = agentbay_client::Config { endpoint: server.url.clone(), ..agentbay_client::Config::new(key) };
    provider(wish, "agentbay", Arc::new(agentbay_client::cloud(config).unwrap()), 1 << 20, Keeps::Processes)
}

/// Takes a sandbox away, behind everybody's back.
pub(crate) fn lose(bench: &Path, id: &str) {
    match known(bench).unwrap() {
        Sky::Plain(cloud) => cloud.lose(id),
        Sky::Daytona(server) => server.lose(id),
        Sky::E2b(server) => server.lose(id),
        Sky::AgentBay(server) => server.lose(id),
    }
}

/// Lets a plain cloud not know how a sandbox is.
pub(crate) fn blur(bench: &Path, id: &str) {
    let Some(Sky::Plain(cloud)) = known(bench) else { panic!("another sky") };
    cloud.blur(id);
}

/// Every process of every sandbox there; of a bench without a cloud none.
pub(crate) fn pids(bench: &Path) -> Vec<i32> {
    match known(bench) {
        None => Vec::new(),
        Some(Sky::Plain(cloud)) => cloud.pids(),
        Some(Sky::Daytona(server)) => server.pids(),
        Some(Sky::E2b(server)) => server.pids(),
        Some(Sky::AgentBay(server)) => server.pids(),
    }
}

/// Where a path of a sandbox is on this machine; none without a cloud, or without the sandbox.
pub(crate) fn outside(bench: &Path, handle: &Handle, path: &Path) -> Option<PathBuf> {
    let path = path.to_str().unwrap();
    match known(bench)? {
        Sky::Plain(cloud) => cloud.outside(id_of(handle), path),
        Sky::Daytona(server) => server.outside(id_of(handle), path),
        Sky::E2b(server) => server.outside(id_of(handle), path),
        Sky::AgentBay(server) => server.outside(id_of(handle), path),
    }
}

/// Ends the cloud of a bench with all its sandboxes; false if there is none. It must have found nothing to complain of.
pub(crate) fn clear(bench: &Path) -> bool {
    let Some(sky) = SKIES.lock().unwrap().remove(bench) else { return false };
    let violations = match &sky {
        Sky::Plain(_) => Vec::new(),
        Sky::Daytona(server) => server.violations(),
        Sky::E2b(server) => server.violations(),
        Sky::AgentBay(server) => server.violations(),
    };
    if !std::thread::panicking() {
        assert!(violations.is_empty(), "{violations:?}");
    }
    there(async move { drop(sky) });
    true
}
