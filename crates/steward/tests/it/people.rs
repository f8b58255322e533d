//! People and agents in one shell.

use super::person::{Person, prompt, shell_and_person};
use super::rig::{Gate, Rig, code, wait_for};
use stead_model::proto::{Detached, Event, Status};

#[test]
fn the_prompt_shows_the_directory_of_the_shell() {
    let rig = Rig::new();
    let shell = rig.shell();
    let mut person = Person::at(&rig, &shell.id);
    person.wait_last(&prompt(&rig));
}

#[test]
fn what_a_person_does_the_agent_sees_and_the_reverse() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    person.press("cd /usr && export BY=person && f() { echo \"from f\"; }\r");
    let seen = "/usr\nperson\nfrom f\n";
    wait_for("the agent to see it", || (shell.run("pwd; echo $BY; f").stdout == seen.as_bytes()).then_some(()));
    shell.out("cd /tmp; BACK=agent");
    person.press("echo $PWD $BACK\r");
    person.wait_line("/tmp agent");
}

#[test]
fn a_line_is_a_command_like_any_other() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    let before = shell.info().state_version;
    person.press("echo out; echo err >&2; false\r");
    person.wait_line("err");
    person.wait_last("$");
    let list = shell.commands();
    let info = &list[0];
    assert_eq!(info.ending.as_ref().unwrap().exit_code, Some(1));
    assert_eq!(info.state_version, before + 1);
    let id = info.command.clone();
    let outcome = shell.end_of(&id);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "out\r\nerr\r\n");
    assert_eq!(code(&outcome), Some(1));
    assert_eq!(shell.run("exit_code=$?; echo $exit_code").stdout, b"1\n");
}

#[test]
fn an_agent_runs_at_once_beside_half_a_line_and_the_half_line_stays() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut person = Person::at(&rig, &shell.id);
    person.wait_last(&prompt(&rig));
    person.press("echo half of");
    person.wait_last(&format!("{} echo half of", prompt(&rig)));
    assert_eq!(shell.out("echo beside"), "beside\n");
    shell.out("cd /usr");
    person.wait_last("/usr # echo half of");
    person.press(" it\r");
    person.wait_line("half of it");
    person.wait_last("/usr #");
}

#[test]
fn an_agent_waits_for_a_persons_program_and_an_interrupt_ends_that() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    person.press("sleep 1000\r");
    wait_for("it to run", || shell.info().running);
    let exec = shell.exec("echo after");
    let id = exec.command.clone();
    assert_eq!(shell.submit(exec).status, Status::Queued);
    person.press("\x03");
    assert_eq!(shell.end_of(&id).stdout, b"after\n");
    person.wait_last("$");
    assert_eq!(shell.commands()[1].ending.as_ref().unwrap().exit_code, Some(130));
}

#[test]
fn an_interrupt_ends_a_loop_of_the_shell_itself() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    person.press("echo go; while :; do :; done\r");
    person.wait_line("go");
    person.press("\x03");
    person.wait_last("$");
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn a_line_waits_for_an_agents_command_and_can_be_taken_back() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    let mut gate = Gate::new(&rig, "gate");
    let exec = shell.exec(gate.wait());
    let id = exec.command.clone();
    shell.submit(exec);
    person.press("echo never\r");
    person.wait_text("waits for it");
    person.press("\x03");
    person.wait_last("$");
    person.press("echo late\r");
    person.wait("the second wait", |person| person.text().matches("waits for it").count() == 2);
    gate.release();
    shell.end_of(&id);
    person.wait_line("late");
    person.wait_last("$");
    assert!(!person.text().lines().any(|line| line == "never"));
}

