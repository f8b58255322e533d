//! Verbs about how long a project is kept, and its snapshots.

use super::{AsJson, Reach};
use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Upkeep {
    /// Keep a project for some days more.
    ///
    /// They are added to those that it has; work in it later never shortens them.
    #[command(after_help = "Examples:\n  stead project extend app-0123abcd 30   a month on top of what it has")]
    Extend {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Keep a project for ever.
    #[command(after_help = "Examples:\n  stead project pin app-0123abcd   it is never cleaned away")]
    Pin {
        #[command(flatten)]
        which: Which,
    },
    /// Keep a project no longer than others.
    #[command(after_help = "Examples:\n  stead project unpin app-0123abcd   it is warned of before it goes")]
    Unpin {
        #[command(flatten)]
        which: Which,
    },
    /// Take a project out of the trash.
    ///
    /// For a day after it was removed, or as long as `projects.trash_hours` says. It has all its days again.
    #[command(
        after_help = "Examples:\n  stead project restore app-0123abcd   files, threads and terminals as they were"
    )]
    Restore {
        #[command(flatten)]
        which: Which,
    },
    /// Look through all projects and threads now: warn, mark, move to the trash, empty the trash.
    ///
    /// The server does so once a day by itself. What nobody worked in for 30 days is marked, and removed a day later.
    #[command(
        after_help = "Examples:\n  stead project clean --dry-run   what would happen\n  stead project clean             and now it does"
    )]
    Clean {
        /// Change nothing; say what would happen.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    Snapshot(Snapshot),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Which {
    #[arg(value_name = "PROJECT")]
    pub(crate) project: String,
    #[command(flatten)]
    pub(crate) form: AsJson,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Take, list, restore and remove snapshots of a project's files.
///
/// A snapshot has the workspace, the home directory and the memories. The same files are stored once.
#[derive(Debug, ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead project snapshot create app-0123abcd          prints its id
  stead project snapshot ls app-0123abcd
  stead project snapshot restore app-0123abcd snap-0123456789abcdef"
)]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    pub(crate) deed: SnapshotDeed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotDeed {
    /// Take a snapshot and print its id.
    #[command(
        after_help = "Examples:\n  stead project snapshot create app-0123abcd\n  stead project snapshot create --keep-days 7 --description 'before the upgrade' app-0123abcd"
    )]
    Create {
        #[arg(value_name = "PROJECT")]
        project: String,
        /// What it is for.
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
        /// It goes after so many days [default: with its project, or as configured].
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        keep_days: Option<u32>,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the snapshots of a project, newest first.
    #[command(name = "ls", after_help = "Examples:\n  stead project snapshot ls app-0123abcd --json")]
    List {
        #[command(flatten)]
        which: Which,
    },
    /// Give a project the files of a snapshot; those it has are gone then.
    ///
    /// Refused while a command runs in the project, unless forced. Terminals keep their state.
    #[command(
        after_help = "Examples:\n  stead project snapshot restore app-0123abcd snap-0123456789abcdef\n  stead project snapshot restore -f app-0123abcd snap-0123456789abcdef   cancels what runs"
    )]
    Restore {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "SNAPSHOT")]
        snapshot: String,
        /// Cancel what runs.
        #[arg(short = 'f', long)]
        force: bool,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove snapshots.
    #[command(name = "rm", after_help = "Examples:\n  stead project snapshot rm app-0123abcd snap-0123456789abcdef")]
    Remove {
        #[arg(value_name = "PROJECT")]
        project: String,
        #[arg(value_name = "SNAPSHOT", required = true)]
        snapshots: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
}
