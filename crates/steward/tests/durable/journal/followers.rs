//! Order, and what comes when the command is over.

use super::info;
use crate::rig::{Gate, Rig, TestShell, kill_steward, seen, wait_for};
use std::time::{Duration, Instant};
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{Cancel, Event, FirstSignal, Follow, Request};
use stead_steward::client::Told;
use stead_steward::past::{self, PastEvent};

#[test]
fn the_order_across_both_streams_is_the_order_in_which_they_were_seen() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let steps = [('o', 3), ('e', 1), ('e', 2), ('o', 5), ('e', 4), ('o', 1), ('o', 2), ('e', 7)];
    let step = |(at, (stream, size)): (usize, &(char, usize))| {
        let to = if *stream == 'o' { "" } else { " >&2" };
        format!("printf %s '{}'{to}; {}", at.to_string().repeat(*size), gate.wait())
    };
    let text: Vec<String> = steps.iter().enumerate().map(step).collect();
    let exec = shell.exec(text.join("\n"));
    let command = exec.command.clone();
    shell.submit(exec);
    let mut bytes = (0, 0);
    for (stream, size) in steps {
        *(if stream == 'o' { &mut bytes.0 } else { &mut bytes.1 }) += size as u64;
        wait_for("what was written to be in the journal", || {
            let info = info(&mut shell.client, &command);
            ((info.stdout_bytes, info.stderr_bytes) == bytes).then_some(())
        });
        gate.release();
    }
    let (mut heard, mut times) = (Vec::new(), Vec::new());
    shell
        .client
        .follow_from(&command, 0, false, &mut |told| {
            if let Told::Output(chunk) = told {
                times.push(chunk.at);
                heard.push((
                    if chunk.stream == Stream::Stdout { 'o' } else { 'e' },
                    String::from_utf8(chunk.bytes).unwrap(),
                ));
            }
        })
        .unwrap();
    let expected: Vec<_> =
        steps.iter().enumerate().map(|(at, (stream, size))| (*stream, at.to_string().repeat(*size))).collect();
    assert_eq!(heard, expected);
    assert!(times.is_sorted(), "time stamps go back: {times:?}");
}

#[test]
fn late_output_is_kept_marked_and_told_until_the_last_child_is_gone() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let text = format!("{{ {0}; echo late out; {0}; echo late err >&2; }} & echo now", gate.wait());
    let exec = shell.exec(text);
    let command = exec.command.clone();
    shell.submit(exec);
    let mut other = rig.client();
    let mut told_of = Vec::new();
    // The follower lets the child go on only when it has heard of the end: what follows is told as it happens.
    let follow = Request::Follow(Follow {
        command: command.clone(),
        after: 0,
        credit: 1 << 20,
        late: true,
        state: None,
        index: None,
    });
    let last = shell.client.follow(&follow, &mut |told| match told {
        Told::Event(Event::Ended(_)) => {
            let ending = info(&mut other, &command).ending.unwrap();
            told_of.push(format!("ended, open {}", ending.streams_open));
            gate.release();
        }
        Told::Output(chunk) => {
            told_of.push(format!(
                "{} {} {:?}",
                chunk.late,
                String::from_utf8_lossy(&chunk.bytes).trim_end(),
                chunk.stream
            ));
            if chunk.bytes == b"late out\n" {
                gate.release();
            }
        }
        Told::Event(_) => {}
    });
    assert_eq!(told_of, ["false now Stdout", "ended, open true", "true late out Stdout", "true late err Stderr"]);
    assert_eq!((last.unwrap().stdout_bytes, info(&mut other, &command).stderr_bytes), (13, 9));
    // Whoever does not ask for what is late hears the command itself.
    assert_eq!(shell.end_of(&command).stdout, b"now\n");
    assert_eq!(shell.silence_of(&command).stdout, b"now\nlate out\n");
}

#[test]
fn late_output_of_one_command_never_shows_up_in_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let mut commands = Vec::new();
    for number in 0..5 {
        let exec = shell.exec(format!("{{ {}; echo late; }} & echo now {number}", gate.wait()));
        commands.push(exec.command.clone());
        assert_eq!(seen(&shell.run_exec(exec)), (Some(0), format!("now {number}\n"), String::new()));
    }
    for _ in &commands {
        gate.release();
    }
    // An interactive bash may say on standard error that its jobs are done.
    assert_eq!(shell.run("wait; echo mine").stdout, b"mine\n");
    for (number, command) in commands.iter().enumerate() {
        assert_eq!(String::from_utf8(shell.silence_of(command).stdout).unwrap(), format!("now {number}\nlate\n"));
    }
}

#[test]
fn a_command_without_background_children_says_that_nothing_more_will_come() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert!(!shell.run("echo a | cat").info.ending.unwrap().streams_open);
}

/// Follows a command that waits at the gate, which opens when the start is told.
fn started_is_told(rig: &Rig, gate: &mut Gate, command: &CommandId) {
    let mut first = None;
    rig.client()
        .follow_from(command, 0, false, &mut |told| {
            if first.is_none() {
                gate.release();
                first = Some(told);
            }
        })
        .unwrap();
    assert!(matches!(first, Some(Told::Event(Event::Started(_)))), "{first:?}");
}

