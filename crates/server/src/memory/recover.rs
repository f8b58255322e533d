//! From files back into RAM: the newest snapshot that is whole, and every journal from there on. If the newest isn't
//! whole the one before it does, with one journal more: nothing is missing, and it is said.
//!
//! Of a journal that is damaged, and of snapshots if none is whole, every record counts that is whole by itself. The file
//! as it was found is kept beside it as `.damaged`, and told of for as long as it lies there: a cut is never the only
//! copy.

use super::journal::{Journal, generations, journal_path, snapshot_path};
use super::kept::{Bounds, Kept};
use super::mend::{Rest, gather};
use super::ram::{Held, Node, Ram};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_model::clock::Timestamp;
use stead_model::memory::{JOURNAL, Note, SNAPSHOT, What, decode};
use stead_model::place::{ancestors, below};

/// As many as a store with a million entries needs to have few in each.
const SHARDS: usize = 256;
/// What a file is called that was found damaged, behind its own name.
const DAMAGED: &str = "damaged";
/// No record is shorter, so that of a journal's length follows how many changes it can have.
const LEAST_RECORD: u64 = 29;

#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) kept: Kept,
    pub(super) snapshot_at: Option<Timestamp>,
    /// What was found damaged.
    pub(super) warnings: Vec<String>,
}

/// Opens what is in a directory, if it is there. `roots` are the roots of routes, which are never kept.
pub(super) fn open(dir: &Path, bounds: Bounds, roots: &[Vec<u8>]) -> io::Result<Recovered> {
    let mut warnings = found_before(dir)?;
    let mut state = State { roots, ..State::default() };
    let journals = generations(dir, "journal")?;
    let from = base(dir, &mut state, &journals, &mut warnings)?;
    let replayed: Vec<u64> = journals.iter().copied().filter(|generation| *generation >= from).collect();
    let first = if from > 0 { from } else { 1 };
    for Range { start, end } in missing(first, &replayed, from > 0) {
        let which =
            if end == start + 1 { format!("journal {start}") } else { format!("journals {start} to {}", end - 1) };
        let are = if end == start + 1 { "is" } else { "are" };
        warnings.push(format!("{which} of hot memory {are} missing: what was written then is lost"));
        // Nothing is known of what they had.
        state.told = None;
    }
    let mut newest = None;
    for generation in &replayed {
        let is_last = replayed.last() == Some(generation);
        let length = state.read_journal(&journal_path(dir, *generation), *generation, is_last, &mut warnings)?;
        newest = Some((*generation, length));
    }
    let journal = match newest {
        Some((generation, length)) => Journal::open(dir, generation, length)?,
        None => Journal::new(dir, first),
    };
    let (number, snapshot_at, is_salvaged) = (state.number, state.snapshot_at, state.is_salvaged);
    let has_journal = journal.length() > JOURNAL.len() as u64;
    let ram = Ram::new(SHARDS);
    ram.fill(state.entries);
    let kept = Kept::new(ram, bounds, number, Some(journal));
    kept.writer().is_changed = has_journal || is_salvaged;
    Ok(Recovered { kept, snapshot_at, warnings })
}

/// What is told of files that an earlier reading has set aside.
fn found_before(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(&format!(".{DAMAGED}")) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let told = |name: String| {
        format!("hot memory was damaged before: `{name}` is what was found; remove it when nobody needs it any more")
    };
    Ok(names.into_iter().map(told).collect())
}

/// Fills the state with the newest snapshot that is whole; the generation from which on journals are told over it, 0
/// without one.
fn base(dir: &Path, state: &mut State<'_>, journals: &[u64], warnings: &mut Vec<String>) -> io::Result<u64> {
    let snapshots = generations(dir, "snapshot")?;
    let has_all_journals = journals.first().is_none_or(|first| *first == 1);
    let mut bad = Vec::new();
    for generation in snapshots.iter().rev() {
        let path = snapshot_path(dir, *generation);
        match load(&path, state) {
            Ok(()) => {
                told_damaged(&bad, "the one before it is used", warnings);
                set_aside(&bad);
                return Ok(*generation);
            }
            Err(message) => bad.push((*generation, path, message)),
        }
        *state = State { roots: state.roots, ..State::default() };
    }
    if has_all_journals || bad.is_empty() {
        told_damaged(&bad, "the journals have everything from the beginning on", warnings);
        set_aside(&bad);
        state.told = Some(0);
        return Ok(0);
    }
    told_damaged(&bad, "none is whole, and of each what is whole in it is used", warnings);
    // They stay where they are until there is another: nothing else has what they have. What was removed between two of
    // them is removed again by the journals that are told over both.
    for (_, path, _) in &bad {
        let aside = path.with_extension(DAMAGED);
        if aside.symlink_metadata().is_err() && std::fs::hard_link(path, &aside).is_err() {
            std::fs::copy(path, &aside)?;
        }
        let bytes = std::fs::read(path)?;
        state.salvage(bytes.get(SNAPSHOT.len()..).unwrap_or_default());
    }
    state.is_salvaged = true;
    Ok(bad.last().map_or(0, |(oldest, ..)| *oldest))
}

