//! Terminals: several for one thread, their versions, and going back.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_model::ids::TerminalId;
use stead_model::state::ShellState;
use stead_model::terminal::{DEFAULT_NAME, Snapshot};
use stead_server::stead::{Execute, Where};
use stead_server::store::StoreError;

on_each_provider! {
    named_terminals_share_files_but_neither_directory_nor_variables,
    a_terminal_goes_back_to_an_earlier_version_in_the_live_shell_too,
    a_busy_terminal_is_not_taken_back,
    unset_variables_stay_unset,
    a_busy_terminal_rejects_when_asked_to,
}

in_containers! {
    named_terminals_share_files_but_neither_directory_nor_variables,
}

async fn named_terminals_share_files_but_neither_directory_nor_variables(rig: Rig, provider: &str) {
    let first = rig.sandbox("t").await;
    rig.stead.create_terminal(&thread("t"), "build", Some(b"/usr".to_vec()), &[]).await.unwrap();
    let build = named(&rig, "t", "build").await;
    assert_ne!(first.terminal(), build.terminal());
    run(&first, "echo shared >file; cd /tmp; export WHO=first").await;
    assert_eq!(out(&build, "pwd; echo ${WHO-nobody}").await, "/usr\nnobody\n");
    run(&build, "export WHO=build").await;
    assert_eq!(out(&first, "pwd; echo $WHO").await, "/tmp\nfirst\n");
    assert_eq!(file(&build, "file").await.as_deref(), Some("shared\n"));
    assert_eq!(build.lease().await.unwrap().lease.id, first.lease().await.unwrap().lease.id);
    assert_eq!(truth(&rig, provider).await.len(), 1);
    assert_ne!(first.session().await.unwrap().id, build.session().await.unwrap().id, "each has its session");
    // They run at the same time.
    let running = start(&first, Execute::new("cd - >/dev/null; until [ -e go ]; do sleep 0.01; done; echo first"));
    open_gate(&build, "go").await;
    assert_eq!(out(&build, "echo beside").await, "beside\n");
    assert_eq!(running.await.unwrap().unwrap().stdout, b"first\n");
    // The named one can go; the default one can't.
    rig.stead.delete_terminal(build.terminal()).await.unwrap();
    rig.stead.delete_terminal(build.terminal()).await.unwrap();
    let at = Where { terminal: "build".to_owned(), ..Where::thread(thread("t")) };
    assert_eq!(rig.stead.get_sandbox(at).await.unwrap_err().code(), "not_found");
    assert_eq!(rig.stead.delete_terminal(first.terminal()).await.unwrap_err().code(), "conflict");
    assert_eq!(out(&first, "echo still").await, "still\n");
}

async fn a_terminal_goes_back_to_an_earlier_version_in_the_live_shell_too(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let early = run(&sandbox, "cd /usr; export V=one; f() { echo f one; }").await.command.state_version;
    view(&rig, "t").await;
    run(&sandbox, "cd /tmp; export V=two; f() { echo f two; }; export NEW=1").await;
    assert_eq!(out(&sandbox, "f").await, "f two\n");
    let restored = rig.stead.restore(sandbox.terminal(), early).await.unwrap();
    assert_eq!(restored.version, 4, "as a new version");
    assert_eq!(out(&sandbox, "pwd; echo $V ${NEW-none}; f").await, "/usr\none none\nf one\n");
    let state = view(&rig, "t").await;
    assert_eq!((state.cwd.as_str(), state.env_delta.get("V")), ("/usr", Some(&Some("one".to_owned()))));
    assert_eq!(rig.stead.restore(sandbox.terminal(), 999).await.unwrap_err().code(), "not_found");
    let nobody = TerminalId::made_of([9; 8]);
    assert_eq!(rig.stead.restore(&nobody, 0).await.unwrap_err().code(), "not_found");
    // Back to the very beginning.
    rig.stead.restore(sandbox.terminal(), 0).await.unwrap();
    assert_eq!(out(&sandbox, "echo ${V-none}; type -t f || echo no f").await, "none\nno f\n");
}

