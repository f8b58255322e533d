use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

struct Ground {
    dir: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { dir: tempfile::tempdir().unwrap() };
        for dir in ["repo/src", "home", ".memories/persistent", ".memories/hot", ".logs", "tmp"] {
            std::fs::create_dir_all(ground.project().join(dir)).unwrap();
        }
        ground.write("repo/src/a.txt", "one");
        ground.write("repo/report..final.md", "ünicode");
        ground.write(".memories/persistent/note", "kept");
        ground.write(".logs/sess-1.log", "log");
        ground.write("tmp/scratch", "scratch");
        ground.write(".project_metadata.json", "{}");
        symlink("/usr/bin/python3", ground.project().join("repo/python")).unwrap();
        let script = ground.project().join("repo/run.sh");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
        ground
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("projects/app-00000001")
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("snapshots")
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.project().join(path), text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.project().join(path)).ok()
    }

    fn archive(&self, saved: &Saved) -> PathBuf {
        self.store().join(format!("{}{END}", saved.digest))
    }

    /// Everything around the project: what an archive must not touch.
    fn around(&self) -> Vec<String> {
        let names = |dir: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).unwrap().flatten();
            entries.map(|entry| entry.path().display().to_string()).collect()
        };
        let mut around = [names(self.dir.path()), names(&self.dir.path().join("projects"))].concat();
        around.sort();
        around
    }
}

#[test]
fn a_restored_tree_is_the_one_that_was_saved_and_logs_stay_as_they_are() {
    let ground = Ground::new();
    let saved = save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap();
    assert_eq!((saved.packed.files, saved.packed.links), (4, 1));
    ground.write("repo/src/a.txt", "two");
    ground.write("repo/new", "new");
    ground.write(".memories/persistent/note", "changed");
    ground.write(".logs/sess-1.log", "longer log");
    std::fs::remove_file(ground.project().join("repo/run.sh")).unwrap();
    let mode = std::fs::metadata(ground.project()).unwrap().permissions();
    load(&ground.archive(&saved), &saved.digest, &ground.project(), &CancellationToken::new()).unwrap();
    assert_eq!(ground.read("repo/src/a.txt").as_deref(), Some("one"));
    assert_eq!(ground.read("repo/report..final.md").as_deref(), Some("ünicode"));
    assert_eq!((ground.read("repo/new"), ground.read("tmp/scratch")), (None, None));
    assert_eq!(ground.read(".memories/persistent/note").as_deref(), Some("kept"));
    assert_eq!(ground.read(".logs/sess-1.log").as_deref(), Some("longer log"));
    assert_eq!(ground.read(".project_metadata.json").as_deref(), Some("{}"));
    assert_eq!(std::fs::read_link(ground.project().join("repo/python")).unwrap(), Path::new("/usr/bin/python3"));
    let script = std::fs::metadata(ground.project().join("repo/run.sh")).unwrap();
    assert_eq!(script.permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::metadata(ground.project()).unwrap().permissions(), mode);
    assert!(ground.project().join("tmp").is_dir() && ground.project().join(".memories/hot").is_dir());
    assert_eq!(ground.around().len(), 3, "{:?}", ground.around());
}

#[test]
fn the_same_files_are_stored_once() {
    let ground = Ground::new();
    let one = save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap();
    ground.write(".logs/sess-1.log", "what is left out makes no difference");
    ground.write("tmp/scratch", "nor this");
    let two = save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap();
    assert_eq!(one.digest, two.digest);
    assert_eq!(std::fs::read_dir(ground.store()).unwrap().count(), 1);
    ground.write("repo/src/a.txt", "two");
    assert_ne!(save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap().digest, one.digest);
    assert_eq!(std::fs::read_dir(ground.store()).unwrap().count(), 2);
}