/// A snapshot that isn't whole: its generation, where it is, and why not.
type Bad = (u64, PathBuf, String);

fn told_damaged(bad: &[Bad], instead: &str, warnings: &mut Vec<String>) {
    let last = bad.len().saturating_sub(1);
    for (index, (generation, _, message)) in bad.iter().enumerate() {
        let what = format!("snapshot {generation} of hot memory is damaged ({message})");
        warnings.push(if index == last { format!("{what}; {instead}") } else { what });
    }
}

/// For whoever wants to look; where that can't be they are found, and told of, once more.
fn set_aside(bad: &[Bad]) {
    for (_, path, _) in bad {
        let _ = std::fs::rename(path, free_name(path));
    }
}

/// Generations that should be there, from the first on. `needs_one`: there is a snapshot, and so a journal behind it.
fn missing(first: u64, there: &[u64], needs_one: bool) -> Vec<Range<u64>> {
    let mut expected = first;
    let mut gaps = Vec::new();
    for found in there {
        if *found > expected {
            gaps.push(expected..*found);
        }
        expected = found + 1;
    }
    if there.is_empty() && needs_one {
        gaps.push(first..first + 1);
    }
    gaps
}

/// Writes a journal anew with what counts of it, after what was found has got another name.
fn set_right(path: &Path, mended: &[u8]) -> io::Result<String> {
    let fresh = path.with_extension("mended");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(mended)?;
    file.sync_data()?;
    let aside = free_name(path);
    // Not every file system has hard links.
    if std::fs::hard_link(path, &aside).is_err() {
        std::fs::copy(path, &aside)?;
    }
    std::fs::rename(fresh, path)?;
    Ok(aside.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// A name for what was found damaged that nothing has yet.
fn free_name(path: &Path) -> PathBuf {
    let names = std::iter::once(DAMAGED.to_owned()).chain((2_u32..).map(|number| format!("{DAMAGED}{number}")));
    let mut paths = names.map(|name| path.with_extension(name));
    paths.find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| path.with_extension(DAMAGED))
}

#[derive(Debug, Default)]
struct State<'a> {
    entries: BTreeMap<Arc<[u8]>, Held>,
    /// The highest that anything has.
    number: u64,
    /// Of the last change that is told, as far as all before it are, too: the next one has the next number.
    told: Option<u64>,
    snapshot_at: Option<Timestamp>,
    /// It rests on snapshots that are not whole: another is wanted.
    is_salvaged: bool,
    roots: &'a [Vec<u8>],
}

