//! A shell in a tmux pane: keys are sent, and the screen is captured until the marker shows. Each step is a process.

use super::latency::Mechanism;
use super::place::Place;
use crate::cargo;
use crate::failed::{Failed, Result, While};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const NAME: &str = "tmux send-keys and capture-pane";

/// A pane that shows nothing for so long won't.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Tmux {
    /// Its socket: a server of our own, not the user's.
    directory: TempDir,
    number: u64,
}

impl Tmux {
    /// `None`: there is no tmux on this machine.
    pub(super) fn start(place: &Place) -> Result<Option<Self>> {
        if Command::new("tmux").arg("-V").output().is_err() {
            return Ok(None);
        }
        // Not beside the others: a socket's path must be short, and that of a build directory may not be.
        let directory = tempfile::Builder::new().prefix("tmux-").tempdir().or_failed("can't make a directory")?;
        let tmux = Self { directory, number: 0 };
        let shell = "exec bash --norc --noprofile";
        place.beside(|| cargo::run(&mut tmux.call(&["new-session", "-d", "-x", "120", "-y", "40", shell])))?;
        Ok(Some(tmux))
    }

    fn call(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.path().join("socket")).args(["-f", "/dev/null"]).args(arguments);
        command.env_remove("TMUX");
        command
    }
}

impl Mechanism for Tmux {
    fn name(&self) -> &'static str {
        NAME
    }

    fn samples(&self) -> usize {
        40
    }

    fn once(&mut self) -> Result {
        self.number += 1;
        // The quotes keep the typed line, which is on the screen too, from looking like the answer.
        let keys = format!("true; echo 'MA''RK' {} $?", self.number);
        let answer = format!("MARK {} 0", self.number);
        cargo::run(&mut self.call(&["send-keys", &keys, "Enter"]))?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let screen = cargo::output(&mut self.call(&["capture-pane", "-p"]))?;
            if screen.lines().any(|line| line.trim_end() == answer) {
                return Ok(());
            }
        }
        Err(Failed::new("the marker never showed"))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.call(&["kill-server"]).output();
    }
}
