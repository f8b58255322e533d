//! Hot memory as files, for those who live in a sandbox: a directory that is mounted there, and is made the same as RAM
//! before each command and after it. What changed on one side goes to the other; what changed on both is kept twice, the
//! sandbox's under another name. What is known of each file is written down, so that a server that starts again can
//! tell what changed while none was there. It is known of this very directory: of one that was made anew or copied
//! nothing is, or else all that it lacks would have been removed by somebody.

use super::kept::{Depth, Kept, etag};
use super::ram::{Held, Node};
use super::watcher::{Watched, Watcher};
use crate::error::Error;
use crate::files::{Condition, Entry, Files, Kind};
use crate::provider::Tree;
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use stead_model::clock::Timestamp;
use stead_model::place::{below, join, relative};
use tokio_util::task::TaskTracker;

/// More are not made files of: looking at them all would make every command wait.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Mirror {
    dir: PathBuf,
    files: Files,
    watched: Watched,
    /// The last change of RAM that was known when both sides were last made the same.
    upto: Option<u64>,
    /// The key of the route that it shows.
    base: Vec<u8>,
    known: BTreeMap<Vec<u8>, Known>,
    /// What a server before us was about to write, and perhaps did: numbers and sums, by key.
    intents: BTreeMap<Vec<u8>, Vec<(u64, String)>>,
    notes: PathBuf,
    /// Whether there are notes, and of this directory.
    has_notes: bool,
    /// Whether the notes have intents in them.
    has_intents: bool,
}

/// A file as both sides had it when they were the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    number: u64,
    etag: String,
}

