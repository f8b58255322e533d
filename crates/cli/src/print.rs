//! Writing to standard output and error. A reader that has gone away (`| head`) is no failure of ours, and no reason to
//! panic as `println!` and `eprintln!` would.

use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) fn said(text: Option<String>) -> ExitCode {
    match io::stdout().write_all(text.unwrap_or_default().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub(crate) fn error(text: std::fmt::Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_fmt(text).and_then(|()| stderr.flush());
}

/// A line to standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::print::error(format_args!("{}\n", format_args!($($text)*))) };
}
