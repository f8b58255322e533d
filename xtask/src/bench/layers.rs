//! `cargo xtask bench layers`: what threads, leases, sessions and the store cost above a steward.
//!
//! The measuring is done by `crates/cli/benches/layers`: it has to link the server, and xtask must not, or everybody who
//! runs the gate would wait for a database to be compiled before the first check. Here its numbers are read, judged and
//! written up.

mod numbers;
mod page;

use super::machine::Machine;
use super::{Options, Record};
use crate::cargo::Workspace;
use crate::failed::{Failed, Result, While};
use crate::gate::provide_one;
pub(in crate::bench) use numbers::{Numbers, Row};
use std::fs;
use std::process::Stdio;

pub(crate) fn run(options: Options) -> Result {
    let workspace = Workspace::load()?;
    if let Err(error) = provide_one("bwrap", "bubblewrap") {
        eprintln!("going on without `bwrap`: {error}");
    }
    let machine = Machine::look()?;
    let mut measure = workspace.cargo(&["bench", "--package", "stead", "--bench", "layers", "--"]);
    measure.arg(options.effort.choose("full", "quick")).arg(&workspace.target);
    let output = measure.stdin(Stdio::null()).stderr(Stdio::inherit()).output().or_failed("can't run cargo")?;
    if !output.status.success() {
        return Err(Failed::new(format!("the layers could not be measured ({})", output.status)));
    }
    let text = String::from_utf8(output.stdout).or_failed("what was measured is not text")?;
    let page = page::markdown(&machine, options.effort, &Numbers::read(&text)?)?;
    print!("{page}");
    if options.record == Record::Write {
        let path = workspace.root.join("docs/benchmarks-layers.md");
        fs::write(&path, &page).or_failed(format!("can't write `{}`", path.display()))?;
        eprintln!("wrote `{}`", path.display());
    }
    Ok(())
}
