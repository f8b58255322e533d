//! Secrets: in the shell, and on no disk.

use crate::rig::{Gate, Rig, TestShell, kill_both, kill_steward};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stead_model::proto::{Program, Request, Stdin};
use stead_model::state::Bytes;

const VALUE: &str = "s3cr3t-Va1ue";

/// Every file below a directory that has the value in it.
fn found_in(dir: &Path, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for entry in entries.flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(found_in(&path, value));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(value.len()).any(|window| window == value.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[track_caller]
fn nowhere(rig: &Rig, when: &str) {
    assert_eq!(found_in(&rig.path(), VALUE), [""; 0], "{when}");
}

/// Its length proves that it is there, without telling it.
const LENGTH: &str = "printf %s \"${TOKEN-}\" | wc -c";

fn has_it(shell: &mut TestShell) -> bool {
    shell.out(LENGTH).trim() == VALUE.len().to_string()
}

#[test]
fn a_secret_is_in_the_shell_and_on_no_disk_whatever_happens_to_it() {
    let rig = Rig::new();
    // Other tests have the same secret, in directories of their own.
    let meta = std::fs::metadata(rig.path()).unwrap();
    let ours = format!("/dev/shm/stead-{}-{:x}-{:x}", meta.uid(), meta.dev(), meta.ino());
    for program in [Program::Bash, Program::Dash] {
        let mut shell = rig.open(&format!("{program:?}").to_lowercase(), program);
        shell.run("x=1");
        let state = shell.set_secret("TOKEN", 1, Some(VALUE));
        assert_eq!(state.env_delta().get(b"TOKEN".as_slice()), None);
        assert!(has_it(&mut shell));
        assert!(Path::new(&ours).is_dir(), "{ours}");
        nowhere(&rig, "used");
        shell.run("export TOKEN; y=2; export y");
        nowhere(&rig, "captured");
        assert!(shell.state().variables.contains_key(b"y".as_slice()));
        shell.kill();
        assert!(has_it(&mut shell));
        nowhere(&rig, "in another process");
        shell.run("exit 3");
        nowhere(&rig, "dumped at exit");
        assert!(has_it(&mut shell));
        kill_steward(&rig);
        let mut shell = TestShell { client: rig.client(), id: shell.id };
        assert!(has_it(&mut shell));
        shell.kill();
        assert!(has_it(&mut shell), "the keeper had it");
        nowhere(&rig, "with another steward");
        shell.client.request(&Request::RestShell(shell.id.clone())).unwrap();
        assert!(has_it(&mut shell));
        nowhere(&rig, "rested");
        shell.client.request(&Request::CloseShell(shell.id.clone())).unwrap();
        nowhere(&rig, "closed");
    }
    drop(rig);
    assert_eq!(found_in(Path::new(&ours), VALUE), [""; 0]);
}

#[test]
fn with_the_keeper_dead_too_it_is_asked_for_again() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_secret("TOKEN", 4, Some(VALUE));
    assert!(has_it(&mut shell));
    kill_both(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    let told = shell.info().env.unwrap().secrets;
    assert_eq!(
        told.iter().map(|s| (s.name.0.as_slice(), s.revision, s.held)).collect::<Vec<_>>(),
        [(&b"TOKEN"[..], 4, false)]
    );
    shell.set_secret("TOKEN", 4, Some(VALUE));
    assert!(has_it(&mut shell));
    nowhere(&rig, "after both died");
}

#[test]
fn what_holds_the_value_of_one_stays_in_the_shell_and_is_told_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_secret("TOKEN", 1, Some(VALUE));
    let codes = |outcome: stead_steward::client::Outcome| {
        outcome.info.ending.unwrap().warnings.into_iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    let outcome = shell.run("export AUTH=\"Bearer $TOKEN\" KEPT=kept; f() { echo f; }");
    assert_eq!(codes(outcome), ["secret_not_kept"]);
    assert_eq!(codes(shell.run("g() { :; }")), [""; 0]);
    assert_eq!(shell.out("printf %s \"$AUTH\" | wc -c").trim(), (VALUE.len() + 7).to_string());
    nowhere(&rig, "held by another variable");
    shell.kill();
    assert_eq!(shell.out("echo ${AUTH-gone} $KEPT; f"), "gone kept\nf\n");
}

#[test]
fn one_that_a_command_unset_stays_so_until_it_is_set_again() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_secret("TOKEN", 1, Some(VALUE));
    shell.run("unset TOKEN");
    shell.kill();
    assert_eq!(shell.out("echo ${TOKEN-gone}"), "gone\n");
    shell.set_secret("TOKEN", 2, Some(VALUE));
    assert!(has_it(&mut shell));
    shell.run("export TOKEN=another");
    assert_eq!(shell.out("echo $TOKEN"), "another\n");
    assert!(!shell.state().variables.contains_key(b"TOKEN".as_slice()), "whatever its value, it is a secret");
    shell.set_secret("TOKEN", 2, None);
    assert_eq!(shell.out("echo ${TOKEN-gone}"), "gone\n");
    shell.run("export TOKEN=plain");
    assert!(shell.state().variables.contains_key(b"TOKEN".as_slice()), "and then it is none any more");
    nowhere(&rig, "after all that");
}

#[test]
fn one_set_while_a_command_runs_is_there_for_the_next_and_outlives_the_steward() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let mut gate = Gate::new(&rig, "gate");
    let first = shell.exec(format!("{}; export here=${{TOKEN-no}}", gate.wait()));
    let (one, second) = (first.command.clone(), shell.exec(LENGTH));
    let two = second.command.clone();
    shell.submit(first);
    shell.submit(second);
    shell.set_secret("TOKEN", 1, Some(VALUE));
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    gate.release();
    shell.end_of(&one);
    assert_eq!(String::from_utf8_lossy(&shell.end_of(&two).stdout).trim(), VALUE.len().to_string());
    assert_eq!(shell.out("echo $here"), "no\n");
    nowhere(&rig, "set while busy");
}

#[test]
fn a_trace_does_not_tell_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let trace = rig.scratch().join("trace");
    shell.run(format!("exec 7>'{}'; BASH_XTRACEFD=7; set -x", trace.display()));
    shell.set_secret("TOKEN", 1, Some(VALUE));
    shell.run("echo \"${#TOKEN}\"");
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("+ echo 12") && !trace.contains(VALUE), "{trace}");
}

#[test]
fn a_command_that_names_the_value_is_run_as_it_is_and_written_down_without_it() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.set_secret("TOKEN", 1, Some(VALUE));
    let mut gate = Gate::new(&rig, "gate");
    let first = shell.exec(format!("{}; : {VALUE}", gate.wait()));
    let mut second = shell.exec(format!("[ \"$TOKEN\" = '{VALUE}' ] && [ \"$IT\" = '{VALUE}' ] && wc -c"));
    second.env.push((Bytes::from("IT"), Bytes::from(VALUE)));
    second.stdin = Stdin::Bytes(Bytes::from(VALUE));
    let (one, two) = (first.command.clone(), second.command.clone());
    shell.submit(first);
    shell.submit(second.clone());
    nowhere(&rig, "running and queued");
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    nowhere(&rig, "with another steward");
    gate.release();
    shell.end_of(&one);
    assert_eq!(String::from_utf8_lossy(&shell.end_of(&two).stdout).trim(), VALUE.len().to_string());
    assert_eq!(shell.run_exec(second).info.command, two, "the same again is the same");
    nowhere(&rig, "ended");
}
