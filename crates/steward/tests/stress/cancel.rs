//! Cancellations and time-outs, at every instant: the shell lives on, nothing is lost, no process stays behind.

use crate::rig::{Rig, Rng, Runs, TestShell, code, is_alive, rounds, seeds, steward_of, wait_for};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::proto::{Cancel, Exec, FirstSignal, Reply, Request, Status};
use stead_steward::client::{Client, Outcome};

/// Commands of every kind: loops in the shell, children, pipelines, substitutions, readers of the terminal.
const COMMANDS: [&str; 16] = [
    "while :; do :; done",
    "sleep 5",
    "while :; do sleep 0.001; done",
    "sleep 5 | cat",
    "for i in 1 2 3; do /bin/true; done",
    "true",
    "(sleep 5)",
    "x=$(sleep 5); echo $x",
    "yes >/dev/null",
    "f() { while :; do for i in 1 2 3; do :; done; done; }; f",
    "eval 'sleep 5'; echo no",
    "sleep 0.002",
    "cat <(sleep 5)",
    "read -t 5 x </dev/tty",
    "{ sleep 5; } 2>/dev/null",
    "i=0; while :; do i=$((i+1)); echo $i; done",
];

fn cancel(client: &mut Client, exec: &Exec, first: FirstSignal) {
    let reply = client.request(&Request::Cancel(Cancel { command: exec.command.clone(), first })).unwrap();
    assert!(matches!(reply, Reply::Command(_)));
}

fn spin(micros: u64) {
    let until = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Processes of the shell's session other than the shell.
fn others(pid: i32) -> Vec<i32> {
    let session = stead_term::proc::of_session(pid);
    session.into_iter().filter(|stat| stat.pid != pid && stat.state != b'Z').map(|stat| stat.pid).collect()
}

/// Starts a command, cancels it after a while, waits for its end.
fn run_and_cancel(shell: &mut TestShell, other: &mut Client, exec: &Exec, wait: u64, first: FirstSignal) -> Outcome {
    shell.client.request(&Request::Exec(Box::new(exec.clone()))).unwrap();
    spin(wait);
    cancel(other, exec, first);
    shell.run_exec(exec.clone())
}

#[test]
fn thousands_of_random_cancellations_leave_the_same_shell_and_no_process() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let mut other = rig.client();
        let pid = shell.pid();
        shell.run("kept=here; g() { echo g $kept; }; sleep 1000 & background=$!");
        let background: i32 = shell.out("echo $background").trim().parse().unwrap();
        let mut rng = Rng::new(seed);
        for round in 0..rounds(700) {
            let text = COMMANDS[usize::try_from(rng.below(COMMANDS.len() as u64)).unwrap()];
            let exec = shell.exec(text);
            let wait = match rng.below(4) {
                0 => 0,
                1 => rng.below(200),
                2 => rng.below(3000),
                _ => rng.below(20_000),
            };
            let outcome = run_and_cancel(&mut shell, &mut other, &exec, wait, FirstSignal::Interrupt);
            let ending = outcome.info.ending.clone().unwrap();
            let right = match ending.status {
                Status::Cancelled => ending.exit_code == Some(130),
                Status::Exited => ending.exit_code.is_some(),
                Status::Queued | Status::Running | Status::TimedOut | Status::Failed | Status::Lost => false,
            };
            assert!(
                right && !ending.shell_replaced && !ending.shell_exited,
                "seed {seed} round {round}: {text} after {wait} us: {ending:?}"
            );
            assert_eq!(outcome.info.stdout_bytes, outcome.stdout.len() as u64, "seed {seed} round {round}: {text}");
            let left: Vec<_> = others(pid).into_iter().filter(|left| *left != background).collect();
            assert_eq!(left, [0_i32; 0], "seed {seed} round {round}: {text} after {wait} us left processes");
            let next = shell.run(format!("echo ok{round}"));
            let said = (code(&next), String::from_utf8_lossy(&next.stdout).into_owned());
            assert_eq!(said, (Some(0), format!("ok{round}\n")), "seed {seed} round {round}: after {text} ({wait} us)");
        }
        assert_eq!(shell.out("g; echo $$"), format!("g here\n{pid}\n"), "seed {seed}");
        assert!(is_alive(background), "seed {seed}: a background job of an earlier command was killed");
    }
}