#[test]
fn an_archive_that_is_damaged_or_gone_changes_nothing() {
    let ground = Ground::new();
    let saved = save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap();
    let archive = ground.archive(&saved);
    let bytes = std::fs::read(&archive).unwrap();
    ground.write("repo/src/a.txt", "two");
    for broken in [bytes[..bytes.len() - 1].to_vec(), Vec::new(), [&bytes[..20], b"x", &bytes[21..]].concat()] {
        std::fs::write(&archive, broken).unwrap();
        let error = load(&archive, &saved.digest, &ground.project(), &CancellationToken::new()).unwrap_err();
        assert_eq!(error.code(), "damaged", "{error}");
    }
    std::fs::remove_file(&archive).unwrap();
    assert_eq!(load(&archive, &saved.digest, &ground.project(), &CancellationToken::new()).unwrap_err().code(), "gone");
    assert_eq!(ground.read("repo/src/a.txt").as_deref(), Some("two"));
    assert_eq!(ground.around().len(), 3, "{:?}", ground.around());
}

/// An archive of one entry after a harmless one, as somebody hostile would make it.
fn hostile(path: &str, kind: tar::EntryType, target: Option<&str>, before: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut entry = |path: &str, kind: tar::EntryType, target: Option<&str>, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Some(target) = target {
            header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_mode(0o4777);
        header.set_size(data.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    };
    entry("repo/harmless", tar::EntryType::Regular, None, b"x");
    for (link, target) in before {
        entry(link, tar::EntryType::Symlink, Some(target), b"");
    }
    let data: &[u8] = if kind == tar::EntryType::Regular { b"evil" } else { b"" };
    entry(path, kind, target, data);
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn nothing_in_an_archive_leads_out_and_a_bad_one_changes_nothing() {
    use tar::EntryType;
    let ground = Ground::new();
    let before = ground.around();
    let outside = ground.dir.path().join("snapshots-not");
    let outside = outside.to_str().unwrap();
    let cases = [
        hostile("../escaped", EntryType::Regular, None, &[]),
        hostile("repo/../../escaped", EntryType::Regular, None, &[]),
        hostile("/tmp/stead-escaped", EntryType::Regular, None, &[]),
        hostile("repo/way/escaped", EntryType::Regular, None, &[("repo/way", "../../..")]),
        hostile("repo/way/escaped", EntryType::Regular, None, &[("repo/way", outside)]),
        hostile("repo/second", EntryType::Link, Some("../../victim"), &[]),
        hostile("repo/second", EntryType::Link, Some("/etc/passwd"), &[]),
        hostile("repo/pipe", EntryType::Fifo, None, &[]),
        hostile("repo/device", EntryType::Char, None, &[]),
    ];
    for (number, bytes) in cases.into_iter().enumerate() {
        let error = unpack(io::Cursor::new(bytes), &ground.project(), &CancellationToken::new()).unwrap_err();
        assert!(matches!(error.code(), "invalid_path" | "invalid_request"), "{number}: {error}");
        assert_eq!(ground.read("repo/src/a.txt").as_deref(), Some("one"), "{number}");
        assert_eq!(ground.around(), before, "{number}");
    }
    // Cut off before its end.
    let bytes = hostile("repo/fine", EntryType::Regular, None, &[]);
    assert!(unpack(io::Cursor::new(bytes[..1536].to_vec()), &ground.project(), &CancellationToken::new()).is_err());
    assert_eq!(ground.around(), before);
    // What would make others root makes nobody so.
    unpack(
        io::Cursor::new(hostile("repo/fine", EntryType::Regular, None, &[])),
        &ground.project(),
        &CancellationToken::new(),
    )
    .unwrap();
    let fine = std::fs::metadata(ground.project().join("repo/fine")).unwrap();
    assert_eq!(fine.permissions().mode() & 0o7000, 0);
}

#[test]
fn a_file_that_is_rewritten_meanwhile_is_in_the_archive_as_it_was_at_one_moment_or_it_is_told() {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    const SIZE: usize = 256 << 10;
    let ground = Ground::new();
    let path = ground.project().join("repo/changing");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let over = AtomicBool::new(false);
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            for byte in (0..=u8::MAX).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(&vec![byte; SIZE], 0).unwrap();
            }
        });
        for _ in 0..20 {
            match save(&ground.project(), &ground.store(), &CancellationToken::new()) {
                Ok(saved) => {
                    let archive = zstd::Decoder::new(File::open(ground.archive(&saved)).unwrap()).unwrap();
                    let mut archive = tar::Archive::new(archive);
                    let mut entries = archive.entries().unwrap().map(Result::unwrap);
                    let mut entry = entries.find(|entry| entry.path().unwrap().ends_with("repo/changing")).unwrap();
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).unwrap();
                    let first = bytes[0];
                    if bytes.iter().any(|byte| *byte != first) {
                        over.store(true, Ordering::Relaxed);
                        panic!("half of it is older than the other");
                    }
                    whole += 1;
                }
                Err(Error::Conflict(message)) => {
                    assert!(message.contains("`repo/changing` was changed"), "{message}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{whole} whole, {refused} refused");
    save(&ground.project(), &ground.store(), &CancellationToken::new()).unwrap();
    assert!(std::fs::read_dir(ground.store()).unwrap().flatten().all(|entry| entry.path().extension().is_some()));
}

#[test]
fn a_file_that_only_grows_is_in_the_archive_as_far_as_it_was_there() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let ground = Ground::new();
    let path = ground.project().join("repo/log");
    std::fs::write(&path, "line\n").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().append(true).open(&path).unwrap();
            while !over.load(Ordering::Relaxed) {
                file.write_all(b"line\n").unwrap();
            }
        });
        let saved: Result<Vec<_>, _> =
            (0..10).map(|_| save(&ground.project(), &ground.store(), &CancellationToken::new())).collect();
        over.store(true, Ordering::Relaxed);
        let saved = saved.unwrap();
        load(&ground.archive(&saved[9]), &saved[9].digest, &ground.project(), &CancellationToken::new()).unwrap();
    });
    let read = ground.read("repo/log").unwrap();
    assert_eq!(read, "line\n".repeat(read.len() / 5));
}

