//! The floor: one byte to another process and one back, by two pipes. Nothing that talks to a shell can be faster.

use super::latency::Mechanism;
use super::place::Place;
use crate::failed::{Result, While};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) const NAME: &str = "raw pipe round trip";

pub(super) struct Pipe {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Pipe {
    pub(super) fn start(place: &Place) -> Result<Self> {
        let program = std::env::current_exe().or_failed("can't find this program")?;
        let mut command = Command::new(program);
        command.arg("bench-echo").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = place.beside(|| command.spawn().or_failed("can't start the far end of the pipe"))?;
        let to = child.stdin.take().or_failed("the far end has no input")?;
        let from = child.stdout.take().or_failed("the far end has no output")?;
        Ok(Self { child, to, from })
    }
}

impl Mechanism for Pipe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn samples(&self) -> usize {
        5000
    }

    fn once(&mut self) -> Result {
        let mut byte = [0];
        self.to.write_all(b"x").or_failed("the far end is gone")?;
        self.from.read_exact(&mut byte).or_failed("the far end is gone")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The far end. It reads and writes without buffers: those of the standard library would be part of the floor.
pub(crate) fn echo() -> Result {
    let mut byte = [0];
    loop {
        let read = rustix::io::read(rustix::stdio::stdin(), &mut byte).or_failed("can't read")?;
        if read == 0 {
            return Ok(());
        }
        rustix::io::write(rustix::stdio::stdout(), &byte).or_failed("can't write")?;
    }
}
