//! What callers ask for, and which refusals they have to live with.

use std::time::Duration;
use stead_model::ids::{CommandId, InstanceId, SessionId, TerminalId, ThreadId};
use stead_model::proto::Status;
use stead_model::session::CloseReason;
use stead_model::state::Bytes;
use stead_model::terminal::Terminal;
use stead_server::Error;
use stead_server::lease::{AutoResume, Force};
use stead_server::stead::{EnvChange, Execute, NewThread, Stead, Where};

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Get(Place, AutoResume),
    Run(Place, Text, Option<CommandId>),
    /// The same command again, under its id.
    Repeat(Place, Text, CommandId),
    Touch(Place),
    Pause(ThreadId, Force),
    Resume(ThreadId),
    Destroy(ThreadId, Force),
    Delete(ThreadId),
    Create(ThreadId, Option<ThreadId>),
    CreateTerminal(ThreadId),
    Close(ThreadId),
    Restore(Place, TerminalId, u64),
    SetEnv(Place, &'static str, String),
    Reap,
    Look(ThreadId),
    Adopt(InstanceId),
    Remove(InstanceId),
    /// Not ours: the world does it, in the middle of all.
    Kill(InstanceId, Duration),
}

/// A terminal by its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) thread: ThreadId,
    pub(crate) name: &'static str,
}

