//! Bits that a disk has flipped, files that were cut or removed: what is answered is right, or it is said what is damaged.

use super::refusal;
use crate::rig::Rig;
use serde_json::{Value, json};
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
    let length = std::fs::read(&path).unwrap().len();
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
        names.iter().for_each(|name| std::fs::remove_file(data.join(name)).unwrap());
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
