//! One long-lived bash on pipes, and a word printed behind each command to know its end. Fast and fragile: both
//! streams are one, a command can print the word or eat it from standard input, and `exit` ends everything.

use super::latency::Mechanism;
use super::piped_bash::PipedBash;
use super::place::Place;
use crate::failed::Result;

pub(super) const NAME: &str = "sentinel on a pipe";

pub(super) struct Sentinel {
    bash: PipedBash,
}

impl Sentinel {
    pub(super) fn start(place: &Place) -> Result<Self> {
        Ok(Self { bash: PipedBash::start(place, &[])? })
    }
}

impl Mechanism for Sentinel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn samples(&self) -> usize {
        3000
    }

    fn once(&mut self) -> Result {
        self.bash.say("true; echo SENTINEL $?\n")?;
        self.bash.expect_line("SENTINEL 0\n")
    }
}
