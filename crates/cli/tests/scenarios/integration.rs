//! `test_integration_new_arch`: thread, terminal, lease, session and runtime together, on every provider.

use crate::rig::{Rig, out, run, thread, wait_for};
use crate::scene::*;
use std::time::Duration;
use stead_model::lease::{Desired, Observed, Seen};
use stead_model::session::{CloseReason, Status};
use stead_server::lease::Force;
use stead_server::store::Page;

on_each_provider! {
    get_sandbox_creates_all_layers,
    get_sandbox_reuses_existing_session,
    command_execution_through_capability,
    terminal_state_persists_across_sessions,
    lease_shared_across_terminals,
    session_touch_updates_activity,
    legacy_api_compatibility,
    session_expiry_cleanup,
    pause_and_resume_session,
    destroy_session,
    multiple_threads_independent_sessions,
    thread_switch_preserves_state,
    missing_terminal_recreates_with_same_id,
    missing_lease_recreates_with_same_id,
    remote_fs_operation_converges_paused_lease,
}

in_containers! {
    get_sandbox_creates_all_layers,
    terminal_state_persists_across_sessions,
    lease_shared_across_terminals,
    session_expiry_cleanup,
    pause_and_resume_session,
    destroy_session,
    multiple_threads_independent_sessions,
    thread_switch_preserves_state,
    missing_terminal_recreates_with_same_id,
    missing_lease_recreates_with_same_id,
    remote_fs_operation_converges_paused_lease,
}

async fn get_sandbox_creates_all_layers(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let row = rig.stead.thread(&thread("t")).await.unwrap();
    assert_eq!((&row.id, &row.default_terminal), (sandbox.thread(), sandbox.terminal()));
    let terminal = terminal_row(&rig, sandbox.terminal()).await.unwrap();
    assert_eq!((&terminal.thread, &terminal.lease, terminal.generation), (&row.id, &row.lease, 1));
    let lease = lease_row(&rig, &row.lease).await;
    assert_eq!((lease.desired, lease.observed), (Desired::Running, Observed::Running));
    let session = sandbox.session().await.unwrap();
    assert_eq!(
        (&session.thread, &session.terminal, &session.lease, session.status),
        (&row.id, &terminal.id, &lease.id, Status::Active)
    );
    assert_eq!(rig.store().await.live_session(&terminal.id).await.unwrap().unwrap().id, session.id);
    assert_eq!(truth(&rig, provider).await, [(lease.instance.unwrap(), Seen::Running)]);
}

async fn get_sandbox_reuses_existing_session(rig: Rig, _: &str) {
    let first = rig.sandbox("t").await.session().await.unwrap();
    let second = rig.sandbox("t").await.session().await.unwrap();
    assert_eq!(first.id, second.id);
    assert_eq!(sessions(&rig).await.len(), 1);
    assert_eq!(terminal(&rig, "t").await.generation, 1, "and the runtime is the same");
}

async fn command_execution_through_capability(rig: Rig, _: &str) {
    let ran = run(&rig.sandbox("t").await, "echo hello; echo there >&2").await;
    assert_eq!((ran.exit_code(), &*ran.stdout, &*ran.stderr), (Some(0), &b"hello\n"[..], &b"there\n"[..]));
}

async fn terminal_state_persists_across_sessions(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /tmp; export FOO=bar").await;
    let (terminal, session) = (sandbox.terminal().clone(), sandbox.session().await.unwrap());
    let closed = rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap().unwrap();
    assert_eq!((closed.session, closed.reason), (session.id.clone(), CloseReason::Closed));
    let again = rig.sandbox("t").await;
    assert_eq!(again.terminal(), &terminal);
    assert_ne!(again.session().await.unwrap().id, session.id);
    let state = view(&rig, "t").await;
    assert_eq!((state.cwd.as_str(), state.env_delta), ("/tmp", env(&[("FOO", "bar")])));
    assert_eq!(out(&again, "pwd; echo $FOO").await, "/tmp\nbar\n");
}

async fn lease_shared_across_terminals(rig: Rig, provider: &str) {
    let a = rig.sandbox("a").await;
    run(&a, "echo from a >shared; cd /tmp; export WHO=a").await;
    let b = share(&rig, "b", "a").await;
    assert_eq!(b.lease().await.unwrap().lease.id, a.lease().await.unwrap().lease.id);
    assert_ne!(b.terminal(), a.terminal());
    assert_eq!(out(&b, "cat shared; echo ${WHO-nobody}").await, "from a\nnobody\n", "files shared, state not");
    assert_eq!(truth(&rig, provider).await.len(), 1);
}

