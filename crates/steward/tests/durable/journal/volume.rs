//! A great deal of output.

use super::{info, is_pattern, printing, read};
use crate::rig::{Gate, Rig, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use stead_model::proto::{Credit, Exec, Request, Status};
use stead_steward::client::Told;

/// A gibibyte, or less where the tests are to be quick.
fn a_lot() -> u64 {
    if std::env::var("STEAD_STRESS").is_ok_and(|stress| stress == "quick") { 64 << 20 } else { 1 << 30 }
}

#[test]
fn a_gibibyte_is_heard_and_read_back_byte_by_byte() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let size = a_lot();
    let exec = Exec { follow: Some(4 << 20), ..shell.exec(format!("{}; (exit 6)", printing(size))) };
    let command = exec.command.clone();
    let mut heard = 0;
    let followed = shell.client.follow(&Request::Exec(Box::new(exec)), &mut |told| {
        if let Told::Output(chunk) = told {
            assert_eq!(chunk.offset, heard, "a hole or a repetition");
            is_pattern(&chunk.bytes, heard);
            heard += chunk.bytes.len() as u64;
        }
    });
    let followed = followed.unwrap();
    assert_eq!((heard, followed.stdout_bytes, followed.ending.unwrap().exit_code), (size, size, Some(6)));
    // An odd size, so that pieces begin anywhere.
    let mut at = 0;
    while at < size {
        let (bytes, total) = read(&mut shell.client, &command, at, 3_999_983).unwrap();
        assert!(!bytes.is_empty() && total == size, "{} of {total} bytes at {at}", bytes.len());
        is_pattern(&bytes, at);
        at += bytes.len() as u64;
    }
    assert_eq!(read(&mut shell.client, &command, size, 100).unwrap(), (Vec::new(), size));
}

const SOME: u64 = 24 << 20;

#[test]
fn a_follower_with_hardly_any_credit_holds_nobody_up_and_hears_everything_later() {
    let rig = Rig::new();
    let shell = rig.shell();
    let exec = Exec { follow: Some(1), ..shell.exec(printing(SOME)) };
    hears_everything_later(&rig, &exec, 1 << 40);
}

#[test]
fn a_follower_that_reads_nothing_holds_nobody_up_and_hears_everything_later() {
    let rig = Rig::new();
    let shell = rig.shell();
    let exec = Exec { follow: Some(1 << 40), ..shell.exec(printing(SOME)) };
    hears_everything_later(&rig, &exec, 0);
}

/// The connection is not read before the command has ended, as another one sees it.
fn hears_everything_later(rig: &Rig, exec: &Exec, credit: u64) {
    let (mut slow, mut other) = (rig.client(), rig.client());
    let request = slow.send(&Request::Exec(Box::new(exec.clone()))).unwrap();
    let ended = wait_for("the command to end without its follower", || {
        let found = other.request(&Request::Command(exec.command.clone()));
        found.ok().map(|_| info(&mut other, &exec.command)).filter(|info| info.status.is_final())
    });
    assert_eq!((ended.status, ended.stdout_bytes), (Status::Exited, SOME));
    slow.send(&Request::Credit(Credit { request, bytes: credit })).unwrap();
    let (mut heard, mut seqs) = (Vec::new(), Vec::new());
    slow.receive(request, &mut |told| {
        seqs.extend(told.seq());
        if let Told::Output(chunk) = told {
            heard.extend_from_slice(&chunk.bytes);
        }
    })
    .unwrap();
    assert_eq!((heard.len() as u64, seqs), (SOME, (1..=ended.last_seq).collect::<Vec<_>>()));
    is_pattern(&heard, 0);
}

#[test]
fn a_follower_hears_everything_of_a_steward_that_others_keep_busy() {
    let rig = Rig::new();
    let shell = rig.shell();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each answer is a turn of the steward's, between the follower's reading and the steward's hearing of it.
        scope.spawn(|| {
            let mut other = rig.client();
            while !is_over.load(Ordering::Relaxed) {
                other.request(&Request::Stats).unwrap();
            }
        });
        let exec = Exec { follow: Some(4 << 20), ..shell.exec(printing(8 * SOME)) };
        let mut reader = rig.client();
        let mut heard = 0;
        let told = reader.follow(&Request::Exec(Box::new(exec)), &mut |told| {
            if let Told::Output(chunk) = told {
                heard += chunk.bytes.len() as u64;
            }
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((heard, told.unwrap().stdout_bytes), (8 * SOME, 8 * SOME));
    });
}

#[test]
fn output_that_could_not_be_taken_for_a_while_is_taken_when_it_can() {
    // Without a file for it, and without a pipe that it could do with.
    for begun in [0, 1] {
        let rig = Rig::new();
        let mut gate = Gate::new(&rig, "gate");
        let mut shell = rig.shell();
        let begin = "printf b; ".repeat(begun);
        let exec = shell.exec(format!("{begin}{}; {}", gate.wait(), printing(1_000_000)));
        shell.submit(exec.clone());
        wait_for("it to begin", || (info(&mut shell.client, &exec.command).stdout_bytes == begun as u64).then_some(()));
        let usual = shell.limit_descriptors(Some(3));
        gate.release();
        wait_for("it to be in trouble", || rig.log().contains("steward: shell main: ").then_some(()));
        shell.limit_descriptors(usual);
        let outcome = shell.end_of(&exec.command);
        assert_eq!(outcome.stdout.len(), 1_000_000 + begun);
        is_pattern(&outcome.stdout[begun..], 0);
    }
}
