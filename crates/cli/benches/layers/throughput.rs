//! How fast a command's output arrives: at whoever holds the sandbox, at a plain client of the steward, and at whoever
//! reads from a pipe.

use crate::exec::{Live, Plain};
use crate::rig::{Rig, run};
use crate::table::Table;
use crate::{Failed, Result, Task};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use stead_model::ids::ThreadId;
use stead_model::proto::Request;
use stead_server::stead::{Execute, Sandbox};
use stead_server::steward::Told;
use stead_steward::client;

const MEBIBYTES: u32 = 100;
const BYTES: u64 = (MEBIBYTES as u64) << 20;

/// What a plain client begins with, so that the steward needn't wait for it.
const CREDIT: u64 = 4 << 20;

pub(crate) async fn measure(task: &Task) -> Result {
    let rounds = task.effort.choose(9, 3);
    let rig = Rig::start(&task.scratch, "local").await?;
    let thread = ThreadId::parse("loud")?;
    let sandbox = rig.sandbox(&thread).await?;
    run(&sandbox, "true").await?;
    let place = rig.place_of(&thread).await?;
    let mut plain = Plain::open(&place, "plain")?;
    let mut live = Live::open(&place, "live").await?;
    let mut table = Table::new("throughput");
    for round in 1..=rounds {
        eprintln!("throughput: round {round} of {rounds}");
        note(&mut table, "`bash -c head`, read from a pipe", tokio::task::block_in_place(pipe)?);
        note(&mut table, "at the steward, plain client", tokio::task::block_in_place(|| at_steward(&mut plain))?);
        let mut bytes = 0;
        let taken = live.run(&generator(), &mut |told| bytes += length(&told)).await?;
        whole(bytes)?;
        note(&mut table, "over the server's connection alone", taken);
        note(&mut table, "**through the layers**, `Sandbox::execute`", through_layers(&sandbox).await?);
    }
    table.print();
    Ok(())
}

fn generator() -> String {
    format!("head -c {MEBIBYTES}M /dev/zero")
}

fn note(table: &mut Table, row: &str, taken: Duration) {
    table.add(row, taken);
    table.add_rate(row, f64::from(MEBIBYTES) / taken.as_secs_f64());
}

fn pipe() -> Result<Duration> {
    let begun = Instant::now();
    let mut child = Command::new("bash").arg("-c").arg(generator()).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match output.read(&mut buffer)? {
            0 => break,
            read => bytes += read as u64,
        }
    }
    child.wait()?;
    let taken = begun.elapsed();
    whole(bytes)?;
    Ok(taken)
}

fn at_steward(plain: &mut Plain) -> Result<Duration> {
    let exec = plain.next(&generator())?;
    let request = Request::Exec(Box::new(stead_model::proto::Exec { follow: Some(CREDIT), ..exec }));
    let mut bytes = 0;
    let begun = Instant::now();
    plain.client().follow(&request, &mut |told| {
        if let client::Told::Output(chunk) = told {
            bytes += chunk.bytes.len() as u64;
        }
    })?;
    let taken = begun.elapsed();
    whole(bytes)?;
    Ok(taken)
}

async fn through_layers(sandbox: &Sandbox) -> Result<Duration> {
    let mut bytes = 0;
    let begun = Instant::now();
    let mut hear = |told: Told| bytes += length(&told);
    sandbox.execute(Execute::new(generator()), &mut hear).await?;
    let taken = begun.elapsed();
    whole(bytes)?;
    Ok(taken)
}

fn length(told: &Told) -> u64 {
    match told {
        Told::Output(chunk) => chunk.bytes.len() as u64,
        Told::Event(_) => 0,
    }
}

fn whole(bytes: u64) -> Result {
    if bytes == BYTES { Ok(()) } else { Err(Failed::from(format!("{bytes} bytes arrived instead of {BYTES}"))) }
}