impl Mirror {
    /// Of a directory; `notes` is where it is written what is known.
    pub(super) fn new(dir: &Path, notes: PathBuf, base: &[u8], inotify: Arc<Watcher>) -> Self {
        let tree = Tree { inside: "/m".to_owned(), outside: dir.to_owned() };
        let text = std::fs::read_to_string(&notes).unwrap_or_default();
        let of_this = text.split_once('\n').filter(|(of, _)| identity(dir).is_ok_and(|this| this == *of));
        let Notes { known, intents } = of_this.map(|(_, files)| read_notes(files)).unwrap_or_default();
        let (files, watched) = (Files::over(vec![tree], TaskTracker::new()), Watched::new(inotify));
        let has_intents = !intents.is_empty();
        Self {
            dir: dir.to_owned(),
            files,
            watched,
            upto: None,
            base: base.to_vec(),
            known,
            intents,
            notes,
            has_notes: of_this.is_some(),
            has_intents,
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether both sides are the same, as far as the kernel tells: nothing happened on either since they were made so.
    pub(super) fn is_in_step(&self, kept: &Kept) -> bool {
        self.upto == Some(kept.writer().number) && self.watched.is_quiet()
    }

    /// Makes both sides the same; what could not be is told.
    pub(super) fn sync(&mut self, kept: &Kept, now: Timestamp) -> Result<Option<String>, Error> {
        // What is changed by this itself is looked at once more, too.
        let upto = kept.writer().number;
        self.upto = None;
        self.watched.begin();
        let told = self.make_same(kept, now)?;
        // What could not be done stays so until something changes, or all is looked at again.
        self.upto = Some(upto);
        Ok(told)
    }

    fn make_same(&mut self, kept: &Kept, now: Timestamp) -> Result<Option<String>, Error> {
        let too_many = format!("hot memory has more than {MOST} entries: they are not shown as files in sandboxes");
        let keys = kept.ram.keys_below(&self.base, None, MOST + 1);
        if keys.len() > MOST {
            return Ok(Some(too_many));
        }
        let before = self.known.clone();
        let mut there = BTreeMap::new();
        self.look(Vec::new(), &mut there)?;
        if there.len() > MOST {
            return Ok(Some(too_many));
        }
        let (mut told, mut shown) = (None, BTreeSet::new());
        for (rest, entry) in &there {
            if let Err(error) = self.compare(kept, rest, entry, now) {
                told = Some(format!("`{}` in a sandbox: {error}", String::from_utf8_lossy(&relative(rest))));
            }
        }
        for key in keys {
            let Some(rest) = below(&key, &self.base).filter(|rest| !there.contains_key(*rest)) else { continue };
            let Some(held) = kept.get(&key).filter(|held| held.node != Node::Dir) else { continue };
            match self.known.get(rest) {
                // It was there, and was the same: whoever is in the sandbox has removed it.
                Some(known) if known.number == held.number => {
                    let condition = Condition::Is(vec![etag(&held)]);
                    if kept.remove(&self.base, &key, false, Depth::Alone, &condition, now).is_ok() {
                        self.known.remove(rest);
                    }
                }
                Some(_) | None => {
                    self.write(rest, &held, &Condition::Absent);
                    shown.insert(rest.to_vec());
                }
            }
        }
        // Not what is there: it may have been removed from RAM since it was written here, and the next look has to know
        // that it was.
        self.known.retain(|rest, _| {
            there.contains_key(rest) || shown.contains(rest) || kept.get(&join(&self.base, rest)).is_some()
        });
        self.intents.clear();
        if self.known != before || self.has_intents {
            self.note().map_err(|error| super::journal::failed(&error))?;
        }
        Ok(told)
    }

    /// Every plain file, by its key below the route.
    fn look(&mut self, dir: Vec<u8>, there: &mut BTreeMap<Vec<u8>, Entry>) -> Result<(), Error> {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            self.watched.add(&self.dir.join(OsStr::from_bytes(&relative(&dir))));
            let mut after: Option<Vec<u8>> = None;
            loop {
                let (entries, more) = match self.files.children_now(&at(&dir), after.as_deref()) {
                    Err(Error::NotFound { .. } | Error::Path { .. }) if !dir.is_empty() => break,
                    found => found?,
                };
                for entry in entries {
                    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
                    let rest = join(&dir, &name);
                    after = Some(name);
                    match entry.kind {
                        Kind::Dir => dirs.push(rest),
                        Kind::File => drop(there.insert(rest, entry)),
                        // Not followed, not opened.
                        Kind::Symlink | Kind::Other => {}
                    }
                    if there.len() > MOST {
                        return Ok(());
                    }
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, kept: &Kept, rest: &[u8], entry: &Entry, now: Timestamp) -> Result<(), Error> {
        let key = join(&self.base, rest);
        let (held, known) = (kept.get(&key), self.known.get(rest).cloned());
        let is_same_file = known.as_ref().is_some_and(|known| Some(&known.etag) == entry.etag.as_ref());
        let is_same_held = match (&held, &known) {
            (Some(held), Some(known)) => held.number == known.number,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same_file {
            let condition = Condition::Is(entry.etag.iter().cloned().collect());
            match &held {
                _ if is_same_held => {}
                Some(held) => self.write(rest, held, &condition),
                // Removed by whoever is outside.
                None => {
                    if self.files.remove_now(&at(rest), Depth::Alone, &condition).is_ok() {
                        self.known.remove(rest);
                    }
                }
            }
            return Ok(());
        }
        // Looked at before it is read: what is written meanwhile is another change.
        let (bytes, seen) = self.files.read_now(&at(rest), kept.bounds().value)?;
        let written = self.intents.remove(rest).unwrap_or_default();
        if let Some((number, _)) = written.iter().rev().find(|(_, sum)| *sum == sum_of(&bytes)) {
            // By a server that died before it could note that it had.
            self.learn(rest, *number, seen.etag.clone().unwrap_or_default());
            return self.compare(kept, rest, &seen, now);
        }
        let (bytes, tag) = (Bytes::from(bytes), seen.etag.unwrap_or_default());
        match &held {
            Some(there) if there.node == Node::File(bytes.clone()) => self.learn(rest, there.number, tag),
            Some(there) if !is_same_held => {
                let name = format!(".conflict-{}", there.number);
                let aside = [key.as_slice(), name.as_bytes()].concat();
                kept.put(&self.base, &aside, bytes, &Condition::Any, now)?;
                self.write(rest, there, &Condition::Is(vec![tag]));
            }
            there => {
                let condition = there.as_ref().map_or(Condition::Absent, |there| Condition::Is(vec![etag(there)]));
                match kept.put(&self.base, &key, bytes.clone(), &condition, now) {
                    Ok(put) => {
                        self.intend(rest, put.held.number, &bytes).map_err(|error| super::journal::failed(&error))?;
                        self.learn(rest, put.held.number, tag);
                    }
                    // Somebody outside was quicker: both have changed, which the next look sees.
                    Err(Error::PreconditionFailed(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Shows an entry as a file. If that was changed meanwhile, the next look sees it.
    fn write(&mut self, rest: &[u8], held: &Held, condition: &Condition) {
        let Node::File(bytes) = &held.node else { return };
        // Else a file that we wrote and didn't live to note would look like one of the sandbox, and what was removed since
        // would come back.
        if let Err(error) = self.intend(rest, held.number, bytes) {
            tracing::warn!(%error, "a hot memory is not shown in sandboxes");
            return;
        }
        match self.files.put_now(&at(rest), bytes, condition) {
            Ok(written) => self.learn(rest, held.number, written.entry.etag.unwrap_or_default()),
            Err(Error::PreconditionFailed(_)) => {}
            Err(error) => tracing::warn!(%error, "a hot memory is not shown in sandboxes"),
        }
    }

    fn learn(&mut self, rest: &[u8], number: u64, etag: String) {
        self.known.insert(rest.to_vec(), Known { number, etag });
    }

    fn intend(&mut self, rest: &[u8], number: u64, bytes: &[u8]) -> std::io::Result<()> {
        if !self.has_notes {
            self.note()?;
        }
        let line = format!("+{number} {} {}\n", sum_of(bytes), percent_encode(rest, NON_ALPHANUMERIC));
        self.has_intents = true;
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.notes)?.write_all(line.as_bytes())
    }

    fn note(&mut self) -> std::io::Result<()> {
        let mut text = identity(&self.dir)? + "\n";
        for (rest, known) in &self.known {
            let _ = writeln!(text, "{} {} {}", known.number, known.etag, percent_encode(rest, NON_ALPHANUMERIC));
        }
        let draft = self.notes.with_extension("new");
        std::fs::write(&draft, text)?;
        std::fs::rename(draft, &self.notes)?;
        (self.has_notes, self.has_intents) = (true, false);
        Ok(())
    }
}

/// What tells a directory from another one at the same place.
fn identity(dir: &Path) -> std::io::Result<String> {
    let meta = std::fs::symlink_metadata(dir)?;
    let born = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("of {} {}", meta.ino(), born.as_nanos()))
}

fn sum_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[derive(Debug, Default)]
struct Notes {
    known: BTreeMap<Vec<u8>, Known>,
    intents: BTreeMap<Vec<u8>, Vec<(u64, String)>>,
}

/// A line that was cut short says nothing.
fn read_notes(text: &str) -> Notes {
    let mut notes = Notes::default();
    let read = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (number, tag) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.to_owned());
        Some((number, tag, percent_decode_str(parts.next()?).collect::<Vec<u8>>()))
    };
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        if let Some((number, sum, rest)) = line.strip_prefix('+').and_then(read) {
            notes.intents.entry(rest).or_default().push((number, sum));
        } else if let Some((number, etag, rest)) = read(line) {
            notes.known.insert(rest, Known { number, etag });
        }
    }
    notes
}

fn at(rest: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if rest.is_empty() { b"" } else { b"/" };
    [b"/m".as_slice(), slash, &relative(rest)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Bounds, Hot};
    use std::fs;
    use stead_model::route::Routes;

    const BASE: &[u8] = b"memories\0hot";

    struct Rig {
        dir: tempfile::TempDir,
        hot: Hot,
        mirror: Mirror,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("seen")).unwrap();
            let hot = Hot::open(&dir.path().join("hot"), Bounds::default(), &Routes::default()).unwrap();
            let mirror = Mirror::new(&dir.path().join("seen"), dir.path().join("notes"), BASE, Arc::default());
            Self { dir, hot, mirror }
        }

        fn put(&self, name: &str, text: &str) {
            let key = join(BASE, name.replace('/', "\0").as_bytes());
            let value = Bytes::copy_from_slice(text.as_bytes());
            self.hot.kept.put(BASE, &key, value, &Condition::Any, Timestamp(1)).unwrap();
        }

        fn get(&self, name: &str) -> Option<String> {
            let value = self.hot.kept.value(&join(BASE, name.replace('/', "\0").as_bytes()))?;
            Some(String::from_utf8(value.to_vec()).unwrap())
        }

        fn remove(&self, name: &str) {
            let key = join(BASE, name.as_bytes());
            self.hot.kept.remove(BASE, &key, false, Depth::Alone, &Condition::Any, Timestamp(1)).unwrap();
        }

        fn file(&self, name: &str) -> PathBuf {
            self.dir.path().join("seen").join(name)
        }

        fn seen(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.file(name)).ok()
        }

        fn sync(&mut self) {
            assert_eq!(self.mirror.sync(&self.hot.kept, Timestamp(2)).unwrap(), None);
        }

        /// As after the death of the server.
        fn forget(&mut self) {
            self.mirror =
                Mirror::new(&self.dir.path().join("seen"), self.dir.path().join("notes"), BASE, Arc::default());
        }
    }

    #[test]
    fn what_changes_on_one_side_changes_on_the_other_also_over_a_restart() {
        let mut rig = Rig::new();
        for restarts in [false, true] {
            let step = |rig: &mut Rig| {
                if restarts {
                    rig.forget();
                }
                rig.sync();
            };
            rig.put("d/a", "1");
            step(&mut rig);
            assert_eq!(rig.seen("d/a").as_deref(), Some("1"));
            fs::write(rig.file("d/a"), "22").unwrap();
            fs::create_dir_all(rig.file("e/f")).unwrap();
            fs::write(rig.file("e/f/ü"), "new").unwrap();
            step(&mut rig);
            assert_eq!((rig.get("d/a").as_deref(), rig.get("e/f/ü").as_deref()), (Some("22"), Some("new")));
            rig.put("d/a", "333");
            step(&mut rig);
            assert_eq!(rig.seen("d/a").as_deref(), Some("333"));
            fs::remove_file(rig.file("d/a")).unwrap();
            step(&mut rig);
            assert_eq!(rig.get("d/a"), None);
            rig.put("x", "1");
            step(&mut rig);
            rig.remove("x");
            step(&mut rig);
            assert_eq!((rig.seen("x"), rig.get("x")), (None, None));
            fs::remove_file(rig.file("e/f/ü")).unwrap();
            step(&mut rig);
        }
    }

    #[test]
    fn what_changes_on_both_sides_is_kept_twice_and_a_removal_loses_to_a_change() {
        let mut rig = Rig::new();
        rig.put("a", "1");
        rig.put("b", "1");
        rig.put("c", "1");
        rig.sync();
        rig.put("a", "from outside");
        fs::write(rig.file("a"), "from inside").unwrap();
        rig.remove("b");
        fs::write(rig.file("b"), "changed inside").unwrap();
        rig.put("c", "changed outside");
        fs::remove_file(rig.file("c")).unwrap();
        rig.sync();
        rig.sync();
        assert_eq!((rig.get("a").as_deref(), rig.seen("a").as_deref()), (Some("from outside"), Some("from outside")));
        let aside = rig.hot.kept.ram.keys_below(BASE, None, 100);
        let aside = aside.iter().find(|key| String::from_utf8_lossy(key).contains("a.conflict-")).unwrap();
        assert_eq!(rig.hot.kept.value(aside).unwrap(), "from inside");
        assert_eq!(rig.get("b").as_deref(), Some("changed inside"));
        assert_eq!(rig.seen("c").as_deref(), Some("changed outside"));
    }

    /// A server that dies between a file and the note of it leaves the intent.
    #[test]
    fn what_was_removed_does_not_come_back_from_a_file_that_was_not_noted() {
        for from_inside in [false, true] {
            let mut rig = Rig::new();
            if from_inside {
                fs::write(rig.file("a"), "1").unwrap();
            } else {
                rig.put("a", "1");
            }
            rig.sync();
            let number = rig.hot.kept.get(&join(BASE, b"a")).unwrap().number;
            let of = identity(&rig.file("")).unwrap();
            let notes = format!("{of}\n+{number} {} a\n+77 cut sho", sum_of(b"1"));
            fs::write(rig.dir.path().join("notes"), notes).unwrap();
            rig.remove("a");
            rig.forget();
            rig.sync();
            assert_eq!((rig.get("a"), rig.seen("a")), (None, None));
            // Noted by now, and what is written there since is new.
            fs::write(rig.file("a"), "1").unwrap();
            rig.forget();
            rig.sync();
            assert_eq!(rig.get("a").as_deref(), Some("1"));
        }
    }

    #[test]
    fn what_is_removed_while_it_is_shown_does_not_come_back() {
        let mut rig = Rig::new();
        for round in 0..500 {
            rig.put("a", "1");
            let Rig { hot, mirror, .. } = &mut rig;
            std::thread::scope(|scope| {
                scope.spawn(|| mirror.sync(&hot.kept, Timestamp(2)).unwrap());
                for _ in 0..(round % 50) * 200 {
                    std::hint::spin_loop();
                }
                let key = join(BASE, b"a");
                hot.kept.remove(BASE, &key, false, Depth::Alone, &Condition::Any, Timestamp(1)).unwrap();
            });
            rig.sync();
            assert_eq!((rig.get("a"), rig.seen("a")), (None, None), "round {round}");
        }
    }

    #[test]
    fn nothing_is_looked_at_while_nothing_happens() {
        let mut rig = Rig::new();
        rig.put("d/a", "1");
        rig.sync();
        rig.sync();
        assert!(rig.mirror.is_in_step(&rig.hot.kept));
        fs::write(rig.file("d/a"), "2").unwrap();
        assert!(!rig.mirror.is_in_step(&rig.hot.kept));
        rig.sync();
        rig.put("b", "1");
        assert!(!rig.mirror.is_in_step(&rig.hot.kept));
    }

    #[test]
    fn a_directory_that_was_made_anew_or_copied_has_removed_nothing() {
        let mut rig = Rig::new();
        rig.put("a", "1");
        rig.put("d/b", "2");
        rig.sync();
        fs::rename(rig.file(""), rig.dir.path().join("old")).unwrap();
        fs::create_dir(rig.file("")).unwrap();
        fs::write(rig.file("a"), "1").unwrap();
        rig.forget();
        rig.sync();
        assert_eq!((rig.get("a").as_deref(), rig.get("d/b").as_deref()), (Some("1"), Some("2")));
        assert_eq!(rig.seen("d/b").as_deref(), Some("2"));
        assert_eq!(rig.hot.kept.ram.keys_below(BASE, None, 100).len(), 3, "nothing is there twice");
        fs::remove_file(rig.file("a")).unwrap();
        rig.forget();
        rig.sync();
        assert_eq!(rig.get("a"), None, "from here on it is known again");
    }

    #[test]
    fn links_and_pipes_are_neither_followed_nor_opened() {
        let mut rig = Rig::new();
        fs::write(rig.dir.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("../secret", rig.file("link")).unwrap();
        std::os::unix::fs::symlink("/etc", rig.file("dir")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            rig.file("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        rig.sync();
        assert_eq!(rig.hot.kept.ram.len(), 0);
        rig.put("link", "over it");
        rig.sync();
        assert_eq!(fs::read_to_string(rig.dir.path().join("secret")).unwrap(), "s");
    }
}
