//! Paused is paused, and resumed is as if nothing had been.

use crate::bench::{Bench, grows, handle, until};
use std::time::Duration;
use stead_model::lease::Seen;
use stead_server::provider::{Created, Effect, Trouble};
use stead_term::proc;

const A_WHILE: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn a_paused_instance_does_nothing_until_it_is_resumed(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("count").await;
    let shell = bench.shell(&handle, "main").await;
    // One in the shell's job, one that left it for a session of its own, one that forks all the time.
    shell.run("(while :; do echo >>job; sleep 0.005; done) >/dev/null 2>&1 &").await;
    shell
        .run("(setsid bash -c 'while :; do echo >>daemon; read -t 0.005 <> <(:); done' </dev/null >/dev/null 2>&1 &)")
        .await;
    let [job, daemon] = ["job", "daemon"].map(|name| bench.inside(&handle, name));
    let runs_on = bench.provider.capabilities().live_pause;
    for round in 0..3 {
        for file in [&job, &daemon] {
            // Where a pause keeps the disk alone, both were ended by the first.
            let wanted = round == 0 || runs_on;
            assert_eq!(grows(file, if wanted { SOON } else { A_WHILE }).await, wanted, "{}", file.display());
        }
        bench.provider.pause(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Paused));
        let ticks = |bench: &Bench| bench.processes().iter().map(|stat| (stat.pid, stat.cpu_ticks)).collect::<Vec<_>>();
        let before = ticks(bench);
        assert_eq!(before.is_empty(), !runs_on, "{before:?}");
        for file in [&job, &daemon] {
            assert!(!grows(file, A_WHILE).await, "{} grows", file.display());
        }
        assert_eq!(ticks(bench), before, "some process works in its sleep");
        bench.provider.resume(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    }
    assert_eq!(grows(&daemon, if runs_on { SOON } else { A_WHILE }).await, runs_on);
}

pub(crate) async fn pausing_and_resuming_twice_is_the_same_as_once(bench: &Bench) {
    let handle = bench.instance("twice").await;
    bench.provider.resume(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    for _ in 0..2 {
        bench.provider.pause(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Paused));
    }
    for _ in 0..2 {
        bench.provider.resume(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    }
    assert_eq!(bench.shell(&handle, "main").await.out("echo here").await, "here\n");
}

/// Who stays in an instance, told apart from whoever has the same number later.
fn residents(bench: &Bench) -> Vec<(i32, u64)> {
    bench.residents().iter().map(|stat| (stat.pid, stat.start_time)).collect()
}

pub(crate) async fn a_shell_goes_on_after_a_pause_in_the_same_process_if_that_is_kept(bench: &Bench) {
    let handle = bench.instance("same").await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("v=1; cd /usr; echo $$").await;
    let before = residents(bench);
    bench.provider.pause(&handle).await.unwrap();
    bench.provider.resume(&handle).await.unwrap();
    let shell = bench.after_pause(&handle, shell).await;
    assert_eq!(shell.out("echo $v; pwd").await, "1\n/usr\n");
    if !bench.lives() {
        return;
    }
    if bench.provider.capabilities().live_pause {
        assert_eq!(shell.out("echo $$").await, pid);
        assert_eq!(residents(bench), before);
    } else {
        assert!(residents(bench).iter().all(|process| !before.contains(process)), "something outlived the pause");
    }
}

pub(crate) async fn what_is_gone_is_neither_paused_nor_resumed(bench: &Bench) {
    let never = handle(&bench.blueprint("never"), &Created::default());
    let gone = bench.instance("gone").await;
    bench.provider.destroy(&gone).await.unwrap();
    let there = bench.instance("there").await;
    let stranger = stead_server::provider::Handle { instance: crate::bench::instance(), ..there.clone() };
    for handle in [&never, &gone, &stranger] {
        for answer in [bench.provider.pause(handle).await, bench.provider.resume(handle).await] {
            let error = answer.unwrap_err();
            assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None), "{error:?}");
        }
        assert_eq!(bench.provider.status(handle).await, Ok(Seen::Gone));
    }
    assert_eq!(bench.provider.status(&there).await, Ok(Seen::Running));
}

pub(crate) async fn one_that_paused_is_resumed_by_another(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("other").await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("cd /usr; export A=1; echo $$").await;
    bench.provider.pause(&handle).await.unwrap();
    let other = bench.successor();
    assert_eq!(other.status(&handle).await, Ok(Seen::Paused));
    other.resume(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    let shell = bench.after_pause(&handle, shell).await;
    assert_eq!(shell.out("pwd; echo $A").await, "/usr\n1\n");
    if bench.provider.capabilities().live_pause {
        assert_eq!(shell.out("echo $$").await, pid);
    }
}

pub(crate) async fn a_job_that_was_stopped_by_its_user_stays_stopped(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("job").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("sleep 1000 & job=$!; kill -STOP $job").await;
    let stopped = || bench.processes().into_iter().find(|stat| stat.state == b'T').map(|stat| stat.pid);
    until("the job to be stopped", || stopped().is_some()).await;
    let pid = stopped().unwrap();
    bench.provider.pause(&handle).await.unwrap();
    bench.provider.resume(&handle).await.unwrap();
    let shell = bench.after_pause(&handle, shell).await;
    assert_eq!(shell.out("echo here").await, "here\n");
    // What was ended by the pause at least doesn't run.
    let kept = bench.provider.capabilities().live_pause.then_some(b'T');
    assert_eq!(proc::stat(pid).map(|stat| stat.state), kept);
}
