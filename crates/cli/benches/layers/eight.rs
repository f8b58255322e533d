//! Eight terminals of one thread that run commands at once, and eight plain clients of the same steward.

use crate::exec::{Plain, layers};
use crate::rig::{Rig, run};
use crate::table::Table;
use crate::{Failed, Result, Task};
use std::time::{Duration, Instant};
use stead_model::ids::ThreadId;
use stead_server::stead::{Sandbox, Where};

const AT_ONCE: usize = 8;

pub(crate) async fn measure(task: &Task) -> Result {
    let (rounds, samples) = task.effort.choose((6, 300), (3, 40));
    let rig = Rig::start(&task.scratch, "local").await?;
    let thread = ThreadId::parse("eight")?;
    let mut sandboxes = vec![rig.sandbox(&thread).await?];
    for number in 1..AT_ONCE {
        let name = format!("t{number}");
        rig.stead.create_terminal(&thread, &name, None, &[]).await?;
        let at = Where { terminal: name, ..Where::thread(thread.clone()) };
        sandboxes.push(rig.stead.get_sandbox(at).await?);
    }
    for sandbox in &sandboxes {
        run(sandbox, "true").await?;
    }
    let place = rig.place_of(&thread).await?;
    let open = |number| Plain::open(&place, &format!("plain-{number}"));
    let mut clients = (0..AT_ONCE).map(open).collect::<Result<Vec<_>>>()?;

    let mut table = Table::new("eight");
    for round in 1..=rounds {
        eprintln!("eight: round {round} of {rounds}");
        for count in [1, AT_ONCE] {
            let name = format!("at the steward, plain clients: {count}");
            let begun = Instant::now();
            let taken = at_steward(clients.get_mut(..count).ok_or("too few clients")?, samples)?;
            note(&mut table, &name, taken, begun.elapsed());
        }
        for count in [1, AT_ONCE] {
            let name = format!("**through the layers**, terminals: {count}");
            let begun = Instant::now();
            let taken = through_layers(sandboxes.get(..count).ok_or("too few terminals")?, samples).await?;
            note(&mut table, &name, taken, begun.elapsed());
        }
    }
    table.print();
    Ok(())
}

fn note(table: &mut Table, name: &str, taken: Vec<Duration>, within: Duration) {
    let commands = u32::try_from(taken.len()).unwrap_or(u32::MAX);
    table.add_rate(name, f64::from(commands) / within.as_secs_f64());
    table.add_round(name, taken);
}

fn at_steward(clients: &mut [Plain], samples: usize) -> Result<Vec<Duration>> {
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(move || client.round_here("true", samples))).collect();
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().map_err(|_| Failed::from("a client panicked"))??);
            }
            Ok(all)
        })
    })
}

async fn through_layers(sandboxes: &[Sandbox], samples: usize) -> Result<Vec<Duration>> {
    let start = |sandbox: Sandbox| tokio::spawn(async move { layers(&sandbox, "true", samples).await });
    let tasks: Vec<_> = sandboxes.iter().cloned().map(start).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(all)
}
