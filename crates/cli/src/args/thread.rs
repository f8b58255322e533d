//! Verbs about threads.

use super::parse::{Variable, variable, variable_name};
use super::{AsJson, InThread, Reach};
use clap::Args as ClapArgs;
use stead_model::ids::{ProviderName, ThreadId};

/// List the threads, the last used first.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead ls          what there is, where it runs, when it was last used
  stead ls --json   every field, for a program")]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Show a thread with its session, its terminals and its compute. Wakes nothing.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead show build          directory, state, when it expires
  stead show --json build   every field, for a program")]
pub(crate) struct Show {
    #[arg(value_name = "THREAD")]
    pub(crate) thread: ThreadId,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Pause the compute of a thread. The next command wakes it.
///
/// While a command runs, or another thread works on the same compute, this is refused unless forced; what runs is then
/// frozen, and goes on after `stead resume`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead pause build           when nothing runs
  stead pause --force build   freeze what runs")]
pub(crate) struct Pause {
    #[arg(value_name = "THREAD")]
    pub(crate) thread: ThreadId,

    /// Freeze what runs.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Wake the compute of a thread that was paused.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead resume build   what was frozen goes on")]
pub(crate) struct Resume {
    #[arg(value_name = "THREAD")]
    pub(crate) thread: ThreadId,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Remove a thread: what runs is cancelled, its shell and, unless others use them, its files and compute go.
///
/// Asks before it does so if there is a terminal to ask on; else it wants `-f`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead rm build      asks first
  stead rm -f a b c   several, without a question")]
pub(crate) struct Remove {
    #[arg(value_name = "THREAD", required = true)]
    pub(crate) threads: Vec<ThreadId>,

    /// Don't ask.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Make a new thread that begins where another one is: the same directory, variables, functions and options.
///
/// It gets a copy of the files, or shares them with `--share`. Its id is printed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead fork build try-2            with a copy of the files
  stead fork build --share          with the same files, and an id that is made up")]
pub(crate) struct Fork {
    #[arg(value_name = "THREAD")]
    pub(crate) thread: ThreadId,

    /// The id of the new thread [default: one is made up].
    #[arg(value_name = "NEW")]
    pub(crate) new: Option<ThreadId>,

    /// Work on the same files instead of a copy.
    #[arg(long)]
    pub(crate) share: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Move a thread to another provider, with its files and the state of its shells.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead providers            where threads can run
  stead move build docker    and there it goes on")]
pub(crate) struct Move {
    #[arg(value_name = "THREAD")]
    pub(crate) thread: ThreadId,

    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: ProviderName,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Show or change the variables of a thread's shell.
///
/// Changes are made together or not at all, and hold from the next command on, in new shells too. A secret is read from
/// standard input, so that it is in no list of processes and no history; it is stored encrypted and shown as `***`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead env                                what differs from a fresh shell
  stead env LANG=C EDITOR=vi               set two
  stead env --unset EDITOR -t build        unset one, in another thread
  stead env --secret API_KEY               asks for the value
  pass show api | stead env --secret API_KEY
  printf '%s\\n' \"$a\" \"$b\" | stead env --secret A --secret B   one line for each")]
pub(crate) struct EnvVars {
    #[command(flatten)]
    pub(crate) at: InThread,

    /// The terminal of the thread, by its name [default: the thread's first].
    #[arg(long, value_name = "NAME")]
    pub(crate) terminal: Option<String>,

    /// A variable to set.
    #[arg(value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) set: Vec<Variable>,

    /// A variable to unset; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = variable_name)]
    pub(crate) unset: Vec<String>,

    /// A variable whose value is a secret, read from standard input; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = variable_name)]
    pub(crate) secret: Vec<String>,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}
