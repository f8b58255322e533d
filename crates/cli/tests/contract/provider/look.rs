//! What a provider says of its instances is so.

use crate::bench::{Bench, handle, until};
use rustix::process::Signal;
use std::fs;
use stead_model::lease::Seen;
use stead_model::proto::Request;
use stead_server::provider::{Access, Created, Effect, Found, Handle, Metrics, Trouble};
use stead_server::steward::Steward;
use stead_term::proc;

pub(crate) async fn an_instance_that_never_was_is_gone(bench: &Bench) {
    let never = handle(&bench.blueprint("never"), &Created::default());
    assert_eq!(bench.provider.status(&never).await, Ok(Seen::Gone));
    let there = bench.instance("never").await;
    let other = handle(&bench.next(&bench.blueprint("never")), &Created::default());
    assert_eq!(bench.provider.status(&other).await, Ok(Seen::Gone));
    // Of the same lease, but not the one that is there.
    let stranger = stead_server::provider::Handle { instance: other.instance, ..there.clone() };
    assert_eq!(bench.provider.status(&stranger).await, Ok(Seen::Gone));
    assert_eq!(bench.provider.status(&there).await, Ok(Seen::Running));
}

pub(crate) async fn an_instance_whose_processes_were_killed_is_gone(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("killed").await;
    bench.shell(&handle, "main").await.run("sleep 1000 &").await;
    bench.massacre().await;
    assert_eq!(bench.provider.status(&handle).await, Ok(bench.ended()));
    let asleep = Found { handle: handle.clone(), seen: Seen::Paused };
    let listed = if bench.ended() == Seen::Paused { vec![asleep] } else { Vec::new() };
    assert_eq!(bench.provider.list().await, Ok(listed));
    assert_eq!(bench.successor().status(&handle).await, Ok(bench.ended()));
}

async fn greeted(bench: &Bench, handle: &stead_server::provider::Handle) -> Option<Steward> {
    match bench.provider.access(handle).await {
        Ok(Access::Steward(channel)) => Steward::greet(channel).await.ok(),
        _ => None,
    }
}

pub(crate) async fn an_instance_whose_steward_was_killed_runs_on(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("steward").await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("v=1; echo $$").await;
    for pid in bench.playing("run") {
        proc::signal(pid, Signal::KILL);
    }
    // At every moment of it.
    let mut looks = 0;
    loop {
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
        looks += 1;
        if let Some(steward) = greeted(bench, &handle).await
            && steward.request(&Request::Stats).await.is_ok()
        {
            break;
        }
        assert!(looks < 10_000, "it does not come back");
    }
    assert_eq!(bench.shell(&handle, "main").await.out("echo $v $$").await, format!("1 {pid}"));
    assert_eq!(bench.provider.list().await.unwrap().len(), 1);
    // All of it is still one instance.
    bench.provider.pause(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Paused));
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn an_instance_whose_keeper_was_killed_runs_on_or_is_gone_as_a_whole(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("keeper").await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("v=1; echo $$").await;
    let keepers = bench.playing("keep");
    let [keeper] = *keepers.as_slice() else { panic!("{keepers:?}") };
    let ends_as_one = bench.ends_with_its_keeper();
    proc::signal(keeper, Signal::KILL);
    until("the keeper to be dead", || proc::stat(keeper).is_none_or(|stat| b"ZX".contains(&stat.state))).await;
    if ends_as_one {
        // The first process of its world takes all others with it.
        until("all to be dead", || bench.processes().is_empty()).await;
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
    } else {
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
        // The steward makes a new keeper and lets that start its successor.
        let heirs =
            || bench.playing("run").iter().any(|pid| proc::stat(*pid).is_some_and(|stat| stat.parent != keeper));
        until("another keeper", || bench.playing("keep").iter().any(|pid| *pid != keeper) && heirs()).await;
        assert_eq!(bench.shell(&handle, "main").await.out("echo $v $$").await, format!("1 {pid}"));
        bench.provider.pause(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Paused));
        bench.provider.resume(&handle).await.unwrap();
        let processes = bench.provider.metrics(&handle).await.unwrap().processes;
        assert!(processes.map_or(bench.is_afar(), |count| count >= 2), "{processes:?}");
    }
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn a_list_has_what_lives_and_nothing_else(bench: &Bench) {
    assert_eq!(bench.provider.list().await, Ok(Vec::new()));
    let mut handles = Vec::new();
    for n in 0..4 {
        handles.push(bench.instance(&format!("w{n}")).await);
    }
    let [running, paused, destroyed, forgotten] = handles.as_slice() else { unreachable!() };
    bench.provider.pause(paused).await.unwrap();
    bench.provider.destroy(destroyed).await.unwrap();
    bench.provider.destroy(forgotten).await.unwrap();
    bench.provider.forget(&forgotten.lease, Some(&forgotten.workspace)).await.unwrap();
    if bench.lives() {
        // Somebody's litter.
        fs::create_dir_all(bench.data().join("leases/not a lease")).unwrap();
        fs::create_dir_all(bench.data().join("leases/lease-0")).unwrap();
        fs::write(bench.data().join("leases/lease-0/instance"), "\0").unwrap();
        fs::write(bench.data().join("leases/file"), "").unwrap();
    }
    let mut found = bench.provider.list().await.unwrap();
    found.sort_by_key(|found| found.handle.workspace.clone());
    let want =
        [Found { handle: running.clone(), seen: Seen::Running }, Found { handle: paused.clone(), seen: Seen::Paused }];
    assert_eq!(found, want);
}

