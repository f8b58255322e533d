//! A bash whose standard input and output are pipes to us: what the simpler mechanisms are made of.

use super::place::Place;
use crate::failed::{Failed, Result, While};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) struct PipedBash {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    line: String,
}

impl PipedBash {
    pub(super) fn start(place: &Place, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = place.beside(|| command.spawn().or_failed("can't start `bash`"))?;
        let to = child.stdin.take().or_failed("bash has no input")?;
        let from = BufReader::new(child.stdout.take().or_failed("bash has no output")?);
        Ok(Self { child, to, from, line: String::new() })
    }

    pub(super) fn say(&mut self, text: &str) -> Result {
        self.to.write_all(text.as_bytes()).or_failed("bash is gone")
    }

    /// Waits for one line and compares it.
    pub(super) fn expect_line(&mut self, want: &str) -> Result {
        self.line.clear();
        self.from.read_line(&mut self.line).or_failed("can't read from bash")?;
        if self.line == want {
            return Ok(());
        }
        Err(Failed::new(format!("bash said `{}` instead of `{}`", self.line.trim_end(), want.trim_end())))
    }
}

impl Drop for PipedBash {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
