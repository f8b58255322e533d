//! A person at a terminal, who calls `stead` there.

use crate::rig::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::Write;
use std::process::{Child, Command};
use stead_term::pty;

pub(crate) struct Person {
    child: Child,
    controller: std::fs::File,
    /// Everything that was shown.
    pub(crate) shown: String,
    /// How much of it the test has looked at.
    seen: usize,
}

impl Person {
    pub(crate) fn calls(stead: &Command, columns: u16, rows: u16) -> Self {
        let pty::Pty { controller, user } = pty::open(columns, rows).unwrap();
        let end = || user.try_clone().unwrap();
        // `setsid -c` becomes `stead` with the terminal as its controlling one, so that Ctrl-C is a signal.
        let mut command = Command::new("setsid");
        command.arg("-c").arg(stead.get_program()).args(stead.get_args()).env_clear();
        command.envs(stead.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // With ours open the end of theirs would never be seen.
        drop((command, user));
        Self { child, controller: controller.into(), shown: String::new(), seen: 0 }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is shown behind what was seen before, and gives what stood between.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> String {
        loop {
            let fresh = self.shown.get(self.seen..).unwrap_or_default();
            if let Some(at) = fresh.find(text) {
                let between = fresh.get(..at).unwrap_or_default().to_owned();
                self.seen += at + text.len();
                return between;
            }
            assert!(self.read(), "`{text}` is not shown; this is: {}", self.shown);
        }
    }

    #[track_caller]
    fn read(&mut self) -> bool {
        let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.controller, PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "nothing is shown any more; this was: {}", self.shown);
        let mut buffer = [0_u8; 4096];
        match rustix::io::read(&self.controller, &mut buffer) {
            Ok(0) | Err(Errno::IO) => false,
            Ok(read) => {
                self.shown.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()));
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The exit code, once nothing more is shown.
    #[track_caller]
    pub(crate) fn leaves(&mut self) -> Option<i32> {
        while self.read() {}
        self.child.wait().unwrap().code()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
