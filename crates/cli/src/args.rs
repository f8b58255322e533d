//! What may be typed.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use stead_model::ids::ShellId;
use stead_model::proto::Program;

/// Terminals that last: shells that keep their state, their output and their running commands.
#[derive(Debug, Parser)]
#[command(name = "stead", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Serve(Serve),
    Shell(Shell),
    Doctor(Doctor),
    Steward(Steward),
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

/// Say which providers work on this machine, and why not where they don't.
///
/// Each is really tried: namespaces are made, control groups are created and removed. The exit code is 0 if the provider
/// that a thread gets by default works, else 1.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead doctor                       what can run here
  stead doctor --json                the same for a program
  stead doctor --config stead.toml   check a configuration without starting anything")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,

    /// One JSON document instead of lines.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where stead keeps things and what it is told.
#[derive(Debug, ClapArgs)]
pub(crate) struct Place {
    /// Where data is kept [default: `stead` in `$XDG_DATA_HOME` or `~/.local/share`].
    #[arg(long, value_name = "DIR", env = "STEAD_DATA")]
    pub(crate) data: Option<PathBuf>,

    /// The configuration [default: `stead.toml` here, else in `stead` in `$XDG_CONFIG_HOME` or `~/.config`].
    #[arg(long, value_name = "FILE", env = "STEAD_CONFIG")]
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

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a time; write `500ms`, `30s`, `5m` or `1h`"))?;
    match text.get(digits.len()..).unwrap_or_default() {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        unit => Err(format!("`{unit}` is not a unit of time; use `ms`, `s`, `m` or `h`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit_and_refused_without_sense() {
        for (text, want) in [("500ms", 500), ("30s", 30_000), ("7", 7000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(want)), "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1.5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_arguments_are_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