async fn a_busy_terminal_is_not_taken_back(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export V=one").await;
    let running = start(&sandbox, Execute::new(format!(": >begun; {}; export V=two", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    assert_eq!(rig.stead.restore(sandbox.terminal(), 0).await.unwrap_err().code(), "terminal_busy");
    open_gate(&sandbox, "go").await;
    running.await.unwrap().unwrap();
    assert_eq!(out(&sandbox, "echo $V").await, "two\n", "nothing was taken back");
}

async fn unset_variables_stay_unset(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export GONE=1 KEPT=1").await;
    run(&sandbox, "unset GONE LANG").await;
    rig.stead.close_session(&thread("t"), stead_model::session::CloseReason::Closed).await.unwrap().unwrap();
    assert_eq!(out(&sandbox, "echo ${GONE-unset} ${KEPT-unset} ${LANG-unset}").await, "unset 1 unset\n");
    assert_eq!(view(&rig, "t").await.env_delta.get("LANG"), Some(&None));
}

async fn a_busy_terminal_rejects_when_asked_to(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, Execute::new(format!(": >begun; {}; echo first", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    let reject = Execute { if_busy: stead_model::proto::IfBusy::Reject, ..Execute::new("echo second") };
    let refused = sandbox.run(reject).await.unwrap_err();
    assert_eq!(refused.code(), "terminal_busy");
    open_gate(&sandbox, "go").await;
    assert_eq!(running.await.unwrap().unwrap().stdout, b"first\n");
}

#[tokio::test]
async fn there_is_one_default_terminal_and_names_are_taken_once() {
    let rig = Rig::new("toy").await;
    rig.sandbox("t").await;
    let code = |made: Result<stead_model::terminal::Terminal, stead_server::Error>| made.unwrap_err().code();
    let default = rig.stead.create_terminal(&thread("t"), DEFAULT_NAME, None, &[]).await;
    assert_eq!(code(default), "already_exists");
    rig.stead.create_terminal(&thread("t"), "two", None, &[]).await.unwrap();
    let twice = rig.stead.create_terminal(&thread("t"), "two", None, &[]).await;
    assert_eq!(code(twice), "already_exists");
    let bad = rig.stead.create_terminal(&thread("t"), "no/slash", None, &[]).await;
    assert_eq!(code(bad), "invalid_request");
    let nowhere = rig.stead.create_terminal(&thread("nobody"), "x", None, &[]).await;
    assert_eq!(code(nowhere), "not_found");
}

/// A runtime of an earlier server that wakes up late has nothing to say any more.
#[tokio::test]
async fn a_late_snapshot_of_an_earlier_runtime_is_refused() {
    let mut rig = Rig::new("toy").await;
    let old = rig.sandbox("t").await;
    run(&old, "cd /old").await;
    let stale = terminal(&rig, "t").await;
    rig.restart().await;
    let new = rig.sandbox("t").await;
    run(&new, "cd /new").await;
    let current = terminal(&rig, "t").await;
    assert_eq!(current.generation, stale.generation + 1);
    let late_state = ShellState { cwd: "/late".into(), ..stale.state.clone() };
    let late = Snapshot { generation: stale.generation, version: 99, state: late_state };
    assert!(current.commit(&late, current.updated_at).is_err());
    // And what an old reader would write over what it read is refused by the store.
    let after = stale.commit(&Snapshot { version: 99, ..late }, stale.updated_at).unwrap();
    let refused = rig.store().await.replace_terminal(&stale, &after).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(view(&rig, "t").await.cwd, "/new");
}

#[tokio::test]
async fn only_versions_whose_content_changed_are_kept_and_a_hundred_of_them() {
    let rig = Rig::new("toy").await;
    let sandbox = rig.sandbox("t").await;
    for _ in 0..3 {
        run(&sandbox, "echo nothing").await;
    }
    let unchanged = rig.stead.states(sandbox.terminal()).await.unwrap().len();
    for number in 1..=120 {
        run(&sandbox, &format!("cd /{number}")).await;
        run(&sandbox, "echo nothing").await;
    }
    let kept = rig.stead.states(sandbox.terminal()).await.unwrap();
    assert!(unchanged <= 2, "{unchanged}");
    assert_eq!(kept.len(), 100);
    let directories: Vec<_> = kept.iter().map(|state| String::from_utf8_lossy(&state.state.cwd).into_owned()).collect();
    let want: Vec<_> = (21..=120).rev().map(|number| format!("/{number}")).collect();
    assert_eq!(directories, want, "the newest first");
    assert_eq!(terminal(&rig, "t").await.version, 243, "each command is a version");
    assert_eq!(rig.stead.restore(sandbox.terminal(), 5).await.unwrap_err().code(), "not_found", "no longer kept");
}

/// However fast they come: going back to a version must not end at another.
#[tokio::test]
async fn every_version_whose_content_changed_can_be_gone_back_to() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    for number in 1..=20 {
        run(&sandbox, &format!("export V={number}")).await;
    }
    let kept: Vec<_> =
        rig.stead.states(sandbox.terminal()).await.unwrap().into_iter().map(|state| state.version).collect();
    for version in 1..=20 {
        assert!(kept.contains(&version), "{version} is missing: {kept:?}");
    }
}
