//! Forks: the same terminals on a copy of the files, or on the same ones.

use super::restart::{Dice, acknowledge, acknowledged, kill, play};
use crate::rig::{MovedClock, Rig, name, out, run, start as start_server, thread, wait_for};
use crate::scene::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_model::lease::{Observed, Seen};
use stead_server::lease::Force;
use stead_server::provider::fake::{Fake, Shells};
use stead_server::stead::{Sandbox, Stead, Where, Workspace};
use stead_server::store::Page;
use stead_server::{OnProgress, Progress};

pub(super) fn quiet() -> OnProgress {
    Arc::new(|_| {})
}

async fn fork(rig: &Rig, of: &str, new: &str, workspace: Workspace) -> stead_model::thread::Thread {
    rig.stead.fork(&thread(of), Some(thread(new)), workspace, quiet()).await.unwrap()
}

on_each_steward! {
    a_copy_has_state_and_files_and_goes_its_own_way,
    a_fork_of_a_paused_thread_wakes_nothing,
    a_shared_fork_is_on_the_same_lease_with_its_own_state,
    a_fork_while_a_command_runs_has_the_state_before_it,
    a_hundred_forks_at_once_are_a_hundred_threads,
}

in_containers! {
    a_copy_has_state_and_files_and_goes_its_own_way,
    a_fork_of_a_paused_thread_wakes_nothing,
    a_shared_fork_is_on_the_same_lease_with_its_own_state,
}

async fn a_copy_has_state_and_files_and_goes_its_own_way(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(
        &sandbox,
        "mkdir -p d; echo one >d/f; ln -s d/f l; chmod 750 d; echo kept >~/h; cd d; export X=1; f() { echo f $X; }",
    )
    .await;
    rig.stead.create_terminal(&thread("t"), "build", None, &[]).await.unwrap();
    run(&named(&rig, "t", "build").await, "cd ~; alias z='echo zed'; export IN=build").await;
    let heard = Arc::new(Mutex::new(Progress::default()));
    let ear = Arc::clone(&heard);
    let tell: OnProgress = Arc::new(move |told| *ear.lock().unwrap() = told.clone());
    let made = rig.stead.fork(&thread("t"), Some(thread("u")), Workspace::Copy, tell).await.unwrap();
    assert!(heard.lock().unwrap().files >= 3, "{heard:?}");
    let source = rig.stead.thread(&thread("t")).await.unwrap();
    assert!(made.lease != source.lease && made.workspace != source.workspace);
    assert_eq!(lease_of(&rig, "u").await.observed, Observed::None, "nothing is started for it");
    let copy = rig.sandbox("u").await;
    assert_eq!(
        out(&copy, "f; pwd; cat f ../l ~/h; stat -c %a .").await,
        format!("f 1\n{}\none\none\nkept\n750\n", pwd(&copy, "d").await)
    );
    let build = named(&rig, "u", "build").await;
    assert_eq!(out(&build, "z; echo $IN; [ \"$PWD\" = \"$HOME\" ] && cat h").await, "zed\nbuild\nkept\n");
    run(&copy, "echo two >f; export X=2; echo more >g").await;
    assert_eq!(out(&sandbox, "f; cat f; ls").await, "f 1\none\nf\n", "the source is as it was");
    rig.stead.delete_thread(&thread("u")).await.unwrap();
    assert_eq!(out(&sandbox, "cat f").await, "one\n");
}

/// A directory of the workspace, as a shell there calls it.
async fn pwd(sandbox: &Sandbox, below: &str) -> String {
    let root = out(sandbox, "(cd ..; pwd)").await;
    format!("{}/{below}", root.trim_end())
}

async fn a_fork_of_a_paused_thread_wakes_nothing(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo x >f; export X=1").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    fork(&rig, "t", "copy", Workspace::Copy).await;
    fork(&rig, "t", "shared", Workspace::Share).await;
    let seen: Vec<_> = truth(&rig, provider).await.into_iter().map(|(_, seen)| seen).collect();
    assert_eq!(seen, [Seen::Paused]);
    assert_eq!(out(&rig.sandbox("copy").await, "cat f; echo $X").await, "x\n1\n");
    assert_eq!(lease_of(&rig, "t").await.observed, Observed::Paused);
}

