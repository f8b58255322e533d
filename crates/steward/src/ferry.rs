//! A byte stream over calls: for sandboxes that can run a command for less than a minute and do nothing else. A small
//! process holds a program's standard input and output; whoever speaks to the program takes and puts bytes at offsets.
//!
//! ```text
//! ferry open ──────────► holder ── stdin ──► program
//! ferry put --at N ─ sock ─►│◄──── stdout ──────┘
//! ferry take --from N ◄─────┘      at most 1 MiB each way is in its hands; past that the program waits
//! ```
//!
//! Every call may be made again when its answer was lost: `open` finds what it has opened, `take` forgets only what is
//! before its offset, `put` skips what it has. The holder ends when it is told to, or when nobody has asked for five
//! minutes.

mod goods;
mod hold;
mod visit;

use crate::dir::{Dir, DirError, NOT_ELSEWHERE};
use crate::entry::{EntryError, Said};
use rustix::fs::FlockOperation;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use stead_model::ferry::IDLE;
use stead_term::spawn;

/// The longest wait of one `take` or `put`.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Past its wait, this long for a holder to answer.
const GRACE: Duration = Duration::from_secs(10);

/// As much as one `take` prints without being told how much; in base64 it is what the smallest clouds' messages carry.
const MOST: u64 = 36 << 10;

/// One call, as it was typed.
#[derive(Debug, Default)]
struct Typed {
    dir: Option<PathBuf>,
    from: Option<u64>,
    at: Option<u64>,
    wait: u64,
    most: Option<u64>,
    /// After what is put there is no more.
    end: bool,
    /// For tests: less than [`IDLE`].
    idle: Option<u64>,
    /// Descriptors of a holder.
    links: [Option<i32>; 2],
    words: Vec<OsString>,
}