#[test]
fn cancellations_hold_while_the_steward_is_being_killed_too() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let pid = shell.pid();
        shell.run("kept=here");
        let runs = Runs::new(&rig);
        let keeper = rig.keeper_pid();
        let mut rng = Rng::new(seed);
        for round in 0..rounds(40) {
            let text = COMMANDS[usize::try_from(rng.below(COMMANDS.len() as u64)).unwrap()];
            let exec = shell.exec(runs.counted(text));
            rig.client().request(&Request::Exec(Box::new(exec.clone()))).unwrap();
            spin(rng.below(5000));
            let kill_first = rng.below(2) == 0;
            if kill_first && let Some(steward) = steward_of(keeper) {
                crate::rig::kill(steward);
            }
            let asked = Request::Cancel(Cancel { command: exec.command.clone(), first: FirstSignal::Interrupt });
            wait_for("the cancellation to be taken", || rig.client().request(&asked).ok());
            spin(rng.below(30_000));
            if !kill_first && let Some(steward) = steward_of(keeper) {
                crate::rig::kill(steward);
            }
            let info = Client::run(&exec, &mut || rig.try_client(), &mut |_| {}).unwrap();
            let ending = info.ending.unwrap();
            assert!(
                matches!(ending.status, Status::Cancelled | Status::Exited) && ending.exit_code.is_some(),
                "seed {seed} round {round}: {text}: {ending:?}"
            );
            assert!(!ending.shell_replaced, "seed {seed} round {round}: {text}: {ending:?}");
            let mut again = TestShell { client: rig.client(), id: shell.id.clone() };
            assert_eq!(again.out("echo $kept $$"), format!("here {pid}\n"), "seed {seed} round {round}: after {text}");
            assert_eq!(others(pid), [0_i32; 0], "seed {seed} round {round}: {text}");
            runs.at_most_once(&format!("seed {seed} round {round}: {text}"));
        }
    }
}

/// Commands that never end by themselves, in the shell or in children, silent or not.
const ENDLESS: [&str; 9] = [
    "sleep 100",
    "while :; do :; done",
    "(sleep 100)",
    "x=$(sleep 100)",
    "sleep 100 | cat",
    "read -t 100 x </dev/tty",
    "echo out; sleep 100",
    "echo err >&2; while :; do :; done",
    "while :; do echo more; sleep 0.001; done",
];

/// How a command is told to end.
#[derive(Debug, Clone, Copy)]
enum Told {
    Cancel,
    TimeOut,
}

#[test]
fn a_command_that_was_told_to_end_is_never_started_again_however_the_steward_dies() {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let pid = shell.pid();
        shell.run("kept=here");
        let runs = Runs::new(&rig);
        let keeper = rig.keeper_pid();
        let mut rng = Rng::new(seed);
        for round in 0..rounds(60) {
            let text = ENDLESS[usize::try_from(rng.below(ENDLESS.len() as u64)).unwrap()];
            let told = if rng.below(2) == 0 { Told::Cancel } else { Told::TimeOut };
            let mut exec = shell.exec(runs.counted(text));
            if matches!(told, Told::TimeOut) {
                exec.timeout_ms = Some(rng.below(20));
            }
            wait_for("the command to be taken", || rig.client().request(&Request::Exec(Box::new(exec.clone()))).ok());
            // One that times out may do so before it has noted that it runs.
            if matches!(told, Told::Cancel) && rng.below(4) > 0 {
                wait_for("it to run", || (runs.count() > 0).then_some(()));
            }
            if matches!(told, Told::Cancel) {
                let asked = Request::Cancel(Cancel { command: exec.command.clone(), first: FirstSignal::Interrupt });
                wait_for("the cancellation to be taken", || rig.client().request(&asked).ok());
            }
            // Once, or twice: also while the next one finds its way.
            for _ in 0..=rng.below(2) {
                spin(rng.below(30_000));
                if let Some(steward) = steward_of(keeper) {
                    crate::rig::kill(steward);
                }
            }
            let what = format!("seed {seed} round {round}: {told:?} {text}");
            let info = Client::run(&exec, &mut || rig.try_client(), &mut |_| {}).unwrap();
            let ending = info.ending.unwrap();
            let ran = runs.at_most_once(&what);
            let right = match (told, ending.status) {
                (Told::Cancel, Status::Cancelled) => {
                    ending.exit_code == Some(130) || !ran && ending.exit_code == Some(-1)
                }
                (Told::TimeOut, Status::TimedOut) => ending.exit_code == Some(-1),
                _ => false,
            };
            assert!(right && !ending.shell_replaced && !ending.shell_exited, "{what}: ran {ran}: {ending:?}");
            let mut again = TestShell { client: rig.client(), id: shell.id.clone() };
            assert_eq!(again.out("echo $kept $$"), format!("here {pid}\n"), "{what}");
            assert_eq!(others(pid), [0_i32; 0], "{what}");
            assert_eq!(runs.count(), 0, "{what}: it ran after its end");
        }
    }
}

