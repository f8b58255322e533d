//! The life of hot memory: read, put away, read again, closed.

use super::*;
use crate::files::Condition;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

const BASE: &[u8] = b"memories\0hot";

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

struct Ground {
    dir: tempfile::TempDir,
    clock: Arc<Hand>,
    memories: Arc<Memories>,
    project: ProjectId,
}

impl Ground {
    fn new(settings: MemorySettings) -> Self {
        let clock = Arc::new(Hand::default());
        let memories = Arc::new(Memories::new(settings, Arc::clone(&clock) as Arc<dyn Clock>));
        let project = ProjectId::parse("app-00000001").unwrap();
        Self { dir: tempfile::tempdir().unwrap(), clock, memories, project }
    }

    fn at_minute(&self, minute: u64) {
        self.clock.0.store(minute * 60_000, Ordering::Relaxed);
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join(".memories/hot")
    }

    async fn open(&self) -> Result<Arc<Hot>, Error> {
        self.memories.open(&self.project, &self.at(), &Routes::default()).await
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.at()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn key(name: &str) -> Vec<u8> {
    [BASE, b"\0", name.as_bytes()].concat()
}

fn put(hot: &Hot, name: &str, text: &str) -> Result<Put, Error> {
    hot.kept.put(BASE, &key(name), Bytes::copy_from_slice(text.as_bytes()), &Condition::Any, Timestamp(1))
}

fn get(hot: &Hot, name: &str) -> Option<String> {
    hot.kept.value(&key(name)).map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[tokio::test]
async fn what_nobody_uses_is_put_away_and_read_again_and_what_somebody_has_is_not() {
    let ground = Ground::new(MemorySettings::default());
    let hot = ground.open().await.unwrap();
    put(&hot, "a", "one").unwrap();
    ground.at_minute(14);
    ground.memories.look_after().await;
    assert_eq!(ground.memories.loaded(), 1, "not yet");
    ground.at_minute(15);
    ground.memories.look_after().await;
    assert_eq!(ground.memories.loaded(), 1, "somebody has it");
    put(&hot, "b", "two").unwrap();
    let same = ground.open().await.unwrap();
    assert!(Arc::ptr_eq(&hot, &same), "two over one journal would not know of each other");
    drop((hot, same));
    ground.memories.look_after().await;
    assert_eq!(ground.memories.loaded(), 1, "it was used just now");
    ground.at_minute(31);
    ground.memories.look_after().await;
    assert_eq!(ground.memories.loaded(), 0);
    let again = ground.open().await.unwrap();
    assert_eq!((get(&again, "a"), get(&again, "b")), (Some("one".to_owned()), Some("two".to_owned())));
    assert_eq!(again.warnings, [""; 0]);
    put(&again, "c", "three").unwrap();
    let read = Hot::open(&ground.at(), Bounds::default(), &Routes::default()).unwrap();
    assert_eq!(get(&read, "c").as_deref(), Some("three"));
}

#[tokio::test]
async fn a_long_journal_is_written_anew_also_without_snapshots_in_time() {
    const LONG: u64 = 16 << 10;
    let settings = MemorySettings { snapshot_every: None, long_journal: LONG, ..MemorySettings::default() };
    let ground = Ground::new(settings);
    let hot = ground.open().await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&ground.memories).run(stop.clone()));
    let (mut turns, mut before, mut number) = (0, 0, 0);
    let until = Instant::now() + Duration::from_mins(1);
    while turns < 3 {
        assert!(Instant::now() < until, "written anew {turns} times by {number} writes");
        number += 1;
        put(&hot, "a", &format!("{number} {}", "x".repeat(1000))).unwrap();
        put(&hot, &format!("f{}", number % 3), &number.to_string()).unwrap();
        ground.memories.changed(&hot);
        let length = hot.status().journal_bytes;
        turns += u32::from(length < before);
        before = length;
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap();
    // Two snapshots, and the journals since the older one: however much was written.
    assert!(ground.names().len() <= 5, "{:?}", ground.names());
    let read = Hot::open(&ground.at(), Bounds::default(), &Routes::default()).unwrap();
    assert_eq!(get(&read, "a"), get(&hot, "a"));
    assert_eq!(get(&read, &format!("f{}", number % 3)), Some(number.to_string()));
    assert_eq!(read.warnings, [""; 0]);
}

#[tokio::test]
async fn what_is_shut_takes_no_write_from_whoever_still_has_it_and_touches_no_file() {
    let ground = Ground::new(MemorySettings::default());
    let old = ground.open().await.unwrap();
    put(&old, "a", "old").unwrap();
    let shut = ground.memories.shut(&ground.project).await;
    assert!(matches!(put(&old, "b", "late"), Err(Error::Moving)));
    let removed = old.kept.remove(BASE, &key("a"), false, Depth::Alone, &Condition::Any, Timestamp(1));
    assert!(matches!(removed, Err(Error::Moving)), "{removed:?}");
    assert!(matches!(ground.open().await, Err(Error::Moving)));
    // Another tree comes in its place.
    std::fs::remove_dir_all(ground.at()).unwrap();
    put(&Hot::open(&ground.at(), Bounds::default(), &Routes::default()).unwrap(), "a", "new").unwrap();
    let files = ground.names();
    drop(shut);
    assert_eq!(old.snapshot(Timestamp(2)).unwrap(), None);
    let seen = ground.dir.path().join("seen");
    std::fs::create_dir(&seen).unwrap();
    let shown = Mirrored { base: BASE.to_vec(), dir: seen.clone(), notes: ground.at().join("shown") };
    assert!(!ground.memories.show(&old, &shown));
    old.sync(Timestamp(2));
    assert_eq!((ground.names(), std::fs::read_dir(&seen).unwrap().count()), (files, 0));
    let new = ground.open().await.unwrap();
    assert_eq!(get(&new, "a").as_deref(), Some("new"));
    put(&new, "b", "kept").unwrap();
    assert!(matches!(put(&old, "c", "late"), Err(Error::Moving)), "for good");
    assert_eq!(get(&ground.open().await.unwrap(), "b").as_deref(), Some("kept"));
}

/// Whoever asks while it is exchanged, again and again: what they were told is kept, is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_write_while_it_is_exchanged_nobody_writes_where_nobody_looks() {
    let ground = Arc::new(Ground::new(MemorySettings::default()));
    let exchanges = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (ground, exchanges) = (Arc::clone(&ground), Arc::clone(&exchanges));
            tokio::spawn(async move {
                let (mut kept, mut refused) = (0, 0);
                while exchanges.load(Ordering::Acquire) < 50 || kept == 0 {
                    let Ok(hot) = ground.open().await else {
                        refused += 1;
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let before = exchanges.load(Ordering::Acquire);
                    let name = format!("w{writer}-{kept}");
                    match put(&hot, &name, "kept") {
                        Ok(_) => kept += 1,
                        Err(Error::Moving) => {
                            refused += 1;
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    let Ok(now) = ground.open().await else { continue };
                    // No exchange was between: it has to be there, for everybody.
                    if get(&now, &name).is_none() {
                        assert_ne!(exchanges.load(Ordering::Acquire), before, "{name} was acknowledged and is gone");
                    }
                }
                refused
            })
        })
        .collect();
    for _ in 0..50 {
        let shut = ground.memories.shut(&ground.project).await;
        let _ = std::fs::remove_dir_all(ground.at());
        exchanges.fetch_add(1, Ordering::AcqRel);
        drop(shut);
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Files `a`, `b` and `c`, in this order, in the first journal.
async fn three() -> Ground {
    let ground = Ground::new(MemorySettings::default());
    let hot = ground.open().await.unwrap();
    for name in ["a", "b", "c"] {
        put(&hot, name, &format!("value of {name}")).unwrap();
    }
    drop(ground.memories.shut(&ground.project).await);
    ground
}

fn damage(path: &Path, at: impl Fn(&[u8]) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(&bytes);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

fn values(hot: &Hot, names: &str) -> Vec<bool> {
    names.chars().map(|name| get(hot, &name.to_string()) == Some(format!("value of {name}"))).collect()
}

#[tokio::test]
async fn a_journal_whose_beginning_is_damaged_loses_nothing_and_is_told_until_its_copy_is_removed() {
    let ground = three().await;
    let journal = ground.at().join("journal-0000000001");
    damage(&journal, |_| 1);
    let found = std::fs::read(&journal).unwrap();
    let hot = ground.open().await.unwrap();
    assert_eq!(values(&hot, "abc"), [true; 3]);
    assert!(hot.warnings[0].contains("nothing of it is lost"), "{:?}", hot.warnings);
    let aside = ground.at().join("journal-0000000001.damaged");
    assert_eq!(std::fs::read(&aside).unwrap(), found, "as it was");
    put(&hot, "d", "value of d").unwrap();
    drop(hot);
    for (removed, warnings) in [(false, 1), (true, 0)] {
        if removed {
            std::fs::remove_file(&aside).unwrap();
        }
        drop(ground.memories.shut(&ground.project).await);
        let hot = ground.open().await.unwrap();
        assert_eq!((values(&hot, "abcd"), hot.warnings.len()), (vec![true; 4], warnings), "{:?}", hot.warnings);
    }
}

#[tokio::test]
async fn of_a_journal_that_is_damaged_in_the_middle_one_change_is_lost_and_that_is_told() {
    // In its value, and in the highest byte of its length.
    for before in [0, 8 + 21 + "memories\0hot\0b".len()] {
        let ground = three().await;
        damage(&ground.at().join("journal-0000000001"), |bytes| find(bytes, "value of b") - before);
        let hot = ground.open().await.unwrap();
        assert_eq!(values(&hot, "abc"), [true, false, true], "{before}");
        assert!(hot.warnings[0].contains("1 change lost"), "{:?}", hot.warnings);
        put(&hot, "d", "value of d").unwrap();
        drop(hot);
        drop(ground.memories.shut(&ground.project).await);
        assert_eq!(values(&ground.open().await.unwrap(), "abcd"), [true, false, true, true], "{before}");
    }
}

#[tokio::test]
async fn a_record_that_was_being_written_is_cut_off_without_a_word() {
    let ground = three().await;
    let journal = ground.at().join("journal-0000000001");
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() - 3]).unwrap();
    let hot = ground.open().await.unwrap();
    assert_eq!((values(&hot, "abc"), hot.warnings.len()), (vec![true, true, false], 0), "{:?}", hot.warnings);
}

/// Three snapshots' worth of changes: snapshots 3 and 4 stay, with the journals since.
async fn turned() -> Ground {
    let ground = Ground::new(MemorySettings::default());
    let hot = ground.open().await.unwrap();
    for name in ["a", "b", "c"] {
        put(&hot, name, &format!("value of {name}")).unwrap();
        hot.snapshot(Timestamp(1)).unwrap();
    }
    put(&hot, "d", "value of d").unwrap();
    drop(hot);
    drop(ground.memories.shut(&ground.project).await);
    let names = ["journal-0000000003", "journal-0000000004", "snapshot-0000000003", "snapshot-0000000004"];
    assert_eq!(ground.names(), names);
    ground
}

#[tokio::test]
async fn a_journal_that_is_missing_or_cut_short_between_others_is_told() {
    let ground = turned().await;
    damage(&ground.at().join("snapshot-0000000004"), |bytes| bytes.len() / 2);
    std::fs::remove_file(ground.at().join("journal-0000000003")).unwrap();
    let hot = ground.open().await.unwrap();
    assert_eq!(values(&hot, "abcd"), [true, true, false, true]);
    assert!(hot.warnings.iter().any(|told| told.contains("journal 3 of hot memory is missing")), "{:?}", hot.warnings);

    let ground = turned().await;
    damage(&ground.at().join("snapshot-0000000004"), |bytes| bytes.len() / 2);
    std::fs::write(ground.at().join("journal-0000000003"), stead_model::memory::JOURNAL).unwrap();
    let hot = ground.open().await.unwrap();
    assert!(hot.warnings.iter().any(|told| told.starts_with("1 change of hot memory lost")), "{:?}", hot.warnings);
}

#[tokio::test]
async fn of_snapshots_of_which_none_is_whole_every_entry_that_is_whole_is_kept() {
    let ground = turned().await;
    // One entry of each: what one has lost the other has.
    damage(&ground.at().join("snapshot-0000000003"), |bytes| find(bytes, "value of a"));
    damage(&ground.at().join("snapshot-0000000004"), |bytes| find(bytes, "value of b"));
    for _ in 0..2 {
        let hot = ground.open().await.unwrap();
        assert_eq!(values(&hot, "abcd"), [true; 4]);
        let told: Vec<_> = hot.warnings.iter().filter(|told| told.contains("is damaged (")).collect();
        assert_eq!(told.len(), 2, "{:?}", hot.warnings);
        assert!(told[1].ends_with("none is whole, and of each what is whole in it is used"), "{told:?}");
        assert!(!hot.warnings.iter().any(|told| told.contains("the one before it is used")), "{:?}", hot.warnings);
        drop(hot);
        // Also if the server is killed before it has written another.
        drop(ground.memories.shut(&ground.project).await);
    }
    let hot = ground.open().await.unwrap();
    assert!(hot.snapshot(Timestamp(2)).unwrap().is_some(), "another is wanted");
    drop(hot);
    drop(ground.memories.shut(&ground.project).await);
    let hot = ground.open().await.unwrap();
    assert_eq!(values(&hot, "abcd"), [true; 4]);
    assert!(!hot.warnings.iter().any(|told| told.contains("is damaged (")), "{:?}", hot.warnings);
}
