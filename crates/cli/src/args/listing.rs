//! Verbs about the server and about this program.

use super::parse::duration;
use super::{AsJson, Reach};
use clap::{Args as ClapArgs, Subcommand};
use std::time::Duration;

#[derive(Debug, ClapArgs)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Make, list and revoke the tokens that let programs in.
#[derive(Debug, ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead token create ci           prints the token; it is not shown again
  stead token ls                  who has one, and when it was last used
  stead token revoke tok-01234567 from now on it opens nothing"
)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) deed: TokenDeed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenDeed {
    /// Make a token and print it, this once.
    #[command(
        after_help = "Examples:\n  STEAD_TOKEN=$(stead token create ci)\n  stead token create --read-only --expires 12h screen\n  stead token create --project web-01234567 agent"
    )]
    Create {
        /// What it is for.
        #[arg(value_name = "NAME")]
        name: String,
        /// It may look, and change nothing.
        #[arg(long)]
        read_only: bool,
        /// It is good for this project alone; may be given several times.
        #[arg(long = "project", value_name = "PROJECT")]
        projects: Vec<String>,
        /// It is good for this long only (`30s`, `5m`, `1h`).
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the tokens; their secret part is not kept, so it is not shown.
    #[command(name = "ls", after_help = "Examples:\n  stead token ls --json")]
    List {
        #[command(flatten)]
        form: AsJson,
        #[command(flatten)]
        reach: Reach,
    },
    /// Take a token back.
    #[command(after_help = "Examples:\n  stead token revoke tok-01234567")]
    Revoke {
        /// Its id, as `stead token ls` has it.
        #[arg(value_name = "TOKEN")]
        id: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// List instances that belong to no thread any more; take them back or remove them.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  stead orphans                            what runs and belongs to nobody
  stead orphans adopt inst-0123456789ab    make it its thread's again
  stead orphans remove inst-0123456789ab   end it"
)]
pub(crate) struct Orphans {
    #[command(subcommand)]
    pub(crate) deed: Option<OrphanDeed>,
    #[command(flatten)]
    pub(crate) form: AsJson,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrphanDeed {
    /// Give an instance back to its thread.
    #[command(after_help = "Examples:\n  stead orphans adopt inst-0123456789ab")]
    Adopt {
        #[arg(value_name = "INSTANCE")]
        instance: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Destroy an instance.
    #[command(after_help = "Examples:\n  stead orphans remove inst-0123456789ab")]
    Remove {
        #[arg(value_name = "INSTANCE")]
        instance: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// Print a script that teaches a shell to complete `stead`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead completions bash > ~/.local/share/bash-completion/completions/stead
  stead completions zsh > ~/.zfunc/_stead
  stead completions fish > ~/.config/fish/completions/stead.fish")]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  stead man | man -l -")]
pub(crate) struct Man {}

/// Print the version of this program, and of the server if one runs.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead version
  stead version --json")]
pub(crate) struct Version {
    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}
