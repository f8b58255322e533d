//! The command line of the roles. `stead steward ..` and the small static `steward` share it; people see it seldom, so
//! it is plain.

use crate::bridge;
use crate::client::{Client, ClientError};
use crate::dir::{Dir, DirError};
use crate::ferry;
pub use crate::ferry::FerryError;
use crate::heir;
use crate::host::Settings;
use crate::keeper::{self, Role};
use crate::serve;
use crate::start::{self, StartError, Started};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{PLACE, PROGRAM};
use stead_model::proto::Request;
use stead_term::enclose::{self, Failed};
use stead_term::spawn::{self, Side};

pub const USAGE: &str = "\
Usage: steward start|connect|carry|stop|status --dir DIR [--journal-limit BYTES] [--command-limit N]
       [--shell-limit N]

  start     run a steward over DIR in the background, or find the one that runs there
  connect   speak the protocol of DIR's steward on standard input and output
  carry     tell on standard input and output what is in DIR's journals and which files there are
  stop      end all shells of DIR's steward, then the steward
  status    say whether a steward runs over DIR

       steward ferry open --dir DIR -- PROGRAM ARGUMENTS
       steward ferry take --dir DIR --from OFFSET [--wait MS] [--most BYTES]
       steward ferry put --dir DIR --at OFFSET [--wait MS] [--end] BASE64
       steward ferry close --dir DIR

  open      run PROGRAM in the background and hold its input and output
  take      print its output from OFFSET on, in base64, once there is some
  put       give it input, which begins at OFFSET; once, however often it is put
  close     end its input and let go of it

  --dir DIR               where its socket, shells and journal are; made private (0700)
  --journal-limit BYTES   remove the oldest finished output past this (default 21474836480)
  --command-limit N       remember this many finished commands for each shell (default 65536)
  --shell-limit N         have at most this many shells open at the same time (default 1000)
";

