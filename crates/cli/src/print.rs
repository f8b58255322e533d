//! Writing to standard output and error. A reader that has gone away (`| head`) is no failure of ours, and no reason to
//! panic as `println!` and `eprintln!` would.

use crate::failure::Failure;
use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) fn said(text: Option<String>) -> ExitCode {
    if out(&text.unwrap_or_default()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
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
