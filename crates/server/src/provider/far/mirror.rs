//! The journal of a steward that is somewhere else, kept here in the same form, so that whoever reads a journal that was
//! left reads this one.
//!
//! ```text
//! LEASE/place/journal/K      K = the shell's number in its steward + 1000 × how many instances the lease had before
//! LEASE/instances            the instances of the lease, one to a line: the last is this one
//! LEASE/place/lock           never held
//! ```
//!
//! The files only grow, and what is in them is what the steward has: a mirror that was cut off anywhere goes on from its
//! own length. Bytes are here before the log that tells of them.

use super::line::LineError;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use stead_model::carry::{HEAD, Log, Mark, Output, State, head_sum};
use stead_model::frame::Stream;
use stead_model::ids::InstanceId;
use stead_model::record::{MAGIC, Record, Records};
use stead_steward::past::PastShell;

/// Shells of one instance.
const SHELLS: u32 = 1000;

#[derive(Debug)]
pub(super) struct Mirror {
    journals: PathBuf,
    base: u32,
}

impl Mirror {
    /// The mirror of an instance. Each instance over a lease has its own journals, and those of the ones before stay.
    pub(super) fn open(lease: &Path, instance: &InstanceId) -> io::Result<Self> {
        let place = lease.join("place");
        let journals = place.join("journal");
        DirBuilder::new().recursive(true).mode(0o700).create(&journals)?;
        File::options().write(true).create(true).truncate(false).mode(0o600).open(place.join("lock"))?;
        let path = lease.join("instances");
        let known = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            known => known?,
        };
        let name = instance.as_str();
        let at = known.lines().position(|line| line == name);
        if at.is_none() {
            stead_steward::dir::write_atomically(&path, format!("{known}{name}\n").as_bytes())?;
        }
        let before = at.unwrap_or_else(|| known.lines().count());
        let base = u32::try_from(before).ok().and_then(|before| before.checked_mul(SHELLS));
        Ok(Self { journals, base: base.ok_or_else(|| io::Error::other("too many instances"))? })
    }

    fn dir(&self, key: u32) -> Result<PathBuf, LineError> {
        if key >= SHELLS {
            return Err(LineError::Protocol(format!("a shell of number {key}")));
        }
        let dir = self.journals.join((self.base + key).to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(dir)
    }

    /// The shells it has, by their numbers in their steward.
    fn keys(&self) -> io::Result<Vec<u32>> {
        let range = self.base..self.base + SHELLS;
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.journals)? {
            let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
            keys.extend(number.filter(|number| range.contains(number)).map(|number: u32| number - self.base));
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// How far it is.
    pub(super) fn marks(&self) -> io::Result<Vec<Mark>> {
        let mut marks = Vec::new();
        for key in self.keys()? {
            let dir = self.journals.join((self.base + key).to_string());
            let Some((segment, offset)) = last_segment(&dir)? else { continue };
            let mut head = Vec::new();
            File::open(dir.join(format!("{segment:06}.log")))?.take(HEAD as u64).read_to_end(&mut head)?;
            marks.push(Mark { key, segment, offset, head: head_sum(&head) });
        }
        Ok(marks)
    }

    /// Whether a command has been accepted, and its end has not been heard of.
    pub(super) fn is_busy(&self) -> io::Result<bool> {
        for Mark { key, segment, .. } in self.marks()? {
            let path = self.journals.join((self.base + key).to_string()).join(format!("{segment:06}.log"));
            let bytes = fs::read(path)?;
            let mut open = std::collections::BTreeSet::new();
            for (record, _) in Records::new(bytes.strip_prefix(MAGIC.as_slice()).unwrap_or_default()) {
                match record {
                    Record::Accepted(accepted) => drop(open.insert(accepted.number)),
                    Record::Ended(ended) => drop(open.remove(&ended.number)),
                    Record::Head(_)
                    | Record::Spawning(_)
                    | Record::Spawned(_)
                    | Record::Started(_)
                    | Record::Chunk(_)
                    | Record::Cancelling(_)
                    | Record::Drained(_)
                    | Record::Evicted(_)
                    | Record::Env(_)
                    | Record::EnvApplied(_)
                    | Record::Sums(_) => {}
                }
            }
            if !open.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn output(&self, output: &Output) -> Result<(), LineError> {
        let end = match output.stream {
            Stream::Stdout => "out",
            Stream::Stderr => "err",
        };
        let path = self.dir(output.key)?.join(format!("{}.{end}", output.number));
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        if output.offset > length {
            return Err(LineError::Protocol("output with a hole in it".to_owned()));
        }
        Ok(file.write_all_at(&output.bytes, output.offset)?)
    }

    pub(super) fn state(&self, state: &State) -> Result<(), LineError> {
        let dir = self.dir(state.key)?;
        stead_steward::dir::write_atomically(&dir.join(format!("{}.state", state.version)), &state.bytes)?;
        Ok(())
    }

    /// Appends what is behind what is here; what is here already is passed over.
    pub(super) fn log(&self, log: &Log) -> Result<(), LineError> {
        let Mark { key, segment, offset, .. } = log.at;
        let dir = self.dir(key)?;
        if log.another {
            return Ok(self.set_aside(&dir)?);
        }
        let path = dir.join(format!("{segment:06}.log"));
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        if offset > length {
            return Err(LineError::Protocol("a log with a hole in it".to_owned()));
        }
        let known = usize::try_from(length - offset).unwrap_or(usize::MAX);
        if let Some(new) = log.bytes.get(known..).filter(|new| !new.is_empty()) {
            file.write_all_at(new, length)?;
        }
        drop_old_states(&dir, log)
    }

    /// A shell was closed and another has its number: what is here of the first is kept under a number that no shell has.
    fn set_aside(&self, dir: &Path) -> io::Result<()> {
        let keys = self.keys()?;
        let free = (0..SHELLS).rev().find(|key| !keys.contains(key));
        let free = free.ok_or_else(|| io::Error::other("too many shells"))?;
        fs::rename(dir, self.journals.join((self.base + free).to_string()))
    }
}

/// Of states the one that the log names last is enough.
fn drop_old_states(dir: &Path, log: &Log) -> Result<(), LineError> {
    let records = log.bytes.strip_prefix(MAGIC.as_slice()).unwrap_or(&log.bytes);
    let stored = Records::new(records).filter_map(|(record, _)| match record {
        Record::Ended(ended) => Some(ended.state.stored),
        Record::Env(env) => Some(env.state.stored),
        Record::Head(head) => Some(head.state.stored),
        Record::Spawning(_)
        | Record::Spawned(_)
        | Record::Accepted(_)
        | Record::Started(_)
        | Record::Chunk(_)
        | Record::Cancelling(_)
        | Record::Drained(_)
        | Record::Evicted(_)
        | Record::EnvApplied(_)
        | Record::Sums(_) => None,
    });
    let Some(last) = stored.max().filter(|last| *last > 0) else { return Ok(()) };
    if !dir.join(format!("{last}.state")).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let version = entry.file_name().to_str().and_then(|name| name.strip_suffix(".state")?.parse::<u64>().ok());
        if version.is_some_and(|version| version < last) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The newest log file of a shell, and its length.
fn last_segment(dir: &Path) -> io::Result<Option<(u32, u64)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut last = None;
    for entry in entries {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.strip_suffix(".log")?.parse::<u32>().ok());
        if let Some(number) = number.filter(|number| last.is_none_or(|(known, _)| *number > known)) {
            last = Some((number, entry.metadata()?.len()));
        }
    }
    Ok(last)
}

/// A shell that lived on several instances has left a journal of each; its state is that of the last.
pub(super) fn merge(shells: Vec<PastShell>) -> Vec<PastShell> {
    let mut merged: Vec<PastShell> = Vec::new();
    for shell in shells {
        match merged.iter_mut().find(|known| known.shell == shell.shell) {
            None => merged.push(shell),
            Some(known) => {
                known.commands.extend(shell.commands);
                if shell.version >= known.version {
                    (known.version, known.state) = (shell.version, shell.state);
                }
            }
        }
    }
    merged
}