#[test]
fn whoever_comes_late_to_a_silent_command_is_told_at_once_that_it_has_started() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let silent = shell.exec(gate.wait());
    let submitted = Instant::now();
    shell.submit(silent.clone());
    // Those who were there from the beginning have been told by then.
    wait_for("a while to pass", || (submitted.elapsed() > Duration::from_millis(50)).then_some(()));
    started_is_told(&rig, &mut gate, &silent.command);
}

#[test]
fn whoever_comes_to_a_silent_command_of_a_killed_steward_is_told_at_once_that_it_has_started() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let silent = shell.exec(gate.wait());
    shell.submit(silent.clone());
    kill_steward(&rig);
    started_is_told(&rig, &mut gate, &silent.command);
}

/// What is told of a command, by name and number, from the steward and from its journal.
fn sequence(rig: &Rig, command: &CommandId) -> Vec<(&'static str, u64)> {
    let mut told = Vec::new();
    rig.client()
        .follow_from(command, 0, false, &mut |event| {
            told.push(match event {
                Told::Event(Event::Queued(at)) => ("queued", at.seq),
                Told::Event(Event::Started(at)) => ("started", at.seq),
                Told::Event(Event::Ended(at)) => ("ended", at.seq),
                Told::Output(chunk) => ("output", chunk.seq),
                other @ Told::Event(_) => panic!("{other:?}"),
            });
        })
        .unwrap();
    let shell = ShellId::parse("main").unwrap();
    let past = past::command(&rig.path(), &shell, command).unwrap().unwrap();
    let noted = past.events.iter().map(|event| match event {
        PastEvent::Queued { seq, .. } => ("queued", *seq),
        PastEvent::Started { seq, .. } => ("started", *seq),
        PastEvent::Output(chunk) => ("output", chunk.seq),
        PastEvent::Ended { seq, .. } => ("ended", *seq),
    });
    assert_eq!(noted.collect::<Vec<_>>(), told, "the journal tells it otherwise");
    assert_eq!(past.info.last_seq, told.last().unwrap().1);
    told
}

#[test]
fn a_command_that_had_to_wait_says_so_first_and_its_numbers_have_no_holes_whatever_dies() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let first = shell.exec(gate.wait());
    let second = shell.exec("echo second");
    let third = shell.exec("echo never");
    let [first, second, third] = [first, second, third].map(|exec| shell.submit(exec).command);
    let cancel = Cancel { command: third.clone(), first: FirstSignal::Interrupt };
    shell.client.request(&Request::Cancel(cancel)).unwrap();
    assert_eq!(shell.command(&second).last_seq, 1);
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    assert_eq!(shell.command(&second).last_seq, 1);
    // Whoever waits hears that it waits.
    let mut heard = Vec::new();
    rig.client()
        .follow_from(&second, 0, false, &mut |told| {
            if heard.is_empty() {
                gate.release();
            }
            heard.push(told.seq());
        })
        .unwrap();
    assert_eq!(heard, [Some(1), Some(2), Some(3), Some(4)]);
    for _ in 0..2 {
        assert_eq!(sequence(&rig, &first), [("started", 1), ("ended", 2)]);
        assert_eq!(sequence(&rig, &second), [("queued", 1), ("started", 2), ("output", 3), ("ended", 4)]);
        assert_eq!(sequence(&rig, &third), [("queued", 1), ("ended", 2)]);
        kill_steward(&rig);
    }
}

#[test]
fn who_asks_for_the_index_hears_where_the_same_bytes_lie() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = shell.exec("printf one; printf two >&2; head -c 3000000 /dev/zero | tr '\\0' x; echo end");
    let command = exec.command.clone();
    shell.run_exec(exec);
    let mut sent = [Vec::new(), Vec::new()];
    let mut order = Vec::new();
    shell
        .client
        .follow_from(&command, 0, false, &mut |told| {
            if let Told::Output(chunk) = told {
                order.push((chunk.seq, chunk.offset, chunk.bytes.len() as u64));
                sent[usize::from(chunk.stream == Stream::Stderr)].extend(chunk.bytes);
            }
        })
        .unwrap();
    let follow = Follow { command, after: 0, credit: 64 << 20, late: false, state: None, index: Some(true) };
    let mut found = [Vec::new(), Vec::new()];
    let mut places = Vec::new();
    let told = &mut |told| match told {
        Told::Event(Event::Piece(piece)) => {
            places.push((piece.seq, piece.offset, piece.length));
            let file = stead_steward::past::stream(&rig.path(), piece.key, piece.number, piece.stream).unwrap();
            let mut bytes = vec![0; usize::try_from(piece.length).unwrap()];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, piece.offset).unwrap();
            found[usize::from(piece.stream == Stream::Stderr)].extend(bytes);
        }
        Told::Output(_) => panic!("bytes were sent"),
        Told::Event(_) => {}
    };
    shell.client.follow(&Request::Follow(follow), told).unwrap();
    assert_eq!((places, found == sent), (order, true));
}