async fn session_touch_updates_activity(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let before = sandbox.session().await.unwrap();
    rig.clock.advance(Duration::from_secs(10));
    sandbox.touch().await.unwrap();
    let after = sandbox.session().await.unwrap();
    assert!(after.last_active_at.since(before.last_active_at) >= Duration::from_secs(10), "{after:?}");
    rig.stead.reap().await.unwrap();
    assert!(session_row(&rig, &before).await.last_active_at >= after.last_active_at, "and it is written down");
}

/// What `get_or_create_session` and `list_sessions` told: which session, on which provider.
async fn legacy_api_compatibility(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let info = sandbox.lease().await.unwrap();
    assert_eq!(info.lease.provider.as_str(), provider);
    assert_eq!(info.instance.unwrap().provider.as_str(), provider);
    let listed = sessions(&rig).await;
    assert_eq!(listed.iter().map(|session| &session.thread).collect::<Vec<_>>(), [sandbox.thread()]);
    let threads = rig.stead.threads(None, &Page::all()).await.unwrap();
    assert_eq!(threads.iter().map(|thread| &thread.id).collect::<Vec<_>>(), [sandbox.thread()]);
}

/// At the real limits of the default policy, not only shortly after the beginning.
async fn session_expiry_cleanup(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /tmp").await;
    let first = sandbox.session().await.unwrap();
    assert_eq!(rig.stead.reap().await.unwrap().closed, [], "shortly after the beginning nothing is over");
    rig.clock.advance(Duration::from_secs(3590));
    assert_eq!(rig.stead.reap().await.unwrap().closed, []);
    rig.clock.advance(Duration::from_secs(11));
    let reaped = rig.stead.reap().await.unwrap();
    let closed: Vec<_> = reaped.closed.iter().map(|closed| (&closed.session, closed.reason)).collect();
    assert_eq!(closed, [(&first.id, CloseReason::IdleTimeout)], "{reaped:?}");
    assert_eq!(session_row(&rig, &first).await.ended.map(|(_, reason)| reason), Some(CloseReason::IdleTimeout));
    let again = rig.sandbox("t").await;
    assert_eq!(again.terminal(), sandbox.terminal());
    assert_eq!(again.lease().await.unwrap().lease.id, first.lease);
    assert_eq!(out(&again, "pwd").await, "/tmp\n");
}

/// Asserts what the original left open: that it sleeps, as the provider sees it, and that what ran goes on afterwards.
async fn pause_and_resume_session(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export KEPT=yes").await;
    let lease = rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease;
    assert_eq!((lease.desired, lease.observed), (Desired::Paused, Observed::Paused));
    let instance = lease.instance.unwrap();
    assert_eq!(truth(&rig, provider).await, [(instance.clone(), Seen::Paused)]);
    let session = rig.store().await.live_session(sandbox.terminal()).await.unwrap().unwrap();
    assert_eq!(session.status, Status::Paused);
    let lease = rig.stead.resume(&thread("t")).await.unwrap().lease;
    assert_eq!((lease.desired, lease.observed), (Desired::Running, Observed::Running));
    assert_eq!(truth(&rig, provider).await, [(instance, Seen::Running)]);
    assert_eq!(out(&sandbox, "echo $KEPT").await, "yes\n");
    assert_eq!(sandbox.session().await.unwrap().id, session.id, "in the same session");
}

async fn destroy_session(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "cd /tmp").await;
    let session = sandbox.session().await.unwrap();
    let lease = rig.stead.destroy(&thread("t"), Force::No).await.unwrap().lease;
    assert_eq!((lease.observed, lease.instance), (Observed::None, None));
    assert_eq!(truth(&rig, provider).await, []);
    assert_eq!(rig.store().await.live_session(sandbox.terminal()).await.unwrap(), None);
    assert_eq!(session_row(&rig, &session).await.ended.map(|(_, reason)| reason), Some(CloseReason::Destroyed));
    assert_eq!(out(&rig.sandbox("t").await, "pwd").await, "/tmp\n", "the terminal outlives it");
}

async fn multiple_threads_independent_sessions(rig: Rig, provider: &str) {
    let mut seen = Vec::new();
    for name in ["one", "two", "three"] {
        let sandbox = rig.sandbox(name).await;
        let session = sandbox.session().await.unwrap();
        let mark = out(&sandbox, &format!("ls; echo {name} >mine; cat mine")).await;
        assert_eq!(mark, format!("{name}\n"), "no file of another's");
        seen.push([session.id.to_string(), sandbox.terminal().to_string(), session.lease.to_string()]);
    }
    let all: std::collections::BTreeSet<_> = seen.iter().flatten().collect();
    assert_eq!(all.len(), 9, "three sessions, three terminals, three leases: {seen:?}");
    assert_eq!(truth(&rig, provider).await.len(), 3);
}

