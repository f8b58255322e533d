//! How long it takes from a dead shell to a new one with the old one's state, against starting a bare bash.

use super::piped_bash::PipedBash;
use super::place::Place;
use super::sample::median;
use super::steward::{Shell, Steward};
use super::{Effort, Subjects};
use crate::failed::{Failed, Result, While};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Restart {
    /// From the reply to `exit 0` to the reply to the next `true`, without what a plain `true` takes.
    pub(super) restored: Duration,
    /// The same with the command that ended the shell: from sending `exit 0`, without two plain `true`.
    pub(super) with_exit: Duration,
    /// From spawning a bare bash to its first answer.
    pub(super) bare: Duration,
    pub(super) samples: usize,
}

/// A state of the size that a working session has.
const STATE: &str = "\
for n in {1..20}; do declare \"plain_$n=value $n\"; export \"exported_$n=value $n\"; done; unset n
f() { local x=$1; echo \"$x\"; }; g() { f \"$@\" | cat; }; alias ll='ls -l'; set -o pipefail; shopt -s extglob; umask 027";

pub(super) fn measure(subjects: &Subjects, effort: Effort) -> Result<Restart> {
    let samples = effort.choose(100, 25);
    let place = &Place::unpinned()?;
    let steward = Steward::start(&subjects.steward, place, &subjects.scratch)?;
    let mut shell = steward.shell("restart")?;
    shell.run(STATE)?;
    eprintln!("restart: {samples} times");
    let (mut plain, mut restored, mut with_exit, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..samples {
        plain.push(timed(|| shell.run("true").map(drop))?);
        let begun = Instant::now();
        end(&mut shell)?;
        restored.push(timed(|| shell.run("true").map(drop))?);
        with_exit.push(begun.elapsed());
        bare.push(bare_bash(place)?);
    }
    // It really is the same state, not just some shell.
    let kept = shell.run("echo $plain_20 $exported_20; umask; g function")?.stdout;
    if kept != b"value 20 value 20\n0027\nfunction\n" {
        return Err(Failed::new(format!("the restored shell said `{}`", kept.escape_ascii())));
    }
    let plain = median(plain);
    Ok(Restart {
        restored: median(restored).saturating_sub(plain),
        with_exit: median(with_exit).saturating_sub(plain * 2),
        bare: median(bare),
        samples,
    })
}

fn end(shell: &mut Shell) -> Result {
    let ending = shell.run("exit 0")?.info.ending.or_failed("`exit 0` has not ended")?;
    if ending.shell_exited { Ok(()) } else { Err(Failed::new("`exit 0` did not end the shell")) }
}

/// Ending it is not part of the time.
fn bare_bash(place: &Place) -> Result<Duration> {
    let begun = Instant::now();
    let mut bash = PipedBash::start(place, &["-i"])?;
    bash.say("echo ready\n")?;
    bash.expect_line("ready\n")?;
    Ok(begun.elapsed())
}

fn timed(work: impl FnOnce() -> Result) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}
