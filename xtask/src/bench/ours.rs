//! Commands in a shell of a real steward, asked for and answered over its socket: output journalled, state kept.

use super::latency::Mechanism;
use super::steward::{Shell, Steward};
use crate::failed::Result;

/// A builtin that can change nothing: no capture, only the directory is read.
pub(super) const TRUE: &str = "**ours**, `true`";
/// May have changed the directory and nothing else.
pub(super) const DIRECTORY: &str = "**ours**, `cd .`";
/// The capture is taken and finds nothing new.
pub(super) const SAME: &str = "**ours**, `: ; x=same` (captured, unchanged)";
/// The capture is taken and kept.
pub(super) const CHANGED: &str = "**ours**, `x=$RANDOM` (captured, changed)";
/// A process is started.
pub(super) const EXTERNAL: &str = "**ours**, `/bin/true`";

/// Name of the row, of the shell, the command, and how often to measure it.
const COMMANDS: [(&str, &str, &str, usize); 5] = [
    (TRUE, "true", "true", 1500),
    (DIRECTORY, "directory", "cd .", 1500),
    (SAME, "same", ": ; x=same", 500),
    (CHANGED, "changed", "x=$RANDOM", 500),
    (EXTERNAL, "external", "/bin/true", 200),
];

pub(super) struct Ours {
    name: &'static str,
    text: &'static str,
    samples: usize,
    shell: Shell,
}

impl Ours {
    /// Each kind of command in a shell of its own, so that what one leaves behind isn't the other's cost.
    pub(super) fn all(steward: &Steward) -> Result<Vec<Self>> {
        let open = |(name, shell, text, samples)| Ok(Self { name, text, samples, shell: steward.shell(shell)? });
        COMMANDS.into_iter().map(open).collect()
    }
}

impl Mechanism for Ours {
    fn name(&self) -> &'static str {
        self.name
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn once(&mut self) -> Result {
        self.shell.run(self.text).map(drop)
    }
}
