//! The shortest way through all layers, on every provider of this machine.

use crate::rig::{Rig, can_isolate, out, run};

async fn through_all_layers(provider: &str) {
    let mut rig = Rig::new(provider).await;
    if provider == "namespace" && !can_isolate(&rig).await {
        return;
    }
    let sandbox = rig.sandbox("smoke").await;
    assert_eq!(out(&sandbox, "echo hello").await, "hello\n");
    assert_eq!(run(&sandbox, "cd /usr; export X=1; f() { echo f $X; }; (exit 7)").await.exit_code(), Some(7));
    assert_eq!(out(&sandbox, "f; pwd").await, "f 1\n/usr\n");
    let recovered = rig.restart().await;
    assert_eq!((recovered.lost.len(), recovered.closed_sessions.len()), (0, 0), "{recovered:?}");
    let sandbox = rig.sandbox("smoke").await;
    assert_eq!(out(&sandbox, "f; pwd").await, "f 1\n/usr\n");
}

#[tokio::test]
async fn a_command_runs_on_local_and_its_state_outlives_the_server() {
    through_all_layers("local").await;
}

#[tokio::test]
async fn a_command_runs_in_a_namespace_and_its_state_outlives_the_server() {
    through_all_layers("namespace").await;
}

#[tokio::test]
async fn a_command_runs_one_shot_and_its_state_outlives_the_server() {
    through_all_layers("fake").await;
}
