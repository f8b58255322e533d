//! Threads that move to another provider, and back.

use super::forks::quiet;
use super::restart::{Dice, acknowledge, acknowledged, kill, play};
use crate::rig::{MovedClock, Rig, name, namespace, out, program, run, start as start_server, thread, wait_for};
use crate::scene::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::ids::ProviderName;
use stead_model::lease::{Observed, Seen};
use stead_server::lease::Force;
use stead_server::provider::fake::{Call, Fake, Mischief, Shells};
use stead_server::provider::local::{LocalConfig, provider};
use stead_server::provider::{Availability, Provider, Trouble};
use stead_server::stead::{NewThread, Sandbox, Stead, Where};
use stead_server::store::Page;
use stead_term::cgroup::Limits;

/// A rig with a provider `beside`, which sees the same workspaces as `local`, and one `apart`, which doesn't.
async fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let called = |called: &str, workspaces: &str| -> Arc<dyn Provider> {
        Arc::new(provider(LocalConfig {
            name: name(called),
            data: dir.path().join(called),
            workspaces: dir.path().join(workspaces).join("workspaces"),
            program: program(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            limits: Limits::default(),
        }))
    };
    let more = vec![called("beside", "local"), called("apart", "apart")];
    Rig::over(dir, "local", BTreeMap::new(), more).await.0
}

async fn move_to(rig: &Rig, provider: &str) -> stead_server::lease::Ready {
    rig.stead.move_thread(&thread("t"), &name(provider), quiet()).await.unwrap()
}

async fn instances(rig: &Rig) -> i64 {
    count(rig, "SELECT count(*) FROM instances WHERE ended_at IS NULL").await
}

async fn there_and_back(rig: Rig, other: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo one >f; echo home >~/h; mkdir d; cd d; export X=1; f() { echo f $X; }").await;
    rig.stead.create_terminal(&thread("t"), "build", None, &[]).await.unwrap();
    run(&named(&rig, "t", "build").await, "cd ~; export IN=build").await;
    sandbox.run(execute("c1", "echo said")).await.unwrap();
    for (round, to) in [other, "local", other].into_iter().enumerate() {
        let before = lease_of(&rig, "t").await;
        let ready = move_to(&rig, to).await;
        assert_eq!((ready.lease.provider.as_str(), ready.lease.observed), (to, Observed::Running));
        let now = rig.stead.thread(&thread("t")).await.unwrap();
        assert_eq!((now.provider.as_str(), &now.lease), (to, &ready.lease.id));
        assert_eq!(out(&sandbox, "f; cat ../f ~/h; basename $PWD").await, "f 1\none\nhome\nd\n", "round {round}");
        let build = named(&rig, "t", "build").await;
        assert_eq!(out(&build, "echo $IN; [ \"$PWD\" = \"$HOME\" ] && cat h").await, "build\nhome\n", "round {round}");
        let left = lease_row(&rig, &before.id).await;
        assert_eq!((left.observed, left.instance), (Observed::None, None), "the old instance is gone");
        assert_eq!(instances(&rig).await, 1);
        out(&sandbox, &format!("echo {round} >>../log")).await;
    }
    assert_eq!(out(&sandbox, "cat ../log").await, "0\n1\n2\n");
    let again = sandbox.run(execute("c1", "echo said")).await.unwrap();
    assert_eq!(again.exit_code(), Some(0), "a command of the old place is known, and not run again");
    rig.stead.delete_thread(&thread("t")).await.unwrap();
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 0, "with every lease it has had");
    for place in ["local", other] {
        let left = std::fs::read_dir(rig.path().join(place).join("workspaces")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{place}");
    }
}

#[tokio::test]
async fn a_thread_moves_there_and_back_where_files_are_apart() {
    there_and_back(rig().await, "apart").await;
}

#[tokio::test]
async fn a_thread_moves_there_and_back_over_the_same_files() {
    there_and_back(rig().await, "beside").await;
}

#[tokio::test]
async fn a_thread_moves_into_a_namespace_and_back() {
    if isolated().await.is_some() {
        there_and_back(rig().await, "namespace").await;
    }
}