/// A command of the toy shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    Cd(String),
    Export(&'static str, String),
    Env,
    Other(&'static str),
}

impl Text {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Cd(to) => format!("cd {to}"),
            Self::Export(name, value) => format!("export {name}={value}"),
            Self::Env => "env".to_owned(),
            Self::Other(text) => (*text).to_owned(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Done,
    Ran(Ran),
    Restored(Box<Terminal>),
    Set(TerminalId),
    Refused {
        code: &'static str,
        message: String,
    },
    /// Nobody waited for it, or nobody lived to give it.
    None,
}

#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) id: CommandId,
    pub(crate) terminal: TerminalId,
    pub(crate) session: Option<SessionId>,
    pub(crate) status: Status,
    pub(crate) code: Option<i32>,
    pub(crate) version: u64,
    pub(crate) cwd: String,
    pub(crate) stdout: String,
    /// Whether that is all it printed.
    pub(crate) whole: bool,
    pub(crate) warnings: Vec<String>,
}

impl Op {
    pub(crate) async fn perform(&self, stead: &Stead, fake: &stead_server::provider::fake::Fake) -> Answer {
        match self.try_perform(stead, fake).await {
            Ok(answer) => answer,
            Err(error) => Answer::Refused { code: error.code(), message: error.to_string() },
        }
    }

    async fn try_perform(&self, stead: &Stead, fake: &stead_server::provider::fake::Fake) -> Result<Answer, Error> {
        match self {
            Self::Get(place, resume) => {
                stead.get_sandbox(Where { auto_resume: *resume, ..place.at() }).await?;
            }
            Self::Run(place, text, id) => return run(stead, place, text, id.clone()).await,
            Self::Repeat(place, text, id) => return run(stead, place, text, Some(id.clone())).await,
            Self::Touch(place) => stead.get_sandbox(place.at()).await?.touch().await?,
            Self::Pause(thread, force) => drop(stead.pause(thread, *force).await?),
            Self::Resume(thread) => drop(stead.resume(thread).await?),
            Self::Destroy(thread, force) => drop(stead.destroy(thread, *force).await?),
            Self::Delete(thread) => stead.delete_thread(thread).await?,
            Self::Create(thread, share) => {
                let new = NewThread { id: Some(thread.clone()), share_with: share.clone(), ..NewThread::default() };
                stead.create_thread(new).await?;
            }
            Self::CreateTerminal(thread) => drop(stead.create_terminal(thread, "build", None, &[]).await?),
            Self::Close(thread) => drop(stead.close_session(thread, CloseReason::Closed).await?),
            Self::Restore(_, terminal, version) => {
                return Ok(Answer::Restored(Box::new(stead.restore(terminal, *version).await?)));
            }
            Self::SetEnv(place, name, value) => {
                let vars = [(Bytes::from(name), Some(Bytes::from(value)))].into();
                let change = EnvChange { vars, ..EnvChange::default() };
                return Ok(Answer::Set(stead.set_env(&place.thread, place.name, change).await?.id));
            }
            Self::Reap => drop(stead.reap().await?),
            Self::Look(thread) => {
                let lease = stead.thread(thread).await?.lease;
                stead.lease(&lease).await?;
            }
            Self::Adopt(instance) => drop(stead.adopt(instance).await?),
            Self::Remove(instance) => stead.remove_orphan(instance).await?,
            Self::Kill(instance, after) => {
                tokio::time::sleep(*after).await;
                fake.kill(instance);
            }
        }
        Ok(Answer::Done)
    }

    /// The place whose shell it may change.
    pub(crate) fn place(&self) -> Option<&Place> {
        match self {
            Self::Get(place, _)
            | Self::Run(place, ..)
            | Self::Repeat(place, ..)
            | Self::Touch(place)
            | Self::Restore(place, ..)
            | Self::SetEnv(place, ..) => Some(place),
            _ => None,
        }
    }

    pub(crate) fn thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Pause(thread, _)
            | Self::Resume(thread)
            | Self::Destroy(thread, _)
            | Self::Delete(thread)
            | Self::Create(thread, _)
            | Self::CreateTerminal(thread)
            | Self::Close(thread)
            | Self::Look(thread) => Some(thread),
            _ => self.place().map(|place| &place.thread),
        }
    }

    /// Whether others beside it may fail for good reason.
    pub(crate) fn disturbs(&self) -> bool {
        match self {
            Self::Pause(..)
            | Self::Destroy(..)
            | Self::Delete(_)
            | Self::Close(_)
            | Self::Restore(..)
            | Self::Remove(_)
            | Self::Reap
            | Self::Kill(..) => true,
            Self::Get(..)
            | Self::Run(..)
            | Self::Repeat(..)
            | Self::Touch(_)
            | Self::Resume(_)
            | Self::Create(..)
            | Self::CreateTerminal(_)
            | Self::SetEnv(..)
            | Self::Look(_)
            | Self::Adopt(_) => false,
        }
    }

    /// Refusals that are nobody's fault, whatever the provider does.
    pub(crate) fn may_be_refused(&self, code: &str) -> bool {
        let codes: &[&str] = match self {
            Self::Get(_, AutoResume::No) => &["paused"],
            Self::Get(_, AutoResume::Yes)
            | Self::Run(_, _, None)
            | Self::Touch(_)
            | Self::Resume(_)
            | Self::Delete(_)
            | Self::Destroy(_, Force::Yes)
            | Self::Reap
            | Self::Look(_)
            | Self::Kill(..) => &[],
            Self::Run(_, _, Some(_)) | Self::Repeat(..) | Self::Destroy(_, Force::No) => &["conflict"],
            Self::Pause(_, Force::No) => &["conflict", "unsupported"],
            Self::Pause(_, Force::Yes) => &["unsupported"],
            Self::Create(..) => &["already_exists", "not_found"],
            Self::CreateTerminal(_) => &["already_exists"],
            Self::Close(_) => &["terminal_busy"],
            Self::Restore(..) => &["terminal_busy", "not_found", "conflict"],
            Self::Adopt(_) => &["conflict", "not_found", "already_exists"],
            Self::Remove(_) | Self::SetEnv(..) => &["not_found"],
        };
        codes.contains(&code)
    }
}

impl Place {
    pub(crate) fn at(&self) -> Where {
        Where { terminal: self.name.to_owned(), ..Where::thread(self.thread.clone()) }
    }
}

async fn run(stead: &Stead, place: &Place, text: &Text, id: Option<CommandId>) -> Result<Answer, Error> {
    let sandbox = stead.get_sandbox(place.at()).await?;
    let executed = sandbox.run(Execute { id, ..Execute::new(text.text()) }).await?;
    let code = executed.exit_code();
    let command = executed.command;
    let warnings = command.ending.iter().flat_map(|ending| &ending.warnings);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Answer::Ran(Ran {
        warnings: warnings.map(|warning| warning.code.clone()).collect(),
        id: command.id,
        terminal: command.terminal,
        session: command.session,
        status: command.status,
        code,
        version: command.state_version,
        cwd: text(&command.cwd),
        whole: executed.stdout.len() as u64 == command.stdout_bytes,
        stdout: text(&executed.stdout),
    }))
}
