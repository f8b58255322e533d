//! `stead`: the one program. Parses what was typed, runs it, and maps every failure to an exit code in one place.

#[macro_use]
mod print;

mod args;
mod doctor;
mod serve;
mod settings;
mod shell;

use args::{Args, Verb};
use clap::Parser;
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
        Verb::Steward(_) => ExitCode::from(OWN_FAILURE),
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