fn timed(shell: &TestShell, text: &str, timeout: u64, grace: u64) -> Exec {
    Exec { timeout_ms: Some(timeout), grace_ms: Some(grace), ..shell.exec(text) }
}

#[test]
fn a_time_out_ends_the_command_and_not_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    shell.run("v=1; f() { echo f; }; cd /usr");
    for text in ["sleep 100", "while :; do :; done", "sleep 100 | sleep 100", "echo before; sleep 100; echo after"] {
        let outcome = shell.run_exec(timed(&shell, text, 50, 5000));
        let ending = outcome.info.ending.unwrap();
        assert_eq!(
            (ending.status, ending.exit_code, ending.shell_replaced),
            (Status::TimedOut, Some(-1), false),
            "{text}"
        );
        let want = if text.starts_with("echo") { "before\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), want, "{text}");
    }
    assert_eq!(shell.out("echo $v $PWD $$; f"), format!("1 /usr {pid}\nf\n"));
}

#[test]
fn a_process_that_ignores_signals_can_not_win() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    let stubborn = [
        "bash -c 'trap \"\" INT TERM HUP; echo $$; while :; do sleep 1; done'",
        "bash -c 'trap \"\" INT TERM; echo $$; sleep 1000 & wait' | cat",
        "(trap '' INT TERM; echo $BASHPID; while :; do sleep 1; done)",
        "setsid --wait bash -c 'trap \"\" INT TERM; echo $$; while :; do sleep 1; done'",
        "python3 -c 'import signal,time,os; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(1000)'",
    ];
    for text in stubborn {
        let exec = Exec { grace_ms: Some(300), ..shell.exec(text) };
        shell.submit(exec.clone());
        // It says who it is when it has begun to ignore them.
        wait_for(text, || (shell.command(&exec.command).stdout_bytes > 0).then_some(()));
        cancel(&mut shell.client, &exec, FirstSignal::Interrupt);
        let outcome = shell.end_of(&exec.command);
        let ending = outcome.info.ending.unwrap();
        assert_eq!((ending.status, ending.shell_replaced), (Status::Cancelled, false), "{text}");
        let process: i32 = String::from_utf8_lossy(&outcome.stdout).trim().parse().unwrap();
        assert!(!is_alive(process), "{text}: still there");
        assert_eq!(shell.out("echo $$"), format!("{pid}\n"), "{text}");
    }
}

