//! Daytona's own SDK works against the test cloud: our idea of the wire is theirs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::Path;
use stead_testclouds::daytona::{API_KEY, Daytona};
use stead_testclouds::machine::Machine;

#[tokio::test]
async fn daytona_s_own_sdk_is_content() {
    let Some(sdks) = std::env::var_os("STEAD_SDKS") else {
        println!("SKIPPED: `STEAD_SDKS` doesn't say where the clouds' SDKs are");
        return;
    };
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let test = Daytona::start().await;
    let python = Path::new(&sdks).join("bin/python");
    let judged = tokio::process::Command::new(&python)
        // Without the judge's own directory, where it has the name of what it imports.
        .arg("-I")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/judges/daytona.py"))
        .env("DAYTONA_API_URL", &test.url)
        .env("DAYTONA_API_KEY", API_KEY)
        // The other way is a socket.io feed, which stead doesn't use.
        .env("DAYTONA_USE_DEPRECATED_POLLING", "true")
        .kill_on_drop(true)
        .output();
    let judged = tokio::time::timeout(std::time::Duration::from_mins(5), judged).await.expect("the judge ends");
    let judged = judged.unwrap_or_else(|error| panic!("{}: {error}", python.display()));
    let said = String::from_utf8_lossy(&judged.stdout) + String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.success(), "{said}");
    assert_eq!(test.violations(), Vec::<String>::new(), "{said}");
}
