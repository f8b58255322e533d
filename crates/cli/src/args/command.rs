//! Verbs about commands.

use super::parse::{Variable, duration, variable};
use super::{AsJson, InProject, InThread, Reach};
use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::time::Duration;
use stead_model::ids::CommandId;

/// Run a command in a thread, and end as it ends.
///
/// The thread is made on first use. Its shell keeps directory, variables, functions and options from one call to the next.
/// Output is passed on byte for byte; when the connection breaks or the server is started again it goes on where it was.
/// The command never depends on us: Ctrl-C asks it to stop, a second Ctrl-C leaves it running. A reader that goes away
/// (`| head`) ends the command, as it would without stead.
///
/// One argument is a line for the shell. Several are the words of one command, each taken as it is.
///
/// Standard input is passed on unless it is a terminal; in a loop that reads lines, say `-n`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead exec 'cd src && ls *.rs | wc -l'     a line for the shell
  stead exec -- grep -n 'a b' notes.txt      words, quoted for you
  stead exec -t build --timeout 5m make      at most five minutes; 124 if that is not enough
  stead exec --env LANG=C --cwd /tmp ls      for this command only
  id=$(stead exec --detach 'sleep 60; make') start it and walk away
  stead logs -f \"$id\"                        and see what became of it
  stead exec --id deploy-42 ./deploy.sh      run once, however often this is called
  tar c . | stead exec 'tar x -C /workspace' input from a pipe
  stead exec --json 'echo hi'                the whole record, output included
  stead exec --project web-01234567 make     in a project, on its files

Exit codes:
  that of the command; 124 it timed out, 130 it was cancelled, 137 it was lost, 125 stead itself failed")]
pub(crate) struct Exec {
    /// What to run.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) at: InThread,

    #[command(flatten)]
    pub(crate) project: InProject,

    /// The terminal of the thread, by its name [default: the thread's first].
    #[arg(long, value_name = "NAME")]
    pub(crate) terminal: Option<String>,

    /// The directory to run in, for this command only.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,

    /// A variable for this command only; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<Variable>,

    /// End the command this long after it starts (`500ms`, `30s`, `5m`, `1h`); the shell lives on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Start the command, print its id, and don't wait for it.
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,

    /// A name for the command, chosen by you: with the same name it runs once.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<CommandId>,

    /// Don't read standard input; the command finds it empty.
    #[arg(short = 'n', long = "no-stdin")]
    pub(crate) no_stdin: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Sit down at the shell of a thread.
///
/// The screen is as it is, for everybody who is attached. What you start goes on when you leave, by the keys or by Ctrl-D at
/// the prompt. The connection is made anew when it breaks.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead attach                           the thread `default`
  stead attach -t build                  another
  stead attach --agent agent-0123456789ab  an agent at work
  stead attach --detach-keys ctrl-p,q    leave with Ctrl-P and then Q
  stead attach --detach-keys ''          no key leaves; Ctrl-D at the prompt does")]
pub(crate) struct Attach {
    #[command(flatten)]
    pub(crate) at: InThread,

    #[command(flatten)]
    pub(crate) project: InProject,

    /// The terminal of the thread, by its name [default: the thread's first].
    #[arg(long, value_name = "NAME")]
    pub(crate) terminal: Option<String>,

    /// The terminal of an agent session, by its id or key: what the agent shows there.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["thread", "terminal"])]
    pub(crate) agent: Option<String>,

    /// The keys that leave: letters or `ctrl-` and one of `a`-`z @ [ \ ] ^ _`, with commas between.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-\\")]
    pub(crate) detach_keys: crate::attach::keys::DetachKeys,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Print what a command wrote: its output to standard output, its errors to standard error.
///
/// Without `-f`, what there is now. Logs stay when the compute is paused or gone.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead logs cmd-0123456789ab              everything so far
  stead logs -f cmd-0123456789ab           and what comes, until it ends
  stead logs --since 17 cmd-0123456789ab   from the event after number 17
  stead logs --late cmd-0123456789ab       with what its background processes wrote after its end")]
pub(crate) struct Logs {
    /// The command.
    #[arg(value_name = "CMD")]
    pub(crate) command: CommandId,

    /// Go on until the command ends.
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,

    /// Leave out the events up to this number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) since: u64,

    /// Also what came after the end, from processes that it left running.
    #[arg(long)]
    pub(crate) late: bool,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Stop a command: it is interrupted, then asked to end, then killed. The shell lives on.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead cancel cmd-0123456789ab                 stop it
  stead cancel --signal TERM cmd-0123456789ab   beginning with another signal")]
pub(crate) struct Cancel {
    /// The command.
    #[arg(value_name = "CMD")]
    pub(crate) command: CommandId,

    /// The first signal [default: INT].
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) signal: Option<String>,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// List the commands of a thread, newest first.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead history                  the last 20 of the thread `default`
  stead history -t build -l 5    the last five of another
  stead history --json           every field, for a program")]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) at: InThread,

    /// How many.
    #[arg(short = 'l', long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}