impl State<'_> {
    /// Tells a journal; how much of the file counts then. One that is damaged is set right.
    fn read_journal(
        &mut self,
        path: &Path,
        generation: u64,
        is_last: bool,
        warnings: &mut Vec<String>,
    ) -> io::Result<u64> {
        let bytes = std::fs::read(path)?;
        let (length, mut lost) = self.replay(&bytes);
        let rest = bytes.get(length..).unwrap_or_default();
        let is_begun = bytes.len() < JOURNAL.len() && JOURNAL.starts_with(&bytes);
        if rest.is_empty() || (is_begun && is_last) {
            Self::told_lost(lost, generation, warnings);
            return Ok(length as u64);
        }
        let has_head = length > 0;
        let behind = if has_head { rest } else { rest.get(JOURNAL.len()..).unwrap_or(rest) };
        // Numbers go on by one: so many can be in so many bytes.
        let most = rest.len() as u64 / LEAST_RECORD + 1;
        let told = self.told;
        let fits = |number: u64| told.is_none_or(|told| number > told && number <= told.saturating_add(most));
        let (notes, ends_badly) = match gather(behind, fits) {
            Rest::Torn if has_head && is_last => {
                Self::told_lost(lost, generation, warnings);
                return Ok(length as u64);
            }
            Rest::Torn => (Vec::new(), !is_last),
            Rest::Damaged { notes, ends_badly } => (notes, ends_badly),
        };
        let mut mended = JOURNAL.to_vec();
        mended.extend_from_slice(bytes.get(JOURNAL.len()..length).unwrap_or_default());
        for note in &notes {
            lost += self.tell(note);
            // What was read is never too large to be written.
            let _ = note.encode(&mut mended);
        }
        let aside = set_right(path, &mended)?;
        let mut parts = if lost > 0 { vec![changes(lost)] } else { Vec::new() };
        parts.extend(ends_badly.then(|| "its end".to_owned()));
        let what = match parts.as_slice() {
            [] => "nothing of it is lost".to_owned(),
            parts => format!("{} lost, all else in it is kept", parts.join(" and ")),
        };
        warnings.push(format!(
            "journal {generation} of hot memory is damaged at byte {length}: {what}; `{aside}` is the file as it was"
        ));
        Ok(mended.len() as u64)
    }

    /// Changes that no file has, and none is damaged.
    fn told_lost(lost: u64, generation: u64, warnings: &mut Vec<String>) {
        if lost > 0 {
            let lost = changes(lost);
            warnings
                .push(format!("{lost} of hot memory lost before journal {generation} or in it: numbers are missing"));
        }
    }

    /// How much of a journal is whole, from its beginning, and how many changes are missing before or in it.
    fn replay(&mut self, bytes: &[u8]) -> (usize, u64) {
        let Some(mut rest) = bytes.strip_prefix(JOURNAL.as_slice()) else { return (0, 0) };
        let mut lost = 0;
        while let Some((note, size)) = decode(rest) {
            lost += self.tell(&note);
            rest = rest.get(size..).unwrap_or_default();
        }
        (bytes.len() - rest.len(), lost)
    }

    /// What is whole in a snapshot that isn't, as far as nothing is known of it.
    fn salvage(&mut self, bytes: &[u8]) {
        let Rest::Damaged { notes, .. } = gather(bytes, |_| true) else { return };
        for note in notes {
            self.number = self.number.max(note.number);
            let node = match note.what {
                What::File(value) => Node::File(Bytes::copy_from_slice(value)),
                What::Dir => Node::Dir,
                What::Gone | What::End(_) => continue,
            };
            let held = Held { node, number: note.number, at: note.at };
            self.entries.entry(note.key.into()).or_insert(held);
        }
    }

    /// Tells a change of a journal; how many are missing before it.
    fn tell(&mut self, note: &Note<'_>) -> u64 {
        let lost = self.told.map_or(0, |told| note.number.saturating_sub(told.saturating_add(1)));
        self.told = Some(note.number);
        self.apply(note);
        lost
    }

    fn apply(&mut self, note: &Note<'_>) {
        self.number = self.number.max(note.number);
        match note.what {
            What::File(value) => {
                for above in ancestors(note.key) {
                    let is_dir = self.entries.get(above).is_some_and(|held| held.node == Node::Dir);
                    let is_root = self.roots.iter().any(|root| below(root, above).is_some());
                    if !is_dir && !is_root {
                        self.entries.insert(above.into(), Held { node: Node::Dir, number: note.number, at: note.at });
                    }
                }
                if self.entries.get(note.key).is_some_and(|held| held.node == Node::Dir) {
                    // It was removed by a change that is lost.
                    self.clear(note.key);
                }
                let file = Node::File(Bytes::copy_from_slice(value));
                self.entries.insert(note.key.into(), Held { node: file, number: note.number, at: note.at });
            }
            What::Dir => {
                self.entries.insert(note.key.into(), Held { node: Node::Dir, number: note.number, at: note.at });
            }
            What::Gone => self.clear(note.key),
            What::End(_) => {}
        }
    }

    /// Takes away a key with all below it.
    fn clear(&mut self, key: &[u8]) {
        let from = (std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
        let inside = |(other, _): &(&Arc<[u8]>, &Held)| below(other, key).is_some();
        let gone: Vec<_> =
            self.entries.range::<[u8], _>(from).take_while(inside).map(|(key, _)| Arc::clone(key)).collect();
        for key in gone {
            self.entries.remove(&key);
        }
    }
}

fn changes(count: u64) -> String {
    if count == 1 { "1 change".to_owned() } else { format!("{count} changes") }
}

/// All of a snapshot, or why not.
fn load(path: &Path, state: &mut State<'_>) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut rest = bytes.strip_prefix(SNAPSHOT.as_slice()).ok_or("it does not begin as one")?;
    let mut entries = Vec::new();
    loop {
        let (note, size) = decode(rest)
            .ok_or_else(|| format!("a record at byte {} is cut short or its sum is wrong", bytes.len() - rest.len()))?;
        rest = rest.get(size..).unwrap_or_default();
        let found = match note.what {
            What::File(value) => Node::File(Bytes::copy_from_slice(value)),
            What::Dir => Node::Dir,
            What::Gone => return Err("it has a record that only journals have".to_owned()),
            What::End(count) => {
                if count != entries.len() as u64 || !rest.is_empty() {
                    return Err(format!("it has {} entries, not {count}", entries.len()));
                }
                state.number = note.number.max(state.number);
                state.told = Some(note.number);
                state.snapshot_at = Some(note.at);
                // In order already, so that this is one pass.
                state.entries = entries.into_iter().collect();
                return Ok(());
            }
        };
        state.number = state.number.max(note.number);
        let key: Arc<[u8]> = note.key.into();
        entries.push((key, Held { node: found, number: note.number, at: note.at }));
    }
}
