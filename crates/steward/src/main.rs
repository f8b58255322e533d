//! The steward by itself: small, static, for sandboxes where nothing else of stead is.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match stead_steward::entry::run(&[], &arguments) {
        Ok(said) => {
            let text = said.unwrap_or_default();
            match std::io::stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let mut text = format!("steward: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // Nobody may be there to read it; that changes nothing.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}
