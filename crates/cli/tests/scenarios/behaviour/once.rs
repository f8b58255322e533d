//! An id chosen by the caller is one command, run at most once.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_model::proto::Status;
use stead_model::session::CloseReason;
use stead_server::lease::Force;

on_each_provider! {
    the_same_id_again_is_the_same_record,
    the_same_id_with_another_command_or_thread_is_a_conflict,
    eight_at_once_with_one_id_run_once_and_all_hear_of_it,
    an_id_is_not_run_again_by_another_session,
    an_id_is_not_run_again_by_another_server,
    an_id_is_not_run_again_on_another_instance,
}

in_containers! {
    an_id_is_not_run_again_by_another_server,
    an_id_is_not_run_again_on_another_instance,
}

async fn the_same_id_again_is_the_same_record(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let first = sandbox.run(execute("c1", "echo ran >>ran; echo out; (exit 5)")).await.unwrap();
    let second = sandbox.run(execute("c1", "echo ran >>ran; echo out; (exit 5)")).await.unwrap();
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(second.exit_code(), Some(5));
    assert_eq!(second.command.started_at, first.command.started_at);
    assert_eq!(second.command.state_version, first.command.state_version);
    assert_eq!(count(&rig, "SELECT count(*) FROM commands").await, 1);
}

async fn the_same_id_with_another_command_or_thread_is_a_conflict(rig: Rig, _: &str) {
    let (a, b) = (rig.sandbox("a").await, rig.sandbox("b").await);
    a.run(execute("c1", "echo one")).await.unwrap();
    assert_eq!(a.run(execute("c1", "echo ran >>ran")).await.unwrap_err().code(), "conflict");
    assert_eq!(b.run(execute("c1", "echo one")).await.unwrap_err().code(), "conflict");
    assert_eq!(file(&a, "ran").await, None);
    let row = ended(&rig, "c1").await;
    assert_eq!((row.status, row.thread), (Status::Exited, thread("a")), "the record is as it was");
}

async fn eight_at_once_with_one_id_run_once_and_all_hear_of_it(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let text = format!("echo ran >>ran; {}; echo out; (exit 4)", gate("go"));
    let all: Vec<_> = (0..8).map(|_| start(&sandbox, execute("c1", &text))).collect();
    wait_for_file(&sandbox, "ran").await;
    open_gate(&sandbox, "go").await;
    let mut heard = 0;
    for one in all {
        let ran = one.await.unwrap().unwrap_or_else(|error| panic!("{}: {error}", error.code()));
        assert_eq!((ran.command.status, ran.exit_code()), (Status::Exited, Some(4)));
        heard += usize::from(ran.stdout == b"out\n");
    }
    // One-shot output is told once: nobody keeps it.
    assert_eq!(heard, if provider == "fake" { 1 } else { 8 });
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(ended(&rig, "c1").await.status, Status::Exited);
}

async fn an_id_is_not_run_again_by_another_session(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap().unwrap();
    run(&sandbox, "true").await;
    let again = sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(again.exit_code(), Some(3));
}

async fn an_id_is_not_run_again_by_another_server(mut rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    ended(&rig, "c1").await;
    rig.restart().await;
    let sandbox = rig.sandbox("t").await;
    let again = sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(again.exit_code(), Some(3));
}

async fn an_id_is_not_run_again_on_another_instance(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    assert_eq!(out(&sandbox, "echo on").await, "on\n");
    let again = sandbox.run(execute("c1", "echo ran >>ran; (exit 3)")).await.unwrap();
    assert_eq!(file(&sandbox, "ran").await.as_deref(), Some("ran\n"));
    assert_eq!(again.exit_code(), Some(3));
}

/// Nobody keeps what a one-shot command printed: its record says how much it was, and the answer is not made up.
#[tokio::test]
async fn the_same_id_again_one_shot_is_its_record_without_the_output() {
    let rig = Rig::new("fake").await;
    let sandbox = rig.sandbox("t").await;
    let first = sandbox.run(execute("c1", "echo out")).await.unwrap();
    let again = sandbox.run(execute("c1", "echo out")).await.unwrap();
    let mut record = first.command.clone();
    let warnings = &mut again.command.ending.clone().unwrap().warnings;
    assert_eq!(warnings.iter().map(|warning| warning.code.as_str()).collect::<Vec<_>>(), ["output_evicted"]);
    record.ending.as_mut().unwrap().warnings.append(warnings);
    assert_eq!((again.command, again.stdout.as_slice()), (record, b"".as_slice()));
    assert_eq!(first.command.stdout_bytes, 4);
}
