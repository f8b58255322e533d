//! Variables set from outside: there before the next command, whatever the shell is doing or suffering.

use crate::rig::{Gate, Rig, TestShell, is_alive, kill_both, kill_steward, wait_for};
use stead_model::proto::{FaultCode, Program, SetEnv};
use stead_model::state::Bytes;

fn shown(shell: &mut TestShell, name: &str) -> Option<String> {
    let delta = shell.state().env_delta();
    let value = delta.get(name.as_bytes())?.as_ref()?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[test]
fn a_variable_is_there_for_the_next_command_and_its_children_and_stays() {
    let rig = Rig::new();
    for program in [Program::Bash, Program::Dash] {
        let mut shell = rig.open(&format!("{program:?}").to_lowercase(), program);
        shell.set_env(1, &[("A", Some("x $y 'z' \"q\" `w` \\ \n\t")), ("HOME", None)]);
        assert_eq!(shell.out("sh -c 'printf %s \"$A\"'"), "x $y 'z' \"q\" `w` \\ \n\t");
        assert_eq!(shell.out("printf %s \"${HOME-gone}\""), "gone");
        assert_eq!(shown(&mut shell, "A").as_deref(), Some("x $y 'z' \"q\" `w` \\ \n\t"));
        assert_eq!(shell.state().env_delta().get(b"HOME".as_slice()), Some(&None));
        shell.kill();
        assert_eq!(shell.out("printf %s \"${A#x } ${HOME-gone}\""), "$y 'z' \"q\" `w` \\ \n\t gone");
    }
}

#[test]
fn it_waits_for_the_running_command_and_goes_before_the_queued_one() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let first = shell.exec(format!("A=mine; export A; {}; echo $A", gate.wait()));
    let (one, second) = (first.command.clone(), shell.exec("echo $A; A=later"));
    let two = second.command.clone();
    shell.submit(first);
    shell.submit(second);
    let state = shell.set_env(1, &[("A", Some("asked"))]);
    assert_eq!(state.env_delta().get(b"A".as_slice()), Some(&Some(Bytes::from("asked"))), "shown at once");
    gate.release();
    assert_eq!(shell.end_of(&one).stdout, b"mine\n", "the one that runs is not disturbed");
    assert_eq!(shell.end_of(&two).stdout, b"asked\n");
    assert_eq!(shell.out("echo $A"), "later\n", "a command that changes it later wins");
    assert_eq!(shown(&mut shell, "A").as_deref(), Some("later"));
}

#[test]
fn a_change_is_taken_once_and_one_without_news_changes_nothing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_env(7, &[("A", Some("1"))]);
    shell.run("A=2");
    let before = shell.stored();
    shell.set_env(7, &[("A", Some("1"))]);
    assert_eq!(shell.stored(), before);
    assert_eq!(shell.out("echo $A"), "2\n");
    shell.set_env(8, &[("A", Some("1"))]);
    assert_eq!(shell.out("echo $A"), "1\n");
}

#[test]
fn what_a_name_was_before_has_no_say() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("declare -i N=3; declare -a L=(1 2); T=target; declare -n R=T; readonly K=kept; set -e -x -u");
    let vars = [("N", Some("1+1")), ("L", Some("l")), ("R", Some("r")), ("K", Some("no")), ("NEW", Some(""))];
    shell.set_env(1, &vars);
    let outcome = shell.run("printf '%s ' \"$N\" \"$L\" \"$R\" \"$T\" \"$K\" \"[$NEW]\"");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "1+1 l r target kept [] ");
    let warnings = outcome.info.ending.unwrap().warnings;
    assert_eq!(warnings.iter().map(|warning| warning.code.as_str()).collect::<Vec<_>>(), ["env_not_set"]);
    assert_eq!(shell.run("echo still").stdout, b"still\n", "`errexit` was not tripped");
}

