//! A journal may be torn or damaged anywhere: what is whole before the damage is read, nothing behind it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_model::record::{Record, Records, write};

// A sum that is right by chance would take for ever to find, so the input is read twice: as a log, and as payloads (a
// byte of length before each) that are given their sums here.
fuzz_target!(|data: &[u8]| {
    check(data, data.len());
    let log = summed(data);
    check(&log, data.first().map_or(0, |byte| usize::from(*byte) * 7));
});

fn summed(mut data: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
        log.extend_from_slice(&u32::try_from(payload.len()).expect("a byte holds it").to_be_bytes());
        log.extend_from_slice(&crc32fast::hash(payload).to_be_bytes());
        log.extend_from_slice(payload);
        data = rest;
    }
    log
}

fn check(log: &[u8], at: usize) {
    let read: Vec<(Record, usize)> = Records::new(log).collect();
    let ends: Vec<usize> = read
        .iter()
        .scan(0, |end, (_, size)| {
            *end += size;
            Some(*end)
        })
        .collect();
    let length = ends.last().copied().unwrap_or(0);
    assert!(length <= log.len(), "read past the end");
    let records: Vec<Record> = read.into_iter().map(|(record, _)| record).collect();

    let mut again = Vec::new();
    for record in &records {
        write(&mut again, record);
    }
    assert!(Records::new(&again).map(|(record, _)| record).eq(records.iter().cloned()), "written again it differs");

    let cut = at % (log.len() + 1);
    let whole = ends.iter().filter(|end| **end <= cut).count();
    assert!(read_from(log.get(..cut).expect("within the log")).eq(records.iter().take(whole).cloned()), "cut at {cut}");

    if length > 0 {
        let flip = at % length;
        let before = ends.iter().filter(|end| **end <= flip).count();
        let mut damaged = log.to_vec();
        damaged[flip] ^= 1;
        assert!(read_from(&damaged).take(before).eq(records.iter().take(before).cloned()), "damaged at {flip}");
    }
}

fn read_from(log: &[u8]) -> impl Iterator<Item = Record> {
    Records::new(log).map(|(record, _)| record)
}
