//! Verbs about projects.

use super::parse::{Variable, variable};
use super::{AsJson, Reach, Upkeep};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use stead_model::ids::{ProjectId, ProviderName};

/// Make, list and remove projects: workspaces that threads share.
///
/// A project has files, a home, memories and settings that all its threads begin with. It is kept as long as it is used.
#[derive(Debug, ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  stead project create web --repo https://example.com/web.git
  stead project ls                               how old, how large, how long they are kept
  stead exec --project web-01234567 'make test'  work in it
  stead project extend web-01234567 30           keep it for thirty days more
  stead project rm web-01234567                  to the trash
  stead project restore web-01234567             and out of it"
)]
pub(crate) struct Project {
    #[command(subcommand)]
    pub(crate) deed: ProjectDeed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectDeed {
    Create(Box<CreateProject>),
    #[command(name = "ls")]
    List(ListProjects),
    Show(ShowProject),
    #[command(name = "rm")]
    Remove(RemoveProjects),
    Import(ImportProject),
    #[command(flatten)]
    Upkeep(Upkeep),
}

/// Make a project and print its id: the prefix, and eight digits.
///
/// A repository is cloned into its workspace; this waits for it, and says how far it is if there is a terminal.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead project create web
  stead project create web --tag shop --description 'the shop' --env NODE_ENV=test
  stead project create web --repo https://example.com/web.git --network none --disk 10GiB
  id=$(stead project create web --agent codex --model gpt-5)

Exit codes:
  1 it was made, and its repository could not be cloned")]
pub(crate) struct CreateProject {
    /// What its id begins with: lower-case letters, digits and hyphens, beginning with a letter.
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: String,

    /// What it is for.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,

    /// A word to find it by; may be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,

    /// A repository to begin with: `https`, `ssh` or `git`.
    #[arg(long, value_name = "URL")]
    pub(crate) repo: Option<String>,

    /// A snapshot, of any project, whose files it begins with.
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "repo")]
    pub(crate) from_snapshot: Option<String>,

    /// Where its threads run, unless they say otherwise.
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<ProviderName>,

    /// What its instances are made of, where the provider has images.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// A variable that its shells begin with; may be given several times. Not for secrets.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<Variable>,

    /// The network of its instances: `host` or `none`, where the provider can.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) network: Option<String>,

    /// The memory of each instance, as `2GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,

    /// The processes of each instance.
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u64>,

    /// The processors of each instance, as `1.5`.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<f64>,

    /// All that it may have on disk, as `10GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,

    /// Instances that may be live at once.
    #[arg(long, value_name = "N")]
    pub(crate) instances: Option<u32>,

    /// The agent that works in it.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,

    /// The model of that agent.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Days that it is kept without being used [default: as the server is configured].
    #[arg(long, value_name = "DAYS")]
    pub(crate) keep: Option<u32>,

    /// Don't wait for the repository.
    #[arg(long)]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// List the projects: how old each is, when it was last used, how long it is kept, how much it holds.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead project ls
  stead project ls --prefix web --tag shop --tag live
  stead project ls --status trashed
  stead project ls --json")]
pub(crate) struct ListProjects {
    /// Those whose prefix begins so.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Those that have this tag; given several times, those that have all.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,

    /// Those that are `active`, `warned`, `marked` or `trashed` [default: all but the last].
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Show a project: its settings, its sessions, what has happened in it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead project show web-01234567
  stead project show web-01234567 --json")]
pub(crate) struct ShowProject {
    #[arg(value_name = "PROJECT")]
    pub(crate) project: ProjectId,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Put projects into the trash, from where they can be restored for a day.
///
/// Refused while somebody works in one, unless forced: then what runs there is ended.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead project rm web-01234567
  stead project rm --force web-01234567   also while somebody works in it")]
pub(crate) struct RemoveProjects {
    #[arg(value_name = "PROJECT", required = true)]
    pub(crate) projects: Vec<ProjectId>,

    /// Also while somebody works in it.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Make a project of a directory that was one elsewhere, by its `.project_metadata.json`. It keeps its id.
///
/// The directory is one of the server's machine. It is copied, unless it lies in `DATA/projects` already.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  stead project import /backup/projects/web-01234567")]
pub(crate) struct ImportProject {
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) form: AsJson,

    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Which project a thread is made in.
#[derive(Debug, ClapArgs)]
pub(crate) struct InProject {
    /// Work in this project: the thread is made there, and is called as the project is unless `-t` names one.
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<ProjectId>,
}