/// Runs one call. `call` is how this program is called as a steward.
pub(crate) fn run(call: &[&str], arguments: &[OsString]) -> Result<Said, EntryError> {
    let mut arguments = arguments.iter();
    let verb = arguments.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let typed = Typed::parse(&mut arguments)?;
    let dir = typed.dir.as_deref().ok_or_else(|| usage("`--dir DIR` is missing"))?;
    match verb.as_str() {
        "open" => open(call, dir, &typed).map(Some),
        "take" => {
            let from = typed.from.ok_or_else(|| usage("`--from OFFSET` is missing"))?;
            let most = typed.most.unwrap_or(MOST);
            ask(dir, &format!("take {from} {} {most}\n", typed.wait), typed.wait).map(Some)
        }
        "put" => {
            let at = typed.at.ok_or_else(|| usage("`--at OFFSET` is missing"))?;
            let end = if typed.end { "end" } else { "more" };
            let text = match typed.words.as_slice() {
                [] => "",
                [text] => text.to_str().ok_or_else(|| usage("what to put is not base64"))?,
                _ => return Err(usage("`put` takes one word")),
            };
            ask(dir, &format!("put {at} {} {end} {text}\n", typed.wait), typed.wait).map(Some)
        }
        "close" => match ask(dir, "close\n", 0) {
            // What isn't there is closed.
            Err(EntryError::Ferry(FerryError::Gone { .. })) => Ok(Some("closed\n".to_owned())),
            done => done.map(Some),
        },
        "hold" => {
            let [Some(listener), Some(ready)] = typed.links.map(|number| number.and_then(spawn::inherited)) else {
                return Err(usage("`hold` is for `open` alone"));
            };
            let idle = typed.idle.map_or(IDLE, Duration::from_secs);
            hold::run(dir, listener, ready, &typed.words, idle).map_err(failed("hold the program"))?;
            Ok(None)
        }
        other => Err(usage(&format!("`{other}` is not something a ferry can do"))),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FerryError {
    #[error("no ferry holds a program at `{dir}`")]
    Gone { dir: PathBuf, source: io::Error },
    #[error("the ferry can't start `{program}`: {why}")]
    Program { program: String, why: String },
    #[error("the ferry says: {0}")]
    Refused(String),
    #[error("can't {what}")]
    Io { what: &'static str, source: io::Error },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> FerryError {
    move |source| FerryError::Io { what, source }
}

fn usage(text: &str) -> EntryError {
    EntryError::Usage(text.to_owned())
}

impl Typed {
    fn parse<'a>(arguments: &mut impl Iterator<Item = &'a OsString>) -> Result<Self, EntryError> {
        let mut typed = Self::default();
        while let Some(word) = arguments.next() {
            let flag = match word.to_str() {
                Some("--") => {
                    typed.words.extend(arguments.cloned());
                    break;
                }
                Some("--end") => {
                    typed.end = true;
                    continue;
                }
                Some(flag) if flag.starts_with("--") => flag,
                Some(_) | None => {
                    typed.words.push(word.clone());
                    continue;
                }
            };
            let value = arguments.next().ok_or_else(|| usage(&format!("`{flag}` needs a value")))?;
            let number = || {
                let number = value.to_str().and_then(|text| text.parse::<u64>().ok());
                number.ok_or_else(|| usage(&format!("`{}` is not a number for `{flag}`", value.display())))
            };
            let link = || number().map(|number| i32::try_from(number).ok());
            match flag {
                "--dir" => typed.dir = Some(PathBuf::from(value)),
                "--from" => typed.from = Some(number()?),
                "--at" => typed.at = Some(number()?),
                "--wait" => typed.wait = number()?.min(u64::try_from(LONGEST_WAIT.as_millis()).unwrap_or(u64::MAX)),
                "--most" => typed.most = Some(number()?),
                "--idle" => typed.idle = Some(number()?),
                "--listener" => typed.links[0] = link()?,
                "--ready" => typed.links[1] = link()?,
                other => return Err(usage(&format!("unknown option `{other}`"))),
            }
        }
        Ok(typed)
    }
}

/// Starts a holder and its program, or finds the one that is there already.
fn open(call: &[&str], dir: &Path, typed: &Typed) -> Result<String, EntryError> {
    if typed.words.is_empty() {
        return Err(usage("`open` needs `-- PROGRAM ARGUMENTS`"));
    }
    let dir = private(dir)?;
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(NOT_ELSEWHERE);
    let lock = options.open(dir.lock()).map_err(failed("lock its directory"))?;
    // Whoever has it is about to be done: it waits for nothing but a program to be executed.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed("lock its directory")(e.into()))?;
    if ask(dir.root(), "hello\n", 0).is_ok() {
        return Ok("open\n".to_owned());
    }
    let listener = OwnedFd::from(dir.bind().map_err(failed("bind its socket"))?);
    let (mut ready, theirs) = io::pipe().map_err(failed("make a pipe"))?;
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let mut command = Command::new(program);
    command.args(call).args(["ferry", "hold", "--dir"]).arg(dir.root());
    command.args(["--listener", &listener.as_raw_fd().to_string(), "--ready", &theirs.as_raw_fd().to_string()]);
    if let Some(idle) = typed.idle {
        command.args(["--idle", &idle.to_string()]);
    }
    command.arg("--").args(&typed.words);
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let log = dir.log_file().map_err(failed("open its log"))?;
    spawn::own_session(command, &cwd, [listener, theirs.into()], log.into()).map_err(failed("start its holder"))?;
    let mut said = String::new();
    ready.read_to_string(&mut said).map_err(failed("hear from its holder"))?;
    if said == "ok" {
        return Ok("open\n".to_owned());
    }
    let why = if said.is_empty() { "its holder died; see `log` there".to_owned() } else { said };
    let program = typed.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    Err(FerryError::Program { program, why }.into())
}

/// A directory of ours alone.
fn private(path: &Path) -> Result<Dir, EntryError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DirError::Io { path: path.to_owned(), source: error }.into());
        }
        Ok(()) | Err(_) => {}
    }
    let meta = path.symlink_metadata().map_err(|source| DirError::Io { path: path.to_owned(), source })?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if !ours || meta.permissions().mode() & 0o077 != 0 {
        return Err(DirError::NotPrivate(path.to_owned()).into());
    }
    Ok(Dir::open(path)?)
}

/// One request to the holder, and what it says to that.
fn ask(dir: &Path, request: &str, wait: u64) -> Result<String, EntryError> {
    let gone = |source| FerryError::Gone { dir: dir.to_owned(), source };
    let mut stream = match Dir::open(dir) {
        Ok(dir) => dir.connect().map_err(gone)?,
        Err(DirError::Io { source, .. }) => return Err(gone(source).into()),
        Err(other @ DirError::NotPrivate(_)) => return Err(other.into()),
    };
    let patience = Duration::from_millis(wait) + GRACE;
    stream.set_read_timeout(Some(patience)).map_err(failed("wait for the ferry"))?;
    stream.set_write_timeout(Some(GRACE)).map_err(failed("wait for the ferry"))?;
    let mut said = String::new();
    let spoken = stream.write_all(request.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
    // A holder that refuses may have hung up before it had read all.
    let heard = stream.read_to_string(&mut said);
    match said.strip_prefix("refused ") {
        Some(why) => Err(FerryError::Refused(why.trim_end().to_owned()).into()),
        None if said.is_empty() => {
            let silent = io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up");
            Err(gone(spoken.err().or(heard.err()).unwrap_or(silent)).into())
        }
        None => {
            heard.map_err(failed("hear from the ferry"))?;
            Ok(said)
        }
    }
}
