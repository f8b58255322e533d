//! Whether the journals below a steward's directory are whole, and making them so when nobody lives there: records that
//! can't be read are taken out, and a command of which something is lost is said to have no output any more.

use super::log::salvage;
use super::{Past, PastError, Place, is_log, keys};
use crate::dir::write_atomically;
use crate::journal::{Journal, Need};
use crate::state_file::{self, StateError};
use crate::sum;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use stead_model::frame::Stream;
use stead_model::ids::ShellId;
use stead_model::record::{Found, MAGIC, Record, Sums, write};
use stead_model::state::ShellState;

/// What was found below one steward's directory.
#[derive(Debug, Default)]
pub struct Checked {
    pub records: u64,
    /// Finished commands whose output is as it was summed.
    pub whole: u64,
    /// Commands whose output has no sum: they run, ended a moment ago, or before sums were made.
    pub unsummed: u64,
    /// By name.
    pub damage: Vec<String>,
    /// The stored states among it.
    pub damaged_states: Vec<DamagedState>,
    /// What an earlier repair has given up.
    pub notes: Vec<String>,
}

/// A stored state of a shell that is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedState {
    pub shell: ShellId,
    /// The version under which it was stored.
    pub stored: u64,
    key: u32,
    error: StateError,
}

impl std::fmt::Display for DamagedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shell, stored, key, error } = self;
        let path = super::state_path(*key, *stored);
        write!(
            f,
            "terminal `{shell}`: its variables, functions, aliases and options of version {stored}: `{path}` {error}"
        )
    }
}

/// Reads, and changes nothing.
pub fn check(dir: &Path) -> io::Result<Checked> {
    let place = match Place::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Checked::default()),
        place => place?,
    };
    let mut checked = Checked::default();
    for key in keys(&place)? {
        let (lines, past) = read(&place, key, &mut checked)?;
        for (number, line) in &lines {
            judge(&place, key, *number, line, &mut checked)?;
        }
        match damaged_state(&place, past)? {
            Some(given_up) if given_up.error == StateError::GivenUp => checked.notes.push(given_up.to_string()),
            Some(damaged) => {
                checked.damage.push(damaged.to_string());
                checked.damaged_states.push(damaged);
            }
            None => {}
        }
    }
    Ok(checked)
}

/// Takes out what is damaged, and writes those states anew that are known from elsewhere. What can't be read any more is
/// returned by name. Refused while a steward lives there.
pub fn repair(dir: &Path, known: &[(DamagedState, ShellState)]) -> Result<Vec<String>, PastError> {
    let _lock = super::lock_for_changes(dir)?;
    let (place, mut lost) = (Place::open(dir)?, Vec::new());
    for key in keys(&place)? {
        let mut checked = Checked::default();
        let (lines, past) = read(&place, key, &mut checked)?;
        if let Some(damaged) = damaged_state(&place, past)?.filter(|damaged| damaged.error != StateError::GivenUp) {
            let path = dir.join(super::state_path(key, damaged.stored));
            if let Some((_, state)) = known.iter().find(|(known, _)| *known == damaged) {
                write_atomically(&path, &state_file::encode(state))?;
            } else {
                write_atomically(&path, &state_file::given_up())?;
                lost.push(damaged.to_string());
            }
        }
        let mut gone = Vec::new();
        for (number, line) in &lines {
            let before = checked.damage.len();
            judge(&place, key, *number, line, &mut checked)?;
            if checked.damage.len() > before {
                gone.push(*number);
            }
        }
        if checked.damage.is_empty() {
            continue;
        }
        lost.append(&mut checked.damage);
        take_out(&place, dir, key)?;
        give_up(&dir.join(format!("journal/{key}")), &gone)?;
    }
    Ok(lost)
}

/// What the records say of one command.
#[derive(Default)]
struct Line {
    id: Option<String>,
    started: bool,
    seq: u64,
    ends: [u64; 2],
    has_hole: bool,
    evicted: bool,
    sums: Option<Sums>,
}

impl Line {
    fn see(&mut self, record: &Record) {
        match record {
            Record::Accepted(accepted) => {
                self.id = Some(accepted.exec.command.to_string());
                self.seq = accepted.seq();
            }
            // One that the shell never read is started again, and that is no second event.
            Record::Started(_) => {
                self.seq += u64::from(!self.started);
                self.started = true;
            }
            Record::Chunk(chunk) => {
                let [stdout, stderr] = &mut self.ends;
                let end = if chunk.stream == Stream::Stdout { stdout } else { stderr };
                self.has_hole |= chunk.seq > self.seq + 1 || chunk.offset != *end;
                *end = chunk.offset + chunk.length;
                self.seq = self.seq.max(chunk.seq);
            }
            Record::Ended(ended) => {
                self.has_hole |= ended.seq > self.seq + 1;
                self.seq = ended.seq;
            }
            Record::Evicted(_) => self.evicted = true,
            Record::Sums(sums) => self.sums = Some(*sums),
            Record::Head(_)
            | Record::Spawning(_)
            | Record::Spawned(_)
            | Record::Cancelling(_)
            | Record::Drained(_)
            | Record::Env(_)
            | Record::EnvApplied(_) => {}
        }
    }