#[test]
fn history_and_lines_that_go_on() {
    let rig = Rig::new();
    let (_shell, mut person) = shell_and_person(&rig);
    person.press("echo first\r");
    person.wait_line("first");
    person.wait_last("$");
    person.press("for i in a b; do\r");
    person.wait_last(">");
    person.press("echo got $i\r");
    person.wait("another line", |person| person.text().lines().filter(|line| line.starts_with('>')).count() == 2);
    person.press("done\r");
    person.wait_line("got b");
    person.wait_last("$");
    person.press("cat <<END\rhere $HOME\rEND\r");
    person.wait_line("here /root");
    person.wait_last("$");
    person.press("\x1b[A\x1b[A\x1b[A");
    person.wait_last("$ echo first");
    person.press("-again\r");
    person.wait_line("first-again");
}

#[test]
fn keys_behind_enter_go_to_the_program_that_was_started() {
    let rig = Rig::new();
    let (_shell, mut person) = shell_and_person(&rig);
    person.press("read -r x; echo \"got <$x>\"\rtyped ahead\r");
    person.wait_line("got <typed ahead>");
    person.wait_last("$");
    person.press("cat\rone\r\x04echo next\r");
    person.wait_line("next");
}

#[test]
fn an_interrupt_at_the_prompt_drops_the_line() {
    let rig = Rig::new();
    let (_shell, mut person) = shell_and_person(&rig);
    person.press("rm -rf nothing\x03");
    person.wait_line("$ rm -rf nothing^C");
    person.wait_last("$");
    person.press("for x in 1; do\r");
    person.wait_last(">");
    person.press("\x03");
    person.wait_last("$");
}

#[test]
fn job_control_is_as_at_any_terminal() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    person.press("sleep 1000\r");
    wait_for("it to run", || shell.info().running);
    wait_for("sleep to have the terminal", || {
        let pid = shell.pid();
        let children = stead_term::proc::children(pid);
        children.into_iter().find(|child| std::fs::read(format!("/proc/{child}/comm")).is_ok_and(|c| c == b"sleep\n"))
    });
    person.press("\x1a");
    person.wait_text("Stopped");
    person.wait("the shell to be free", |_| shell.info().running.is_none());
    person.press("fg\r");
    wait_for("it to run again", || shell.info().running);
    person.wait_last("sleep 1000");
    person.press("\x03");
    person.wait_last("$");
    person.press("jobs; echo none\r");
    person.wait_line("none");
}

#[test]
fn a_program_has_the_terminal_by_its_name_and_size() {
    let rig = Rig::new();
    let (_shell, mut person) = shell_and_person(&rig);
    person.press("tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all three\r");
    person.wait_line("all three");
    assert!(person.text().contains("/dev/pts/"), "{}", person.text());
    person.wait_line("24 80");
}

#[test]
fn exit_ends_the_shell_and_the_next_has_its_state() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    let pid = shell.pid();
    person.press("cd /usr; export KEPT=yes; exit 7\r");
    person.wait("the end of the shell", |person| {
        person.events.iter().any(|event| matches!(event, Event::ShellEnded(end) if end.exit_code == Some(7)))
    });
    person.wait_last("$");
    assert_eq!(shell.out("echo $KEPT $PWD"), "yes /usr\n");
    assert_ne!(shell.pid(), pid);
    let info = shell.commands().remove(1);
    assert_eq!(info.ending.map(|ending| (ending.exit_code, ending.shell_exited)), Some((Some(7), true)));
    person.press("echo $KEPT again\r");
    person.wait_line("yes again");
}

#[test]
fn end_of_file_at_an_empty_prompt_leaves_the_terminal() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    let mut other = Person::at(&rig, &shell.id);
    other.wait_last("$");
    person.press("\x04");
    assert_eq!(person.wait_left(), Detached::EndOfFile);
    other.press("echo still here\r");
    other.wait_line("still here");
    assert_eq!(shell.out("echo me too"), "me too\n");
}

#[test]
fn a_shell_without_line_editing_has_a_simple_prompt() {
    let rig = Rig::new();
    let mut shell = rig.open("posix", stead_model::proto::Program::Dash);
    let mut person = Person::at(&rig, &shell.id);
    person.wait_last(&format!("{} $", rig.scratch().display()));
    person.press("cd /usr; X=1\r");
    person.wait_last("/usr $");
    assert_eq!(shell.out("echo $PWD $X"), "/usr 1\n");
}
