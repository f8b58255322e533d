//! The stored state of a shell whose file was damaged or removed: variables are as a version that was whole had them, and
//! the next command says so.

use super::{Kept, fsck, journal_files};
use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use stead_term::tree::Tree;

const SET: &str = "export A=right; f() { echo a function; }; alias l='echo an alias'; set -o noclobber";
const SHOW: &str = "echo $A; f; alias l; [[ -o noclobber ]] && echo an option";
const SHOWN: &str = "right\na function\nalias l='echo an alias'\nan option\n";

#[derive(Debug, Clone, Copy)]
enum Damage {
    Value,
    Framing,
    Cut,
    Missing,
}

const DAMAGES: [Damage; 4] = [Damage::Value, Damage::Framing, Damage::Cut, Damage::Missing];

impl Damage {
    fn strike(self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        match self {
            Self::Value => {
                let at = bytes.windows(5).position(|window| window == b"right").unwrap();
                bytes[at] ^= 1;
            }
            Self::Framing => bytes[0] ^= 0x20,
            Self::Cut => bytes.truncate(bytes.len() / 2),
            Self::Missing => return std::fs::remove_file(path).unwrap(),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn rig() -> Rig {
    let rig = Rig::with_config("[provider.box]\nkind = 'local'\n", &[]);
    rig.post("/api/threads", &json!({ "id": "t", "provider": "box" })).is(201);
    rig
}

/// The process that keeps the instance of the thread.
fn keeper(rig: &Rig) -> i32 {
    let lease = rig.get("/api/threads/t/lease").is(200);
    let pid = &lease["instance"]["metadata"]["pid"];
    pid.as_str().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{lease}"))
}

fn kill_instance(rig: &Rig) {
    let pid = keeper(rig);
    let start_time = stead_term::proc::stat(pid).unwrap().start_time;
    Tree::of(pid, start_time).kill(Duration::from_secs(20)).unwrap();
}

/// The process that a file of the steward's directory is locked by, or below it: not the keeper, and no shell.
fn steward(rig: &Rig) -> Option<i32> {
    let is_steward = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"run")
    };
    stead_term::proc::children(keeper(rig)).into_iter().find(is_steward)
}

fn kill_steward(rig: &Rig) {
    let pid = wait_for("the steward", || steward(rig));
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    wait_for("the next steward", || steward(rig).filter(|next| *next != pid));
}

fn state_file(rig: &Rig) -> std::path::PathBuf {
    let files = wait_for("one stored state", || Some(journal_files(rig, ".state")).filter(|files| files.len() == 1));
    files.into_iter().next().unwrap()
}

/// Waits until the database has what was answered.
fn wait_for_the_row(rig: &Rig, ended: &Value) {
    wait_for("the version in the database", || {
        let terminal = rig.get("/api/threads/t/terminal").is(200);
        (terminal["version"].as_u64() >= ended["state_version"].as_u64()).then_some(())
    });
}

fn codes(ended: &Value) -> Vec<&str> {
    let warnings = ended["warnings"].as_array().unwrap();
    warnings.iter().map(|warning| warning["code"].as_str().unwrap()).filter(|code| *code != "shell_restarted").collect()
}

#[test]
fn a_damaged_state_of_a_dead_instance_is_taken_from_the_database_with_a_warning() {
    let rig = rig();
    for damage in DAMAGES {
        println!("{damage:?}");
        wait_for_the_row(&rig, &rig.exec("t", SET));
        kill_instance(&rig);
        damage.strike(&state_file(&rig));
        assert_eq!(rig.get("/api/threads/t/terminal").is(200)["env_delta"], json!({ "A": "right" }), "{damage:?}");
        let ended = rig.exec("t", SHOW);
        assert_eq!(ended["stdout"], SHOWN, "{damage:?}: {ended}");
        assert_eq!(codes(&ended), ["state_restored"], "{damage:?}: {ended}");
        // It is whole on the disk again.
        kill_instance(&rig);
        let ended = rig.exec("t", SHOW);
        assert_eq!((&ended["stdout"], codes(&ended)), (&json!(SHOWN), vec![]), "{damage:?}: {ended}");
        // The next round begins with another version.
        rig.exec("t", "B=$RANDOM$RANDOM");
    }
}

#[test]
fn a_damaged_state_under_a_killed_steward_costs_nothing_of_what_the_shell_has() {
    let rig = rig();
    for damage in DAMAGES {
        println!("{damage:?}");
        wait_for_the_row(&rig, &rig.exec("t", SET));
        damage.strike(&state_file(&rig));
        kill_steward(&rig);
        let ended = rig.exec("t", SHOW);
        assert_eq!((&ended["stdout"], codes(&ended)), (&json!(SHOWN), vec!["state_restored"]), "{damage:?}: {ended}");
        kill_instance(&rig);
        let ended = rig.exec("t", SHOW);
        assert_eq!((&ended["stdout"], codes(&ended)), (&json!(SHOWN), vec![]), "{damage:?}: {ended}");
        rig.exec("t", "B=$RANDOM$RANDOM");
    }
}

/// A server that is killed between an answer and its writing leaves a database that doesn't have what was answered last.
#[test]
fn what_only_a_damaged_state_had_is_said_to_be_lost() {
    for (damage, repaired) in DAMAGES.into_iter().flat_map(|damage| [(damage, false), (damage, true)]) {
        println!("{damage:?}, repaired: {repaired}");
        let mut rig = rig();
        wait_for_the_row(&rig, &rig.exec("t", "export A=before"));
        assert!(rig.terminate().success());
        let kept = Kept::of(&rig.data());
        rig.start();
        let last = rig.exec("t", "export A=right; cd /usr");
        wait_for_the_row(&rig, &last);
        kill_instance(&rig);
        rig.kill();
        kept.put_back();
        damage.strike(&state_file(&rig));
        let (code, said) = fsck(&rig, &[]);
        assert!(code == 1 && said.contains("state") && said.contains(".state"), "{code} {said}");
        if repaired {
            let (code, said) = fsck(&rig, &["--repair"]);
            assert!(code == 1 && said.contains("lost ") && said.contains("variables"), "{code} {said}");
            assert_eq!(fsck(&rig, &[]).0, 0);
        }
        rig.start();
        // Nobody takes an older state for the newest.
        let fork = rig.post("/api/threads/t/fork", &json!({ "id": "copy" }));
        fork.fails(500, "damaged");
        let ended = rig.exec("t", "echo $A $PWD");
        assert_eq!((&ended["stdout"], codes(&ended)), (&json!("before /usr\n"), vec!["state_lost"]), "{ended}");
        let message = ended["warnings"][0]["message"].as_str().unwrap();
        assert!(message.contains("variables") && message.contains("version"), "{message}");
        assert!(ended["state_version"].as_u64() > last["state_version"].as_u64(), "{last} {ended}");
        assert_eq!(codes(&rig.exec("t", "true")), Vec::<&str>::new());
        rig.post("/api/threads/t/fork", &json!({ "id": "copy" })).is(201);
    }
}

#[test]
fn fsck_names_a_damaged_state_and_puts_it_right_from_the_database() {
    for damage in DAMAGES {
        let mut rig = rig();
        wait_for_the_row(&rig, &rig.exec("t", SET));
        kill_instance(&rig);
        assert!(rig.terminate().success());
        assert_eq!(fsck(&rig, &[]).0, 0);
        damage.strike(&state_file(&rig));
        let (code, said) = fsck(&rig, &[]);
        assert!(code == 1 && said.contains(".state"), "{damage:?}: {code} {said}");
        let (code, said) = fsck(&rig, &["--repair"]);
        assert!(code == 0 && said.contains("database"), "{damage:?}: {code} {said}");
        assert_eq!(fsck(&rig, &[]).0, 0);
        rig.start();
        let ended = rig.exec("t", SHOW);
        assert_eq!((&ended["stdout"], codes(&ended)), (&json!(SHOWN), vec![]), "{damage:?}: {ended}");
    }
}