#[test]
fn background_jobs_and_the_shell_itself_go_on() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("sleep 600 & x=local");
    let pid = shell.pid();
    for seq in 1..=200 {
        shell.set_env(seq, &[("A", Some(&seq.to_string())), ("B", if seq % 2 == 0 { Some("b") } else { None })]);
    }
    assert_eq!(shell.out("echo $A $B $x; jobs | wc -l; kill %1"), "200 b local\n1\n");
    assert_eq!(shell.pid(), pid);
}

#[test]
fn it_outlives_the_death_of_steward_keeper_and_shell_before_the_next_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr; A=old");
    for (seq, who) in [(1, "steward"), (2, "shell"), (3, "both")] {
        shell.set_env(seq, &[("A", Some(who))]);
        match who {
            "steward" => kill_steward(&rig),
            "shell" => shell.kill(),
            _ => kill_both(&rig),
        }
        shell = TestShell { client: rig.client(), id: shell.id };
        assert_eq!(shell.out("echo $A $PWD"), format!("{who} /usr\n"));
        assert_eq!(shell.info().env.unwrap().seq, seq);
    }
}

#[test]
fn one_asked_for_while_a_command_runs_outlives_the_steward_that_heard_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let first = shell.exec(format!("export A=mine; {}", gate.wait()));
    let (one, second) = (first.command.clone(), shell.exec("echo $A"));
    let two = second.command.clone();
    shell.submit(first);
    shell.submit(second);
    shell.set_env(1, &[("A", Some("asked"))]);
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    gate.release();
    assert_eq!(shell.end_of(&one).info.ending.unwrap().exit_code, Some(0));
    assert_eq!(shell.end_of(&two).stdout, b"asked\n");
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    shell.run("A=later");
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    assert_eq!(shell.out("echo $A"), "later\n", "it is not given a second time");
}

#[test]
fn a_resting_shell_has_it_when_it_wakes() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("x=1");
    shell.client.request(&stead_model::proto::Request::RestShell(shell.id.clone())).unwrap();
    shell.set_env(1, &[("A", Some("a"))]);
    assert_eq!(shell.info().pid, None, "and is not woken by it");
    assert_eq!(shell.out("echo $A $x"), "a 1\n");
}

#[test]
fn a_bad_name_among_good_ones_changes_nothing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let before = shell.stored();
    for bad in ["9x", "EUID", "A B", "BASH_ENV"] {
        let vars = vec![(Bytes::from("GOOD"), Some(Bytes::from("1"))), (Bytes::from(bad), None)];
        let refused = shell.put_env(SetEnv { shell: shell.id.clone(), seq: 1, vars, secrets: Vec::new() });
        assert_eq!(refused.unwrap_err().fault(), Some(FaultCode::Invalid), "{bad}");
    }
    assert_eq!(shell.stored(), before);
    assert_eq!(shell.out("echo ${GOOD-none}"), "none\n");
}

#[test]
fn a_shell_that_is_interrupted_by_its_child_gets_it_all_the_same() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("while sleep 0.01; do kill -INT $$; done & x=1");
    for seq in 1..=20 {
        shell.set_env(seq, &[("A", Some(&seq.to_string()))]);
    }
    let pid = shell.pid();
    shell.run("kill -9 %1");
    wait_for("the value", || (shell.run("echo $A").stdout == b"20\n").then_some(()));
    assert!(is_alive(pid));
}

#[test]
fn a_new_log_file_knows_of_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_env(3, &[("A", Some("a"))]);
    shell.set_secret("TOKEN", 5, Some("s3cr3t-Va1ue"));
    // Each fills half of one.
    let long = vec![b'#'; 4 << 20];
    for _ in 0..5 {
        shell.run(long.clone());
    }
    assert!(rig.path().join("journal/1/000002.log").exists());
    // As if the files before had been forgotten.
    std::fs::remove_file(rig.path().join("journal/1/000001.log")).unwrap();
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    let env = shell.info().env.unwrap();
    assert_eq!((env.seq, env.secrets.len(), env.secrets.iter().all(|secret| secret.held)), (3, 1, true));
    shell.kill();
    assert_eq!(shell.out("echo $A ${#TOKEN}"), "a 12\n");
}
