//! The client of Daytona against a Daytona that really runs what it is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests: what goes wrong here is to be seen"
)]

#[path = "daytona/channel.rs"]
mod channel;
#[path = "daytona/faults.rs"]
mod faults;
#[path = "daytona/lifecycle.rs"]
mod lifecycle;
#[path = "daytona/strict.rs"]
mod strict;

use std::collections::BTreeMap;
use std::time::Duration;
use stead_clouds::daytona::{Config, Daytona, cloud};
use stead_clouds::{Cloud, Wish};
use stead_model::env::Secret;
use stead_testclouds::daytona::{API_KEY, Daytona as TestCloud};
use stead_testclouds::machine::Machine;

/// Long enough for a machine that has a lot else to do.
const DEADLINE: Duration = Duration::from_mins(1);

const SCRIPT: Duration = Duration::from_secs(20);

fn config(test: &TestCloud) -> Config {
    Config { api_url: test.url.clone(), patience: Duration::from_secs(5), ..Config::new(Secret::new(API_KEY)) }
}

/// None where no sandbox can be had.
async fn start() -> Option<(TestCloud, Daytona)> {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return None;
    }
    let test = TestCloud::start().await;
    let client = cloud(config(&test)).unwrap();
    Some((test, client))
}

fn labels(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("stead".to_owned(), "one".to_owned()), ("name".to_owned(), name.to_owned())])
}

fn wish(name: &str) -> Wish {
    Wish { labels: labels(name), ..Wish::default() }
}

async fn said(client: &Daytona, id: &str, script: &str) -> String {
    let ran = client.run(id, script, SCRIPT).await.unwrap();
    assert_eq!(ran.exit_code, 0, "{}", String::from_utf8_lossy(&ran.output));
    String::from_utf8(ran.output).unwrap()
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, waiting).await.is_ok(), "never: {what}");
}

fn nothing_was_violated(test: &TestCloud) {
    assert_eq!(test.violations(), Vec::<String>::new());
    assert!(test.faults.are_over(), "a fault that was planned never happened");
}
