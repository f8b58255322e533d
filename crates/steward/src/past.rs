//! What ran over a directory whose steward is gone, read from its journals without starting another.

mod check;
mod collect;
mod log;
mod room;

pub use check::{Checked, DamagedState, check, repair};
pub use collect::collect_output;
pub use log::{PastCommand, PastEvent, command, stream};
pub use room::make_room;

use crate::state_file::{self, StateError};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{CommandInfo, Ending, Status, Summed};
use stead_model::record::{Accepted, Found, Record, StateMark};
use stead_model::state::{Bytes, ShellState};

#[derive(Debug, thiserror::Error)]
pub enum PastError {
    #[error("a steward runs over the directory: ask it")]
    Alive,
    #[error("another process is changing the files of the steward; try again")]
    Busy,
    #[error("can't read the directory of a steward")]
    Io(#[from] io::Error),
}

/// A shell as its journal tells.
#[derive(Debug)]
pub struct PastShell {
    pub shell: ShellId,
    pub version: u64,
    pub state: Result<ShellState, LostState>,
    /// Those without an end were running or waiting, and are lost or never ran.
    pub commands: Vec<CommandInfo>,
    /// What was asked for, by number; only from [`peek`] and [`missing`].
    pub asked: BTreeMap<u64, Asked>,
}

/// What was asked for by a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub text: Bytes,
    /// When, in microseconds since 1970.
    pub at: u64,
}

/// A state whose file can't be read, and what the log says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostState {
    pub error: StateError,
    /// The version under which it was stored: since then nothing but the directory has changed.
    pub stored: u64,
    pub cwd: Bytes,
    pub oldpwd: Option<Bytes>,
}

impl LostState {
    /// The state, where the rest of it is known from elsewhere.
    pub fn with(&self, rest: ShellState) -> ShellState {
        ShellState { cwd: self.cwd.clone(), oldpwd: self.oldpwd.clone(), ..rest }
    }
}

/// Whether somebody lives over the directory: a keeper or a steward holds its lock. Those who look share it, so that they
/// don't take each other for one.
pub fn is_alive(dir: &Path) -> io::Result<bool> {
    Ok(matches!(take_lock(dir)?, Lock::Held))
}

/// Removes what a steward that was killed left in memory: the files through which it spoke to shells with secrets.
pub fn forget_memory(dir: &Path) {
    if let Ok(dir) = crate::dir::Dir::open(dir) {
        crate::memory::sweep(&dir, |_| false);
    }
}

/// Reads what is left, and changes nothing. Nobody may start a steward there meanwhile; whoever tries waits.
pub fn read(dir: &Path) -> Result<Vec<PastShell>, PastError> {
    let _lock = match take_lock(dir)? {
        Lock::Held => return Err(PastError::Alive),
        Lock::Missing => return Ok(Vec::new()),
        Lock::Ours(lock) => lock,
    };
    let place = Place::open(dir)?;
    let mut shells = Vec::new();
    for key in keys(&place)? {
        shells.extend(shell(&place, Past { key, ..Past::default() })?);
    }
    Ok(shells)
}

/// The same with what was asked for, whether somebody lives there or not: what happens meanwhile is missed.
pub fn peek(dir: &Path) -> io::Result<Vec<PastShell>> {
    read_unlocked(dir, None)
}

/// The newest commands of these shells that are not `known`, with what was asked for, whether somebody lives there or not.
/// Of a long journal only the end is read: behind [`CERTAIN`] known ones in a row nothing is looked for.
pub fn missing(dir: &Path, shells: &BTreeSet<ShellId>, known: &BTreeSet<CommandId>) -> io::Result<Vec<PastShell>> {
    let mut found = read_unlocked(dir, Some(known))?;
    found.retain(|shell| shells.contains(&shell.shell) && !shell.commands.is_empty());
    Ok(found)
}

/// More commands than can have been on their way to whoever knows them when one behind them was known already.
const CERTAIN: usize = 1024;

fn read_unlocked(dir: &Path, known: Option<&BTreeSet<CommandId>>) -> io::Result<Vec<PastShell>> {
    let place = match Place::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        place => place?,
    };
    let mut shells = Vec::new();
    for key in keys(&place)? {
        shells.extend(shell(&place, Past { key, known, asked: Some(BTreeMap::new()), ..Past::default() })?);
    }
    Ok(shells)
}

fn keys(place: &Place) -> io::Result<Vec<u32>> {
    let mut keys: Vec<u32> = place.names("journal")?.iter().filter_map(|name| name.parse().ok()).collect();
    keys.sort_unstable();
    Ok(keys)
}

