//! The client of E2B against E2B on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod channel;
mod faults;
mod life;
mod live;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use stead_clouds::e2b::{Config, E2b, Times, with_times};
use stead_clouds::{Cloud, Ran, Wish};
use stead_model::env::Secret;
use stead_testclouds::e2b::{E2b as TestCloud, KEY};
use stead_testclouds::machine::Machine;

/// Far longer than anything here takes; what hangs fails.
const LONG: Duration = Duration::from_mins(1);

/// Short where a test waits for nothing to come, and long enough for a busy machine to start a sandbox.
const TIMES: Times = Times {
    read: Duration::from_secs(3),
    change: Duration::from_secs(8),
    pause: Duration::from_secs(5),
    sign_of_life: Duration::from_secs(1),
};

/// None where there can be no sandboxes; it is said then.
async fn start() -> Option<(TestCloud, E2b)> {
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return None;
    }
    let cloud = TestCloud::start().await;
    let client = client(&cloud, Duration::from_mins(5));
    Some((cloud, client))
}

fn client(cloud: &TestCloud, timeout: Duration) -> E2b {
    with_times(Config { timeout, ..config(cloud, KEY) }, TIMES).unwrap()
}

fn config(cloud: &TestCloud, key: &str) -> Config {
    Config {
        api_url: cloud.url.clone(),
        sandbox_url: Some(cloud.url.clone()),
        ..Config::of(Secret::new(key), stead_clouds::e2b::DOMAIN)
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn wish(name: &str) -> Wish {
    Wish { labels: labels(&[("stead", "s1"), ("name", name)]), ..Wish::default() }
}

async fn said(client: &E2b, id: &str, script: &str) -> String {
    let Ran { exit_code, output } = client.run(id, script, LONG).await.unwrap();
    assert_eq!(exit_code, 0, "{script}");
    String::from_utf8(output).unwrap()
}

/// Waits until it is so; names what it waited for when it never is.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never {what}"));
}

/// Bytes of every kind that don't repeat soon.
fn noise(length: usize) -> Bytes {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    bytes.flatten().take(length).collect()
}

fn assert_proper(cloud: &TestCloud) {
    assert_eq!(cloud.violations(), Vec::<String>::new());
    assert!(cloud.faults.are_over(), "something that was planned did not happen");
}
