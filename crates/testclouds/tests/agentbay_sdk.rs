//! `AgentBay`'s own SDK is the judge of the test cloud. It needs a Python that has it, in the directory that `STEAD_SDKS`
//! names: `python3 -m venv DIR && DIR/bin/pip install wuying-agentbay-sdk==0.22.3`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "these are tests")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use stead_testclouds::agentbay::{AgentBay, KEY, Switch};
use stead_testclouds::machine::Machine;

/// For all of it: it waits for a few steps of a second each.
const PATIENCE: Duration = Duration::from_mins(3);

fn python() -> Option<PathBuf> {
    let Some(directory) = std::env::var_os("STEAD_SDKS") else {
        println!("SKIPPED: STEAD_SDKS names no directory with a Python that has wuying-agentbay-sdk");
        return None;
    };
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return None;
    }
    Some(Path::new(&directory).join("bin/python"))
}

async fn judge(python: &Path, cloud: &AgentBay, mark: &str) {
    let tls = cloud.start_tls().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(python);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("judges/agentbay.py"))
        .arg(mark)
        .current_dir(place.path())
        .env_remove("AGENTBAY_REGION_ID")
        .env("AGENTBAY_API_KEY", KEY)
        .env("AGENTBAY_ENDPOINT", &tls.address)
        .env("SSL_CERT_FILE", tls.ca_file())
        .env("REQUESTS_CA_BUNDLE", tls.ca_file())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("it comes to an end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.lines().any(|line| line.starts_with("judged ")),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(cloud.violations(), Vec::<String>::new());
    assert_eq!(cloud.sessions().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_works_against_it_by_links() {
    let Some(python) = python() else { return };
    let cloud = AgentBay::start().await;
    judge(&python, &cloud, "links").await;
    assert!(cloud.faults.count("POST /callTool/shell") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_works_against_it_by_the_front_door_alone() {
    let Some(python) = python() else { return };
    let cloud = AgentBay::start().await;
    cloud.switch(Switch::Links, false);
    judge(&python, &cloud, "front").await;
    assert_eq!(cloud.faults.count("POST /callTool/"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_bears_errors_in_the_body() {
    let Some(python) = python() else { return };
    let cloud = AgentBay::start().await;
    cloud.switch(Switch::ErrorsInBody, true);
    judge(&python, &cloud, "body").await;
}