enum Lock {
    Held,
    Missing,
    Ours(OwnedFd),
}

fn take_lock(dir: &Path) -> io::Result<Lock> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = match rustix::fs::open(dir.join("lock"), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Lock::Missing),
        lock => lock?,
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Lock::Ours(lock)),
        Err(Errno::WOULDBLOCK) => Ok(Lock::Held),
        Err(error) => Err(error.into()),
    }
}

/// Two locks that allow their holder to change the files of a dead steward. The steward's own lock is shared with readers, so
/// that a reader does not take the holder for a steward. The lock on the directory keeps other changes away.
#[derive(Debug)]
struct ChangeLock {
    _lock: OwnedFd,
    _directory: OwnedFd,
}

/// Takes the locks; `None` where there never was a steward. A steward that is started meanwhile waits.
fn lock_for_changes(dir: &Path) -> Result<Option<ChangeLock>, PastError> {
    let lock = match take_lock(dir)? {
        Lock::Missing => return Ok(None),
        Lock::Held => return Err(PastError::Alive),
        Lock::Ours(lock) => lock,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(dir, flags, Mode::empty()).map_err(io::Error::from)?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(ChangeLock { _lock: lock, _directory: directory })),
        Err(Errno::WOULDBLOCK) => Err(PastError::Busy),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// A steward's directory as whoever was inside may have left it: nothing in it is opened through a link, and nothing but
/// plain files of a sensible size is read.
#[derive(Debug)]
struct Place(OwnedFd);

/// A log file is closed at 8 MiB, a state is a few hundred KiB.
const MOST_READ: u64 = 64 << 20;

impl Place {
    fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(dir, flags, Mode::empty())?))
    }

    fn at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // With `PATH` nothing is opened that could keep us waiting, and the kernel takes no other flag beside it.
        let patient = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
        let flags = flags | patient | OFlags::CLOEXEC;
        loop {
            match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let dir = match self.at(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            dir => dir?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            names.extend(entry?.file_name().to_str().map(str::to_owned));
        }
        Ok(names)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let file = File::from(self.at(path, OFlags::RDONLY)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("`{path}` is no plain file")));
        }
        let mut bytes = Vec::new();
        file.take(MOST_READ).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Of a plain file; nothing otherwise.
    fn length(&self, path: &str) -> u64 {
        let stat = self.at(path, OFlags::PATH | OFlags::NOFOLLOW).and_then(|file| Ok(rustix::fs::fstat(&file)?));
        let plain = stat.ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        plain.and_then(|stat| u64::try_from(stat.st_size).ok()).unwrap_or(0)
    }
}

fn is_log(name: &str) -> bool {
    name.strip_suffix(".log").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// How many logs at the beginning of a journal have only commands that are known.
fn known_logs(place: &Place, dir: &str, logs: &[&String], known: &BTreeSet<CommandId>) -> io::Result<usize> {
    let mut in_a_row = 0;
    for (index, name) in logs.iter().enumerate().rev() {
        let bytes = place.read(&format!("{dir}/{name}"))?;
        let accepted = log::salvage(&bytes).filter_map(|(found, _)| match found {
            Found::Record(Record::Accepted(accepted)) => Some(known.contains(&accepted.exec.command)),
            Found::Record(_) | Found::Damage => None,
        });
        in_a_row =
            accepted.collect::<Vec<_>>().into_iter().rev().fold(in_a_row, |row, known| if known { row + 1 } else { 0 });
        if in_a_row >= CERTAIN {
            return Ok(index);
        }
    }
    Ok(0)
}

fn shell(place: &Place, mut past: Past) -> io::Result<Option<PastShell>> {
    let dir = format!("journal/{}", past.key);
    let names = place.names(&dir)?;
    let mut segments: Vec<&String> = names.iter().filter(|name| is_log(name)).collect();
    segments.sort();
    if let Some(known) = past.known {
        segments.drain(..known_logs(place, &dir, &segments, known)?);
    }
    for name in segments {
        let bytes = place.read(&format!("{dir}/{name}"))?;
        for (found, _) in log::salvage(&bytes) {
            match found {
                Found::Record(record) => past.see(record),
                Found::Damage => {}
            }
        }
    }
    let Some(shell) = past.shell else { return Ok(None) };
    for (number, info) in &mut past.commands {
        if !info.status.is_final() {
            // What was moved to disk and not noted before the end counts too.
            info.stdout_bytes = info.stdout_bytes.max(place.length(&format!("{dir}/{number}.out")));
            info.stderr_bytes = info.stderr_bytes.max(place.length(&format!("{dir}/{number}.err")));
        }
    }
    let StateMark { stored, cwd, oldpwd, .. } = past.mark.clone();
    let state = match read_state(place, past.key, stored, past.given.as_ref())? {
        Ok(state) => Ok(ShellState { cwd, oldpwd, ..state }),
        Err(error) => Err(LostState { error, stored, cwd, oldpwd }),
    };
    let (commands, asked) = (past.commands.into_values().collect(), past.asked.unwrap_or_default());
    Ok(Some(PastShell { shell, version: past.mark.version, state, commands, asked }))
}

fn state_path(key: u32, stored: u64) -> String {
    format!("journal/{key}/{stored}.state")
}

/// The stored state of a shell; 0: the one that it was opened with.
fn read_state(
    place: &Place,
    key: u32,
    stored: u64,
    given: Option<&Bytes>,
) -> io::Result<Result<ShellState, StateError>> {
    if stored == 0 {
        return Ok(state_file::of_opening(given));
    }
    match place.read(&state_path(key, stored)) {
        Ok(bytes) => Ok(state_file::decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(StateError::Missing)),
        Err(error) if stead_term::scarce::is_passing(&error) => Err(error),
        Err(_) => Ok(Err(StateError::Damaged)),
    }
}

#[derive(Default)]
struct Past<'a> {
    /// The journal's number among those of the steward.
    key: u32,
    shell: Option<ShellId>,
    mark: StateMark,
    /// The state that it was opened with.
    given: Option<Bytes>,
    commands: BTreeMap<u64, CommandInfo>,
    asked: Option<BTreeMap<u64, Asked>>,
    /// Commands that are left out.
    known: Option<&'a BTreeSet<CommandId>>,
}