    fn name(&self, key: u32, number: u64) -> String {
        match &self.id {
            Some(id) => format!("command `{id}`"),
            None => format!("command {number} of shell {key}, whose id is lost"),
        }
    }
}

fn segments(place: &Place, key: u32) -> io::Result<Vec<String>> {
    let dir = format!("journal/{key}");
    let mut names: Vec<String> = place.names(&dir)?.into_iter().filter(|name| is_log(name)).collect();
    names.sort();
    Ok(names.into_iter().map(|name| format!("{dir}/{name}")).collect())
}

/// The state that the log names last, if it can't be read.
fn damaged_state(place: &Place, past: Past<'_>) -> io::Result<Option<DamagedState>> {
    let (key, stored) = (past.key, past.mark.stored);
    let Some(shell) = past.shell else { return Ok(None) };
    let state = super::read_state(place, key, stored, past.given.as_ref())?;
    Ok(state.err().map(|error| DamagedState { shell, stored, key, error }))
}

fn read(place: &Place, key: u32, checked: &mut Checked) -> io::Result<(BTreeMap<u64, Line>, Past<'static>)> {
    let mut lines = BTreeMap::<u64, Line>::new();
    let mut past = Past { key, ..Past::default() };
    for path in segments(place, key)? {
        let bytes = place.read(&path)?;
        let mut offset = MAGIC.len();
        for (found, size) in salvage(&bytes) {
            match found {
                Found::Record(record) => {
                    checked.records += 1;
                    if let Some(number) = record.number() {
                        lines.entry(number).or_default().see(&record);
                    }
                    past.see(record);
                }
                Found::Damage => checked.damage.push(format!("`{path}`: {size} bytes at {offset} are no record")),
            }
            offset += size;
        }
    }
    Ok((lines, past))
}

/// Whether all that is told of a command is there.
fn judge(place: &Place, key: u32, number: u64, line: &Line, checked: &mut Checked) -> io::Result<()> {
    if line.evicted {
        return Ok(());
    }
    let name = line.name(key, number);
    // The records of a command that was forgotten go with their log file, its first ones first.
    if line.id.is_some() && line.has_hole {
        checked.damage.push(format!("{name}: records are lost"));
        return Ok(());
    }
    let mut whole = true;
    for (stream, end) in Stream::BOTH.into_iter().zip(line.ends) {
        let path = super::log::stream_path(&format!("journal/{key}"), number, stream);
        let summed = line.sums.and_then(|sums| sums.of(stream));
        if summed.is_some_and(|sum| sum.length != end) {
            checked.damage.push(format!("{name}: records of its {} are lost", sum::name(stream)));
            whole = false;
            continue;
        }
        let is_whole = match summed {
            Some(sum) => match super::log::plain(place, &path).and_then(|file| sum::is_whole(&file, &sum)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                is_whole => is_whole?,
            },
            None => place.length(&path) >= end,
        };
        if !is_whole {
            checked.damage.push(format!("{name}: its {} is damaged (`{path}`)", sum::name(stream)));
            whole = false;
        }
    }
    match (whole, line.sums, line.ends) {
        (true, Some(_), _) => checked.whole += 1,
        (true, None, [0, 0]) | (false, ..) => {}
        (true, None, _) => checked.unsummed += 1,
    }
    Ok(())
}

/// Writes log files anew without what is no record in them.
fn take_out(place: &Place, dir: &Path, key: u32) -> io::Result<()> {
    for path in segments(place, key)? {
        let bytes = place.read(&path)?;
        let (mut fresh, mut damaged) = (MAGIC.to_vec(), false);
        for (found, _) in salvage(&bytes) {
            match found {
                Found::Record(record) => write(&mut fresh, &record),
                Found::Damage => damaged = true,
            }
        }
        if damaged {
            write_atomically(&dir.join(path), &fresh)?;
        }
    }
    Ok(())
}

/// What is not whole is no longer kept, and whoever asks for it is told so.
fn give_up(journal: &Path, numbers: &[u64]) -> Result<(), PastError> {
    let failed = |error: crate::journal::JournalError| PastError::Io(io::Error::other(error));
    let mut journal = Journal::open(journal, |_, _| {}).map_err(failed)?;
    for number in numbers {
        journal.append(&[&Record::Evicted(*number)], Need::Last).map_err(failed)?;
        journal.remove_streams(*number).map_err(failed)?;
    }
    Ok(())
}
