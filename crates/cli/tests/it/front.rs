//! The command line with a server of its own, which it starts itself.

mod attach;
mod codes;
mod listing;
mod memory;
mod projects;
mod starting;
mod streams;
mod surviving;
mod transfer;

use crate::rig::{PATIENCE, Rig, Run, Said, is_alive, signal, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

struct Front {
    rig: Rig,
    /// Whoever has the rig now ends the server.
    ends_server: bool,
}

impl Front {
    fn new() -> Self {
        let front = Self { rig: Rig::new(), ends_server: true };
        // Any port, and instances that go with the server; without walls, which not every machine can build.
        front.configure(
            "default_provider = 'local'\n[server]\nlisten = '127.0.0.1:0'\n[provider.local]\nkind = 'local'\non_exit = 'destroy'\n",
        );
        front
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.rig.scratch().join("stead.toml"), text).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.rig.scratch().join("data")
    }

    fn stead<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.rig.stead(arguments);
        command.env("STEAD_DATA", self.data());
        command
    }

    /// `stead` with these arguments, from start to end.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Said {
        self.rig.run(self.stead(arguments))
    }

    fn start(&self, arguments: &[&str]) -> Run {
        self.rig.start(self.stead(arguments))
    }

    /// The record of a command.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.stdout).unwrap()
    }

    /// Who listens on the socket.
    fn server(&self) -> Option<i32> {
        let socket = UnixStream::connect(self.data().join("stead.sock")).ok()?;
        Some(rustix::net::sockopt::socket_peercred(&socket).unwrap().pid.as_raw_nonzero().get())
    }

    fn kill_server(&self, how: Signal) {
        let Some(pid) = self.server() else { return };
        let Ok(process) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else { return };
        signal(pid, how);
        let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap();
        wait_for("the end of the server", || (!is_alive(pid)).then_some(()));
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if !self.ends_server {
            return;
        }
        if std::thread::panicking() {
            let log = crate::rig::text_of(&self.data().join("server.log"));
            eprintln!("--- the server's log:\n{log}");
        }
        // It may have been killed; then another one ends what that one left.
        if self.server().is_none() && self.data().join("stead.db").exists() {
            let _ = self.stead(["ls"]).output();
        }
        self.kill_server(Signal::TERM);
    }
}
