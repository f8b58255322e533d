//! Verbs about files.

use super::parse::{Remote, remote};
use super::{InThread, Reach};
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Copy a file or a directory into a thread.
///
/// As `cp -r` does: into PATH if that is a directory, else as PATH. `DIR/.` means what is in DIR. Links are copied as links.
/// A file is there whole or not at all.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead push notes.txt .              into the workspace of the thread `default`
  stead push src build:/workspace     a directory, as /workspace/src of the thread `build`
  stead push src/. build:/workspace   what is in it
  echo hi | stead push - greeting     from standard input")]
pub(crate) struct Push {
    #[command(flatten)]
    pub(crate) at: InThread,

    /// A file or directory here, or `-` for standard input.
    #[arg(value_name = "LOCAL")]
    pub(crate) local: PathBuf,

    /// Where to, absolute or from the workspace; a thread before the colon goes before `-t`.
    #[arg(value_name = "[THREAD:]PATH", value_parser = remote)]
    pub(crate) remote: Remote,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Copy a file or a directory out of a thread.
///
/// As `cp -r` does: into LOCAL if that is a directory, else as LOCAL. `DIR/.` means what is in DIR. What is copied appears
/// when it is complete; nothing is written outside LOCAL, whatever the archive says. A directory that exists is not
/// replaced unless forced.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead pull notes.txt .             a file of the thread `default`
  stead pull build:/workspace/out .  a directory of the thread `build`, as ./out
  stead pull build:out result        as ./result
  stead pull log.txt - | tail        to standard output")]
pub(crate) struct Pull {
    #[command(flatten)]
    pub(crate) at: InThread,

    /// Where from, absolute or from the workspace; a thread before the colon goes before `-t`.
    #[arg(value_name = "[THREAD:]PATH", value_parser = remote)]
    pub(crate) remote: Remote,

    /// A file or directory here, or `-` for standard output.
    #[arg(value_name = "LOCAL")]
    pub(crate) local: PathBuf,

    /// Put it in the place of a directory that exists.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) reach: Reach,
}
