//! Bits that a disk has flipped, files that were cut or removed: what is answered is right, or it is said what is damaged.

mod state;

use super::refusal;
use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};
use sqlx::{Connection, Executor};
use std::io::Write;
use std::path::Path;

/// The same places in each run of the gate.
struct Dice(u64);

impl Dice {
    fn of_seed(salt: u64) -> Self {
        let seed = std::env::var("STEAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15_u64);
        println!("STEAD_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn flip(&mut self, bytes: &mut [u8]) -> usize {
        let (at, bit) = (self.below(bytes.len()), self.below(8));
        bytes[at] ^= 1 << bit;
        at
    }
}

fn threads(rig: &Rig) -> Vec<Value> {
    rig.get("/api/threads?limit=1000").is(200)["items"].as_array().unwrap().clone()
}

fn make_threads(rig: &Rig) -> Vec<Value> {
    for number in 0..20 {
        rig.post("/api/threads", &json!({ "id": format!("t{number}") })).is(201);
    }
    threads(rig)
}

/// The files of the database, to be put back.
struct Kept(Vec<(std::path::PathBuf, Option<Vec<u8>>)>);

impl Kept {
    fn of(data: &Path) -> Self {
        let names = ["stead.db", "stead.db-wal", "stead.db-shm", "stead.db-sums"];
        Self(names.iter().map(|name| (data.join(name), std::fs::read(data.join(name)).ok())).collect())
    }

    fn put_back(&self) {
        for (path, bytes) in &self.0 {
            match bytes {
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
                None => drop(std::fs::remove_file(path)),
            }
        }
    }
}

fn assert_names_the_way_out(said: &str) {
    assert!(said.contains("is damaged") && said.contains("stead fsck"), "{said}");
}

/// How much of a write-ahead log counts: behind it is what an earlier one left.
fn live_length(log: &[u8]) -> usize {
    let (header, frames) = log.split_at(32);
    let live = frames.chunks_exact(4096 + 24).take_while(|frame| frame[8..16] == header[16..24]);
    32 + live.count() * (4096 + 24)
}

#[test]
fn a_server_that_was_told_to_end_leaves_no_log_beside_its_database() {
    let mut rig = Rig::new();
    make_threads(&rig);
    assert!(rig.terminate().success());
    let left = std::fs::metadata(rig.data().join("stead.db-wal")).map_or(0, |file| file.len());
    assert_eq!(left, 0, "bytes are left in the log");
    rig.start();
    assert_eq!(threads(&rig).len(), 20);
}

#[test]
fn three_flipped_bits_in_the_database_are_never_taken_for_what_was_written() {
    let mut rig = Rig::new();
    let made = make_threads(&rig);
    assert!(rig.terminate().success());
    let (kept, path) = (Kept::of(&rig.data()), rig.data().join("stead.db"));
    let mut dice = Dice::of_seed(1);
    for round in 0..12 {
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<usize> = (0..3).map(|_| dice.flip(&mut bytes)).collect();
        std::fs::write(&path, bytes).unwrap();
        println!("round {round}: {places:?}");
        let said = refusal(&rig);
        assert_names_the_way_out(&said);
        kept.put_back();
    }
    rig.start();
    assert_eq!(threads(&rig), made);
}

#[test]
fn a_flipped_bit_in_the_log_of_a_killed_server_loses_nothing_without_a_word() {
    let mut rig = Rig::new();
    let made = make_threads(&rig);
    rig.kill();
    let (kept, path) = (Kept::of(&rig.data()), rig.data().join("stead.db-wal"));
    let length = live_length(&std::fs::read(&path).unwrap());
    let mut dice = Dice::of_seed(2);
    // The header and the last frame, then anywhere.
    let mut places = vec![5, 17, 30, length - 1, length - 4096 - 20];
    places.extend((0..8).map(|_| dice.below(length)));
    for at in places {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1 << dice.below(8);
        std::fs::write(&path, bytes).unwrap();
        println!("byte {at}");
        assert_names_the_way_out(&refusal(&rig));
        kept.put_back();
    }
    rig.start();
    assert_eq!(threads(&rig), made);
}

/// The pages in a write-ahead log.
fn logged_pages(log: &[u8]) -> Vec<u32> {
    let frames = log[32..live_length(log)].chunks_exact(4096 + 24);
    frames.map(|frame| u32::from_be_bytes(frame[..4].try_into().unwrap())).collect()
}

/// A reader of an older moment keeps pages of the log from being copied, and the database grows by pages that aren't.
#[test]
fn somebody_who_reads_the_database_for_long_takes_nothing_from_the_detection_of_damage() {
    let big = |number: usize| json!({ "id": format!("big{number}"), "env": { "A": "x".repeat(5000) } });
    let mut rig = Rig::new();
    for number in 0..100 {
        rig.post("/api/threads", &big(number)).is(201);
    }
    assert!(rig.terminate().success());
    rig.start();
    let (path, sums) = (rig.data().join("stead.db"), rig.data().join("stead.db-sums"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut reader = runtime.block_on(async {
        let mut reader = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        reader.execute("BEGIN").await.unwrap();
        reader.execute("SELECT count(*) FROM threads").await.unwrap();
        reader
    });
    // More transactions than there are between two checkpoints.
    for number in 100..400 {
        rig.post("/api/threads", &big(number)).is(201);
    }
    assert!(sums.exists(), "the sums are gone");
    assert!(!rig.log().contains("sums of the database can't be kept"), "{}", rig.log());
    let made = threads(&rig);
    runtime.block_on(async {
        reader.execute("COMMIT").await.unwrap();
        reader.close().await.unwrap();
    });
    rig.kill();
    let (kept, mut bytes) = (Kept::of(&rig.data()), std::fs::read(&path).unwrap());
    let logged = logged_pages(&std::fs::read(rig.data().join("stead.db-wal")).unwrap());
    let pages = 2..u32::try_from(bytes.len() / 4096).unwrap();
    let unlogged: Vec<u32> = pages.filter(|page| !logged.contains(page)).collect();
    let page = unlogged[Dice::of_seed(7).below(unlogged.len())] as usize;
    bytes[(page - 1) * 4096 + 3000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_names_the_way_out(&refusal(&rig));
    kept.put_back();
    rig.start();
    assert_eq!(threads(&rig), made);
    // The next checkpoints copy all of it, and the sums with it.
    assert!(rig.terminate().success());
    rig.start();
    assert_eq!(threads(&rig), made);
}

#[test]
fn a_log_or_a_database_that_is_gone_or_cut_is_not_taken_for_a_fresh_start() {
    let mut rig = Rig::new();
    let made = make_threads(&rig);
    rig.exec("t0", "echo kept > f");
    rig.kill();
    let (kept, data) = (Kept::of(&rig.data()), rig.data());
    let remove: [&[&str]; 4] = [
        &["stead.db-wal"],
        &["stead.db-wal", "stead.db-shm"],
        &["stead.db"],
        &["stead.db", "stead.db-wal", "stead.db-shm", "stead.db-sums"],
    ];
    for names in remove {
        for name in names {
            std::fs::remove_file(data.join(name)).unwrap();
        }
        println!("without {names:?}");
        assert_names_the_way_out(&refusal(&rig));
        assert!(!data.join("stead.db").exists() || !names.contains(&"stead.db"), "a fresh one was made");
        kept.put_back();
    }
    for (name, keep) in [("stead.db-wal", 20_000), ("stead.db-wal", 0), ("stead.db", 8192), ("stead.db", 0)] {
        std::fs::File::options().write(true).open(data.join(name)).unwrap().set_len(keep).unwrap();
        println!("{name} cut to {keep}");
        assert_names_the_way_out(&refusal(&rig));
        kept.put_back();
    }
    rig.start();
    assert_eq!(threads(&rig).len(), made.len());
    assert_eq!(rig.exec("t0", "cat f")["stdout"], "kept\n");
}

/// Threads that have never run anything have no directory.
#[test]
fn a_database_that_is_gone_is_noticed_also_where_nothing_has_run() {
    for stops in [Rig::kill as fn(&mut Rig), |rig| assert!(rig.terminate().success())] {
        let mut rig = Rig::new();
        let made = make_threads(&rig);
        stops(&mut rig);
        let (kept, data) = (Kept::of(&rig.data()), rig.data());
        for suffix in ["", "-wal", "-shm", "-sums"] {
            let _ = std::fs::remove_file(data.join(format!("stead.db{suffix}")));
        }
        let said = refusal(&rig);
        assert_names_the_way_out(&said);
        assert!(said.contains("link.key") && said.contains("backup"), "{said}");
        assert!(!data.join("stead.db").exists(), "a fresh one was made");
        assert_eq!(fsck(&rig, &[]).0, 1);
        kept.put_back();
        rig.start();
        assert_eq!(threads(&rig), made);
        stops(&mut rig);
        // Without a backup it is begun anew, and nobody is told that nothing was lost.
        for suffix in ["", "-wal", "-shm", "-sums"] {
            let _ = std::fs::remove_file(data.join(format!("stead.db{suffix}")));
        }
        let (code, said) = fsck(&rig, &["--repair"]);
        assert!(code == 1 && said.contains("lost "), "{code} {said}");
        assert_eq!(fsck(&rig, &[]).0, 0);
        rig.start();
        assert_eq!(threads(&rig).len(), 0);
    }
}

#[test]
fn a_directory_with_what_its_owner_put_there_is_begun_without_a_word() {
    let mut rig = Rig::prepare("", &[], &[]);
    std::fs::create_dir_all(rig.data()).unwrap();
    for name in ["stead.toml", "notes.txt"] {
        std::fs::write(rig.data().join(name), "").unwrap();
    }
    // A token that is the same on each machine.
    let mut fresh = Rig::new();
    std::fs::copy(fresh.data().join("token"), rig.data().join("token")).unwrap();
    assert!(fresh.terminate().success());
    rig.start();
    assert_eq!(threads(&rig).len(), 0);
}

/// `stead fsck` with these flags: its exit code and all that it said.
fn fsck(rig: &Rig, flags: &[&str]) -> (i32, String) {
    let said = rig.stead().arg("fsck").args(flags).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    println!("fsck {flags:?}: {text}");
    (said.status.code().unwrap(), text)
}

#[test]
fn fsck_is_refused_while_a_server_runs_and_says_clean_of_what_is_whole() {
    let mut rig = Rig::new();
    make_threads(&rig);
    rig.exec("t0", "echo one");
    let (code, said) = fsck(&rig, &[]);
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("runs already"), "{said}");
    rig.kill();
    let kept = std::fs::read(rig.data().join("stead.db-wal")).unwrap();
    let (code, said) = fsck(&rig, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("20 threads") && said.contains("all is whole"), "{said}");
    assert_eq!(std::fs::read(rig.data().join("stead.db-wal")).unwrap(), kept, "it changed something");
    let (code, said) = fsck(&rig, &["--json", "--repair"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["ok"], &said["damage"]), (0, &json!(true), &json!([])));
}

#[test]
fn fsck_puts_flipped_bits_of_the_database_and_of_its_log_right() {
    let mut rig = Rig::new();
    let made = make_threads(&rig);
    rig.kill();
    let mut dice = Dice::of_seed(3);
    for name in ["stead.db-wal", "stead.db"] {
        let path = rig.data().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let length = if name == "stead.db" { bytes.len() } else { live_length(&bytes) };
        let at = dice.flip(&mut bytes[..length]);
        std::fs::write(&path, bytes).unwrap();
        println!("{name}: byte {at}");
        let (code, said) = fsck(&rig, &[]);
        assert!(code == 1 && said.contains("damaged"), "{code} {said}");
        let (code, said) = fsck(&rig, &["--repair"]);
        assert!(code == 0 && said.contains("nothing is lost"), "{code} {said}");
        assert!(rig.data().join("damaged-1/stead.db").exists());
        assert_eq!(fsck(&rig, &[]).0, 0);
        rig.start();
        assert_eq!(threads(&rig), made);
        assert!(rig.terminate().success());
    }
}

#[test]
fn fsck_saves_the_rows_that_are_whole_and_names_what_is_lost() {
    let mut rig = Rig::new();
    make_threads(&rig);
    assert!(rig.terminate().success());
    let path = rig.data().join("stead.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // Many bits of a few pages, but for the first.
    let mut dice = Dice::of_seed(4);
    for _ in 0..3 {
        let page = 1 + dice.below(bytes.len() / 4096 - 1);
        bytes[page * 4096 + 100..page * 4096 + 200].fill(0xa5);
    }
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(fsck(&rig, &[]).0, 1);
    let (code, said) = fsck(&rig, &["--repair"]);
    assert!(code == 1 && said.contains("lost     database: page"), "{code} {said}");
    assert_eq!(fsck(&rig, &[]).0, 0);
    rig.start();
    assert_eq!(rig.exec("t1", "echo here")["stdout"], "here\n");
}

#[test]
fn fsck_brings_back_what_sandboxes_left_where_the_database_is_gone() {
    let mut rig = Rig::with_config("[provider.box]\nkind = 'local'\non_exit = 'destroy'\n", &[]);
    rig.post("/api/threads", &json!({ "id": "t", "provider": "box" })).is(201);
    let id = json!({ "command": "A=1; echo kept > f; echo told", "id": "before" });
    rig.post("/api/threads/t/exec", &id).is(200);
    let lease = rig.get("/api/threads/t/lease").is(200)["lease_id"].as_str().unwrap().to_owned();
    assert!(rig.terminate().success());
    for name in ["stead.db", "stead.db-sums"] {
        std::fs::remove_file(rig.data().join(name)).unwrap();
    }
    assert_names_the_way_out(&refusal(&rig));
    assert_eq!(fsck(&rig, &[]).0, 1);
    let (code, said) = fsck(&rig, &["--repair"]);
    assert!(code == 1 && said.contains("lost ") && said.contains("its name is lost"), "{code} {said}");
    assert_eq!(fsck(&rig, &[]).0, 0);
    rig.start();
    let thread = lease.replace("lease-", "recovered-");
    assert_eq!(rig.exec(&thread, "cat f; echo $A")["stdout"], "kept\n1\n");
    assert_eq!(rig.get("/api/commands/before/output/stdout").body, b"told\n");
}

fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// The files of all journals whose name ends so.
fn journal_files(rig: &Rig, end: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    files(&rig.data().join("providers"), &mut found);
    found.retain(|path| path.to_str().is_some_and(|path| path.contains("/journal/") && path.ends_with(end)));
    found.sort();
    found
}

/// Waits until the output of so many commands has its sum.
fn wait_for_sums(rig: &Rig, count: usize) {
    use stead_model::record::{MAGIC, Record, Records};
    wait_for("the sums", || {
        let logs = journal_files(rig, ".log");
        let read = logs.iter().map(|path| std::fs::read(path).unwrap_or_default());
        let sums = read.flat_map(|bytes| {
            let records = bytes.strip_prefix(MAGIC.as_slice()).unwrap_or_default();
            Records::new(records).filter(|(record, _)| matches!(record, Record::Sums(_))).collect::<Vec<_>>()
        });
        (sums.count() >= count).then_some(())
    });
}

const COMMANDS: [&str; 3] = ["a", "b", "c"];

fn text(id: &str) -> String {
    format!("seq -f '{id} %g' 1 3000; echo {id} error >&2")
}

fn expected(id: &str) -> Vec<u8> {
    (1..=3000).flat_map(|n| format!("{id} {n}\n").into_bytes()).collect()
}

fn run_commands(rig: &Rig) {
    for id in COMMANDS {
        let exec = json!({ "command": text(id), "id": id });
        assert_eq!(rig.post("/api/threads/t/exec", &exec).is(200)["exit_code"], 0);
    }
    wait_for_sums(rig, COMMANDS.len());
}

/// What all ways to read a command say: right, or that it is damaged. Whether it was right.
fn is_whole(rig: &Rig, id: &str, live: bool) -> bool {
    let record = rig.get(&format!("/api/commands/{id}")).is(200);
    assert_eq!((&record["status"], &record["exit_code"]), (&json!("exited"), &json!(0)), "{id}: {record}");
    let output = rig.get(&format!("/api/commands/{id}/output/stdout"));
    let whole = output.status == 200;
    if whole {
        assert_eq!(output.body, expected(id), "{id}");
    } else {
        output.fails(500, "damaged");
    }
    let part = rig.call("GET", &format!("/api/commands/{id}/output/stdout"), &[("range", "bytes=5-24")], b"");
    let events = rig.call("GET", &format!("/api/commands/{id}/events"), &[], b"");
    let said = String::from_utf8_lossy(&events.body).into_owned();
    if whole {
        assert_eq!((part.status, &part.body[..]), (206, &expected(id)[5..25]), "{id}");
        assert!(events.status == 200 && said.contains("event: exit"), "{id}: {} {said}", events.status);
    } else {
        part.fails(500, "damaged");
        events.fails(500, "damaged");
    }
    if live {
        let again = rig.post("/api/threads/t/exec", &json!({ "command": text(id), "id": id }));
        if whole {
            assert_eq!(again.is(200)["stdout"].as_str().unwrap().as_bytes(), expected(id));
        } else {
            again.fails(500, "damaged");
        }
    }
    whole
}

fn with_one_provider() -> Rig {
    let rig = Rig::with_config("[provider.box]\nkind = 'local'\non_exit = 'destroy'\n", &[]);
    rig.post("/api/threads", &json!({ "id": "t", "provider": "box" })).is(201);
    rig
}

/// Flips, and cuts, the output of one command after another; the others are as they were.
fn damage_output(rig: &Rig, live: bool) {
    let outputs = journal_files(rig, ".out");
    assert_eq!(outputs.len(), COMMANDS.len(), "{outputs:?}");
    let mut dice = Dice::of_seed(5);
    for path in outputs {
        let whole = std::fs::read(&path).unwrap();
        for cut in [false, true] {
            let mut bytes = whole.clone();
            let at = dice.flip(&mut bytes);
            if cut {
                bytes = whole[..at].to_vec();
            }
            std::fs::write(&path, bytes).unwrap();
            println!("{} at {at}, cut: {cut}", path.display());
            let fine: Vec<_> = COMMANDS.iter().filter(|id| is_whole(rig, id, live)).collect();
            assert_eq!(fine.len(), COMMANDS.len() - 1, "{fine:?}");
            std::fs::write(&path, &whole).unwrap();
        }
    }
    assert!(COMMANDS.iter().all(|id| is_whole(rig, id, live)));
}

#[test]
fn damaged_output_is_told_by_a_steward_that_lives() {
    let rig = with_one_provider();
    run_commands(&rig);
    damage_output(&rig, true);
}

#[test]
fn damaged_output_is_told_when_its_instance_is_gone() {
    let mut rig = with_one_provider();
    run_commands(&rig);
    assert!(rig.terminate().success());
    rig.start();
    damage_output(&rig, false);
}

/// A disk that flips a bit changes no time of the file.
#[test]
fn output_that_was_served_whole_is_looked_at_again_for_the_next_reader() {
    let mut rig = with_one_provider();
    run_commands(&rig);
    for live in [true, false] {
        if !live {
            assert!(rig.terminate().success());
            rig.start();
        }
        for path in journal_files(&rig, ".out") {
            assert!(COMMANDS.iter().all(|id| is_whole(&rig, id, live)));
            let (whole, written) = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
            let write = |bytes: &[u8]| {
                let mut file = std::fs::File::options().write(true).open(&path).unwrap();
                file.write_all(bytes).unwrap();
                file.set_modified(written).unwrap();
            };
            let mut bytes = whole.clone();
            bytes[whole.len() / 2] ^= 1;
            write(&bytes);
            let fine = COMMANDS.iter().filter(|id| is_whole(&rig, id, live)).count();
            assert_eq!(fine, COMMANDS.len() - 1, "live: {live}, {}", path.display());
            write(&whole);
        }
    }
}

#[test]
fn a_damaged_record_of_a_journal_hides_no_other_command() {
    let mut rig = with_one_provider();
    run_commands(&rig);
    assert!(rig.terminate().success());
    rig.start();
    let [log] = journal_files(&rig, ".log").try_into().unwrap();
    let whole = std::fs::read(&log).unwrap();
    let mut dice = Dice::of_seed(6);
    for _ in 0..24 {
        let mut bytes = whole.clone();
        let at = dice.flip(&mut bytes);
        std::fs::write(&log, bytes).unwrap();
        let fine = COMMANDS.iter().filter(|id| is_whole(&rig, id, false)).count();
        println!("byte {at} of {}: {fine} of {} are whole", whole.len(), COMMANDS.len());
        assert!(fine + 1 >= COMMANDS.len(), "byte {at}");
    }
    // What is damaged is named, taken out, and said to be gone; the others are as they were.
    assert!(rig.terminate().success());
    let place = |id: &str| whole.windows(id.len()).position(|window| window == id.as_bytes()).unwrap();
    let mut bytes = whole.clone();
    bytes[place("seq -f 'b")] ^= 4;
    std::fs::write(&log, bytes).unwrap();
    let (code, said) = fsck(&rig, &["--repair"]);
    assert!(code == 1 && said.contains("are no record"), "{code} {said}");
    assert_eq!(fsck(&rig, &[]).0, 0);
    rig.start();
    assert!(is_whole(&rig, "a", false) && is_whole(&rig, "c", false));
    rig.get("/api/commands/b/output/stdout").fails(410, "gone");
}
