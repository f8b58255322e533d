//! What memories cost. This measures and prints numbers; `cargo xtask bench memory` calls it and writes them up.
//!
//! ```text
//! row    TABLE NAME P50 P99 SAMPLES     nanoseconds; fields are separated by tabs
//! absent WHAT WHY                       left out of the comparison
//! ```
//!
//! Nothing here asserts a time.

#![expect(clippy::print_stdout, clippy::disallowed_macros, reason = "the numbers are its output")]

mod million;
mod ours;
mod redis;
mod rounds;
mod served;

use ours::Ours;
use redis::Redis;
use rounds::{Rounds, Subject};
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

type Failed = Box<dyn Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, Failed>;

/// What a note of an agent is about as large as.
const VALUE: usize = 200;
/// Files that are read in turn, so that it isn't always the same one.
const FILES: usize = 1000;

fn name(number: usize) -> String {
    format!("note-{:04}.md", number % FILES)
}

/// One of them; made before anything is timed.
fn at(names: &[String], number: usize) -> &str {
    names.get(number % FILES).map_or("", String::as_str)
}

/// Called as `memory EFFORT DIRECTORY`. Cargo adds `--bench`.
fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [effort, directory] = arguments.as_slice() else {
        eprintln!("nothing measured: this is for `cargo xtask bench memory` to call");
        return Ok(());
    };
    let (rounds, entries) = if effort == "quick" { (3, 100_000) } else { (15, 1_000_000) };
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(directory)?;
    in_process(scratch.path(), rounds)?;
    served::measure(scratch.path(), rounds)?;
    million::measure(scratch.path(), entries)
}

fn in_process(scratch: &Path, rounds: usize) -> Result {
    let value = vec![b'x'; VALUE];
    let ours = Ours::new(&scratch.join("project"))?;
    let files = scratch.join("plain");
    std::fs::create_dir_all(&files)?;
    let mut map: HashMap<String, Vec<u8>> = HashMap::new();
    for number in 0..FILES {
        map.insert(name(number), value.clone());
        std::fs::write(files.join(name(number)), &value)?;
        for base in ["/memories/hot", "/memories/persistent", "/workspace", "/tmp"] {
            ours.write(&format!("{base}/{}", name(number)), &value)?;
        }
    }
    let below = |base: &str| -> Vec<String> { (0..FILES).map(|number| format!("{base}{}", name(number))).collect() };
    let (names, keys, hot) = (below(""), below("memories\0hot\0"), below("/memories/hot/"));
    let (state, persistent, workspace) = (below("/tmp/"), below("/memories/persistent/"), below("/workspace/"));
    let plain = below(&format!("{}/", files.display()));
    let mut redis = Redis::start(&scratch.join("redis"));
    if let Err(why) = &redis {
        println!("absent\tRedis\t{why}");
    }
    let mut reads: Vec<Subject<'_>> = vec![
        Subject::new("`HashMap::get` and a copy", 2000, |n| Ok(map.get(at(&names, n)).cloned().map(|v| v.len()))),
        Subject::new("**ours**, hot, by its key", 2000, |n| Ok(ours.hot_value(at(&keys, n)))),
        Subject::new("**ours**, hot", 2000, |n| ours.read(at(&hot, n)).map(Some)),
        Subject::new("**ours**, state", 2000, |n| ours.read(at(&state, n)).map(Some)),
        Subject::new("`std::fs::read`", 500, |n| Ok(Some(std::fs::read(at(&plain, n))?.len()))),
        Subject::new("**ours**, persistent", 500, |n| ours.read(at(&persistent, n)).map(Some)),
        Subject::new("**ours**, workspace", 500, |n| ours.read(at(&workspace, n)).map(Some)),
    ];
    if let Ok(redis) = &mut redis {
        for number in 0..FILES {
            redis.set(&name(number), &value)?;
        }
        reads.push(Subject::new("Redis `GET`, unix socket", 500, |n| redis.get(at(&names, n)).map(Some)));
    }
    Rounds { table: "read", rounds }.run(reads)?;
    let mut other = map.clone();
    let value = &value;
    let mut writes: Vec<Subject<'_>> = vec![
        Subject::new("`HashMap::insert`", 2000, |n| {
            Ok(other.insert(at(&names, n).to_owned(), value.clone()).map(|v| v.len()))
        }),
        Subject::new("**ours**, hot (in the journal)", 1000, |n| ours.write(at(&hot, n), value).map(|()| None)),
        Subject::new("**ours**, state", 1000, |n| ours.write(at(&state, n), value).map(|()| None)),
        Subject::new("`std::fs::write`, in place", 200, |n| {
            std::fs::write(at(&plain, n), value)?;
            Ok(None)
        }),
        Subject::new("**ours**, persistent (replaced, synced)", 50, |n| {
            ours.write(at(&persistent, n), value).map(|()| None)
        }),
    ];
    if let Ok(redis) = &mut redis {
        writes.push(Subject::new("Redis `SET`, append-only file, no fsync", 500, |n| {
            redis.set(at(&names, n), value).map(|()| None)
        }));
    }
    Rounds { table: "write", rounds }.run(writes)
}
