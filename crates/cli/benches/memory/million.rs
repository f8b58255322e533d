//! Many entries: reads while a snapshot is written, and how long it takes to have them again.

use crate::Result;
use crate::rounds::{percentile, print};
use bytes::Bytes;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stead_model::clock::Timestamp;
use stead_model::route::Routes;
use stead_server::files::Condition;
use stead_server::memory::{Bounds, Hot};

const BOUNDS: Bounds = Bounds { total: 4 << 30, value: 1 << 20 };
const BASE: &[u8] = b"memories\0hot";

fn key(number: usize) -> Vec<u8> {
    format!("memories\0hot\0k{number:08}").into_bytes()
}

pub(crate) fn measure(scratch: &Path, entries: usize) -> Result {
    let (dir, routes) = (scratch.join("million"), Routes::default());
    let hot = Hot::open(&dir, BOUNDS, &routes)?;
    let begun = Instant::now();
    for number in 0..entries {
        hot.kept.put(BASE, &key(number), Bytes::from(vec![b'x'; 100]), &Condition::Any, Timestamp(1))?;
    }
    let each = begun.elapsed() / u32::try_from(entries)?;
    print("million", "**ours**, a write, while they grow", each, each, entries);
    let mut idle = reads(&hot, entries, &AtomicBool::new(false), 500_000)?;
    let of_idle = (percentile(&mut idle, 50), percentile(&mut idle, 99));
    print("million", "**ours**, a read, idle", of_idle.0, of_idle.1, idle.len());
    longest("**ours**, the longest read, idle", &idle);
    let over = AtomicBool::new(false);
    let (mut during, taken) = std::thread::scope(|scope| -> Result<_> {
        let snapshot = scope.spawn(|| {
            let begun = Instant::now();
            let done = hot.snapshot(Timestamp(2));
            over.store(true, Ordering::Relaxed);
            done.map(|_| begun.elapsed())
        });
        let during = reads(&hot, entries, &over, usize::MAX)?;
        Ok((during, snapshot.join().map_err(|_| "the snapshot failed")??))
    })?;
    let of_snapshot = (percentile(&mut during, 50), percentile(&mut during, 99));
    print("million", "**ours**, a read, while a snapshot is written", of_snapshot.0, of_snapshot.1, during.len());
    longest("**ours**, the longest read, while a snapshot is written", &during);
    print("million", "a snapshot of all", taken, taken, 1);
    drop(hot);
    let begun = Instant::now();
    let hot = Hot::open(&dir, BOUNDS, &routes)?;
    let taken = begun.elapsed();
    print("million", "read again from the snapshot", taken, taken, 1);
    if hot.status().entries != u64::try_from(entries)? {
        return Err("not all came back".into());
    }
    Ok(())
}

/// How long reads take, until there are enough or it is over.
fn reads(hot: &Hot, entries: usize, over: &AtomicBool, most: usize) -> Result<Vec<Duration>> {
    let mut taken = Vec::new();
    let mut number = 1_usize;
    while taken.len() < most && !over.load(Ordering::Relaxed) {
        // Any order that isn't theirs.
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = key((number >> 33) % entries);
        let begun = Instant::now();
        let value = black_box(hot.kept.value(black_box(&key)));
        taken.push(begun.elapsed());
        if value.is_none() {
            return Err("an entry is gone".into());
        }
    }
    Ok(taken)
}

fn longest(name: &str, taken: &[Duration]) {
    let longest = taken.iter().max().copied().unwrap_or_default();
    print("million", name, longest, longest, taken.len());
}