async fn thread_switch_preserves_state(rig: Rig, _: &str) {
    let (a, b) = (rig.sandbox("a").await, rig.sandbox("b").await);
    run(&a, "cd /tmp; export ME=a").await;
    run(&b, "cd /usr; export ME=b").await;
    assert_eq!(out(&a, "pwd; echo $ME").await, "/tmp\na\n");
    assert_eq!(out(&b, "pwd; echo $ME").await, "/usr\nb\n");
    assert_eq!((view(&rig, "a").await.cwd, view(&rig, "b").await.cwd), ("/tmp".to_owned(), "/usr".to_owned()));
}

/// The row is really gone, and so is every memory of it but the thread's.
async fn missing_terminal_recreates_with_same_id(mut rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo precious >file; cd /tmp").await;
    terminal(&rig, "t").await;
    let (id, lease) = (sandbox.terminal().clone(), lease_of(&rig, "t").await.id);
    sql(&rig, format!("DELETE FROM terminals WHERE id = '{id}'; DELETE FROM sessions")).await;
    assert_eq!(terminal_row(&rig, &id).await, None);
    rig.restart().await;
    let again = rig.sandbox("t").await;
    assert_eq!(again.terminal(), &id);
    assert_eq!(terminal_row(&rig, &id).await.unwrap().lease, lease);
    assert_eq!(lease_of(&rig, "t").await.observed, Observed::Running);
    assert_eq!(file(&again, "file").await.as_deref(), Some("precious\n"), "files are not the terminal's");
    assert_eq!(run(&again, "cd /usr; export BACK=1").await.exit_code(), Some(0));
    let state = view(&rig, "t").await;
    assert_eq!((state.cwd.as_str(), state.env_delta.get("BACK")), ("/usr", Some(&Some("1".to_owned()))));
}

async fn missing_lease_recreates_with_same_id(mut rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo precious >file; cd /tmp").await;
    let state = terminal(&rig, "t").await;
    let lease = lease_of(&rig, "t").await;
    // First the lease alone: the terminal still carries its id. Then both, with the session.
    for more in ["", "DELETE FROM sessions; DELETE FROM terminals;"] {
        sql(&rig, format!("{more} DELETE FROM leases WHERE id = '{}'", lease.id)).await;
        assert_eq!(rig.store().await.lease(&lease.id).await.unwrap(), None);
        rig.restart().await;
        let again = rig.sandbox("t").await;
        assert_eq!((again.terminal(), again.lease().await.unwrap().lease.id), (&state.id, lease.id.clone()));
        let row = lease_of(&rig, "t").await;
        assert_eq!((row.workspace.as_str(), row.observed), (lease.workspace.as_str(), Observed::Running));
        let instance = row.instance.unwrap();
        // What ran under the lost row is replaced where it shares a place with the new one, and an orphan elsewhere.
        let orphans: Vec<_> =
            rig.stead.orphans().await.unwrap().into_iter().map(|orphan| orphan.handle.instance).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            truth(&rig, provider).await.into_iter().map(|(id, _)| id).partition(|id| *id == instance);
        assert_eq!((own.len(), &others), (1, &orphans));
        assert_eq!(orphans.is_empty(), provider != "fake");
        assert_eq!(file(&again, "file").await.as_deref(), Some("precious\n"));
        if more.is_empty() {
            assert_eq!(out(&again, "pwd").await, "/tmp\n");
        }
        assert_eq!(out(&again, "echo runs").await, "runs\n");
        // And the machine goes on: it can be paused and woken.
        assert_eq!(rig.stead.pause(&thread("t"), Force::No).await.unwrap().lease.observed, Observed::Paused);
        assert_eq!(out(&again, "echo runs").await, "runs\n");
    }
}

/// Inverted on purpose: the files are on this machine, so they are served while the lease sleeps, and nothing is woken.
async fn remote_fs_operation_converges_paused_lease(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    let before = lease_of(&rig, "t").await;
    sandbox.files().await.unwrap().write("while/asleep", b"written".to_vec()).await.unwrap();
    assert_eq!(file(&sandbox, "while/asleep").await.as_deref(), Some("written"));
    assert_eq!(lease_of(&rig, "t").await, before, "it sleeps on, and nothing was logged");
    assert_eq!(truth(&rig, provider).await, [(before.instance.clone().unwrap(), Seen::Paused)]);
    // A command wakes it, and sees what was written.
    assert_eq!(out(&sandbox, "cat while/asleep").await, "written");
    let lease = wait_for("the lease to run", || async {
        Some(lease_of(&rig, "t").await).filter(|lease| lease.observed == Observed::Running)
    });
    assert_eq!(lease.await.instance, before.instance);
}
