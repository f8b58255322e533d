//! What the layers cost. This measures and prints numbers; `cargo xtask bench layers` calls it and writes them up.
//!
//! A target of its own and not a part of xtask, which would then link the server with its database: everybody who runs
//! the gate would wait for that before the first check.
//!
//! ```text
//! row    TABLE NAME P50 P99 SAMPLES     nanoseconds; fields are separated by tabs
//! rate   TABLE NAME NUMBER              per second
//! absent WHAT WHY                       left out of the comparison
//! ```
//!
//! Nothing here asserts a time.

#![expect(clippy::print_stdout, clippy::disallowed_macros, reason = "the numbers are its output")]

mod eight;
mod exec;
mod life;
mod peers;
mod rig;
mod start;
mod table;
mod threads;
mod throughput;

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

type Failed = Box<dyn Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, Failed>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Full,
    Quick,
}

impl Effort {
    fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Where to write and how much to measure.
#[derive(Debug, Clone)]
struct Task {
    /// On a disk: what is measured waits for it.
    scratch: PathBuf,
    effort: Effort,
    /// Those of this machine: `local` and, where the kernel allows it, `namespace`.
    providers: Vec<&'static str>,
}

/// Called as `layers EFFORT DIRECTORY [PART..]`; without parts, all of them. Cargo adds `--bench`.
fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [effort, directory, parts @ ..] = arguments.as_slice() else {
        eprintln!("nothing measured: this is for `cargo xtask bench layers` to call");
        return Ok(());
    };
    let effort = if effort == "quick" { Effort::Quick } else { Effort::Full };
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (path, parts) = (scratch.path().to_owned(), parts.to_vec());
    // On a worker, where the handlers of a server run too.
    let work = runtime.spawn(async move {
        let providers = rig::providers(&path).await;
        measure(&Task { scratch: path, effort, providers }, &parts).await
    });
    runtime.block_on(work)?
}

async fn measure(task: &Task, parts: &[String]) -> Result {
    let begun = Instant::now();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if wanted("start") {
        start::measure(task).await?;
    }
    if wanted("life") {
        life::measure(task).await?;
    }
    if wanted("exec") {
        exec::measure(task).await?;
    }
    if wanted("eight") {
        eight::measure(task).await?;
    }
    if wanted("throughput") {
        throughput::measure(task).await?;
    }
    if wanted("threads") {
        threads::measure(task).await?;
    }
    eprintln!("measured in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
