//! Commands.

use crate::rig::*;
use stead_model::command::{Command, STATUSES};
use stead_model::lease::Lease;
use stead_model::proto::{Ending, Fault, FaultCode, Status, Warning};
use stead_model::state::Bytes;
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;
use stead_server::store::Page;

on_every_store![
    every_field_of_a_command_comes_back,
    a_taken_command_id_is_refused,
    a_command_of_no_thread_is_refused,
    saving_inserts_and_replaces,
    a_final_record_never_changes_but_for_what_its_children_write,
    one_of_a_deleted_thread_does_not_hold_up_the_others,
    one_of_a_deleted_thread_does_not_turn_up_in_another_of_its_name,
    the_ids_of_a_deleted_thread_are_spent_for_a_day,
    what_is_taken_back_was_never_there,
    many_are_saved_at_once,
    saving_nothing_is_fine,
    open_commands_are_oldest_first,
    commands_of_a_thread_are_paged_newest_first,
];

/// With everything that a command can have.
fn whole(name: &str, status: Status) -> Command {
    let ending = Ending {
        signal: Some(9),
        shell_exited: true,
        oom_killed: Some(true),
        warnings: vec![Warning { code: "w".into(), message: "ä\n".into() }],
        error: Some(Fault::new(FaultCode::Busy, "broke")),
        ..Ending::new(status, Some(-1))
    };
    Command {
        session: Some(session_id("1")),
        instance: Some(instance_id("1")),
        text: Bytes((0..=255).collect()),
        status,
        ending: status.is_final().then_some(ending),
        stdout_bytes: 1 << 40,
        stderr_bytes: 3,
        state_version: 8,
        started_at: Some(at(11)),
        ended_at: status.is_final().then_some(at(12)),
        ..command(name, "a", 10)
    }
}

async fn every_field_of_a_command_comes_back(store: Shared) {
    make_thread(&*store, "a", 1).await;
    for (n, status) in STATUSES.into_iter().enumerate() {
        let (put, saved) = (whole(&format!("put-{n}"), status), whole(&format!("saved-{n}"), status));
        store.put_command(&put).await.unwrap();
        store.save_commands(std::slice::from_ref(&saved)).await.unwrap();
        assert_eq!(store.command(&put.id).await.unwrap(), Some(put));
        assert_eq!(store.command(&saved.id).await.unwrap(), Some(saved));
    }
    assert_eq!(store.command(&command_id("no")).await.unwrap(), None);
}

async fn a_taken_command_id_is_refused(store: Shared) {
    make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    let first = command("1", "a", 1);
    store.put_command(&first).await.unwrap();
    for of in ["a", "b"] {
        assert_refused!(store.put_command(&command("1", of, 2)).await, AlreadyExists, "command", "cmd-1");
    }
    assert_eq!(store.command(&first.id).await.unwrap(), Some(first));
}

async fn a_command_of_no_thread_is_refused(store: Shared) {
    assert_refused!(store.put_command(&command("1", "a", 1)).await, NotFound, "thread", "thr-a");
}

async fn saving_inserts_and_replaces(store: Shared) {
    make_thread(&*store, "a", 1).await;
    store.put_command(&command("1", "a", 1)).await.unwrap();
    let running = Command { stdout_bytes: 7, ..command("1", "a", 1).become_status(Status::Running).unwrap() };
    let new = command("2", "a", 2);
    store.save_commands(&[running.clone(), new.clone()]).await.unwrap();
    assert_eq!(store.commands_of_thread(&thread_id("a"), &Page::all()).await.unwrap(), [new, running.clone()]);
    // Twice in one batch: the later one counts.
    let ended = running.end(Ending::new(Status::Exited, Some(3)), at(9)).unwrap();
    store.save_commands(&[running, ended.clone()]).await.unwrap();
    assert_eq!(store.command(&ended.id).await.unwrap(), Some(ended));
}

async fn a_final_record_never_changes_but_for_what_its_children_write(store: Shared) {
    make_thread(&*store, "a", 1).await;
    for (n, from) in STATUSES.into_iter().enumerate() {
        for (m, to) in STATUSES.into_iter().enumerate() {
            let name = format!("{n}-{m}");
            let mut before = whole(&name, from);
            if let Some(ending) = &mut before.ending {
                ending.streams_open = true;
            }
            // Everything that could be told otherwise is.
            let after = Command {
                session: None,
                instance: Some(instance_id("2")),
                ending: to.is_final().then(|| Ending::new(to, Some(9))),
                stdout_bytes: 1,
                stderr_bytes: 99,
                cwd: Bytes::from("/elsewhere"),
                state_version: 0,
                started_at: None,
                ended_at: to.is_final().then_some(at(77)),
                ..whole(&name, to)
            };
            store.save_commands(std::slice::from_ref(&before)).await.unwrap();
            store.save_commands(std::slice::from_ref(&after)).await.unwrap();
            let expected = before.clone().joined(after.clone());
            assert_eq!(store.command(&expected.id).await.unwrap(), Some(expected.clone()), "{from:?} then {to:?}");
            if from.is_final() {
                assert_eq!((expected.status, expected.state_version, expected.ended_at), (from, 8, Some(at(12))));
                let bytes = if to.is_final() { 99 } else { 3 };
                assert_eq!((expected.stdout_bytes, expected.stderr_bytes), (1 << 40, bytes));
            }
            // In one batch it is the same.
            let (before, after) = (whole(&format!("{name}-b"), from), whole(&format!("{name}-b"), to));
            store.save_commands(&[before.clone(), after.clone()]).await.unwrap();
            let expected = before.joined(after);
            assert_eq!(store.command(&expected.id).await.unwrap(), Some(expected), "{from:?} then {to:?}, at once");
        }
    }
}

