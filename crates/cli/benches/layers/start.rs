//! From a thread that nobody has heard of to the first output of its first command.

use crate::rig::{Rig, first_output};
use crate::table::Table;
use crate::{Result, Task, peers};
use std::time::{Duration, Instant};
use stead_model::ids::ThreadId;

pub(crate) async fn measure(task: &Task) -> Result {
    let samples = task.effort.choose(60, 8);
    let peers = peers::all();
    let mut rigs = Vec::new();
    for provider in &task.providers {
        rigs.push(Rig::start(&task.scratch, provider).await?);
    }
    let mut table = Table::new("start");
    eprintln!("start: {samples} times");
    for number in 0..=samples {
        for peer in &peers {
            let taken = tokio::task::block_in_place(|| peer.once())?;
            // The first of each finds cold caches and isn't counted.
            if number > 0 {
                table.add(&peer.name, taken);
            }
        }
        for rig in &rigs {
            let taken = new_thread(rig, &format!("new-{number}")).await?;
            if number > 0 {
                table.add(&format!("**ours**, new thread on `{}`", rig.provider()), taken);
            }
        }
    }
    table.print();
    Ok(())
}

async fn new_thread(rig: &Rig, id: &str) -> Result<Duration> {
    let thread = ThreadId::parse(id)?;
    let begun = Instant::now();
    let sandbox = rig.sandbox(&thread).await?;
    let first = first_output(&sandbox, "echo ready", "ready").await?;
    rig.stead.delete_thread(&thread).await?;
    Ok(first - begun)
}