#[tokio::test]
async fn a_thread_with_a_running_command_does_not_move() {
    let rig = rig().await;
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, execute("c", &format!(": >begun; {}; export X=1", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    for to in ["beside", "apart"] {
        let refused = rig.stead.move_thread(&thread("t"), &name(to), quiet()).await.unwrap_err();
        assert_eq!(refused.code(), "conflict", "{refused}");
    }
    open_gate(&sandbox, "go").await;
    assert_eq!(running.await.unwrap().unwrap().exit_code(), Some(0), "it went on");
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 1, "nothing was begun");
    move_to(&rig, "apart").await;
    assert_eq!(out(&sandbox, "echo $X; ls").await, "1\nbegun\ngo\n");
}

#[tokio::test]
async fn a_thread_without_an_instance_moves_without_one() {
    let rig = rig().await;
    let new = NewThread { env: vec![("X".into(), b"1".to_vec())], ..new_thread("t") };
    rig.stead.create_thread(new).await.unwrap();
    for to in ["apart", "local", "beside"] {
        let ready = move_to(&rig, to).await;
        assert_eq!((ready.lease.observed, ready.instance), (Observed::None, None));
    }
    assert_eq!(instances(&rig).await, 0);
    assert_eq!(out(&rig.sandbox("t").await, "echo $X").await, "1\n");
}

#[tokio::test]
async fn a_paused_thread_moves_without_being_woken() {
    let rig = rig().await;
    run(&rig.sandbox("t").await, "echo x >f; export X=1").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    assert_eq!(truth(&rig, "local").await.len(), 1);
    assert_eq!(move_to(&rig, "apart").await.lease.observed, Observed::None);
    assert_eq!(truth(&rig, "local").await, []);
    assert_eq!(out(&rig.sandbox("t").await, "cat f; echo $X").await, "x\n1\n");
}

#[tokio::test]
async fn what_was_answered_before_a_server_was_killed_moves_along() {
    let mut rig = rig().await;
    for round in 0..5 {
        let sandbox = rig.sandbox("t").await;
        run(&sandbox, &format!("export N={round}; cd /tmp")).await;
        // The store may not have it yet: only the steward does.
        rig.restart().await;
        move_to(&rig, if round % 2 == 0 { "apart" } else { "local" }).await;
        assert_eq!(out(&rig.sandbox("t").await, "echo $N; pwd").await, format!("{round}\n/tmp\n"));
    }
}

#[tokio::test]
async fn a_move_that_makes_no_sense_is_refused_and_changes_nothing() {
    let rig = rig().await;
    let sandbox = rig.sandbox("t").await;
    let before = lease_of(&rig, "t").await;
    share(&rig, "guest", "t").await;
    for (of, to, code) in [
        ("t", "apart", "conflict"),
        ("t", "nobody", "invalid_request"),
        ("no", "apart", "not_found"),
        ("guest", "beside", "conflict"),
    ] {
        let refused = rig.stead.move_thread(&thread(of), &name(to), quiet()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{of} {to}: {refused}");
    }
    rig.stead.delete_thread(&thread("guest")).await.unwrap();
    // The files of one are nowhere on this machine, the other has no home.
    for to in ["toy", "fake"] {
        let refused = rig.stead.move_thread(&thread("t"), &name(to), quiet()).await.unwrap_err();
        assert_eq!(refused.code(), "unsupported", "{to}: {refused}");
    }
    let here = move_to(&rig, "local").await;
    assert_eq!(here.lease.id, before.id, "it is there");
    assert_eq!(out(&sandbox, "echo works").await, "works\n");
    assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 1);
}

#[tokio::test]
async fn a_move_to_a_provider_that_fails_leaves_the_thread_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let other = Fake::new(name("other"), Shells::Real(dir.path().join("other")));
    let more: Vec<Arc<dyn Provider>> = vec![Arc::new(other.clone())];
    let (rig, _) = Rig::over(dir, "fake", BTreeMap::new(), more).await;
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "echo x >f; export X=1").await;
    let before = lease_of(&rig, "t").await;
    for mischief in [Mischief::Refuse(Trouble::Exhausted), Mischief::Refuse(Trouble::Unavailable)] {
        other.next(Call::Create, mischief);
        let failed = rig.stead.move_thread(&thread("t"), &name("other"), quiet()).await.unwrap_err();
        assert!(["limit_reached", "provider_error"].contains(&failed.code()), "{failed}");
        let now = lease_of(&rig, "t").await;
        assert_eq!((&now.id, now.observed, &now.instance), (&before.id, Observed::Running, &before.instance));
        assert_eq!(count(&rig, "SELECT count(*) FROM leases").await, 1, "nothing is left of it");
        assert_eq!(std::fs::read_dir(rig.path().join("other")).map_or(0, Iterator::count), 0, "nor there");
        assert_eq!(out(&sandbox, "cat f; echo $X").await, "x\n1\n");
    }
    move_to(&rig, "other").await;
    assert_eq!(out(&sandbox, "cat f; echo $X").await, "x\n1\n");
    assert_eq!((rig.fake.truth().len(), other.truth().len()), (0, 1));
}

