//! Standard input of a command: nothing, bytes given with it, or a pipe that is written to as it runs.

use crate::rig::{Gate, Rig, TestShell, fate, fresh_id, kill_steward, seen, wait_for};
use stead_model::ids::CommandId;
use stead_model::proto::{Ending, FaultCode, Reply, Request, Status, Stdin, StdinBytes};
use stead_model::state::Bytes;
use stead_steward::client::{Client, ClientError, Outcome};

fn run_with(shell: &mut TestShell, text: &str, stdin: Stdin) -> Outcome {
    let mut exec = shell.exec(text);
    exec.stdin = stdin;
    shell.run_exec(exec)
}

fn submit_with(shell: &mut TestShell, text: &str, stdin: Stdin) -> CommandId {
    let mut exec = shell.exec(text);
    exec.stdin = stdin;
    shell.submit(exec).command
}

fn bytes(bytes: impl AsRef<[u8]>) -> Stdin {
    Stdin::Bytes(Bytes::from(&bytes))
}

fn write(client: &mut Client, command: &CommandId, bytes: impl AsRef<[u8]>) -> Result<Reply, ClientError> {
    client.request(&Request::Stdin(StdinBytes {
        command: command.clone(),
        bytes: Bytes::from(&bytes),
        eof: false,
        offset: None,
    }))
}

fn write_last(client: &mut Client, command: &CommandId, bytes: impl AsRef<[u8]>) -> Result<Reply, ClientError> {
    client.request(&Request::Stdin(StdinBytes {
        command: command.clone(),
        bytes: Bytes::from(&bytes),
        eof: true,
        offset: None,
    }))
}

#[track_caller]
fn fault(result: Result<Reply, ClientError>) -> Option<FaultCode> {
    result.unwrap_err().fault()
}

fn wait_for_output(shell: &mut TestShell, command: &CommandId, bytes: u64) {
    wait_for("output", || Some(shell.command(command)).filter(|info| info.stdout_bytes >= bytes));
}

#[test]
fn without_being_asked_for_it_is_empty() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.out("cat; wc -c; readlink /proc/self/fd/0"), "0\n/dev/null\n");
}

#[test]
fn bytes_given_with_the_command_are_read_as_they_are() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let every: Vec<u8> = (0..=255).collect();
    let outcome = run_with(&mut shell, "cat", bytes(&every));
    assert_eq!((fate(&outcome), outcome.stdout), (Ending::new(Status::Exited, Some(0)), every));
    assert_eq!(run_with(&mut shell, "cat; echo end", bytes("")).stdout, b"end\n");
    assert_eq!(run_with(&mut shell, "read -r a; read -r b; echo \"$b $a\"", bytes("1\n2\n3\n")).stdout, b"2 1\n");
}

#[test]
fn bytes_that_nobody_read_do_not_reach_the_next_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    run_with(&mut shell, "read -r first", bytes("one\necho stolen\n"));
    assert_eq!(shell.out("echo $first; cat"), "one\n");
    assert_eq!(run_with(&mut shell, "cat", bytes("fresh\n")).stdout, b"fresh\n");
}

#[test]
fn two_megabytes_given_with_the_command_are_all_there() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(seen(&run_with(&mut shell, "wc -c", bytes(vec![b'x'; 2_000_000]))).1, "2000000\n");
}

#[test]
fn what_is_written_while_it_runs_is_read_in_order_until_it_is_closed() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut writer = rig.client();
    let command = submit_with(&mut shell, "while read -r line; do echo \"got $line\"; done; echo end", Stdin::Open);
    assert_eq!(write(&mut writer, &command, "one\ntw").unwrap(), Reply::Done);
    // It is read as it comes, not when it is closed.
    wait_for_output(&mut shell, &command, 8);
    assert_eq!(write(&mut writer, &command, "o\n").unwrap(), Reply::Done);
    wait_for_output(&mut shell, &command, 16);
    assert_eq!(write_last(&mut writer, &command, "three\n").unwrap(), Reply::Done);
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), "got one\ngot two\ngot three\nend\n".into(), String::new()));
}

#[test]
fn it_can_be_closed_without_a_byte() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = submit_with(&mut shell, "wc -c", Stdin::Open);
    assert_eq!(write_last(&mut shell.client, &command, "").unwrap(), Reply::Done);
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), "0\n".into(), String::new()));
}

#[test]
fn what_was_written_and_closed_before_the_shell_came_to_open_it_is_read() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    // Stopped, it can't have opened anything when the input is closed behind the last byte.
    stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    let command = submit_with(&mut shell, "cat; echo end", Stdin::Open);
    write_last(&mut shell.client, &command, "early\n").unwrap();
    stead_term::proc::signal(pid, rustix::process::Signal::CONT);
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), "early\nend\n".into(), String::new()));
}

