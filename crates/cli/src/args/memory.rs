//! Verbs about the memories of a project.

use super::{AsJson, Reach};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use stead_model::ids::{ProjectId, SessionId};

/// Read and write the memories of a project: small files that its agents keep.
///
/// Hot memories are kept in RAM by the server, with a journal: what was put is there after the death of any process.
/// Persistent ones are files in the project's directory. A path that begins with `/` names any file of the project by its
/// routes, as `/workspace/README.md`; those that are kept for a session alone need `--session`.
#[derive(Debug, ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead memory put -p web-01234567 plan.md < plan.md   keep it, hot
  stead memory get -p web-01234567 plan.md             print it
  stead memory ls -p web-01234567                      what is kept
  stead memory rm -p web-01234567 plan.md              forget it
  stead memory ls -p web-01234567 --persistent         the same of those that are files
  stead memory ls -p web-01234567 --session ID /tmp    files of a session"
)]
pub(crate) struct Memory {
    #[command(subcommand)]
    pub(crate) deed: MemoryDeed,
}

/// Whose memories, and which.
#[derive(Debug, ClapArgs)]
pub(crate) struct OfMemory {
    /// The project.
    #[arg(short = 'p', long, value_name = "PROJECT", env = "STEAD_PROJECT", hide_env_values = true)]
    pub(crate) project: ProjectId,

    /// Those that are files in the project's directory, rather than hot ones.
    #[arg(long)]
    pub(crate) persistent: bool,

    /// For paths that are kept for a session, as `/tmp`: whose.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryDeed {
    /// List memories, with all that is in directories.
    #[command(
        name = "ls",
        after_help = "Examples:\n  stead memory ls -p web-01234567\n  stead memory ls -p web-01234567 notes --json\n  stead memory ls -p web-01234567 /            every file of the project"
    )]
    List {
        /// A directory of them.
        #[arg(value_name = "PATH")]
        path: Option<String>,
        #[command(flatten)]
        at: OfMemory,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Print a memory, or a part of it, byte for byte.
    #[command(
        after_help = "Examples:\n  stead memory get -p web-01234567 plan.md\n  stead memory get -p web-01234567 log.md --offset 100 --limit 20   lines 100 to 119"
    )]
    Get {
        #[arg(value_name = "PATH")]
        path: String,
        /// The first line to print, from 0.
        #[arg(long, value_name = "LINE")]
        offset: Option<u64>,
        /// How many lines to print.
        #[arg(long, value_name = "LINES")]
        limit: Option<u64>,
        #[command(flatten)]
        at: OfMemory,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Keep a memory: a file, or standard input.
    #[command(
        after_help = "Examples:\n  stead memory put -p web-01234567 plan.md plan.md\n  date | stead memory put -p web-01234567 seen/last\n  stead memory put -p web-01234567 --new lock < /dev/null   only if there is none"
    )]
    Put {
        #[arg(value_name = "PATH")]
        path: String,
        /// What to keep; `-`, or nothing: standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Fail if there is one already.
        #[arg(long)]
        new: bool,
        #[command(flatten)]
        at: OfMemory,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Forget a memory.
    #[command(
        name = "rm",
        after_help = "Examples:\n  stead memory rm -p web-01234567 plan.md\n  stead memory rm -p web-01234567 -r notes   a directory with all that is in it"
    )]
    Remove {
        #[arg(value_name = "PATH")]
        path: String,
        /// A directory with all that is in it.
        #[arg(short = 'r', long)]
        recursive: bool,
        #[command(flatten)]
        at: OfMemory,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
}
