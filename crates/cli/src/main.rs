//! `stead`: the one program. Parses what was typed, runs it, and maps every failure to an exit code in one place.

#[macro_use]
mod print;

mod about;
mod args;
mod attach;
mod chat;
mod client;
mod doctor;
mod environment;
mod exec;
mod failure;
mod follow;
mod fsck;
mod image;
mod json;
mod listings;
mod logs;
mod memory;
mod projects;
mod serve;
mod session;
mod settings;
mod shell;
mod table;
mod threads;
mod transfer;
mod upkeep;

use args::{Args, Verb};
use clap::Parser;
use failure::Failure;
use std::error::Error;
use std::process::ExitCode;

/// stead's own failure, as docker has it: not to be taken for the command's.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    // The steward starts in a few milliseconds and must stay small: it doesn't go through the parser.
    if let Some(("steward", rest)) = words.split_first().and_then(|(first, rest)| Some((first.to_str()?, rest))) {
        return match stead_steward::entry::run(&["steward"], rest) {
            Ok(said) => print::said(said),
            Err(error) => failed(&error),
        };
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(said) => {
            // `--help` and `--version` come this way too, and are no failures.
            let code = if said.use_stderr() { ExitCode::from(OWN_FAILURE) } else { ExitCode::SUCCESS };
            return if said.print().is_ok() { code } else { ExitCode::from(OWN_FAILURE) };
        }
    };
    match args.verb {
        Verb::Serve(serve) => match serve::run(&serve) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Verb::Shell(shell) => match shell::run(&shell) {
            Ok(code) => ExitCode::from(code),
            Err(error) => failed(&error),
        },
        Verb::Doctor(doctor) => match doctor::run(&doctor) {
            Ok(code) => code,
            Err(error) => failed(&error),
        },
        Verb::Fsck(asked) => match fsck::run(&asked) {
            Ok(code) => code,
            Err(error) => failed(&error),
        },
        Verb::Steward(_) => ExitCode::from(OWN_FAILURE),
        Verb::Exec(asked) => code(exec::run(&asked)),
        Verb::Attach(asked) => code(attach::run(&asked)),
        Verb::Logs(asked) => code(logs::logs(&asked)),
        Verb::Cancel(asked) => code(logs::cancel(&asked)),
        Verb::History(asked) => code(logs::history(&asked)),
        Verb::List(asked) => code(threads::list(&asked)),
        Verb::Show(asked) => code(threads::show(&asked)),
        Verb::Pause(asked) => code(threads::pause(&asked)),
        Verb::Resume(asked) => code(threads::resume(&asked)),
        Verb::Remove(asked) => code(threads::remove(&asked)),
        Verb::Fork(asked) => code(threads::fork(&asked)),
        Verb::Move(asked) => code(threads::moved(&asked)),
        Verb::Push(asked) => code(transfer::push(&asked)),
        Verb::Pull(asked) => code(transfer::pull(&asked)),
        Verb::EnvVars(asked) => code(environment::run(&asked)),
        Verb::Chat(asked) => code(chat::chat(&asked)),
        Verb::Agents(asked) => code(chat::agents(&asked)),
        Verb::Memory(asked) => code(memory::run(&asked)),
        Verb::Project(asked) => code(projects::run(&asked)),
        Verb::Image(asked) => code(image::run(&asked)),
        Verb::Token(asked) => code(listings::token(&asked)),
        Verb::Sessions(asked) => code(listings::sessions(&asked)),
        Verb::Leases(asked) => code(listings::leases(&asked)),
        Verb::Providers(asked) => code(listings::providers(&asked)),
        Verb::Orphans(asked) => code(listings::orphans(&asked)),
        Verb::Completions(asked) => code(about::completions(&asked)),
        Verb::Settings(asked) => print::said(Some(if asked.env {
            stead_server::config::reference::as_variables()
        } else {
            stead_server::config::reference::as_toml()
        })),
        Verb::Man(_) => code(about::man()),
        Verb::Version(asked) => code(about::version(&asked)),
    }
}

fn code(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let code = failed(&failure);
            if let Some(advice) = failure.advice() {
                tell!("  {advice}");
            }
            code
        }
    }
}

fn failed(error: &dyn Error) -> ExitCode {
    print::error(format_args!("stead: {error}"));
    let mut source = error.source();
    while let Some(cause) = source {
        print::error(format_args!(": {cause}"));
        source = cause.source();
    }
    tell!("");
    ExitCode::from(OWN_FAILURE)
}
