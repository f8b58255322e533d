//! What an answer has acknowledged is there after anything that may happen right behind it.

use super::kill_shell;
use crate::rig::{Rig, Rng, TestShell, code, kill, kill_steward, rounds, seeds, seen, wait_for};
use std::collections::BTreeMap;

#[test]
fn a_steward_that_finds_a_replaced_shell_goes_on_capturing_its_state() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let pid = shell.pid();
    shell.run("exit");
    wait_for("another process", || shell.info().pid.filter(|now| *now != pid));
    assert_eq!(shell.out("true"), "");
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    let outcome = shell.run("export kept=yes");
    assert!(outcome.info.ending.unwrap().state_changed);
    shell.kill();
    assert_eq!(shell.out("echo $kept"), "yes\n");
}

/// What the shell must be like by all that was acknowledged.
#[derive(Default)]
struct Expected {
    variables: BTreeMap<String, String>,
    functions: BTreeMap<String, String>,
    aliases: BTreeMap<String, String>,
    cwd: String,
    umask: String,
    nounset: bool,
}

impl Expected {
    /// One change, as the text of a command.
    fn mutate(&mut self, rng: &mut Rng, step: u32) -> String {
        let name = format!("n{}", rng.below(4));
        let value = format!("{step} 'q' $x");
        let quoted = String::from_utf8(stead_model::word::quote(value.as_bytes())).unwrap();
        match rng.below(9) {
            0 => {
                self.variables.insert(name.clone(), value);
                format!("{name}={quoted}")
            }
            1 => {
                self.variables.insert(name.clone(), value);
                format!("export {name}={quoted}")
            }
            2 => {
                self.variables.remove(&name);
                format!("unset -v {name}")
            }
            3 => {
                self.functions.insert(name.clone(), step.to_string());
                format!("f_{name}() {{ echo {step}; }}")
            }
            4 => {
                self.aliases.insert(name.clone(), step.to_string());
                format!("alias a_{name}='echo {step}'")
            }
            5 => {
                self.umask = format!("0{}{}", rng.below(8), rng.below(8));
                format!("umask {}", self.umask)
            }
            6 => {
                self.nounset = !self.nounset;
                format!("set {}u", if self.nounset { '-' } else { '+' })
            }
            _ => {
                let dirs = ["/", "/usr", "/usr/bin", "/tmp"];
                dirs[usize::try_from(rng.below(4)).unwrap()].clone_into(&mut self.cwd);
                format!("cd {}", self.cwd)
            }
        }
    }

    #[track_caller]
    fn check(&self, shell: &mut TestShell, what: &str) {
        let look = "for i in 0 1 2 3; do v=n$i; [[ -v $v ]] && echo \"$v=${!v}\"; done; unset v i
            for i in 0 1 2 3; do declare -F f_n$i >/dev/null && { echo -n \"f_n$i \"; f_n$i; }; done; unset i
            alias | sort; pwd; umask; [[ -o nounset ]] && echo nounset; :";
        let mut expected = String::new();
        expected.extend(self.variables.iter().map(|(name, value)| format!("{name}={value}\n")));
        expected.extend(self.functions.iter().map(|(name, value)| format!("f_{name} {value}\n")));
        expected.extend(self.aliases.iter().map(|(name, value)| format!("alias a_{name}='echo {value}'\n")));
        expected.extend([self.cwd.as_str(), "\n0", &self.umask, "\n", if self.nounset { "nounset\n" } else { "" }]);
        let outcome = shell.run(look);
        assert_eq!(seen(&outcome), (Some(0), expected, String::new()), "{what}");
    }
}

fn kill_everything(rig: &Rig, shell: &mut TestShell) {
    crate::killing::everything(rig, shell);
    rig.start();
    shell.client = rig.client();
}

/// Twenty random changes for each seed, and after each acknowledgement the kill.
fn every_change_survives(kill: impl Fn(&Rig, &mut TestShell)) {
    for seed in seeds() {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let mut rng = Rng::new(seed);
        let mut expected =
            Expected { cwd: rig.scratch().display().to_string(), umask: "022".into(), ..Expected::default() };
        shell.run("umask 022");
        for step in 0..rounds(20) {
            let text = expected.mutate(&mut rng, step);
            let outcome = shell.run(text.as_str());
            assert_eq!(code(&outcome), Some(0), "seed {seed}, step {step}: {text}");
            kill(&rig, &mut shell);
            expected.check(&mut shell, &format!("seed {seed}, step {step}: {text}"));
        }
    }
}

#[test]
fn every_acknowledged_change_survives_the_death_of_the_shell_right_after() {
    every_change_survives(|_, shell| kill_shell(shell));
}

#[test]
fn every_acknowledged_change_survives_the_death_of_steward_keeper_and_shell_right_after() {
    every_change_survives(kill_everything);
}

#[test]
fn every_acknowledged_change_survives_the_death_of_the_steward_and_then_of_the_shell() {
    every_change_survives(|rig, shell| {
        let steward = rig.steward_pid();
        kill(steward);
        wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
        shell.client = rig.client();
        kill_shell(shell);
    });
}
