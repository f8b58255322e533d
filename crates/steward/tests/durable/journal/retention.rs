//! Limits: the oldest finished output goes first, what runs never does, and who asks for what is gone is told.

use super::{info, is_pattern, printing, ran, read};
use crate::rig::{Gate, Rig, TestShell, seen, wait_for};
use stead_model::ids::CommandId;
use stead_model::proto::{Exec, Fault, FaultCode, ListCommands, Reply, Request, Stats};
use stead_steward::client::{Client, ClientError, Told};

const LIMIT: u64 = 3_000_000;
/// Two of these and the log itself fit, three don't.
const SIZE: u64 = 1_000_000;

fn limited() -> Rig {
    Rig::with_flags(&["--journal-limit", "3000000"])
}

fn stats(client: &mut Client) -> Stats {
    match client.request(&Request::Stats).unwrap() {
        Reply::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn fault<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Fault {
    match result {
        Err(ClientError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn evicted(shell: &mut TestShell, commands: &[CommandId]) -> Vec<bool> {
    commands.iter().map(|command| info(&mut shell.client, command).evicted).collect()
}

#[test]
fn the_oldest_finished_output_goes_first_and_its_reader_is_told_from_where_there_is_some() {
    let rig = limited();
    let mut shell = rig.shell();
    let commands: Vec<CommandId> = (0..6).map(|_| ran(&mut shell, &printing(SIZE))).collect();
    wait_for("room to be made", || (stats(&mut shell.client).journal_bytes <= LIMIT).then_some(()));
    assert_eq!(stats(&mut shell.client).journal_limit, LIMIT);
    assert_eq!(evicted(&mut shell, &commands), [true, true, true, true, false, false]);
    let earliest = info(&mut shell.client, &commands[4]).number;
    for gone in &commands[..4] {
        let by_reading = fault(read(&mut shell.client, gone, 0, 10));
        let by_following = fault(shell.client.follow_from(gone, 0, false, &mut |_| {}));
        for fault in [by_reading, by_following] {
            assert_eq!((fault.code, fault.earliest), (FaultCode::Gone, Some(earliest)));
        }
        // How it ended is still known.
        let info = info(&mut shell.client, gone);
        assert_eq!((info.stdout_bytes, info.ending.unwrap().exit_code), (SIZE, Some(0)));
    }
    for kept in &commands[4..] {
        let (bytes, total) = read(&mut shell.client, kept, 0, SIZE).unwrap();
        assert_eq!((bytes.len() as u64, total), (SIZE, SIZE));
        is_pattern(&bytes, 0);
    }
    let on_disk = std::fs::read_dir(rig.path().join("journal/1"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".out"));
    assert_eq!(on_disk.count(), 2, "files of what is gone are still there");
}

#[test]
fn what_is_gone_stays_gone_over_a_restart() {
    let rig = limited();
    let mut shell = rig.shell();
    let commands: Vec<CommandId> = (0..4).map(|_| ran(&mut shell, &printing(SIZE))).collect();
    wait_for("room to be made", || (stats(&mut shell.client).journal_bytes <= LIMIT).then_some(()));
    let (before, steward) = (evicted(&mut shell, &commands), rig.steward_pid());
    crate::rig::kill(steward);
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    shell.client = rig.client();
    assert_eq!(evicted(&mut shell, &commands), before);
    assert_eq!(fault(read(&mut shell.client, &commands[0], 0, 10)).code, FaultCode::Gone);
    is_pattern(&read(&mut shell.client, &commands[3], 0, SIZE).unwrap().0, 0);
}

#[test]
fn output_of_what_still_runs_is_never_removed_however_much_it_is() {
    let rig = limited();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    // More than the limit by itself.
    let running = shell.exec(format!("{}; {}; echo last", printing(2 * LIMIT), gate.wait()));
    shell.submit(running.clone());
    wait_for("all of its output", || {
        (info(&mut shell.client, &running.command).stdout_bytes == 2 * LIMIT).then_some(())
    });
    let mut other = rig.shell_named("other");
    // Nobody follows these: each goes as soon as it has ended.
    let commands: Vec<CommandId> = (0..4)
        .map(|_| {
            let exec = other.exec(printing(SIZE));
            other.submit(exec).command
        })
        .collect();
    wait_for("all the others to be gone", || {
        evicted(&mut other, &commands).into_iter().all(|evicted| evicted).then_some(())
    });
    let mut at = 0;
    while at < 2 * LIMIT {
        let (bytes, total) = read(&mut shell.client, &running.command, at, SIZE).unwrap();
        assert!(!bytes.is_empty() && total == 2 * LIMIT, "{total} bytes are left");
        is_pattern(&bytes, at);
        at += bytes.len() as u64;
    }
    assert!(!info(&mut shell.client, &running.command).evicted);
    gate.release();
    // Now it is finished, and it is too much.
    wait_for("it to be removed in its turn", || info(&mut shell.client, &running.command).evicted.then_some(()));
    assert_eq!(seen(&shell.run("echo goes on")), (Some(0), "goes on\n".to_owned(), String::new()));
}

#[test]
fn whoever_follows_a_command_hears_it_to_its_end_before_it_is_removed() {
    let rig = limited();
    let mut shell = rig.shell();
    // More than the limit by itself, so it has to go the moment it has ended.
    let exec = shell.exec(format!("{}; (exit 4)", printing(2 * LIMIT)));
    let outcome = shell.client.exec(exec);
    let outcome = outcome
        .unwrap_or_else(|error| panic!("the result was removed before the one who waited for it had it: {error:?}"));
    assert_eq!((crate::rig::code(&outcome), outcome.stdout.len() as u64), (Some(4), 2 * LIMIT));
    is_pattern(&outcome.stdout, 0);
}

#[test]
fn output_that_a_background_child_may_still_add_to_is_not_removed() {
    let rig = limited();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let held = ran(&mut shell, &format!("{{ {}; echo late; }} & echo now", gate.wait()));
    let commands: Vec<CommandId> = (0..4).map(|_| ran(&mut shell, &printing(SIZE))).collect();
    wait_for("room to be made", || (stats(&mut shell.client).journal_bytes <= LIMIT).then_some(()));
    assert!(info(&mut shell.client, &commands[0]).evicted && !info(&mut shell.client, &held).evicted);
    gate.release();
    assert_eq!(shell.silence_of(&held).stdout, b"now\nlate\n");
}

#[test]
fn only_so_many_finished_commands_are_remembered() {
    let rig = Rig::with_flags(&["--command-limit", "3"]);
    let mut shell = rig.shell();
    let commands: Vec<CommandId> = (0..8).map(|number| ran(&mut shell, &format!("echo {number}"))).collect();
    let list = Request::Commands(ListCommands { shell: shell.id.clone(), limit: 100, before: None });
    let listed = wait_for("the oldest to be forgotten", || match shell.client.request(&list).unwrap() {
        Reply::Commands(listed) => Some(listed).filter(|listed| listed.len() <= 3),
        other => panic!("{other:?}"),
    });
    let listed: Vec<CommandId> = listed.into_iter().map(|info| info.command).collect();
    assert_eq!(listed, [commands[7].clone(), commands[6].clone(), commands[5].clone()], "newest first");
    assert_eq!(fault(shell.client.request(&Request::Command(commands[4].clone()))).code, FaultCode::NotFound);
    assert_eq!(shell.end_of(&commands[5]).stdout, b"5\n");
}

#[test]
fn a_command_that_somebody_follows_is_remembered_beyond_the_count() {
    let rig = Rig::with_flags(&["--command-limit", "1"]);
    let mut shell = rig.shell();
    let exec = shell.exec(format!("{}; (exit 4)", printing(2 * LIMIT)));
    let command = exec.command.clone();
    let mut others = TestShell { client: rig.client(), id: shell.id.clone() };
    let mut heard = Vec::new();
    let follow = Request::Exec(Box::new(Exec { follow: Some(1 << 20), ..exec }));
    let info = shell.client.follow(&follow, &mut |told| {
        if heard.is_empty() {
            for _ in 0..3 {
                others.run("true");
            }
        }
        if let Told::Output(chunk) = told {
            heard.extend_from_slice(&chunk.bytes);
        }
    });
    let ending = info
        .unwrap_or_else(|error| {
            let shell = &mut others.client;
            panic!("{} bytes heard, then {error:?}; the steward says {:?}", heard.len(), self::info(shell, &command))
        })
        .ending
        .unwrap();
    assert_eq!((ending.exit_code, heard.len() as u64), (Some(4), 2 * LIMIT));
    is_pattern(&heard, 0);
}
