//! What is done in a session: scripts and files.

use crate::rig::{Rig, Way, until};
use bytes::Bytes;
use std::time::Duration;
use stead_clouds::{Cloud, Effect, Trouble};
use stead_testclouds::faults::Fault;

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_takes_too_long_is_ended_and_told_of() {
    for way in [Way::Link, Way::Front] {
        let Some(rig) = Rig::start(way).await else { return };
        let id = rig.create("one").await;
        let script = "echo $$ > /tmp/pid; sleep 3600; echo late > /tmp/late";
        let error = rig.cloud.run(&id, script, Duration::from_secs(1)).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::TimedOut, Effect::Unknown), "{error}");
        // Killed it is; whether it is buried yet is the machine's affair.
        let look = "grep -q '^State:.[^Z]' /proc/$(cat /tmp/pid)/status 2>/dev/null && echo lives || echo gone";
        until("it is killed", async || rig.says(&id, look).await == "gone\n").await;
        assert_eq!(rig.says(&id, "ls /tmp").await, "pid\n");
        rig.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_may_take_longer_than_the_cloud_allows_is_not_begun() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    let before = rig.bay.faults.count("shell");
    let error = rig.cloud.run(&id, "true", Duration::from_secs(51)).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Unsupported, Effect::None), "{error}");
    let long = format!("true {}", "x".repeat(2 << 20));
    let error = rig.cloud.run(&id, &long, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Exhausted, Effect::None), "{error}");
    assert_eq!(rig.bay.faults.count("shell"), before);
    rig.assert_clean();
}

/// Every value, and no step of a piece.
fn all_values(count: usize) -> Bytes {
    (0..count).map(|n| u8::try_from((n * 31 + n / 253) % 256).unwrap()).collect()
}

/// What a file has, by its sum; and whether it can be run.
async fn is_there(rig: &Rig, id: &str, path: &str, bytes: &Bytes) {
    let here = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(here.path(), bytes).unwrap();
    let sum = std::process::Command::new("sha256sum").arg(here.path()).output().unwrap().stdout;
    let there = rig.says(id, &format!("test -x \"{path}\" && sha256sum < \"{path}\"")).await;
    assert_eq!(there.get(..64), String::from_utf8(sum).unwrap().get(..64), "{path}");
    let left = rig.says(id, &format!("ls -A /tmp; ls -A \"$(dirname \"{path}\")\"")).await;
    assert!(!left.contains(".stead-upload") && left.matches('\n').count() == 1, "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_arrives_as_it_was() {
    for way in [Way::Link, Way::Front] {
        let Some(rig) = Rig::start(way).await else { return };
        let id = rig.create("one").await;
        for (path, count) in [
            ("/opt/a/deep/place/file", 300_000),
            ("/opt/b/with space and 'quote'", 10),
            ("/opt/c/none", 0),
            ("/opt/d/one", 1),
        ] {
            let bytes = all_values(count);
            rig.cloud.upload(&id, path, bytes.clone()).await.unwrap();
            is_there(&rig, &id, path, &bytes).await;
        }
        let again = all_values(77);
        rig.cloud.upload(&id, "/opt/a/deep/place/file", again.clone()).await.unwrap();
        is_there(&rig, &id, "/opt/a/deep/place/file", &again).await;
        rig.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_answers_are_lost_arrives_once() {
    let Some(rig) = Rig::start(Way::Front).await else { return };
    let id = rig.create("one").await;
    let bytes = all_values(200_000);
    for fault in [Fault::AfterSuccess(500), Fault::Cut(3), Fault::Refuse(503)] {
        for call in ["CallMcpTool/write_file", "CallMcpTool/write_file", "mkdir -p /tmp/.stead-upload", "is_whole()"] {
            rig.bay.faults.plan(call, fault.clone());
        }
        rig.cloud.upload(&id, "/opt/x/file", bytes.clone()).await.unwrap();
        is_there(&rig, &id, "/opt/x/file", &bytes).await;
        assert!(rig.bay.faults.are_over(), "{fault:?}");
        rig.says(&id, "rm -r /opt/x").await;
    }
    rig.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_can_not_be_is_told_of_and_nothing_is_left() {
    let Some(rig) = Rig::start(Way::Link).await else { return };
    let id = rig.create("one").await;
    rig.says(&id, "echo here > /opt/file").await;
    let error = rig.cloud.upload(&id, "/opt/file/below", all_values(9)).await.unwrap_err();
    assert!(error.message.contains("/opt/file/below"), "{error}");
    assert_eq!(rig.says(&id, "ls -A /tmp; cat /opt/file").await, "here\n");
    rig.assert_clean();
}