async fn a_shared_fork_is_on_the_same_lease_with_its_own_state(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export X=1; echo here >f").await;
    let shared = fork(&rig, "t", "s", Workspace::Share).await;
    assert_eq!(shared.lease, rig.stead.thread(&thread("t")).await.unwrap().lease);
    let other = rig.sandbox("s").await;
    assert_eq!(out(&other, "echo $X; export X=2; echo there >>f").await, "1\n");
    assert_eq!(out(&sandbox, "echo $X; cat f").await, "1\nhere\nthere\n");
    assert_eq!(truth(&rig, provider).await.len(), 1, "one instance");
}

async fn a_fork_while_a_command_runs_has_the_state_before_it(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export X=before").await;
    let running = start(&sandbox, execute("c", &format!("export X=during; : >begun; {}", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    fork(&rig, "t", "u", Workspace::Copy).await;
    assert_eq!(out(&rig.sandbox("u").await, "echo $X; ls").await, "before\nbegun\n");
    open_gate(&sandbox, "go").await;
    assert_eq!(running.await.unwrap().unwrap().exit_code(), Some(0));
    assert_eq!(out(&sandbox, "echo $X").await, "during\n");
}

async fn a_hundred_forks_at_once_are_a_hundred_threads(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "for i in 1 2 3 4 5; do echo $i >f$i; done; export X=1").await;
    let forks: Vec<_> = (0..100)
        .map(|n| {
            let stead = rig.stead.clone();
            // Ten ids are asked for twice.
            let id = thread(&format!("u{}", n % 90));
            tokio::spawn(async move { stead.fork(&thread("t"), Some(id), Workspace::Copy, quiet()).await })
        })
        .collect();
    let mut made = BTreeSet::new();
    let mut refused = 0;
    for fork in forks {
        match fork.await.unwrap() {
            Ok(thread) => assert!(made.insert(thread.id)),
            Err(error) => {
                assert_eq!(error.code(), "already_exists", "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!((made.len(), refused), (90, 10));
    let store = rig.store().await;
    assert_eq!(store.leases(None, &Page::all()).await.unwrap().len(), 91, "nothing is left of those refused");
    assert_eq!(out(&rig.sandbox("u42").await, "cat f5; echo $X").await, "5\n1\n");
}

#[tokio::test]
async fn a_fork_that_makes_no_sense_is_refused_and_makes_nothing() {
    let rig = Rig::new("toy").await;
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let nobody = rig.stead.fork(&thread("no"), None, Workspace::Copy, quiet()).await;
    assert_eq!(nobody.unwrap_err().code(), "not_found");
    let taken = rig.stead.fork(&thread("t"), Some(thread("t")), Workspace::Share, quiet()).await;
    assert_eq!(taken.unwrap_err().code(), "already_exists");
    let fileless = rig.stead.fork(&thread("t"), None, Workspace::Copy, quiet()).await;
    assert_eq!(fileless.unwrap_err().code(), "unsupported", "its files are nowhere on this machine");
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 1);
    let shared = rig.stead.fork(&thread("t"), None, Workspace::Share, quiet()).await.unwrap();
    assert!(shared.id.as_str().starts_with("thr-"));
}

#[tokio::test]
async fn a_copy_that_fails_leaves_nothing() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("t").await;
    // Longer than any path may be: it can only be walked, not named.
    run(&sandbox, "echo x >f; d=$(printf %0200d 0); for i in $(seq 25); do mkdir $d; cd -P $d; done; cd /tmp").await;
    let failed = rig.stead.fork(&thread("t"), Some(thread("u")), Workspace::Copy, quiet()).await.unwrap_err();
    assert!(failed.to_string().contains("can't copy"), "{failed}");
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 1);
    assert_eq!(std::fs::read_dir(rig.path().join("local/workspaces")).unwrap().count(), 1);
    assert_eq!(rig.stead.thread(&thread("u")).await.unwrap_err().code(), "not_found");
}

#[tokio::test]
async fn deleting_a_thread_of_a_project_leaves_the_projects_files_whatever_it_is_called() {
    let rig = Rig::new("local").await;
    let project = rig
        .stead
        .create_project(stead_model::project::Draft { prefix: "w".into(), ..Default::default() }, None)
        .await
        .unwrap();
    for one in ["a", "b"] {
        let new = stead_server::stead::NewThread { project: Some(project.id.clone()), ..new_thread(one) };
        rig.stead.create_thread(new).await.unwrap();
    }
    run(&rig.sandbox("a").await, "echo ours >f").await;
    rig.stead.delete_thread(&thread("a")).await.unwrap();
    assert_eq!(out(&rig.sandbox("b").await, "cat f").await, "ours\n");
}

/// Played by the server that is killed.
pub(super) async fn fork_for_ever(dir: &Path, stead: &Stead, sandbox: &Sandbox) {
    run(sandbox, "mkdir -p d; for i in $(seq 400); do echo $i >d/$i; done; head -c 3000000 /dev/zero >big; export X=1")
        .await;
    for number in acknowledged(dir).unwrap_or(0) + 1.. {
        stead.fork(&thread("t"), Some(thread(&format!("f{number}"))), Workspace::Copy, quiet()).await.unwrap();
        acknowledge(dir, number);
    }
}

#[tokio::test]
async fn a_server_killed_while_it_copies_leaves_whole_threads_and_nothing_else() {
    let mut dice = Dice(7);
    let dir = tempfile::tempdir().unwrap();
    for round in 0..12 {
        let before = acknowledged(dir.path()).unwrap_or(0);
        let child = play(dir.path(), "local", "forks");
        wait_for("a fork", || async { acknowledged(dir.path()).filter(|now| *now > before) }).await;
        let moment = Instant::now() + Duration::from_millis(dice.below(120));
        wait_for("the moment", || async { (Instant::now() >= moment).then_some(()) }).await;
        kill(child);
        let answered = acknowledged(dir.path()).unwrap();
        let fake = Fake::new(name("fake"), Shells::Real(dir.path().join("fake")));
        let toy = Fake::new(name("toy"), Shells::Toy);
        let clock = Arc::new(MovedClock::default());
        let (stead, _) = start_server(dir.path(), &clock, (&fake, &toy), &[], &name("local"), &BTreeMap::new()).await;
        let case = format!("round {round}, {answered} answered");
        let threads = stead.threads(None, &Page::all()).await.unwrap();
        for number in 1..=answered {
            assert!(threads.iter().any(|one| one.id == thread(&format!("f{number}"))), "{case}: f{number}");
        }
        // At most the one that nobody was answered.
        assert!(threads.len() as u64 <= 1 + answered + 1, "{case}");
        let workspaces = dir.path().join("local/workspaces");
        let there: BTreeSet<_> = std::fs::read_dir(&workspaces)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let known: BTreeSet<_> = threads.iter().map(|thread| thread.workspace.clone()).collect();
        assert_eq!(there, known, "{case}: no half of one");
        for one in &threads {
            let files = workspaces.join(&one.workspace).join("files");
            let whole =
                (std::fs::read_dir(files.join("d")).unwrap().count(), files.join("big").metadata().unwrap().len());
            assert_eq!(whole, (400, 3_000_000), "{case}: {}", one.id);
        }
        let newest = stead.get_sandbox(Where::thread(threads[0].id.clone())).await.unwrap();
        assert_eq!(out(&newest, "echo $X; cat d/400").await, "1\n400\n", "{case}");
        assert!(stead.stop().await.is_empty());
        let next = threads.len() as u64 - 1;
        acknowledge(dir.path(), next.max(answered));
    }
    drop(Rig::over(dir, "local", BTreeMap::new(), Vec::new()).await);
}
