//! What an instance leaves to be read when it is gone.

use crate::bench::{Bench, exec, handle, until};
use stead_model::proto::Status;
use stead_server::provider::{Created, Effect};

pub(crate) async fn the_journal_tells_what_ran_after_everything_was_killed(bench: &Bench) {
    if !bench.leaves_words() {
        return;
    }
    let handle = bench.instance("words").await;
    let (one, two) = (bench.shell(&handle, "one").await, bench.shell(&handle, "two").await);
    let first = one.run("cd /usr; export V=1; echo out; echo error >&2; (exit 3)").await.info;
    let second = one.run("f() { :; }; exit 4").await.info;
    two.run("printf 12345").await;
    let long = exec("printf 1234567; touch on; sleep 1000");
    let running = {
        let (two, long) = (two.clone(), long.clone());
        tokio::spawn(async move { two.try_exec(long).await })
    };
    let waiting = exec("touch never");
    let queued = {
        let (two, waiting) = (two.clone(), waiting.clone());
        tokio::spawn(async move { two.try_exec(waiting).await })
    };
    until("it to run", || bench.inside(&handle, "on").exists()).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let seen = two.runtime.look_up(&long.command).await.unwrap().unwrap();
        let accepted = two.runtime.look_up(&waiting.command).await.unwrap();
        if seen.stdout_bytes == 7 && accepted.is_some() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "its output is not noted: {seen:?}");
        tokio::task::yield_now().await;
    }
    bench.bring(&handle).await;
    bench.massacre().await;
    assert!(running.await.unwrap().is_err() && queued.await.unwrap().is_err());
    let mut words = bench.successor().last_words(&handle).await.unwrap();
    words.sort_by(|a, b| a.shell.cmp(&b.shell));
    let [one, two] = words.as_slice() else { panic!("{words:#?}") };
    assert_eq!((one.shell.as_str(), two.shell.as_str()), ("one", "two"));
    let told = one.commands.iter().chain(&two.commands).map(|info| {
        let code = info.ending.as_ref().map(|ending| (ending.exit_code, ending.shell_exited));
        (info.status, code, info.stdout_bytes, info.stderr_bytes)
    });
    let told: Vec<_> = told.collect();
    let want = [
        (Status::Exited, Some((Some(3), false)), 4, 6),
        (Status::Exited, Some((Some(4), true)), 0, 0),
        (Status::Exited, Some((Some(0), false)), 5, 0),
        (Status::Running, None, 7, 0),
        (Status::Queued, None, 0, 0),
    ];
    assert_eq!(told, want);
    assert_eq!(one.commands.iter().map(|info| &info.command).collect::<Vec<_>>(), [&first.command, &second.command]);
    let state = one.state.as_ref().unwrap();
    assert_eq!((one.version, &state.cwd.0[..]), (second.state_version, b"/usr".as_slice()));
    assert!(state.functions.names.contains(b"f".as_slice()) && state.variables.contains_key(b"V".as_slice()));
    assert!(!bench.files("words").join("never").exists());
    // Reading changes nothing.
    let again = bench.provider.last_words(&handle).await.unwrap();
    assert_eq!(again.iter().map(|shell| shell.commands.len()).sum::<usize>(), 5);
}

pub(crate) async fn the_journal_is_not_read_while_somebody_writes_it_but_a_copy_of_it_is(bench: &Bench) {
    if !bench.leaves_words() {
        return;
    }
    let handle = bench.instance("alive").await;
    bench.shell(&handle, "main").await.run("echo x").await;
    bench.bring(&handle).await;
    for _ in 0..2 {
        let words = bench.provider.last_words(&handle).await;
        if bench.is_afar() {
            let words = words.unwrap();
            assert_eq!(words.iter().map(|shell| shell.commands.len()).collect::<Vec<_>>(), [1]);
        } else {
            let error = words.unwrap_err();
            assert_eq!(error.effect, Effect::None, "{error:?}");
        }
        bench.provider.pause(&handle).await.unwrap();
    }
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.provider.last_words(&handle).await.unwrap().len(), 1);
}

pub(crate) async fn there_are_no_words_of_what_never_was(bench: &Bench) {
    let never = handle(&bench.blueprint("never"), &Created::default());
    assert!(bench.provider.last_words(&never).await.unwrap().is_empty());
}