impl Past<'_> {
    fn accepted(&mut self, accepted: Accepted) {
        // What its head says, should that be damaged.
        self.shell.get_or_insert_with(|| accepted.exec.shell.clone());
        if self.known.is_some_and(|known| known.contains(&accepted.exec.command)) {
            return;
        }
        let last_seq = accepted.seq();
        let Accepted { number, at, exec, .. } = accepted;
        if let Some(asked) = &mut self.asked {
            asked.insert(number, Asked { text: exec.text, at: exec.asked_at.unwrap_or(at) });
        }
        let info = CommandInfo {
            command: exec.command,
            shell: exec.shell,
            number,
            status: Status::Queued,
            ending: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            last_seq,
            cwd: Bytes::default(),
            state_version: self.mark.version,
            accepted_at: at,
            started_at: None,
            ended_at: None,
            stalled: false,
            evicted: false,
            state: None,
            sums: None,
        };
        self.commands.insert(number, info);
    }

    fn see(&mut self, record: Record) {
        match record {
            Record::Head(head) => {
                self.mark = head.state.clone();
                self.given = head.open.state;
                self.shell = Some(head.shell);
            }
            Record::Accepted(accepted) => self.accepted(*accepted),
            Record::Started(started) => {
                if let Some(info) = self.commands.get_mut(&started.number) {
                    info.last_seq += u64::from(info.started_at.is_none());
                    info.status = Status::Running;
                    info.started_at.get_or_insert(started.at);
                }
            }
            Record::Chunk(chunk) => {
                if let Some(info) = self.commands.get_mut(&chunk.number) {
                    info.last_seq = chunk.seq;
                    let bytes = match chunk.stream {
                        Stream::Stdout => &mut info.stdout_bytes,
                        Stream::Stderr => &mut info.stderr_bytes,
                    };
                    *bytes = chunk.offset + chunk.length;
                }
            }
            Record::Ended(ended) => {
                self.mark = ended.state.clone();
                if let Some(info) = self.commands.get_mut(&ended.number) {
                    let ending = ended.ending.or_lost();
                    info.status = ending.status;
                    (info.ended_at, info.last_seq) = (Some(ended.at), ended.seq);
                    (info.cwd, info.state_version) = (ended.state.cwd, ended.state.version);
                    info.ending = Some(Ending { streams_open: false, ..ending });
                }
            }
            Record::Evicted(number) => {
                if let Some(info) = self.commands.get_mut(&number) {
                    info.evicted = true;
                }
            }
            Record::Env(env) => self.mark = env.state,
            Record::Sums(sums) => {
                if let Some(info) = self.commands.get_mut(&sums.number) {
                    info.sums = Some(Summed { key: self.key, sums });
                }
            }
            Record::Spawning(_)
            | Record::Spawned(_)
            | Record::Cancelling(_)
            | Record::Drained(_)
            | Record::EnvApplied(_) => {}
        }
    }
}
