//! E2B's own SDK as the judge of the test cloud. `STEAD_SDKS` names a Python environment that has it.

use stead_testclouds::e2b::{E2b, KEY};
use stead_testclouds::machine::Machine;

/// The SDK that the judge was written with: `pip install e2b==2.63.0`.
const SDK: &str = "2.63.0";

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_finds_all_that_it_expects() {
    let Some(sdks) = std::env::var_os("STEAD_SDKS") else {
        println!("SKIPPED: `STEAD_SDKS` names no Python environment with e2b=={SDK}");
        return;
    };
    if !Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let cloud = E2b::start().await;
    let judge = concat!(env!("CARGO_MANIFEST_DIR"), "/judges/e2b.py");
    let judged = tokio::process::Command::new(std::path::Path::new(&sdks).join("bin/python"))
        // Isolated: the judge has the name of the package that it imports.
        .args(["-I", judge])
        .env("E2B_API_URL", &cloud.url)
        .env("E2B_SANDBOX_URL", &cloud.url)
        .env("E2B_API_KEY", KEY)
        .env("E2B_VALIDATE_API_KEY", "false")
        .output()
        .await
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
    println!("{said}");
    assert!(judged.status.success(), "{said}");
    assert_eq!(cloud.violations(), Vec::<String>::new());
    assert_eq!(cloud.sandboxes(), Vec::<String>::new());
}