#[test]
fn it_can_be_written_on_the_connection_that_follows_the_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut exec = shell.exec("cat");
    exec.stdin = Stdin::Open;
    exec.follow = Some(1 << 20);
    let command = exec.command.clone();
    let followed = shell.client.send(&Request::Exec(Box::new(exec))).unwrap();
    let stdin = StdinBytes { command, bytes: "over the same wire".into(), eof: true, offset: None };
    shell.client.send(&Request::Stdin(stdin)).unwrap();
    let mut output = Vec::new();
    let reply = shell.client.receive(followed, &mut |told| {
        if let stead_steward::client::Told::Output(chunk) = told {
            output.extend_from_slice(&chunk.bytes);
        }
    });
    let Reply::Command(info) = reply.unwrap() else { panic!("not the command") };
    assert_eq!((info.ending.unwrap().exit_code, output.as_slice()), (Some(0), b"over the same wire".as_slice()));
}

#[test]
fn ten_megabytes_go_through_as_fast_as_they_are_read() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = submit_with(&mut shell, "wc -c", Stdin::Open);
    let mut writer = rig.client();
    for _ in 0..40 {
        write(&mut writer, &command, vec![b'x'; 250_000]).unwrap();
    }
    write_last(&mut writer, &command, "").unwrap();
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), "10000000\n".into(), String::new()));
}

#[test]
fn a_writer_waits_for_a_reader_that_does_not_read_yet() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let command = submit_with(&mut shell, &format!("({}) ; cksum", gate.wait()), Stdin::Open);
    // More than a pipe holds: the answer can't come before the command reads.
    let stdin = StdinBytes { command: command.clone(), bytes: Bytes(vec![b'y'; 1_000_000]), eof: true, offset: None };
    let mut writer = rig.client();
    let waiting = writer.send(&Request::Stdin(stdin)).unwrap();
    // The steward serves others in the meantime.
    assert_eq!(rig.shell_named("other").out("echo served"), "served\n");
    gate.release();
    assert_eq!(writer.receive(waiting, &mut |_| {}).unwrap(), Reply::Done);
    let expected = rig.shell_named("other").out("head -c 1000000 /dev/zero | tr '\\0' y | cksum");
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), expected, String::new()));
}

#[test]
fn a_command_that_ends_without_reading_answers_who_still_waits_to_write() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let command = submit_with(&mut shell, &format!("({}); echo bored", gate.wait()), Stdin::Open);
    let mut writer = rig.client();
    let stdin = StdinBytes { command: command.clone(), bytes: Bytes(vec![b'y'; 1_000_000]), eof: false, offset: None };
    let waiting = writer.send(&Request::Stdin(stdin)).unwrap();
    // Asked on the same connection, so the steward has read the one before.
    writer.request(&Request::Stats).unwrap();
    gate.release();
    assert_eq!(seen(&shell.end_of(&command)), (Some(0), "bored\n".into(), String::new()));
    assert_eq!(fault(writer.receive(waiting, &mut |_| {})), Some(FaultCode::Conflict));
    assert_eq!(shell.out("cat; echo next"), "next\n");
}

#[test]
fn a_command_whose_input_is_not_open_can_not_be_written_to() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    for stdin in [Stdin::Empty, bytes("given")] {
        let command = submit_with(&mut shell, &gate.wait(), stdin);
        assert_eq!(fault(write(&mut shell.client, &command, "x")), Some(FaultCode::Conflict));
        gate.release();
        shell.end_of(&command);
    }
}

#[test]
fn an_input_that_was_closed_can_not_be_written_to() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let command = submit_with(&mut shell, &format!("cat; {}", gate.wait()), Stdin::Open);
    write_last(&mut shell.client, &command, "all\n").unwrap();
    assert_eq!(fault(write(&mut shell.client, &command, "more")), Some(FaultCode::Conflict));
    gate.release();
    assert_eq!(seen(&shell.end_of(&command)).1, "all\n");
}

#[test]
fn a_command_that_has_ended_or_never_was_can_not_be_written_to() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = run_with(&mut shell, "true", Stdin::Open).info.command;
    assert_eq!(fault(write(&mut shell.client, &command, "x")), Some(FaultCode::Conflict));
    assert_eq!(fault(write(&mut shell.client, &fresh_id(), "x")), Some(FaultCode::NotFound));
}

#[test]
fn an_input_left_open_does_not_hold_a_command_that_does_not_read() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(seen(&run_with(&mut shell, "echo done", Stdin::Open)), (Some(0), "done\n".into(), String::new()));
    assert_eq!(shell.out("cat"), "");
}

fn write_at(client: &mut Client, command: &CommandId, offset: u64, bytes: &[u8]) -> Result<Reply, ClientError> {
    let stdin = StdinBytes { command: command.clone(), bytes: Bytes::from(&bytes), eof: false, offset: Some(offset) };
    client.request(&Request::Stdin(stdin))
}

/// Whoever was cut off says it again from where it likes, and no byte is read twice.
#[test]
fn bytes_that_are_sent_with_their_place_arrive_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = submit_with(&mut shell, "cat", Stdin::Open);
    write_at(&mut shell.client, &command, 0, b"one two").unwrap();
    write_at(&mut shell.client, &command, 0, b"one two").unwrap();
    write_at(&mut shell.client, &command, 4, b"two three").unwrap();
    write_at(&mut shell.client, &command, 2, b"e").unwrap();
    assert_eq!(fault(write_at(&mut shell.client, &command, 14, b"hole")), Some(FaultCode::Conflict));
    let last = StdinBytes { command: command.clone(), bytes: Bytes::from("!"), eof: true, offset: Some(13) };
    shell.client.request(&Request::Stdin(last)).unwrap();
    assert_eq!(shell.end_of(&command).stdout, b"one two three!");
}