pub(crate) async fn a_successor_sees_the_same(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("seen").await;
    let other = bench.successor();
    assert_eq!(other.status(&handle).await, Ok(Seen::Running));
    assert_eq!(other.list().await, bench.provider.list().await);
    bench.provider.pause(&handle).await.unwrap();
    assert_eq!(bench.successor().status(&handle).await, Ok(Seen::Paused));
    other.destroy(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
}

pub(crate) async fn several_ways_into_one_instance_work_at_once(bench: &Bench) {
    let handle = bench.instance("ways").await;
    let mut shells = Vec::new();
    for n in 0..8 {
        shells.push(bench.shell(&handle, &format!("shell{n}")).await);
    }
    let runs = shells.iter().enumerate().map(|(n, shell)| {
        let shell = shell.clone();
        tokio::spawn(async move { (n, shell.out(&format!("cd /usr; v={n}; echo $v")).await) })
    });
    for run in runs.collect::<Vec<_>>() {
        let (n, out) = run.await.unwrap();
        assert_eq!(out, format!("{n}\n"));
    }
    if bench.lives() {
        // Another way to the same shell.
        let again = bench.shell(&handle, "shell3").await;
        assert_eq!(again.out("echo $v $PWD").await, "3 /usr\n");
        assert_eq!(shells.get(3).unwrap().out("echo $v $PWD").await, "3 /usr\n");
    }
}

pub(crate) async fn there_is_no_way_into_what_is_gone(bench: &Bench) {
    let refusal = |error: stead_server::provider::ProviderError| (error.trouble, error.effect);
    let never = handle(&bench.blueprint("never"), &Created::default());
    assert_eq!(bench.provider.access(&never).await.map_err(refusal).unwrap_err(), (Trouble::NotFound, Effect::None));
    let handle = bench.instance("gone").await;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.provider.access(&handle).await.map_err(refusal).unwrap_err(), (Trouble::NotFound, Effect::None));
    if bench.lives() {
        let killed = bench.instance("killed").await;
        bench.massacre().await;
        let error = bench.provider.access(&killed).await.map_err(refusal).unwrap_err();
        let trouble = if bench.ended() == Seen::Paused { Trouble::Conflict } else { Trouble::NotFound };
        assert_eq!(error, (trouble, Effect::None));
    }
}

pub(crate) async fn there_is_no_way_into_what_sleeps(bench: &Bench) {
    let handle = bench.instance("asleep").await;
    bench.provider.pause(&handle).await.unwrap();
    let error = bench.provider.access(&handle).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None), "{error:?}");
    bench.provider.resume(&handle).await.unwrap();
    assert_eq!(bench.shell(&handle, "main").await.out("echo awake").await, "awake\n");
}

