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
    let files = bench.files("count");
    for _ in 0..3 {
        for name in ["job", "daemon"] {
            assert!(grows(&files.join(name), SOON).await, "{name} doesn't run");
        }
        bench.provider.pause(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Paused));
        let ticks = |bench: &Bench| bench.processes().iter().map(|stat| (stat.pid, stat.cpu_ticks)).collect::<Vec<_>>();
        let before = ticks(bench);
        for name in ["job", "daemon"] {
            assert!(!grows(&files.join(name), A_WHILE).await, "{name} runs on");
        }
        assert_eq!(ticks(bench), before, "some process works in its sleep");
        bench.provider.resume(&handle).await.unwrap();
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    }
    assert!(grows(&files.join("daemon"), SOON).await);
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

pub(crate) async fn a_shell_goes_on_in_the_same_process_after_a_pause(bench: &Bench) {
    let handle = bench.instance("same").await;
    let shell = bench.shell(&handle, "main").await;
    let pid = shell.out("v=1; cd /usr; echo $$").await;
    let before: Vec<_> = bench.processes().iter().map(|stat| (stat.pid, stat.start_time)).collect();
    bench.provider.pause(&handle).await.unwrap();
    bench.provider.resume(&handle).await.unwrap();
    assert_eq!(shell.out("echo $v; pwd").await, "1\n/usr\n");
    if bench.lives() {
        assert_eq!(shell.out("echo $$").await, pid);
        assert_eq!(bench.processes().iter().map(|stat| (stat.pid, stat.start_time)).collect::<Vec<_>>(), before);
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
    let pid = shell.out("echo $$").await;
    bench.provider.pause(&handle).await.unwrap();
    let other = bench.successor();
    assert_eq!(other.status(&handle).await, Ok(Seen::Paused));
    other.resume(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    assert_eq!(shell.out("echo $$").await, pid);
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
    assert_eq!(shell.out("echo here").await, "here\n");
    assert_eq!(proc::stat(pid).map(|stat| stat.state), Some(b'T'));
}