/// On a machine that is too busy it may be away for longer than all of a cancellation may take.
#[test]
fn a_steward_that_comes_too_late_to_kill_does_not_give_up_the_shell() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let (pid, steward) = (shell.pid(), rig.steward_pid());
    for round in 0..rounds(4) {
        let exec =
            Exec { grace_ms: Some(100), ..shell.exec("bash -c 'trap \"\" INT TERM; echo 1; while :; do :; done'") };
        shell.submit(exec.clone());
        wait_for("its line", || (shell.command(&exec.command).stdout_bytes > 0).then_some(()));
        cancel(&mut shell.client, &exec, FirstSignal::Interrupt);
        stead_term::proc::signal(steward, rustix::process::Signal::STOP);
        let away = Instant::now() + Duration::from_millis(450);
        while Instant::now() < away {
            std::thread::park_timeout(away.saturating_duration_since(Instant::now()));
        }
        stead_term::proc::signal(steward, rustix::process::Signal::CONT);
        let ending = shell.end_of(&exec.command).info.ending.unwrap();
        assert_eq!((ending.status, ending.shell_replaced), (Status::Cancelled, false), "round {round}");
        assert_eq!(shell.out("echo $$"), format!("{pid}\n"));
    }
}

#[test]
fn a_loop_in_the_shell_that_can_not_be_interrupted_costs_the_shell_but_not_its_state() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    shell.run("v='kept as it was'; cd /usr; f() { echo f $v; }");
    for text in ["trap '' INT; while :; do :; done", "trap 'echo no' INT; while :; do :; done"] {
        let outcome = shell.run_exec(timed(&shell, text, 50, 200));
        let ending = outcome.info.ending.unwrap();
        assert_eq!(
            (ending.status, ending.shell_replaced, ending.shell_exited),
            (Status::TimedOut, true, false),
            "{text}"
        );
        assert_eq!(shell.out("f; pwd; trap -p INT"), "f kept as it was\n/usr\n", "{text}");
    }
    assert_ne!(shell.pid(), pid);
}

#[test]
fn background_jobs_of_a_cancelled_command_go_with_it_and_those_of_earlier_ones_stay() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let earlier: i32 = shell.out("sleep 1000 & echo $!").trim().parse().unwrap();
    let outcome = shell.run_exec(timed(&shell, "sleep 1000 & echo $!; sleep 1000", 100, 1000));
    let mine: i32 = String::from_utf8_lossy(&outcome.stdout).trim().parse().unwrap();
    assert!(is_alive(earlier));
    assert!(!is_alive(mine));
}

#[test]
fn what_was_written_before_a_cancellation_is_all_there() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut other = rig.client();
    let exec = shell.exec("seq 1 100000; echo done >&2; sleep 1000");
    shell.client.request(&Request::Exec(Box::new(exec.clone()))).unwrap();
    wait_for("the output", || {
        let Ok(Reply::Command(info)) = other.request(&Request::Command(exec.command.clone())) else { return None };
        (info.stderr_bytes == 5).then_some(())
    });
    cancel(&mut other, &exec, FirstSignal::Terminate);
    let outcome = shell.run_exec(exec.clone());
    assert_eq!(outcome.info.ending.unwrap().status, Status::Cancelled);
    let whole = (1..=100_000).fold(String::new(), |text, i| text + &format!("{i}\n"));
    assert!(outcome.stdout == whole.as_bytes());
    let read = stead_model::proto::Read { command: exec.command, stream: Stream::Stdout, offset: 588_888, length: 10 };
    let Reply::Bytes(bytes) = shell.client.request(&Request::Read(read)).unwrap() else { panic!() };
    assert_eq!((bytes.bytes.0.as_slice(), bytes.total), (&whole.as_bytes()[588_888..588_895], whole.len() as u64));
}

#[test]
fn killing_at_once_is_a_choice() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut other = rig.client();
    let exec = shell.exec("bash -c 'trap \"\" INT TERM; echo ready; while :; do sleep 1; done'");
    shell.client.request(&Request::Exec(Box::new(exec.clone()))).unwrap();
    wait_for("it to run", || {
        let Ok(Reply::Command(info)) = other.request(&Request::Command(exec.command.clone())) else { return None };
        (info.stdout_bytes > 0).then_some(())
    });
    cancel(&mut other, &exec, FirstSignal::Kill);
    assert_eq!(shell.run_exec(exec).info.ending.unwrap().status, Status::Cancelled);
    assert_eq!(shell.out("echo still here"), "still here\n");
}
