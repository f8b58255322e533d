//! `cargo xtask campaign`: random commands by real clients while server, stewards, keepers and shells are killed, and
//! then every field, byte and run is checked against what must be.
//!
//! ```text
//! seed ─► plan ─► clients send, cancel, pause, fork, move, delete ─► what was told ─► oracle ─► violations
//!              └► faults: SIGKILL to real processes ─────────────► when they struck ──┘
//! ```

#![expect(clippy::indexing_slicing, reason = "a field that a JSON value doesn't have is null")]

mod chance;
mod chronicle;
mod command;
mod driver;
mod events;
mod examine;
mod history;
mod load;
mod oracle;
mod plan;
mod processes;
mod round;
mod script;
mod server;
mod wire;

use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use plan::{Fault, Plan, Provider};
use server::Server;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wire::Wire;

#[derive(Debug)]
pub(crate) struct Options {
    rounds: u32,
    /// The number of the first round: a later one of a plan can be repeated without those before it.
    first: u32,
    seed: u64,
    provider: Option<Provider>,
    /// Kills at this kind of process only.
    fault: Option<Fault>,
    /// A `stead` that is built already.
    program: Option<PathBuf>,
    /// How it is built otherwise.
    build: Build,
    /// Load instead of rounds: so many commands.
    load: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    Debug,
    Release,
}

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self> {
        let mut options = Self { seed: now(), ..GATE };
        let mut commands = LOAD;
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || flags.next().or_failed(format!("`{flag}` needs a value"));
            let number = |value: &str| value.parse::<u64>().or_failed(format!("`{value}` is no number"));
            match *flag {
                "--rounds" => options.rounds = u32::try_from(number(value()?)?).or_failed("too many rounds")?,
                "--first" => options.first = u32::try_from(number(value()?)?).or_failed("too large")?,
                "--fault" => {
                    let name = *value()?;
                    let fault = Fault::named(name).or_failed(format!(
                        "`{name}` is none of `server`, `steward`, `keeper`, `shell`, `instance` and `all`"
                    ))?;
                    options.fault = Some(fault);
                }
                "--seed" => options.seed = number(value()?)?,
                "--release" => options.build = Build::Release,
                "--load" => options.load = Some(commands),
                "--commands" => commands = number(value()?)?,
                // It is started in a directory of its own.
                "--program" => options.program = Some(std::path::absolute(value()?).or_failed("no such program")?),
                "--provider" => {
                    options.provider = Some(match *value()? {
                        "local" => Provider::Local,
                        "namespace" => Provider::Namespace,
                        other => return Err(Failed::new(format!("`{other}` is neither `local` nor `namespace`"))),
                    });
                }
                other => return Err(Failed::new(format!("unknown option `{other}`"))),
            }
        }
        options.load = options.load.map(|_| commands);
        Ok(options)
    }
}

/// Commands of a campaign of load.
const LOAD: u64 = 20_000;

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Rounds in the gate, and their plan: the same in each run, so that the gate judges the same code alike.
const GATE: Options = Options {
    rounds: 30,
    first: 0,
    seed: 7,
    provider: None,
    fault: None,
    program: None,
    build: Build::Debug,
    load: None,
};

/// The rounds that every change must pass, on the `stead` of this workspace. Gives their last line.
pub(crate) fn gate(workspace: &Workspace) -> Result<String> {
    run_rounds(&GATE, &GATE.build.run(workspace)?)
}

/// Builds `stead` if none is named, and runs the campaign.
pub(crate) fn run(options: &Options) -> Result {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => options.build.run(&Workspace::load()?)?,
    };
    let summary = match options.load {
        Some(commands) => load::run(&program, commands, options.seed, options.provider.unwrap_or(Provider::Local))?,
        None => run_rounds(options, &program)?,
    };
    println!("{summary}");
    Ok(())
}

impl Build {
    /// Builds `stead`, and gives the file.
    fn run(self, workspace: &Workspace) -> Result<PathBuf> {
        let (flag, directory): (&[&str], _) = match self {
            Self::Debug => (&[], "debug"),
            Self::Release => (&["--release"], "release"),
        };
        cargo::run(workspace.cargo(&["build", "--package", "stead"]).args(flag))?;
        Ok(workspace.target.join(directory).join("stead"))
    }
}

/// Whether a provider works on this machine. If not, that is told.
fn is_available(wire: &Wire, provider: Provider) -> Result<bool> {
    let answer = wire.get("/api/providers").or_failed("the server is gone")?.json();
    let items = answer["items"].as_array().or_failed(format!("no list of providers: {answer}"))?;
    let found = items.iter().find(|item| item["name"] == provider.name());
    let found = found.or_failed(format!("no provider `{}` in {answer}", provider.name()))?;
    if found["available"] != true {
        println!("SKIPPED: rounds on {}: {found}", provider.name());
    }
    Ok(found["available"] == true)
}

/// Runs the rounds. What the server wrote stays where something is wrong.
fn run_rounds(options: &Options, program: &Path) -> Result<String> {
    let scratch = tempfile::Builder::new().prefix("stead-campaign-").tempdir().or_failed("can't make a directory")?;
    let summary = run_rounds_in(options, program, scratch.path());
    if summary.is_err() {
        println!("what the server wrote is in {}", scratch.keep().display());
    }
    summary
}

/// Runs the rounds, on each provider in turn unless one is named. Gives the last line, or fails with the violations.
fn run_rounds_in(options: &Options, program: &Path, scratch: &Path) -> Result<String> {
    let mut server = Server::start(program, scratch)?;
    let (mut commands, mut kills, mut violations) = (0, 0, 0);
    let both = is_available(&server.wire(), Provider::Namespace)? && options.provider.is_none();
    for round in options.first..options.first.saturating_add(options.rounds) {
        let turn = if both && round % 2 == 1 { Provider::Namespace } else { Provider::Local };
        let provider = options.provider.unwrap_or(turn);
        let plan = Plan::new(options.seed, round, provider, both);
        let plan = options.fault.into_iter().fold(plan, Plan::with_faults);
        let begun = Instant::now();
        let outcome = round::run(&mut server, scratch, &plan)?;
        commands += outcome.commands;
        kills += outcome.kills;
        violations += outcome.violations.len();
        println!(
            "round {round} on {}: {} commands, {} kills, {} violations ({:.1} s)",
            provider.name(),
            outcome.commands,
            outcome.kills,
            outcome.violations.len(),
            begun.elapsed().as_secs_f64()
        );
        for violation in &outcome.violations {
            println!("  seed {} round {round}: {violation}", options.seed);
        }
        for line in &outcome.chronicles {
            println!("    {line}");
        }
    }
    server.stop()?;
    let left = processes::leftovers(&[scratch.to_string_lossy().into_owned()]);
    violations += left.len();
    for what in &left {
        println!("  seed {}: left behind: {what}", options.seed);
    }
    let summary = format!("{} rounds, {commands} commands, {kills} kills, {violations} violations", options.rounds);
    if violations == 0 { Ok(summary) } else { Err(Failed::new(format!("seed {}: {summary}", options.seed))) }
}