/// Played by the server that is killed.
pub(super) async fn move_for_ever(dir: &Path, stead: &Stead, sandbox: &Sandbox) {
    run(sandbox, "mkdir -p d; for i in $(seq 300); do echo $i >d/$i; done; export X=1").await;
    for number in acknowledged(dir).unwrap_or(0) + 1.. {
        let now = stead.thread(&thread("t")).await.unwrap().provider;
        let to = if now.as_str() == "local" { "namespace" } else { "local" };
        stead.move_thread(&thread("t"), &name(to), quiet()).await.unwrap();
        run(sandbox, &format!("echo {number} >>log; export N={number}")).await;
        acknowledge(dir, number);
    }
}

#[tokio::test]
async fn a_server_killed_while_a_thread_moves_leaves_it_whole_in_one_place() {
    let dir = tempfile::tempdir().unwrap();
    if let Availability::Missing { why, .. } = namespace(dir.path()).availability().await {
        println!("SKIPPED: no namespaces here: {why}");
        return;
    }
    let mut dice = Dice(23);
    for round in 0..12 {
        let before = acknowledged(dir.path()).unwrap_or(0);
        let child = play(dir.path(), "local", "moves");
        wait_for("a move", || async { acknowledged(dir.path()).filter(|now| *now > before) }).await;
        let moment = Instant::now() + Duration::from_millis(dice.below(400));
        wait_for("the moment", || async { (Instant::now() >= moment).then_some(()) }).await;
        kill(child);
        let answered = acknowledged(dir.path()).unwrap();
        let fake = Fake::new(name("fake"), Shells::Real(dir.path().join("fake")));
        let toy = Fake::new(name("toy"), Shells::Toy);
        let clock = Arc::new(MovedClock::default());
        let (stead, recovered) =
            start_server(dir.path(), &clock, (&fake, &toy), &[], &name("local"), &BTreeMap::new()).await;
        let case = format!("round {round}, {answered} answered: {recovered:?}");
        let now = stead.thread(&thread("t")).await.unwrap();
        for place in ["local", "namespace"] {
            let here = now.provider == name(place);
            // What the start could not end in time, on a machine that is busy, the reaper's next round ends.
            wait_for(&format!("{case}: what is left in {place} to be removed"), || async {
                let found = found_in(dir.path(), place).await;
                let workspaces =
                    std::fs::read_dir(dir.path().join(place).join("workspaces")).map_or(0, Iterator::count);
                if found.len() <= usize::from(here) && workspaces == usize::from(here) {
                    return Some(());
                }
                stead.reap().await.unwrap();
                None
            })
            .await;
        }
        let sandbox = stead.get_sandbox(Where::thread(thread("t"))).await.unwrap();
        let told = out(&sandbox, "echo $X; ls d | wc -l; cat log; echo N $N").await;
        let ran = told.lines().filter_map(|line| line.parse::<u64>().ok()).skip(2).collect::<Vec<_>>();
        let last = *ran.last().unwrap();
        assert!(last == answered || last == answered + 1, "{case}: {told}");
        assert_eq!(ran, (1..=last).collect::<Vec<_>>(), "{case}: every line, once");
        assert!(told.starts_with("1\n300\n") && told.ends_with(&format!("N {last}\n")), "{case}: {told}");
        acknowledge(dir.path(), last);
        let leases = stead.list_leases(None, &stead_server::stead::List::default()).await.unwrap().items;
        let live = leases.iter().filter(|lease| lease.observed != Observed::None).count();
        assert_eq!(live, 1, "{case}");
        assert!(stead.threads(None, &Page::all()).await.unwrap().len() == 1 && stead.stop().await.is_empty());
    }
    drop(Rig::over(dir, "local", BTreeMap::new(), Vec::new()).await);
}

async fn found_in(dir: &Path, place: &str) -> Vec<(ProviderName, Seen)> {
    let provider: Box<dyn Provider> =
        if place == "namespace" { Box::new(namespace(dir)) } else { Box::new(crate::rig::local(dir)) };
    let found = provider.list().await.unwrap();
    found.into_iter().map(|found| (provider.name().clone(), found.seen)).collect()
}
