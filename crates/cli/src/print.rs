//! Writing to standard output. A reader that has gone away (`| head`) is no failure of ours.

use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) fn said(text: Option<String>) -> ExitCode {
    match io::stdout().write_all(text.unwrap_or_default().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