async fn one_of_a_deleted_thread_does_not_hold_up_the_others(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let batch = [command("1", "a", 1), command("2", "gone", 1), command("3", "a", 1)];
    store.save_commands(&batch).await.unwrap();
    assert_eq!(store.command(&command_id("2")).await.unwrap(), None);
    assert_eq!(store.open_commands().await.unwrap(), [batch[0].clone(), batch[2].clone()]);
}

async fn one_of_a_deleted_thread_does_not_turn_up_in_another_of_its_name(store: Shared) {
    let (thread, terminal, lease) = make_thread(&*store, "a", 1).await;
    let late = command("1", "a", 1);
    store.delete_thread(&thread.id).await.unwrap();
    let (another, its_lease) = (terminal_id("b"), lease_id("b"));
    let terminal = Terminal { id: another.clone(), lease: its_lease.clone(), ..terminal };
    let thread = Thread { default_terminal: another, lease: its_lease.clone(), ..thread };
    store.create_thread(&thread, &terminal, Some(&Lease { id: its_lease, ..lease })).await.unwrap();
    store.save_commands(std::slice::from_ref(&late)).await.unwrap();
    assert_eq!(store.command(&late.id).await.unwrap(), None);
}

async fn many_are_saved_at_once(store: Shared) {
    make_thread(&*store, "a", 1).await;
    for many in [1, 7, 8, 9, 63, 64, 65, 200] {
        let batch: Vec<_> = (0..many).map(|n| command(&format!("{many}-{n}"), "a", 1)).collect();
        store.save_commands(&batch).await.unwrap();
        for saved in batch {
            assert_eq!(store.command(&saved.id).await.unwrap(), Some(saved), "of {many}");
        }
    }
}

async fn saving_nothing_is_fine(store: Shared) {
    store.save_commands(&[]).await.unwrap();
}

async fn open_commands_are_oldest_first(store: Shared) {
    make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    let of = |name: &str, thread: &str, now: u64, status| Command { status, ..command(name, thread, now) };
    let mut batch: Vec<_> =
        STATUSES.into_iter().enumerate().map(|(n, status)| of(&format!("{n}"), "a", 50, status)).collect();
    batch.push(of("late", "b", 90, Status::Running));
    batch.push(of("early", "b", 0, Status::Queued));
    store.save_commands(&batch).await.unwrap();
    let open: Vec<_> = store.open_commands().await.unwrap().into_iter().map(|command| command.id.to_string()).collect();
    assert_eq!(open, ["cmd-early", "cmd-0", "cmd-1", "cmd-late"]);
}

async fn commands_of_a_thread_are_paged_newest_first(store: Shared) {
    make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    for (name, of, now) in [("1", "a", 10), ("2", "b", 20), ("3", "a", 30), ("4", "a", 30)] {
        store.put_command(&command(name, of, now)).await.unwrap();
    }
    let ids = |commands: Vec<Command>| commands.into_iter().map(|c| c.id.to_string()).collect::<Vec<_>>();
    let of_a = thread_id("a");
    assert_eq!(ids(store.commands_of_thread(&of_a, &first(2)).await.unwrap()), ["cmd-4", "cmd-3"]);
    let rest = Page { limit: 2, after: Some((at(30), "cmd-3".into())) };
    assert_eq!(ids(store.commands_of_thread(&of_a, &rest).await.unwrap()), ["cmd-1"]);
}

async fn the_ids_of_a_deleted_thread_are_spent_for_a_day(store: Shared) {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let (thread, ..) = make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    store.put_command(&command("1", "a", 10)).await.unwrap();
    store.save_commands(&[command("2", "a", 20)]).await.unwrap();
    store.delete_thread(&thread.id).await.unwrap();
    for (name, of, now) in [("1", "b", 11), ("1", "b", 10 + DAY - 1), ("2", "b", 10 + DAY)] {
        let again = store.put_command(&command(name, of, now)).await;
        assert_refused!(again, AlreadyExists, "command of a deleted thread", format!("cmd-{name}"));
    }
    store.put_command(&command("1", "b", 10 + DAY)).await.unwrap();
    // What is forgotten is not what still counts.
    store.forget_spent_commands(at(20 + DAY - 1)).await.unwrap();
    assert!(store.put_command(&command("2", "b", 20 + DAY - 1)).await.is_err());
    store.forget_spent_commands(at(20 + DAY)).await.unwrap();
    store.put_command(&command("2", "b", 21)).await.unwrap();
}

async fn what_is_taken_back_was_never_there(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let (one, begun) = (command("1", "a", 1), command("2", "a", 1).become_status(Status::Running).unwrap());
    store.put_command(&one).await.unwrap();
    store.save_commands(std::slice::from_ref(&begun)).await.unwrap();
    for id in [&one.id, &begun.id, &command_id("none")] {
        store.take_back_command(id).await.unwrap();
    }
    assert_eq!(store.command(&one.id).await.unwrap(), None);
    assert_eq!(store.command(&begun.id).await.unwrap(), Some(begun), "what has begun stays");
    store.put_command(&one).await.unwrap();
}