#[test]
fn bytes_with_their_place_and_without_do_not_mix() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = submit_with(&mut shell, "cat", Stdin::Open);
    write(&mut shell.client, &command, "x").unwrap();
    assert_eq!(fault(write_at(&mut shell.client, &command, 0, b"y")), Some(FaultCode::Conflict));
    write_last(&mut shell.client, &command, "").unwrap();
    assert_eq!(shell.end_of(&command).stdout, b"x");
}

/// More than a pipe holds, to a reader that is slow, with a steward that dies again and again in the middle of it.
#[test]
fn placed_bytes_outlive_the_steward_and_arrive_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let all: Vec<u8> = (0..400_000_u32).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let slow = "while IFS= read -r -d '' -n 60000 part; do printf %s \"$part\"; read -r -t 0.01 _ </dev/tty; done; printf %s \"$part\"";
    let command = submit_with(&mut shell, slow, Stdin::Open);
    wait_for("it to run", || (shell.command(&command).status == Status::Running).then_some(()));
    let mut sent = 0;
    let mut kills = 0;
    while sent < all.len() {
        let to = (sent + 300_000).min(all.len());
        let chunk = &all[sent..to];
        if kills < 6 {
            // The answer is never waited for: nobody knows how much of it arrived.
            let stdin = StdinBytes {
                command: command.clone(),
                bytes: Bytes::from(&chunk),
                eof: false,
                offset: Some(sent as u64),
            };
            let _ = shell.client.send(&Request::Stdin(stdin));
            kill_steward(&rig);
            kills += 1;
            shell.client = rig.client();
        }
        write_at(&mut shell.client, &command, sent as u64, chunk).unwrap();
        sent = to;
    }
    let last = StdinBytes { command: command.clone(), bytes: Bytes::from(""), eof: true, offset: Some(sent as u64) };
    shell.client.request(&Request::Stdin(last)).unwrap();
    let outcome = shell.end_of(&command);
    assert!(outcome.stdout == all, "{} bytes of {}", outcome.stdout.len(), all.len());
}

fn write_end(client: &mut Client, command: &CommandId, offset: u64, bytes: &[u8]) -> Result<Reply, ClientError> {
    let stdin = StdinBytes { command: command.clone(), bytes: Bytes::from(&bytes), eof: true, offset: Some(offset) };
    client.request(&Request::Stdin(stdin))
}

/// Whoever doesn't know whether the end has arrived says it again, also to another steward.
#[test]
fn the_end_of_placed_bytes_can_be_sent_again() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let command = submit_with(&mut shell, &format!("cat; {}", gate.wait()), Stdin::Open);
    assert_eq!(write_at(&mut shell.client, &command, 0, b"one ").unwrap(), Reply::Taken(4));
    assert_eq!(write_at(&mut shell.client, &command, 0, b"on").unwrap(), Reply::Taken(4));
    for _ in 0..2 {
        assert_eq!(write_end(&mut shell.client, &command, 2, b"e two").unwrap(), Reply::Taken(7));
    }
    kill_steward(&rig);
    shell.client = rig.client();
    assert_eq!(write_end(&mut shell.client, &command, 4, b"two").unwrap(), Reply::Taken(7));
    assert_eq!(fault(write_at(&mut shell.client, &command, 7, b"!")), Some(FaultCode::Conflict), "behind the end");
    assert_eq!(fault(write(&mut shell.client, &command, "x")), Some(FaultCode::Conflict));
    gate.release();
    assert_eq!(shell.end_of(&command).stdout, b"one two");
}

#[test]
fn a_gap_is_refused_with_the_place_at_which_to_go_on() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let command = submit_with(&mut shell, "cat", Stdin::Open);
    write_at(&mut shell.client, &command, 0, b"abc").unwrap();
    let Err(ClientError::Fault(gap)) = write_at(&mut shell.client, &command, 5, b"hole") else { panic!("no fault") };
    assert_eq!((gap.code, gap.expected), (FaultCode::Conflict, Some(3)));
    write_end(&mut shell.client, &command, 3, b"d").unwrap();
    assert_eq!(shell.end_of(&command).stdout, b"abcd");
}

#[test]
fn a_command_that_waits_for_its_turn_can_be_written_to_when_it_runs() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let before = submit_with(&mut shell, &gate.wait(), Stdin::Empty);
    let command = submit_with(&mut shell, "cat", Stdin::Open);
    assert_eq!(fault(write_at(&mut shell.client, &command, 0, b"x")), Some(FaultCode::Busy));
    gate.release();
    shell.end_of(&before);
    wait_for("it to run", || (shell.command(&command).status == Status::Running).then_some(()));
    write_end(&mut shell.client, &command, 0, b"x").unwrap();
    assert_eq!(shell.end_of(&command).stdout, b"x");
}