pub(crate) async fn metrics_are_plausible(bench: &Bench) {
    assert!(bench.provider.capabilities().metrics);
    let handle = bench.instance("metrics").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("true").await;
    let metrics = bench.provider.metrics(&handle).await.unwrap();
    if !bench.lives() {
        return;
    }
    assert!(metrics.memory_used_bytes.is_some_and(|bytes| bytes > 100 << 10), "{metrics:?}");
    if bench.is_afar() {
        return measured_by_a_cloud(bench, &handle, metrics).await;
    }
    assert!(metrics.processes.is_some_and(|count| (2..100).contains(&count)), "{metrics:?}");
    assert_eq!(metrics.cpu_percent, None, "there is nothing yet to compare with");
    let idle = bench.provider.metrics(&handle).await.unwrap();
    shell.run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").await;
    let busy = bench.provider.metrics(&handle).await.unwrap();
    let (Some(idle), Some(busy)) = (idle.cpu_percent, busy.cpu_percent) else { panic!("{idle:?} {busy:?}") };
    assert!((0.0..=1000.0).contains(&idle) && (5.0..=1000.0).contains(&busy), "idle {idle}, busy {busy}");
    shell.run("for i in 1 2 3 4 5; do sleep 1000 & done").await;
    let more = bench.provider.metrics(&handle).await.unwrap();
    assert!(more.processes >= metrics.processes.map(|count| count + 5), "{metrics:?} {more:?}");
    bench.provider.pause(&handle).await.unwrap();
    let asleep = bench.provider.metrics(&handle).await.unwrap();
    assert_eq!(asleep.processes, more.processes);
}

/// A cloud tells what it has sampled when it had: it is not what was just done, and processes it doesn't count. To measure
/// doesn't wake what sleeps.
async fn measured_by_a_cloud(bench: &Bench, handle: &Handle, metrics: Metrics) {
    assert!(metrics.cpu_percent.is_none_or(|percent| (0.0..=1000.0).contains(&percent)), "{metrics:?}");
    assert!(metrics.memory_limit_bytes >= metrics.memory_used_bytes || metrics.memory_limit_bytes.is_none());
    bench.provider.pause(handle).await.unwrap();
    if let Err(error) = bench.provider.metrics(handle).await {
        assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None), "{error:?}");
    }
    assert_eq!(bench.provider.status(handle).await, Ok(Seen::Paused));
}

pub(crate) async fn there_are_no_metrics_of_what_is_gone(bench: &Bench) {
    let handle = bench.instance("gone").await;
    bench.provider.destroy(&handle).await.unwrap();
    let error = bench.provider.metrics(&handle).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None));
}

pub(crate) async fn what_a_provider_can_is_what_it_says(bench: &Bench) {
    let handle = bench.instance("says").await;
    let can = bench.provider.capabilities();
    let access = bench.provider.access(&handle).await.unwrap();
    assert_eq!(matches!(access, Access::Steward(_)), can.steward);
    assert_eq!(bench.provider.metrics(&handle).await.is_ok(), can.metrics);
    assert_eq!(bench.provider.pause(&handle).await.is_ok(), can.pause);
    assert_eq!(bench.provider.name().as_str(), bench.provider.kind());
}

pub(crate) async fn looks_at_the_same_time_do_not_disturb_each_other(bench: &Bench) {
    let handle = bench.instance("looks").await;
    let ended = if bench.lives() {
        bench.shell(&handle, "main").await.run("true").await;
        bench.massacre().await;
        bench.ended()
    } else {
        bench.provider.destroy(&handle).await.unwrap();
        Seen::Gone
    };
    let tasks = (0..64).map(|n| {
        let (provider, handle) = (bench.provider.clone(), handle.clone());
        tokio::spawn(async move {
            if n % 8 == 0 {
                provider.last_words(&handle).await.unwrap();
            }
            provider.status(&handle).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Ok(ended));
    }
}
