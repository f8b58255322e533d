//! What the steward and its keeper have to say goes to `DIR/log`. Not by `eprintln!`: that panics when it can't write, and
//! a full disk must not kill us.

use std::fmt::Arguments;
use std::io::Write;

pub(crate) fn write(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

macro_rules! note {
    ($($text:tt)*) => { $crate::log::write(format_args!($($text)*)) };
}
