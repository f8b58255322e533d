//! `cargo xtask bench memory`: what reading and writing memories costs, beside a map, a file and Redis.
//!
//! The measuring is done by `crates/cli/benches/memory`, which links the server; see [`super::layers`] for why. Here its
//! numbers are read, judged and written up.

mod page;

use super::layers::Numbers;
use super::machine::Machine;
use super::{Options, Record};
use crate::cargo::Workspace;
use crate::failed::{Failed, Result, While};
use std::fs;
use std::process::Stdio;

pub(crate) fn run(options: Options) -> Result {
    let workspace = Workspace::load()?;
    let mut build = workspace.cargo(&["bench", "--no-run", "--package", "stead", "--bench", "memory"]);
    crate::cargo::run(&mut build)?;
    // Looked at when nothing is compiled any more.
    let machine = Machine::look()?;
    let mut measure = workspace.cargo(&["bench", "--package", "stead", "--bench", "memory", "--"]);
    measure.arg(options.effort.choose("full", "quick")).arg(&workspace.target);
    let output = measure.stdin(Stdio::null()).stderr(Stdio::inherit()).output().or_failed("can't run cargo")?;
    if !output.status.success() {
        return Err(Failed::new(format!("memories could not be measured ({})", output.status)));
    }
    let text = String::from_utf8(output.stdout).or_failed("what was measured is not text")?;
    let page = page::markdown(&machine, options.effort, &Numbers::read(&text)?)?;
    print!("{page}");
    if options.record == Record::Write {
        let path = workspace.root.join("docs/benchmarks-memory.md");
        fs::write(&path, &page).or_failed(format!("can't write `{}`", path.display()))?;
        eprintln!("wrote `{}`", path.display());
    }
    Ok(())
}
