//! What may be typed.

mod agent;
mod command;
mod image;
mod listing;
mod memory;
mod parse;
mod project;
mod thread;
mod transfer;
mod upkeep;

pub(crate) use agent::{Agents, Chat};
pub(crate) use command::{Attach, Cancel, Exec, History, Logs};
pub(crate) use image::{BuildImage, Image, ImageDeed};
pub(crate) use listing::{Completions, Listing, Man, OrphanDeed, Orphans, Token, TokenDeed, Version};
pub(crate) use memory::{Memory, MemoryDeed, OfMemory};
pub(crate) use parse::Remote;
pub(crate) use project::{
    CreateProject, ImportProject, InProject, ListProjects, Project, ProjectDeed, RemoveProjects, ShowProject,
};
pub(crate) use thread::{EnvVars, Fork, List, Move, Pause, Remove, Resume, Show};
pub(crate) use transfer::{Pull, Push};
pub(crate) use upkeep::{Snapshot, SnapshotDeed, Upkeep, Which};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use parse::duration;
use std::path::PathBuf;
use std::time::Duration;
use stead_model::ids::{ShellId, ThreadId};
use stead_model::proto::Program;

/// Terminals that last: shells that keep their state, their output and their running commands.
///
/// A thread is a place to work in: files, a shell with its directory and variables, and everything that ran there. Threads
/// are made on first use and stay. A server keeps them; it is started when it is needed.
#[derive(Debug, Parser)]
#[command(
    name = "stead",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead exec 'cd /tmp && export A=1'   run a line in the thread `default`
  stead exec 'pwd; echo $A'            later, elsewhere: the same shell
  stead exec -t build --detach make    start something in the thread `build` and walk away
  stead ls                             what there is
  stead attach                         sit down at the shell yourself

Environment:
  STEAD_THREAD     the thread when `-t` is absent, else `default`
  STEAD_DATA       where data is kept, and the socket of this machine's server
  STEAD_URL        the address of a server elsewhere, `http://HOST:PORT`
  STEAD_TOKEN      what lets you in there
  NO_COLOR         no colours, even on a terminal"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Exec(Exec),
    Attach(Attach),
    Logs(Logs),
    Cancel(Cancel),
    History(History),
    #[command(name = "ls")]
    List(List),
    Show(Show),
    Pause(Pause),
    Resume(Resume),
    #[command(name = "rm")]
    Remove(Remove),
    Fork(Fork),
    Move(Move),
    Push(Push),
    Pull(Pull),
    #[command(name = "env")]
    EnvVars(EnvVars),
    Chat(Chat),
    Agents(Agents),
    Memory(Memory),
    Project(Project),
    Image(Image),
    Token(Token),
    /// List the sessions: when each began, when it will end or did, and why.
    #[command(
        after_help = "Examples:\n  stead sessions          every session, newest first\n  stead sessions --json   the same for a program"
    )]
    Sessions(Listing),
    /// List the leases: the compute behind threads, as it is wanted and as it was last seen.
    #[command(
        after_help = "Examples:\n  stead leases          every lease\n  stead leases --json   the same for a program"
    )]
    Leases(Listing),
    /// List the providers of the server, and whether each works.
    #[command(
        after_help = "Examples:\n  stead providers          where threads can run\n  stead providers --json   the same for a program"
    )]
    Providers(Listing),
    Orphans(Orphans),
    Serve(Serve),
    Shell(Shell),
    Doctor(Doctor),
    Fsck(Fsck),
    Settings(Settings),
    Completions(Completions),
    #[command(hide = true)]
    Man(Man),
    Version(Version),
    Steward(Steward),
}

/// Which server.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Server")]
pub(crate) struct Reach {
    #[command(flatten)]
    pub(crate) place: Place,

    /// A server elsewhere, as `http://HOST:PORT`; its token is taken from `STEAD_TOKEN`.
    #[arg(long, value_name = "URL", env = "STEAD_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
}

/// Which thread.
#[derive(Debug, ClapArgs)]
pub(crate) struct InThread {
    /// The thread.
    #[arg(
        short = 't',
        long,
        value_name = "THREAD",
        env = "STEAD_THREAD",
        default_value = "default",
        hide_env_values = true
    )]
    pub(crate) thread: ThreadId,
}

/// How a listing is printed.
#[derive(Debug, ClapArgs)]
pub(crate) struct AsJson {
    /// One JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print every setting with its default, as a file to start from.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead settings > stead.toml       then keep what you want to change
  stead settings --env > stead.env  the same for `stead serve --env-file stead.env`")]
pub(crate) struct Settings {
    /// As variables of the environment.
    #[arg(long)]
    pub(crate) env: bool,
}

/// Serve the HTTP interface, and look after every thread.
///
/// With no arguments it works on a fresh machine: data below the XDG data directory, a token made on first start, one
/// line printed with an address to open. Shells don't live in it: stop it, kill it, start another, and they go on.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead serve                              on 127.0.0.1:7878 and on the socket in the data directory
  stead serve --listen 0.0.0.0:7878        for other machines; name its host in server.allowed_hosts
  stead serve --data /srv/stead            data elsewhere
  STEAD_SERVER_LOG=debug stead serve       say more

Signals:
  TERM, INT   finish the answers under way and end; shells are left, paused or destroyed as `on_exit` says")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,

