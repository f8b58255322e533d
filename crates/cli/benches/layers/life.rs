//! Back to work after something ended: a pause, a session, an instance. Each ends with the first output of a command
//! that only the old shell's state can print.

use crate::rig::{Rig, first_output, run};
use crate::table::Table;
use crate::{Failed, Result, Task};
use std::path::Path;
use std::time::{Duration, Instant};
use stead_model::ids::ThreadId;
use stead_server::lease::Force;
use stead_server::stead::Sandbox;
use stead_steward::past;
use stead_term::tree::Tree;

/// A state of the size that a working session has.
const STATE: &str = "\
for n in {1..20}; do declare \"plain_$n=value $n\"; export \"exported_$n=value $n\"; done; unset n
f() { local x=$1; echo \"$x\"; }; g() { f \"$@\"; }; alias ll='ls -l'; set -o pipefail; shopt -s extglob; umask 027";

/// Longer than a session lasts without use, shorter than one lasts at all.
const TOO_LONG: Duration = Duration::from_mins(61);

/// How long a killed instance may take to be gone.
const WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn measure(task: &Task) -> Result {
    let samples = task.effort.choose(40, 5);
    let reaped = task.effort.choose(2, 1);
    let mut patients = Vec::new();
    for provider in &task.providers {
        patients.push(Patient::new(Rig::start(&task.scratch, provider).await?).await?);
    }
    eprintln!("life: {samples} times");
    let mut tables: Vec<_> =
        task.providers.iter().map(|provider| Table::new(format!("life on `{provider}`"))).collect();
    for number in 0..samples {
        for (patient, table) in patients.iter().zip(&mut tables) {
            table.add("nothing ended, the shell is warm", patient.time().await?);
            table.add("paused, then resumed by the command", patient.paused().await?);
            table.add("session expired, nobody has closed it yet", patient.expired().await?);
            table.add("instance killed, then replaced", patient.killed().await?);
            // Reaping may wait for its time-outs, so only a few.
            if number < reaped {
                let (reaping, taken) = patient.reaped().await?;
                table.add("session expired and reaped, instance asleep", taken);
                table.add("(the reaping itself)", reaping);
            }
        }
    }
    tables.into_iter().for_each(Table::print);
    Ok(())
}

struct Patient {
    rig: Rig,
    thread: ThreadId,
    sandbox: Sandbox,
}

impl Patient {
    async fn new(rig: Rig) -> Result<Self> {
        let thread = ThreadId::parse("patient")?;
        let sandbox = rig.sandbox(&thread).await?;
        run(&sandbox, STATE).await?;
        Ok(Self { rig, thread, sandbox })
    }

    async fn time(&self) -> Result<Duration> {
        let begun = Instant::now();
        let first = first_output(&self.sandbox, "g \"$plain_20\"", "value 20").await?;
        Ok(first - begun)
    }

    async fn paused(&self) -> Result<Duration> {
        self.rig.stead.pause(&self.thread, Force::No).await?;
        self.time().await
    }

    async fn expired(&self) -> Result<Duration> {
        self.rig.clock.advance(TOO_LONG);
        self.time().await
    }

    /// How long the reaping took, and the way back.
    async fn reaped(&self) -> Result<(Duration, Duration)> {
        self.rig.clock.advance(TOO_LONG);
        let begun = Instant::now();
        let reaped = self.rig.stead.reap().await?;
        let reaping = begun.elapsed();
        if reaped.closed.len() != 1 {
            return Err(Failed::from(format!("one session should have been closed: {reaped:?}")));
        }
        Ok((reaping, self.time().await?))
    }

    /// From when all of it is dead.
    async fn killed(&self) -> Result<Duration> {
        let lease = self.rig.lease_of(&self.thread).await?;
        let mut tree = tree(&lease.join("instance"))?;
        tokio::task::block_in_place(|| tree.kill(WITHIN))?;
        let until = Instant::now() + WITHIN;
        while past::is_alive(&lease.join("place"))? {
            if Instant::now() > until {
                return Err(Failed::from("the instance does not die"));
            }
            tokio::task::yield_now().await;
        }
        self.time().await
    }
}

/// The processes of an instance, by what its provider has written down: `INSTANCE PID START-TIME WORKSPACE`.
fn tree(instance: &Path) -> Result<Tree> {
    let text = std::fs::read_to_string(instance)?;
    let mut words = text.split_whitespace().skip(1);
    let pid = words.next().ok_or("no process of the instance is known")?.parse()?;
    let start_time = words.next().ok_or("no process of the instance is known")?.parse()?;
    Ok(Tree::of(pid, start_time))
}
