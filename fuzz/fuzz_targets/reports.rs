//! Anybody can write into the reply FIFO by its path. What comes out must not depend on how the bytes arrived.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_model::shell::{Report, Reports};

// The first byte says where the rest is cut in two.
fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = reports(&[bytes]);
    assert_eq!(whole, reports(&[first, second]), "the cut changed what was read");
    for report in whole {
        assert!(!report.pwd.contains(&0) && !report.oldpwd.is_some_and(|dir| dir.contains(&0)), "a field held its end");
    }
});

fn reports(pieces: &[&[u8]]) -> Vec<Report> {
    let (mut reports, mut out) = (Reports::default(), Vec::new());
    for piece in pieces {
        reports.push(piece);
        while let Some(report) = reports.next_report() {
            out.push(report);
        }
    }
    out
}
