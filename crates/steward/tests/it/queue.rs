//! One command at a time in each shell, in order of arrival; at most once for each id.

use crate::rig::{Gate, Rig, TestShell, code, fate, seen, wait_for};
use stead_model::ids::CommandId;
use stead_model::proto::{
    Cancel, CommandInfo, Ending, Exec, FaultCode, FirstSignal, IfBusy, ListCommands, MAX_QUEUE, Reply, Request, Status,
};

fn cancel(shell: &mut TestShell, command: &CommandId) -> CommandInfo {
    match shell
        .client
        .request(&Request::Cancel(Cancel { command: command.clone(), first: FirstSignal::Interrupt }))
        .unwrap()
    {
        Reply::Command(info) => *info,
        other => panic!("{other:?}"),
    }
}

/// A shell that is busy until the gate is opened, and the command that keeps it so.
fn busy(rig: &Rig) -> (TestShell, Gate, CommandId) {
    let mut shell = rig.shell();
    let gate = Gate::new(rig, "gate");
    let exec = shell.exec(gate.wait());
    let holder = shell.submit(exec);
    assert_eq!(holder.status, Status::Running);
    (shell, gate, holder.command)
}

fn submit(shell: &mut TestShell, text: &str) -> CommandInfo {
    let exec = shell.exec(text);
    shell.submit(exec)
}

#[test]
fn commands_run_in_the_order_in_which_they_came() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    let waiting: Vec<_> = (0..10).map(|n| submit(&mut shell, &format!("order=\"$order {n}\"; echo $order"))).collect();
    assert!(waiting.iter().all(|info| info.status == Status::Queued && info.started_at.is_none()));
    assert_eq!(
        (shell.info().queued, waiting.iter().map(|info| info.number).collect::<Vec<_>>()),
        (10, (2..=11).collect())
    );
    gate.release();
    let last = shell.end_of(&waiting[9].command);
    assert_eq!(last.stdout, b"0 1 2 3 4 5 6 7 8 9\n");
    let ended: Vec<_> = waiting.iter().map(|queued| shell.command(&queued.command).ended_at.unwrap()).collect();
    assert!(ended.is_sorted(), "{ended:?}");
}

#[test]
fn commands_of_several_clients_run_in_the_order_in_which_they_came() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    let mut others: Vec<_> = (0..4).map(|_| rig.shell()).collect();
    for n in 0..12 {
        submit(&mut others[n % 4], &format!("order=\"$order {n}\""));
    }
    gate.release();
    assert_eq!(shell.out("echo $order"), "0 1 2 3 4 5 6 7 8 9 10 11\n");
}

#[test]
fn a_busy_shell_does_not_hold_up_another() {
    let rig = Rig::new();
    let (mut shell, mut gate, holder) = busy(&rig);
    let mut other = rig.shell_named("other");
    assert_eq!(other.out("echo free"), "free\n");
    assert_eq!(shell.command(&holder).status, Status::Running);
    gate.release();
    assert_eq!(code(&shell.end_of(&holder)), Some(0));
}

#[test]
fn a_queued_command_that_is_cancelled_never_runs() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    let doomed = submit(&mut shell, "touch ran").command;
    let after = submit(&mut shell, "echo after").command;
    let cancelled = cancel(&mut shell, &doomed);
    assert_eq!(cancelled.ending, Some(Ending::new(Status::Cancelled, Some(-1))));
    assert_eq!((cancelled.status, cancelled.started_at, shell.info().queued), (Status::Cancelled, None, 1));
    gate.release();
    assert_eq!(shell.end_of(&after).stdout, b"after\n");
    assert_eq!(shell.out("ls"), "gate\n");
    assert_eq!(shell.command(&doomed), cancelled);
}

#[test]
fn a_follower_of_a_queued_command_hears_of_its_cancellation() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    let exec = Exec { follow: Some(1000), ..shell.exec("touch ran") };
    let doomed = exec.command.clone();
    let mut follower = rig.client();
    let request = follower.send(&Request::Exec(Box::new(exec))).unwrap();
    wait_for("it to be queued", || (shell.info().queued == 1).then_some(()));
    cancel(&mut shell, &doomed);
    let Reply::Command(heard) = follower.receive(request, &mut |_| {}).unwrap() else { panic!("not the command") };
    assert_eq!((heard.status, heard.ending.unwrap().exit_code), (Status::Cancelled, Some(-1)));
    gate.release();
}

#[test]
fn a_cancelled_command_makes_way_for_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("kept=1");
    let endless = submit(&mut shell, "echo on; sleep 1000").command;
    let next = submit(&mut shell, "echo $kept").command;
    wait_for("it to begin", || (shell.command(&endless).stdout_bytes == 3).then_some(()));
    cancel(&mut shell, &endless);
    assert_eq!(fate(&shell.end_of(&endless)), Ending::new(Status::Cancelled, Some(130)));
    assert_eq!(shell.end_of(&next).stdout, b"1\n");
}