#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("{0}\n\n{USAGE}")]
    Usage(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Enclose(#[from] Failed),
    #[error(transparent)]
    Ferry(#[from] FerryError),
    #[error("can't read what to enclose from `{0}`")]
    Spec(PathBuf, #[source] io::Error),
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
}

/// What to print on success.
pub type Said = Option<String>;

/// Runs one role. `call` is how this program is called as a steward: nothing for `steward`, the word `steward` for
/// `stead`.
pub fn run(call: &[&str], arguments: &[OsString]) -> Result<Said, EntryError> {
    if let Some((_, rest)) = arguments.split_first().filter(|(role, _)| *role == "ferry") {
        return ferry::run(call, rest);
    }
    let asked = Asked::parse(call, arguments)?;
    match asked.role.as_str() {
        "start" => {
            let keeper = |dir: &Dir| asked.role_of(dir, "keep");
            Ok(Some(match start::start(&asked.dir, &keeper)? {
                Started::Now => "started\n".to_owned(),
                Started::Before => "already running\n".to_owned(),
            }))
        }
        "connect" => {
            let dir = Dir::open(&asked.dir)?;
            bridge::run(&dir)
                .map_err(|source| EntryError::Io { what: "the connection to the steward broke", source })?;
            Ok(None)
        }
        "carry" => {
            crate::carry::run(&Dir::open(&asked.dir)?, asked.window)
                .map_err(|source| EntryError::Io { what: "nothing can be carried", source })?;
            Ok(None)
        }
        "stop" => {
            Client::connect(&asked.dir, "steward stop")?.request(&Request::Shutdown)?;
            start::await_end(&Dir::open(&asked.dir)?);
            Ok(Some("stopped\n".to_owned()))
        }
        "status" => {
            let client = Client::connect(&asked.dir, "steward status")?;
            let welcome = client.welcome();
            Ok(Some(format!(
                "steward {} running as {} (keeper {}), start {}\n",
                welcome.build, welcome.pid, welcome.keeper_pid, welcome.epoch
            )))
        }
        "enclose" => asked.enclose().map(|()| None),
        "keep" => asked.keep().map(|()| None),
        "run" => asked.serve().map(|()| None),
        "inherit" => asked.inherit().map(|()| None),
        "help" | "--help" | "-h" => Ok(Some(USAGE.to_owned())),
        other => Err(EntryError::Usage(format!("`{other}` is not something a steward can do"))),
    }
}

struct Asked {
    call: Vec<String>,
    role: String,
    dir: PathBuf,
    /// What to enclose.
    spec: Option<PathBuf>,
    /// Whether the keeper is the first process of its namespace.
    first: bool,
    /// How much a carrier may say ahead of who listens.
    window: u64,
    /// Whether nobody hands it anything: it is what a container runs.
    alone: bool,
    /// The `cgroup.procs` of control groups that a keeper joins, with all that it starts.
    cgroups: Vec<PathBuf>,
    settings: Settings,
}

impl Asked {
    fn parse(call: &[&str], arguments: &[OsString]) -> Result<Self, EntryError> {
        let mut arguments = arguments.iter();
        let role = arguments.next().map_or_else(|| "help".to_owned(), |word| word.to_string_lossy().into_owned());
        let (mut dir, mut spec, mut settings) = (None, None, Settings::default());
        let (mut first, mut alone, mut window, mut cgroups) = (false, false, 1 << 20, Vec::new());
        while let Some(flag) = arguments.next() {
            let flag = flag.to_string_lossy().into_owned();
            if flag == "--first" {
                first = true;
                continue;
            }
            if flag == "--alone" {
                alone = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| EntryError::Usage(format!("`{flag}` needs a value")))?;
            let number = || value.to_str().and_then(|text| text.parse::<u64>().ok()).filter(|number| *number > 0);
            let bad = || EntryError::Usage(format!("`{}` is not a number for `{flag}`", value.display()));
            match flag.as_str() {
                "--dir" => dir = Some(PathBuf::from(value)),
                "--cgroup" => cgroups.push(PathBuf::from(value)),
                "--spec" => spec = Some(PathBuf::from(value)),
                "--window" => window = number().ok_or_else(bad)?,
                "--journal-limit" => settings.journal_limit = number().ok_or_else(bad)?,
                "--shell-limit" => {
                    settings.shell_limit = number().and_then(|n| usize::try_from(n).ok()).ok_or_else(bad)?;
                }
                "--command-limit" => {
                    settings.command_limit = number().and_then(|n| usize::try_from(n).ok()).ok_or_else(bad)?;
                }
                other => return Err(EntryError::Usage(format!("unknown option `{other}`"))),
            }
        }
        let dir = match dir {
            Some(dir) => dir,
            None if matches!(role.as_str(), "help" | "--help" | "-h") => PathBuf::new(),
            None => return Err(EntryError::Usage("`--dir DIR` is missing".to_owned())),
        };
        let call = call.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self { call, role, dir, spec, first, window, alone, cgroups, settings })
    }

    /// This program, called as another role over the same directory.
    fn role_of(&self, dir: &Dir, role: &str) -> Role {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        Role { program, arguments: start::arguments(&self.call, role, dir.root(), &self.settings) }
    }

    /// Makes namespaces and becomes the keeper in them; see [`start::start_enclosed`].
    fn enclose(&self) -> Result<(), EntryError> {
        let file = self.spec.as_ref().ok_or_else(|| EntryError::Usage("`--spec FILE` is missing".to_owned()))?;
        let spec = start::read_spec(file).map_err(|error| EntryError::Spec(file.clone(), error))?;
        let mut arguments = vec![PROGRAM.to_owned()];
        arguments.extend(start::arguments(&self.call, "keep", Path::new(PLACE), &self.settings));
        arguments.push("--first".to_owned());
        enclose::enter(&spec, &Dir::open(&self.dir)?.enclosed(), &arguments)?;
        Ok(())
    }

    fn keep(&self) -> Result<(), EntryError> {
        let failed = |source| EntryError::Io { what: "the keeper can't go on", source };
        // Before anything is started: what is killed half-way leaves nobody outside of the group.
        for procs in &self.cgroups {
            enclose::join_cgroup(procs)?;
        }
        if self.alone {
            let (dir, link) = start::alone(&self.dir)?;
            rustix::process::chdir(Path::new("/")).map_err(|error| failed(error.into()))?;
            return keeper::run(&dir, &self.steward_of(&dir), link).map_err(failed);
        }
        let link = spawn::inherited_link().map_err(failed)?;
        let dir = Dir::open(&self.dir)?;
        // The first process of a namespace has nobody to leave, and everything there ends with it.
        if !self.first && spawn::leave().map_err(failed)? == Side::Left {
            return Ok(());
        }
        spawn::close_inherited_on_exec(3).map_err(failed)?;
        // Nothing of ours is to hold a file system.
        rustix::process::chdir(Path::new("/")).map_err(|error| failed(error.into()))?;
        keeper::run(&dir, &self.steward_of(&dir), link).map_err(failed)
    }

    /// The steward that a keeper starts.
    fn steward_of(&self, dir: &Dir) -> Role {
        let mut role = self.role_of(dir, "run");
        role.arguments.extend((self.first || self.alone).then(|| "--first".to_owned()));
        role
    }

    fn serve(&self) -> Result<(), EntryError> {
        let failed = |source| EntryError::Io { what: "the steward can't go on", source };
        let link = spawn::inherited_link().map_err(failed)?;
        let dir = Dir::open(&self.dir)?;
        let keeper = self.role_of(&dir, "keep");
        // Everything ends with the first process of a namespace: a heir could only save some bytes and not others.
        let heir = (!self.first).then(|| self.role_of(&dir, "inherit"));
        serve::run(dir, self.settings.clone(), keeper, heir, link).map_err(failed)
    }

    fn inherit(&self) -> Result<(), EntryError> {
        let failed = |source| EntryError::Io { what: "the heir can't go on", source };
        let link = spawn::inherited_link().map_err(failed)?;
        heir::run(&Dir::open(&self.dir)?, &link).map_err(failed)
    }
}
