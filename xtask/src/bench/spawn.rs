//! A fresh `bash -c` for every command: no state is kept, and most of the time goes into starting bash.

use super::latency::Mechanism;
use super::place::Place;
use crate::failed::{Failed, Result, While};
use std::process::{Command, Stdio};

pub(super) const NAME: &str = "`bash -c true`, fork, exec and wait";

pub(super) struct Spawn {
    place: Place,
}

impl Spawn {
    pub(super) fn new(place: &Place) -> Self {
        Self { place: *place }
    }
}

impl Mechanism for Spawn {
    fn name(&self) -> &'static str {
        NAME
    }

    fn samples(&self) -> usize {
        200
    }

    /// Between two CPUs the hop over and back is part of it: some ten microseconds of more than a thousand.
    fn once(&mut self) -> Result {
        let mut command = Command::new("bash");
        command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = self.place.beside(|| command.spawn().or_failed("can't start `bash`"))?;
        let status = child.wait().or_failed("can't wait for `bash`")?;
        if status.success() { Ok(()) } else { Err(Failed::new(format!("`true` failed ({status})"))) }
    }
}
