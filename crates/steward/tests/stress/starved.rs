//! A steward that hardly gets the processor: it runs for a moment, then others have theirs. What commands answered must
//! not be mistaken for silence because the steward came too late to hear it.

use crate::rig::{Rig, TestShell, rounds, seen};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stead_model::proto::Status;
use stead_term::proc;

/// Longer than a shell may seem to be silent between two looks at it.
const AWAY: Duration = Duration::from_millis(55);

/// Enough for a step or two of the steward's loop.
const THERE: Duration = Duration::from_micros(150);

fn spend(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Lets the steward run for a moment now and then until told to stop.
fn starve(steward: i32, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        proc::signal(steward, rustix::process::Signal::STOP);
        std::thread::park_timeout(AWAY);
        proc::signal(steward, rustix::process::Signal::CONT);
        spend(THERE);
    }
    proc::signal(steward, rustix::process::Signal::CONT);
}

#[test]
fn a_starved_steward_hears_every_exit_code() {
    let rig = Rig::new();
    let (steward, stop) = (rig.steward_pid(), AtomicBool::new(false));
    let mut shells: Vec<TestShell> = (0..60).map(|n| rig.shell_named(&format!("s{n}"))).collect();
    std::thread::scope(|scope| {
        let starving = scope.spawn(|| starve(steward, &stop));
        let clients: Vec<_> = shells
            .iter_mut()
            .enumerate()
            .map(|(n, shell)| {
                scope.spawn(move || {
                    for round in 0..rounds(4) {
                        let wanted = i32::try_from(n).unwrap() + 100;
                        let outcome = shell.run(format!("sleep 0.0{}; echo {round}; (exit {wanted})", round + 2));
                        let ending = outcome.info.ending.clone().unwrap();
                        assert_eq!(ending.status, Status::Exited, "{outcome:?}");
                        assert_eq!(seen(&outcome), (Some(wanted), format!("{round}\n"), String::new()), "{ending:?}");
                        assert!(!ending.shell_replaced, "{ending:?}");
                    }
                })
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        starving.join().unwrap();
        for end in ends {
            end.unwrap();
        }
    });
}