    /// Where to listen [default: `127.0.0.1:7878`]; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<std::net::SocketAddr>,

    /// Written to and closed when connections are taken.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) ready_fd: Option<i32>,
}

/// Say which providers work on this machine, and why not where they don't; and whether a server runs.
///
/// Each is really tried: namespaces are made, control groups are created and removed. The server is asked, not started. The
/// exit code is 0 if the provider that a thread gets by default works, and the server answers if there is one; else 1.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead doctor                       what can run here
  stead doctor --json                the same for a program
  stead doctor --config stead.toml   check a configuration without starting anything")]
pub(crate) struct Doctor {
    /// One JSON document instead of lines.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Check that everything in the data directory is as it was written, and mend what isn't.
///
/// For a server that says that something is damaged, and after a disk has failed. No server may run over the data meanwhile.
/// The database, its write-ahead log, the journals of all shells, the output of finished commands and the archives of
/// snapshots are compared with their sums; what is whole and what is damaged is said by name. Nothing is changed without
/// `--repair`, which puts flipped bits right where a sum tells which they were, saves every row and record that can be read,
/// names what is lost, and keeps the damaged files in `damaged-N` in the data directory.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead fsck                     look, change nothing
  stead fsck --repair            save what is whole
  stead fsck --data DIR --json   for a program

Exit codes:
  0 all is whole, or was made so without a loss; 1 something is damaged, or was lost in a repair; 125 stead itself failed")]
pub(crate) struct Fsck {
    /// Mend what is damaged, as far as it can be; without it nothing is changed.
    #[arg(long)]
    pub(crate) repair: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) place: Place,
}

/// Where stead keeps things and what it is told.
#[derive(Debug, ClapArgs)]
pub(crate) struct Place {
    /// Where data is kept [default: `stead` in `$XDG_DATA_HOME` or `~/.local/share`].
    #[arg(long, value_name = "DIR", env = "STEAD_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    /// The configuration [default: `stead.toml` here, else in `stead` in `$XDG_CONFIG_HOME` or `~/.config`].
    #[arg(long, value_name = "FILE", env = "STEAD_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    /// A file of `STEAD_<SECTION>_<NAME>=VALUE` lines; the environment itself stands above it.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
}

/// Run commands in a shell that keeps its state.
///
/// The shell lives in a steward, a process of its own. It is there before you come and after you leave: directory,
/// variables, functions, aliases and options last from one call to the next, and a command that you walk away from goes
/// on. With no `-c` and a terminal, lines are read and run one by one; Ctrl-C stops the running command, Ctrl-D
/// leaves. With no `-c` and no terminal, all of standard input is one command.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead shell -c 'cd /tmp' -c pwd          two commands in one shell; prints /tmp
  stead shell -c 'export A=1; f() { echo $A; }'
  stead shell -c f                         another call, the same shell: prints 1
  stead shell --timeout 2s -c 'sleep 60'   ends after two seconds with code 124; the shell lives on
  stead shell --name build -c make         another shell beside the first
  stead shell                              type commands
  echo 'echo $((6*7))' | stead shell       a script from standard input

Exit codes:
  that of the last command; 124 it timed out, 130 it was stopped, 137 it was lost, 125 stead itself failed")]
pub(crate) struct Shell {
    /// A command to run; may be given several times. Stops at the first that fails.
    #[arg(short = 'c', value_name = "COMMAND")]
    pub(crate) commands: Vec<String>,

    /// Which shell: each name is one of its own.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) name: ShellId,

    /// What to run as the shell, when it is first opened.
    #[arg(long = "shell", value_enum, default_value_t = Kind::Best)]
    pub(crate) kind: Kind,

    /// End each command after this long (`500ms`, `30s`, `5m`, `1h`); the shell lives on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Forget the shell first, with its state and its output, and begin with a fresh one.
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Where the steward keeps its shells and their output.
    #[arg(long, value_name = "DIR", env = "STEAD_SHELL_DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// bash if there is one, else dash, else ash
    Best,
    Bash,
    Dash,
    Ash,
}

impl From<Kind> for Program {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Best => Self::Best,
            Kind::Bash => Self::Bash,
            Kind::Dash => Self::Dash,
            Kind::Ash => Self::Ash,
        }
    }
}

/// Start, stop or speak to a steward; `stead steward help` tells more.
#[derive(Debug, ClapArgs)]
pub(crate) struct Steward {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    _words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
