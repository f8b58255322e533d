//! Variables, secrets and state while the steward is killed again and again: what was answered is so.

use crate::rig::{Rig, Rng, TestShell, kill, rounds, seeds, steward_of};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_model::env::Secret;
use stead_model::proto::{Exec, Request, SetEnv, SetSecret, Status};
use stead_model::state::Bytes;
use stead_steward::client::Outcome;

/// Asks until somebody answers; the same thing, so that it happens once.
fn ask(rig: &Rig, request: &Request) {
    while rig.client().request(request).is_err() {}
}

fn insist(rig: &Rig, exec: &Exec) -> Outcome {
    loop {
        if let Ok(outcome) = rig.client().exec(exec.clone()) {
            return outcome;
        }
    }
}

#[track_caller]
fn check(rig: &Rig, seed: u64, outcome: &Outcome, want: &str) {
    let ending = outcome.info.ending.as_ref().unwrap();
    let told = (ending.status, String::from_utf8_lossy(&outcome.stdout));
    assert_eq!(told, (Status::Exited, want.into()), "seed {seed}: {ending:?}\n{}", rig.log());
}

fn change(shell: &TestShell, seq: u64, secret: &str) -> Request {
    let vars = vec![
        (Bytes::from("A"), Some(Bytes::from(&seq.to_string()))),
        (Bytes::from("B"), seq.is_multiple_of(2).then(|| Bytes::from("b"))),
    ];
    let secret = SetSecret { name: Bytes::from("TOKEN"), revision: seq, value: Some(Secret::new(secret)) };
    Request::SetEnv(Box::new(SetEnv { shell: shell.id.clone(), seq, vars, secrets: vec![secret] }))
}

/// Ends the killing, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while the steward is killed every few milliseconds.
fn through_kills(rig: &Rig, seed: u64, work: impl FnOnce(&mut Rng)) {
    let keeper = rig.keeper_pid();
    let over = AtomicBool::new(false);
    let over = &over;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut dice = Rng::new(seed);
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(dice.below(40)));
                steward_of(keeper).into_iter().for_each(kill);
            }
        });
        let _end = End(over);
        work(&mut Rng::new(seed + 1));
    });
}

#[test]
fn what_was_set_is_there_for_the_next_command_however_often_the_steward_dies() {
    for seed in seeds() {
        let rig = Rig::new();
        let shell = rig.shell();
        through_kills(&rig, seed, |dice| {
            for seq in 1..=u64::from(rounds(40)) {
                let secret = "x".repeat(usize::try_from(4 + seq % 50).unwrap());
                ask(&rig, &change(&shell, seq, &secret));
                let text = match dice.below(3) {
                    0 => "echo $A ${B-none} ${#TOKEN}; A=mine TOKEN=mine",
                    1 => "echo $A ${B-none} ${#TOKEN}; exit 0",
                    _ => "echo $A ${B-none} ${#TOKEN}",
                };
                let outcome = insist(&rig, &shell.exec(text));
                let want = format!("{seq} {} {}\n", if seq.is_multiple_of(2) { "b" } else { "none" }, secret.len());
                check(&rig, seed, &outcome, &want);
            }
        });
    }
}

#[test]
fn what_a_command_exported_is_there_for_the_next_however_often_the_steward_dies() {
    for seed in seeds() {
        let rig = Rig::new();
        let shell = rig.shell();
        through_kills(&rig, seed, |dice| {
            for number in 1..=u64::from(rounds(40)) {
                let leave = if dice.below(3) == 0 { "; exit 0" } else { "" };
                let text = format!("echo $kept; export kept={number}; f() {{ echo {number}; }}{leave}");
                let outcome = insist(&rig, &shell.exec(text));
                let want = if number == 1 { "\n".to_owned() } else { format!("{}\n", number - 1) };
                check(&rig, seed, &outcome, &want);
                let outcome = insist(&rig, &shell.exec("f"));
                check(&rig, seed, &outcome, &format!("{number}\n"));
            }
        });
    }
}
