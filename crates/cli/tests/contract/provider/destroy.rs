//! Destroyed is nothing left to run, and everything left to read.

use crate::bench::{Bench, handle, until};
use std::fs;
use stead_model::lease::Seen;
use stead_server::provider::Created;

pub(crate) async fn destroying_leaves_nothing_but_files_and_the_journal(bench: &Bench) {
    let handle = bench.instance("left").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("echo kept >file; echo home >~/.kept-at-home; echo out").await;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
    assert_eq!(fs::read_to_string(bench.files("left").join("file")).unwrap(), "kept\n");
    let words = bench.provider.last_words(&handle).await.unwrap();
    assert_eq!(!words.is_empty(), bench.leaves_words());
}

pub(crate) async fn destroying_ends_daemons_that_left_their_session(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("daemons").await;
    let shell = bench.shell(&handle, "main").await;
    shell
        .run("(setsid bash -c '(setsid sleep 1000 &) & exec sleep 1000' </dev/null >/dev/null 2>&1 &); (nohup sleep 1000 &) >/dev/null 2>&1")
        .await;
    let sleepers = || {
        let is_one = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n");
        bench.processes().into_iter().filter(|stat| is_one(stat.pid)).count()
    };
    until("three daemons", || sleepers() == 3).await;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn destroying_twice_is_the_same_as_once(bench: &Bench) {
    let handle = bench.instance("twice").await;
    for _ in 0..3 {
        bench.provider.destroy(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
    }
    // At the same time, too, and by two servers.
    let handle = bench.instance("together").await;
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let provider = if n % 2 == 0 || !bench.lives() { bench.provider.clone() } else { bench.successor() };
            let handle = handle.clone();
            tokio::spawn(async move { provider.destroy(&handle).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(()));
    }
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn what_never_was_is_destroyed_already(bench: &Bench) {
    let never = handle(&bench.blueprint("never"), &Created::default());
    assert_eq!(bench.provider.destroy(&never).await, Ok(()));
    assert_eq!(bench.leftovers(&never.lease), Vec::<String>::new());
}

pub(crate) async fn a_paused_instance_is_destroyed(bench: &Bench) {
    let handle = bench.instance("paused").await;
    bench.shell(&handle, "main").await.run("sleep 1000 & :").await;
    bench.provider.pause(&handle).await.unwrap();
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
    if bench.lives() {
        assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    }
}

pub(crate) async fn an_instance_with_stubborn_processes_is_destroyed(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("stubborn").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("(trap '' HUP INT TERM QUIT; while :; do sleep 0.01; done) >/dev/null 2>&1 &").await;
    let running = {
        let shell = shell.clone();
        tokio::spawn(
            async move { shell.try_exec(crate::bench::exec("trap '' HUP INT TERM; touch on; sleep 1000")).await },
        )
    };
    until("it to run", || bench.inside(&handle, "on").exists()).await;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    // Whoever waited for the command hears of the end, one way or the other.
    let _ = running.await.unwrap();
}

pub(crate) async fn what_a_killed_instance_left_is_destroyed(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("killed").await;
    bench.shell(&handle, "main").await.run("echo kept >file").await;
    bench.bring(&handle).await;
    bench.massacre().await;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    assert_eq!(fs::read_to_string(bench.files("killed").join("file")).unwrap(), "kept\n");
}

pub(crate) async fn destroying_one_leaves_its_neighbour_alone(bench: &Bench) {
    let one = bench.instance("shared").await;
    let other = bench.instance("shared").await;
    let shell = bench.shell(&other, "main").await;
    let before = shell.out("v=1; echo kept >file; echo $$").await;
    bench.provider.destroy(&one).await.unwrap();
    assert_eq!(bench.provider.status(&other).await, Ok(Seen::Running));
    assert_eq!(shell.out("echo $v; cat file").await, "1\nkept\n");
    if bench.lives() {
        assert_eq!(shell.out("echo $$").await, before);
    }
}

pub(crate) async fn a_predecessor_that_is_destroyed_late_does_not_take_its_successor_with_it(bench: &Bench) {
    let blueprint = bench.blueprint("late");
    let first = bench.create(&blueprint).await;
    let second = bench.create(&bench.next(&blueprint)).await;
    bench.provider.destroy(&first).await.unwrap();
    assert_eq!(bench.provider.status(&second).await, Ok(Seen::Running));
    assert_eq!(bench.shell(&second, "main").await.out("echo here").await, "here\n");
}
