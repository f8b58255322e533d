//! A cloud and a client of it, each test its own.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_clouds::agentbay::{AgentBay, Config, cloud};
use stead_clouds::{Cloud, Ran, Wish};
use stead_model::env::Secret;
use stead_testclouds::agentbay::{AgentBay as TestCloud, KEY, Switch};
use stead_testclouds::machine::Machine;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How tools are called, and how errors are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Link,
    Front,
    FrontWithErrorsInBody,
}

pub(crate) struct Rig {
    pub(crate) bay: TestCloud,
    pub(crate) cloud: AgentBay,
}

impl Rig {
    /// None where no machines can be had.
    pub(crate) async fn start(way: Way) -> Option<Self> {
        if !Machine::is_possible() {
            println!("SKIPPED: no namespaces here");
            return None;
        }
        let bay = TestCloud::start().await;
        bay.switch(Switch::Links, way == Way::Link);
        bay.switch(Switch::ErrorsInBody, way == Way::FrontWithErrorsInBody);
        let cloud = cloud(config(&bay)).unwrap();
        Some(Self { bay, cloud })
    }

    /// Another client of the same cloud.
    pub(crate) fn another(&self, change: impl FnOnce(&mut Config)) -> AgentBay {
        let mut config = config(&self.bay);
        change(&mut config);
        cloud(config).unwrap()
    }

    pub(crate) async fn create(&self, name: &str) -> String {
        self.cloud.create(&wish(name)).await.unwrap()
    }

    pub(crate) async fn run(&self, id: &str, script: &str) -> Ran {
        self.cloud.run(id, script, SOON).await.unwrap()
    }

    /// What a script writes, which must succeed.
    pub(crate) async fn says(&self, id: &str, script: &str) -> String {
        let ran = self.run(id, script).await;
        let said = String::from_utf8(ran.output).unwrap();
        assert_eq!(ran.exit_code, 0, "{said}");
        said
    }

    /// A session with a steward; its path there.
    pub(crate) async fn with_steward(&self, name: &str) -> Option<String> {
        let steward = steward()?;
        let id = self.create(name).await;
        let bytes = Bytes::from(std::fs::read(steward).unwrap());
        // By a link it is quick, whatever the test is about.
        let linked = self.another(|_| {});
        linked.upload(&id, STEWARD, bytes).await.unwrap();
        Some(id)
    }

    /// Everything that was planned has happened, and nothing was asked that the reference doesn't know.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.bay.violations(), Vec::<String>::new());
        assert!(self.bay.faults.are_over(), "not everything happened that was planned");
    }
}

pub(crate) const STEWARD: &str = "/opt/stead/steward";

fn config(bay: &TestCloud) -> Config {
    Config { endpoint: bay.url.clone(), ..Config::new(Secret::new(KEY)) }
}

pub(crate) fn labels(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("stead".to_owned(), "test".to_owned()), ("name".to_owned(), name.to_owned())])
}

pub(crate) fn wish(name: &str) -> Wish {
    Wish { labels: labels(name), ..Wish::default() }
}

/// The small static one where there is one, or the one that was built with these tests.
fn steward() -> Option<PathBuf> {
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("steward");
    let found = std::env::var_os("STEAD_STATIC_STEWARD").map(PathBuf::from).or(built.exists().then_some(built));
    if found.is_none() {
        println!("SKIPPED: no steward; `cargo build -p stead-steward` makes one");
    }
    found
}

/// Asks until the answer is yes.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}