#[test]
fn cancelling_what_has_ended_changes_nothing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let ended = shell.run("(exit 3)").info;
    assert_eq!(cancel(&mut shell, &ended.command), ended);
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn a_command_that_will_not_wait_is_turned_away_from_a_busy_shell() {
    let rig = Rig::new();
    let (mut shell, mut gate, holder) = busy(&rig);
    let impatient = Exec { if_busy: IfBusy::Reject, ..shell.exec("echo mine") };
    assert_eq!(shell.client.exec(impatient.clone()).unwrap_err().fault(), Some(FaultCode::Busy));
    assert_eq!(shell.info().queued, 0);
    gate.release();
    shell.end_of(&holder);
    // Nothing was noted under its id, so it may come again.
    assert_eq!(seen(&shell.run_exec(impatient)), (Some(0), "mine\n".into(), String::new()));
}

#[test]
fn sixty_four_may_wait_and_one_more_is_turned_away() {
    let rig = Rig::new();
    let (mut shell, mut gate, holder) = busy(&rig);
    for _ in 0..MAX_QUEUE {
        submit(&mut shell, "count=$((count + 1))");
    }
    let one_more = shell.exec("echo one more");
    assert_eq!(shell.client.exec(one_more.clone()).unwrap_err().fault(), Some(FaultCode::LimitReached));
    assert_eq!(shell.info().queued, 64);
    gate.release();
    shell.end_of(&holder);
    let again = wait_for("room", || shell.client.exec(one_more.clone()).ok());
    assert_eq!(again.stdout, b"one more\n");
    assert_eq!(shell.out("echo $count"), "64\n");
}

#[test]
fn an_id_that_comes_twice_runs_once_and_has_one_record() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = shell.exec("n=$((n + 1)); echo $n; echo e >&2");
    let first = shell.run_exec(exec.clone());
    assert_eq!(seen(&first), (Some(0), "1\n".into(), "e\n".into()));
    assert_eq!(shell.run_exec(exec.clone()), first);
    assert_eq!(shell.submit(exec.clone()), first.info);
    assert_eq!(rig.client().exec(exec).unwrap(), first);
    assert_eq!(shell.out("echo $n"), "1\n");
}

#[test]
fn an_id_that_comes_again_while_it_waits_or_runs_joins_it() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    let exec = shell.exec("n=$((n + 1)); echo $n");
    let queued = shell.submit(exec.clone());
    assert_eq!(shell.submit(exec.clone()), queued);
    assert_eq!(shell.info().queued, 1);
    gate.release();
    assert_eq!(seen(&shell.run_exec(exec)), (Some(0), "1\n".into(), String::new()));
    assert_eq!(shell.out("echo $n"), "1\n");
}

#[test]
fn an_id_with_another_text_is_a_conflict() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let exec = shell.exec("n=1");
    shell.run_exec(exec.clone());
    let others = [
        Exec { text: "n=2".into(), ..exec.clone() },
        Exec { cwd: Some("/".into()), ..exec.clone() },
        Exec { env: vec![("V".into(), "x".into())], ..exec.clone() },
        Exec { shell: rig.shell_named("other").id, ..exec.clone() },
    ];
    for other in others {
        assert_eq!(shell.client.exec(other.clone()).unwrap_err().fault(), Some(FaultCode::Conflict), "{other:?}");
    }
    assert_eq!(shell.out("echo $n"), "1\n");
}

#[test]
fn the_commands_of_a_shell_are_listed_newest_first() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut ran: Vec<_> = (0..5).map(|n| shell.run(format!("(exit {n})")).info).collect();
    rig.shell_named("other").run("true");
    ran.reverse();
    let list = |shell: &mut TestShell, limit, before| {
        let request = ListCommands { shell: shell.id.clone(), limit, before };
        match shell.client.request(&Request::Commands(request)).unwrap() {
            Reply::Commands(list) => list,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(&mut shell, 100, None), ran);
    assert_eq!(list(&mut shell, 2, None), ran[..2]);
    assert_eq!(list(&mut shell, 2, Some(3)), ran[3..]);
}

#[test]
fn a_queue_goes_on_in_the_shell_that_follows_an_exit() {
    let rig = Rig::new();
    let (mut shell, mut gate, _) = busy(&rig);
    submit(&mut shell, "v=1; exit 5");
    submit(&mut shell, "v=$((v + 1)); kill -9 $$");
    let last = submit(&mut shell, "echo $v").command;
    gate.release();
    assert_eq!(seen(&shell.end_of(&last)), (Some(0), "1\n".into(), String::new()));
}
