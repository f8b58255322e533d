//! Two FIFOs and two labelling processes for each command, and a file for its exit code that the client looks for
//! every 50 ms. A minimal re-creation of how some sandbox products run commands in a session: the labels tell the
//! streams apart in one log, line by line.

use super::latency::Mechanism;
use super::piped_bash::PipedBash;
use super::place::Place;
use crate::failed::{Failed, Result, While};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

pub(super) const NAME: &str = "FIFOs and labellers, polled every 50 ms";

const POLL: Duration = Duration::from_millis(50);

pub(super) struct Fifo {
    // Fields are dropped in this order: the shell before its directory.
    bash: PipedBash,
    directory: TempDir,
    number: u64,
}

impl Fifo {
    pub(super) fn start(place: &Place, scratch: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("fifo-").tempdir_in(scratch);
        let directory = directory.or_failed("can't make a directory")?;
        let mut bash = PipedBash::start(place, &[])?;
        bash.say(&format!("cd '{}'\n", directory.path().display()))?;
        Ok(Self { bash, directory, number: 0 })
    }

    fn script(&self, command: &str) -> String {
        let n = self.number;
        let labeller = |label: &str, fifo: &str| {
            format!("(while IFS= read -r line; do printf '{label}%s\\n' \"$line\"; done <{fifo}.{n} >>log.{n}) &\n")
        };
        [
            format!("mkfifo out.{n} err.{n}\n"),
            labeller(r"\1\1\1", "out"),
            "out=$!\n".to_owned(),
            labeller(r"\2\2\2", "err"),
            "err=$!\n".to_owned(),
            format!("{{ {command}; }} >out.{n} 2>err.{n}\n"),
            format!("echo $? >code.{n}\n"),
            format!("wait $out $err; rm -f out.{n} err.{n}\n"),
        ]
        .concat()
    }

    /// The exit code, once the file is there and whole.
    fn code(&self) -> Result<Option<String>> {
        match fs::read_to_string(self.directory.path().join(format!("code.{}", self.number))) {
            Ok(text) => Ok(text.ends_with('\n').then_some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).or_failed("can't read the exit code"),
        }
    }
}

impl Mechanism for Fifo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn samples(&self) -> usize {
        20
    }

    fn once(&mut self) -> Result {
        self.number += 1;
        self.bash.say(&self.script("true"))?;
        loop {
            match self.code()?.as_deref() {
                Some("0\n") => return Ok(()),
                Some(code) => {
                    return Err(Failed::new(format!("`true` ended with {}", code.trim_end())));
                }
                None => pause(),
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "sleeping is the mechanism that is measured")]
fn pause() {
    std::thread::sleep(POLL);
}
