//! What an instance may use, enforced or told to be not.

use crate::bench::{Bench, Make, exec, handle, length, until};
use stead_model::lease::Caveat;
use stead_term::cgroup::Limits;

/// An instance with these limits, and whether one of them is told to be missing.
async fn limited(make: Make, limits: Limits, code: &str) -> Option<(Bench, crate::bench::Shell, Option<Caveat>)> {
    let bench = Bench::with(make, limits).await?;
    let blueprint = bench.blueprint("limited");
    let created = bench.provider.create(&blueprint).await.unwrap();
    let shell = bench.shell(&handle(&blueprint, &created), "main").await;
    let caveat = created.caveats.into_iter().find(|caveat| caveat.code == code);
    if let Some(caveat) = &caveat {
        println!("SKIPPED: {}", caveat.message);
    }
    Some((bench, shell, caveat))
}

async fn memory_is_limited_or_it_is_told(make: Make) {
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let Some((bench, shell, None)) = limited(make, limits, "memory-not-limited").await else { return };
    // The child that eats is killed; the shell lives.
    let outcome = shell.run("v=1; (x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x})").await;
    assert_ne!((outcome.code(), outcome.seen().1.as_str()), (Some(0), "200000000\n"));
    let limit = {
        let listed = bench.provider.list().await.unwrap();
        bench.provider.metrics(&listed.first().unwrap().handle).await.unwrap().memory_limit_bytes
    };
    assert_eq!(limit, Some(64 << 20));
    let small = shell.run("x=$(head -c 1000000 /dev/zero | tr '\\0' x); echo ${#x}").await;
    assert_eq!(small.seen().1, "1000000\n");
}

async fn processes_are_limited_or_it_is_told(make: Make) {
    let limits = Limits { processes: Some(40), ..Limits::default() };
    let Some((bench, shell, None)) = limited(make, limits, "processes-not-limited").await else { return };
    // bash waits for room when it can't fork; so do we, for what it says then.
    let running =
        tokio::spawn(async move { shell.try_exec(exec("for i in {1..60}; do sleep 1000 & done 2>errors")).await });
    let errors = bench.files("limited").join("errors");
    until("a fork to be refused", || length(&errors) > 0).await;
    assert!((10..=40).contains(&bench.processes().len()), "{:?}", bench.processes());
    let handle = bench.provider.list().await.unwrap().remove(0).handle;
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    let _ = running.await.unwrap();
}

async fn processors_are_limited_or_it_is_told(make: Make) {
    let limits = Limits { cpu_millis: Some(200), ..Limits::default() };
    let Some((_bench, shell, None)) = limited(make, limits, "cpu-not-limited").await else { return };
    // A second of work takes a fifth of a processor some five seconds; half of that leaves room for the first period.
    let text = "start=$EPOCHREALTIME; TIMEFORMAT='%U %S'; time timeout 2 bash -c 'while :; do :; done'";
    let outcome = shell.run(text).await;
    let used: f64 = outcome.seen().2.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).sum();
    assert!(used < 1.0, "{used} s of processor time in 2 s: {:?}", outcome.seen());
}

async fn without_limits_nothing_is_told_about_them(make: Make) {
    let Some(bench) = Bench::new(make).await else { return };
    let created = bench.provider.create(&bench.blueprint("free")).await.unwrap();
    let about_limits: Vec<_> = created.caveats.iter().filter(|caveat| caveat.code.ends_with("-not-limited")).collect();
    assert_eq!(about_limits, Vec::<&Caveat>::new());
}

macro_rules! limits {
    ($($provider:ident)*) => {$(
        mod $provider {
            #[tokio::test]
            async fn memory_is_limited_or_it_is_told() {
                super::memory_is_limited_or_it_is_told(crate::bench::$provider).await;
            }

            #[tokio::test]
            async fn processes_are_limited_or_it_is_told() {
                super::processes_are_limited_or_it_is_told(crate::bench::$provider).await;
            }

            #[tokio::test]
            async fn processors_are_limited_or_it_is_told() {
                super::processors_are_limited_or_it_is_told(crate::bench::$provider).await;
            }

            #[tokio::test]
            async fn without_limits_nothing_is_told_about_them() {
                super::without_limits_nothing_is_told_about_them(crate::bench::$provider).await;
            }
        }
    )*};
}

// Not of clouds: how large a sandbox is comes with its template, and limits are refused (`afar`).
limits!(local namespace docker podman);