#[test]
fn hot_memory_that_is_used_meanwhile_is_whole_in_the_archive() {
    use crate::memory::{Bounds, Hot};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let ground = Ground::new();
    let at = ground.project().join(".memories/hot");
    let open = || Hot::open(&at, Bounds::default(), &stead_model::route::Routes::default()).unwrap();
    let key = |number: u64| [b"memories\0hot\0", (number % 100).to_string().as_bytes()].concat();
    let hot = open();
    let (over, done, most) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let saved: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let number = done.load(Ordering::Relaxed) + 1;
                if number > most.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                    continue;
                }
                let (any, value) = (crate::files::Condition::Any, number.to_string());
                hot.kept.put(b"memories\0hot", &key(number), value.into(), &any, Timestamp(1)).unwrap();
                done.store(number, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                // Now and then: others get their turn.
                if done.load(Ordering::Relaxed) < last + 200 {
                    std::thread::yield_now();
                    continue;
                }
                hot.snapshot(Timestamp(1)).unwrap();
                last = done.load(Ordering::Relaxed);
            }
        });
        let taken = (0..8).map(|_| {
            let least = done.load(Ordering::Relaxed);
            most.fetch_add(2000, Ordering::Relaxed);
            (least, hot.undisturbed(|| save(&ground.project(), &ground.store(), &CancellationToken::new())))
        });
        let taken = taken.collect();
        over.store(true, Ordering::Relaxed);
        taken
    });
    for (least, saved) in saved {
        let saved = saved.unwrap();
        load(&ground.archive(&saved), &saved.digest, &ground.project(), &CancellationToken::new()).unwrap();
        let read = open();
        assert_eq!(read.warnings, [""; 0]);
        for number in least.saturating_sub(99).max(1)..=least {
            let value = read.kept.value(&key(number)).map(|value| String::from_utf8(value.to_vec()).unwrap());
            let value: u64 = value.and_then(|value| value.parse().ok()).unwrap_or(0);
            assert!(value >= number, "{value} instead of {number}, which was acknowledged before");
        }
    }
}
