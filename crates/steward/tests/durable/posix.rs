//! Shells that are not bash: dash and busybox ash, by the same protocol. Every behaviour is a test for each of them.

mod errors;
mod lasting;
mod streams;

use crate::rig::{Rig, TestShell, kill, wait_for};
use stead_model::proto::Program;

/// Makes a test of each behaviour for each shell.
macro_rules! in_both {
    ($($behaviour:ident)*) => {
        mod dash {
            $(#[test] fn $behaviour() { super::$behaviour(&mut crate::posix::Bench::new(stead_model::proto::Program::Dash)); })*
        }
        mod ash {
            $(#[test] fn $behaviour() { super::$behaviour(&mut crate::posix::Bench::new(stead_model::proto::Program::Ash)); })*
        }
    };
}
use in_both;

struct Bench {
    shell: TestShell,
    rig: Rig,
    program: Program,
}

impl Bench {
    fn new(program: Program) -> Self {
        let (name, package) = if program == Program::Dash { ("dash", "dash") } else { ("busybox", "busybox-static") };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
        assert!(found, "this test needs `{name}`: install the Debian package `{package}`");
        let rig = Rig::new();
        Self { shell: rig.open("main", program.clone()), rig, program }
    }

    fn kill_shell(&mut self) {
        let pid = self.shell.pid();
        kill(pid);
        wait_for("another shell in place of the killed one", || self.shell.info().pid.filter(|now| *now != pid));
    }
}
