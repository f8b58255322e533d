//! Verbs about terminal agents.

use super::{AsJson, InThread, Reach};
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// Talk to a terminal agent: Codex, Claude Code, Gemini, Auggie, opencode, or one of your own.
///
/// Its answer goes to standard output as it is written; what it does goes to standard error. It works in a thread's sandbox,
/// a project's, or a directory of the server's machine, and keeps its conversation. Without a message it is a
/// conversation: a line is a message. Ctrl-C ends the turn, not the agent; between turns it ends the conversation.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead chat 'what is in this directory?'          the first agent that is installed
  stead chat --agent claude -t web 'fix the test'  another, in the thread `web`
  stead chat --agent codex --model gpt-5 -t web    a conversation
  stead chat --permissions allow 'run the tests'   without asking")]
pub(crate) struct Chat {
    /// The agent, as `stead agents` has it [default: the first that is installed].
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,

    /// Work in this project.
    #[arg(long, value_name = "PROJECT", conflicts_with_all = ["workspace", "thread"])]
    pub(crate) project: Option<String>,

    /// Work in this directory of the server's machine; it must lie below one of its `agents.allowed_roots`.
    #[arg(long, value_name = "DIR", conflicts_with = "thread")]
    pub(crate) workspace: Option<PathBuf>,

    /// Another model is another session.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// What becomes of questions for permission in this conversation [default: what the session says, else ask].
    #[arg(long, value_name = "RULE")]
    pub(crate) permissions: Option<Permissions>,

    /// Wait for the session if it is busy, instead of failing.
    #[arg(long)]
    pub(crate) queue: bool,

    #[command(flatten)]
    pub(crate) at: InThread,

    /// What to say [default: lines from standard input].
    #[arg(value_name = "MESSAGE")]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permissions {
    Ask,
    Allow,
    Deny,
}

impl Permissions {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// List the terminal agents: which are installed, how they are spoken to, and how to get the others.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead agents              which there are
  stead agents --sessions   the sessions they have
  stead agents --json       the same for a program")]
pub(crate) struct Agents {
    /// Their sessions instead.
    #[arg(long)]
    pub(crate) sessions: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}
