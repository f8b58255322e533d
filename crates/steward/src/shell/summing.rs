//! Sums of what finished commands wrote: made a moment after their answers, in slices, and noted in the journal.

use super::{Entry, Shell};
use crate::host::{Host, What};
use crate::journal::{JournalError, Need};
use crate::sum::{self, Summing};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::time::Duration;
use stead_model::frame::Stream;
use stead_model::proto::Fault;
use stead_model::record::{Record, Sums};

/// Long enough that whoever runs one command after another has the steward for himself.
const LATER: Duration = Duration::from_millis(100);

/// Between two slices of much output.
const NEXT: Duration = Duration::from_millis(5);

/// A slice is about a millisecond.
const SLICE: u64 = 2 << 20;

/// A command costs a slice at least this much: opening files takes time, too.
const EACH: u64 = 16 << 10;

/// What is larger is looked at by the server, which has threads to wait in.
const MOST_VERIFIED: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct Unsummed {
    numbers: BTreeSet<u64>,
    /// The one under way.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    sums: Sums,
    /// The stream that is being read, as far as it was.
    stream: Stream,
    summing: Summing,
}

impl Shell {
    pub(super) fn sum_later(&mut self, host: &mut Host, number: u64) {
        if !self.commands.get(&number).is_some_and(wants_sum) {
            return;
        }
        if self.unsummed.numbers.is_empty() && self.unsummed.current.is_none() {
            host.after(LATER, self.key, What::Sum);
        }
        self.unsummed.numbers.insert(number);
    }

    /// Those that a steward before us left.
    pub(super) fn sum_all_later(&mut self, host: &mut Host) {
        let left = self.commands.iter().filter(|(_, entry)| wants_sum(entry)).map(|(number, _)| *number);
        for number in left.collect::<Vec<_>>() {
            self.sum_later(host, number);
        }
    }

    pub(crate) fn sum(&mut self, host: &mut Host) {
        let (mut left, mut done) = (SLICE, Vec::new());
        while left > 0
            && let Some(current) = self.next_to_sum()
        {
            left = left.saturating_sub(EACH);
            match self.sum_slice(current, &mut left) {
                Ok(sums) => done.extend(sums),
                Err(error) => note!("steward: shell {}: output can't be summed: {error}", self.open.shell),
            }
        }
        if let Err(error) = self.note_sums(&done) {
            note!("steward: shell {}: {error}", self.open.shell);
        }
        if self.unsummed.current.is_some() || !self.unsummed.numbers.is_empty() {
            host.after(NEXT, self.key, What::Sum);
        }
    }

    fn next_to_sum(&mut self) -> Option<Current> {
        if let Some(current) = self.unsummed.current.take() {
            return Some(current);
        }
        let number = self.unsummed.numbers.pop_first()?;
        let sums = Sums { number, stdout: None, stderr: None };
        Some(Current { sums, stream: Stream::Stdout, summing: Summing::default() })
    }

    /// One command; if time is up before its end it goes on there with the next slice.
    fn sum_slice(&mut self, mut current: Current, left: &mut u64) -> io::Result<Option<Sums>> {
        let number = current.sums.number;
        // Room may have been made of it meanwhile.
        let Some(entry) = self.commands.get(&number).filter(|entry| wants_sum(entry)) else { return Ok(None) };
        let bytes = entry.bytes;
        loop {
            let length = bytes.get(super::pair::stream_index(current.stream)).copied().unwrap_or(0);
            if length > 0 {
                let file = File::open(self.journal.stream_path(number, current.stream))?;
                *left -= current.summing.go_on(&file, length, *left)?;
                if current.summing.offset() < length {
                    self.unsummed.current = Some(current);
                    return Ok(None);
                }
            }
            let sum = (length > 0).then(|| std::mem::take(&mut current.summing).sum());
            match current.stream {
                Stream::Stdout => (current.sums.stdout, current.stream) = (sum, Stream::Stderr),
                Stream::Stderr => return Ok(Some(Sums { stderr: sum, ..current.sums })),
            }
        }
    }

    /// On a full disk they are left out: the reserve is for how commands end.
    fn note_sums(&mut self, done: &[Sums]) -> Result<(), JournalError> {
        if done.is_empty() {
            return Ok(());
        }
        let records: Vec<Record> = done.iter().map(|sums| Record::Sums(*sums)).collect();
        self.journal.append(&records.iter().collect::<Vec<_>>(), Need::WithReserve)?;
        for sums in done {
            if let Some(entry) = self.commands.get_mut(&sums.number) {
                entry.sums = Some(*sums);
            }
        }
        Ok(())
    }

    /// Whether what a finished command wrote is as it was.
    pub(crate) fn verify(&self, number: u64) -> Result<(), Fault> {
        let Some(sums) = self.commands.get(&number).and_then(|entry| entry.sums) else { return Ok(()) };
        for stream in Stream::BOTH {
            let Some(sum) = sums.of(stream).filter(|sum| sum.length <= MOST_VERIFIED) else { continue };
            let file = File::open(self.journal.stream_path(number, stream));
            match file.and_then(|file| sum::is_whole(&file, &sum)) {
                Ok(true) => {}
                Ok(false) => return Err(sum::damaged(stream)),
                Err(error) => return Err(sum::fault(stream, &error)),
            }
        }
        Ok(())
    }
}

fn wants_sum(entry: &Entry) -> bool {
    entry.ended.is_some() && entry.drained && !entry.evicted && entry.sums.is_none() && entry.bytes != [0, 0]
}
