//! The screen of a shell: the log of what led to it, the emulator, and the last bytes of it for those who look on.
//!
//! ```text
//! bytes ─► log ─┬─► last bytes ─► people        each at their own pace; who falls behind begins anew with the screen
//!               └─► backlog ─► emulator ─► answers to the program that asked
//! ```
//!
//! The emulator may need a millisecond for nine bytes, so it works through its backlog a little at a time, and a terminal
//! whose backlog is long is not read from.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stead_model::proto::Size;
use stead_model::screen_log::{self, Counted, Entry, Origin};
use stead_model::state::Bytes;
use stead_term::screen::{PIECE, Quiet, Screen};

/// Past this a log begins anew, with the screen as it is.
const LOG: u64 = 1 << 20;

/// So does one that takes longer than this to replay.
const LONG: Duration = Duration::from_millis(500);

/// A replay that takes longer than this is given up: the screen begins empty.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is kept for people who are behind.
const KEPT: usize = 256 << 10;

/// How much the emulator may be behind before the terminal is no longer read.
const BACKLOG: usize = 64 << 10;

/// The emulator is at a place that a person can begin from after each of these.
const PART: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Display {
    screen: Screen,
    path: PathBuf,
    /// Absent when it can't be written; then a new steward begins with an empty screen.
    log: Option<File>,
    length: u64,
    spent: Duration,
    pub(super) counted: Counted,
    quiet: Quiet,
    kept: Vec<u8>,
    /// The place of the first byte in `kept`, counted from the beginning of this steward.
    kept_from: u64,
    backlog: VecDeque<Part>,
    waiting: usize,
    /// What the emulator has seen, as a place in what people are sent.
    seen: u64,
    /// In the middle of a part.
    midway: bool,
}

#[derive(Debug)]
enum Part {
    Bytes { origin: Origin, number: Option<u64>, bytes: Vec<u8>, fed: usize, end: u64 },
    Resize(Size),
}

/// Answers of the terminal, for those who asked.
pub(super) type Answers = Vec<(Origin, Vec<u8>)>;

impl Display {
    /// Brings the screen back that the log tells of. Returns, too, what is yet to be answered.
    pub(super) fn open(path: PathBuf, size: Size) -> (Self, Answers) {
        let trying = path.with_extension("trying");
        // Whoever tried before us did not live to tell: this log is not for replaying.
        if trying.exists() {
            let _ = fs::remove_file(&path);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let (entries, length) = screen_log::read(&bytes);
        let mut display = Self {
            screen: Screen::new(size),
            log: None,
            length: length as u64,
            path,
            spent: Duration::ZERO,
            counted: Counted::default(),
            quiet: Quiet::default(),
            kept: Vec::new(),
            kept_from: 0,
            backlog: VecDeque::new(),
            waiting: 0,
            seen: 0,
            midway: false,
        };
        let mut owed = Vec::new();
        if !entries.is_empty() {
            let _ = File::create(&trying);
            owed = display.replay(entries);
        }
        let _ = fs::remove_file(&trying);
        display.log = open_log(&display.path).and_then(|log| log.set_len(display.length).map(|()| log)).ok();
        (display, owed)
    }

    fn replay(&mut self, entries: Vec<Entry>) -> Answers {
        let mut owed = Vec::new();
        let began = Instant::now();
        for entry in entries {
            let (origin, bytes) = match entry {
                Entry::Snapshot(size, counted, bytes) => {
                    self.screen = Screen::new(size);
                    self.counted = counted;
                    (Origin::Steward, bytes)
                }
                Entry::Bytes(origin, bytes) => (origin, bytes),
                Entry::Output(number, bytes) => {
                    self.counted.add(number, bytes.len() as u64);
                    (Origin::Shell, bytes)
                }
                Entry::Resized(size) => {
                    self.screen.resize(size);
                    continue;
                }
                Entry::Answered => {
                    owed.clear();
                    continue;
                }
            };
            for piece in bytes.chunks(PIECE) {
                if began.elapsed() > PATIENCE {
                    self.screen = Screen::new(self.screen.size());
                    continue;
                }
                let answer = self.screen.feed(piece);
                if !answer.is_empty() {
                    owed.push((origin, answer));
                }
            }
        }
        owed
    }

    pub(super) fn size(&self) -> Size {
        self.screen.size()
    }

    /// Something was written to the terminal.
    pub(super) fn write(&mut self, origin: Origin, number: Option<u64>, bytes: &[u8]) {
        let entry = match number {
            Some(number) => Entry::Output(number, Bytes::from(bytes)),
            None => Entry::Bytes(origin, Bytes::from(bytes)),
        };
        self.note(&entry);
        if let Some(number) = number {
            self.counted.add(number, bytes.len() as u64);
        }
        for part in bytes.chunks(PART) {
            self.quiet.pass(part, &mut self.kept);
            let end = self.kept_from + self.kept.len() as u64;
            self.waiting += part.len();
            self.backlog.push_back(Part::Bytes { origin, number, bytes: part.to_vec(), fed: 0, end });
        }
        if self.kept.len() > KEPT * 2 {
            let over = self.kept.len() - KEPT;
            self.kept.drain(..over);
            self.kept_from += over as u64;
        }
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.note(&Entry::Resized(size));
        self.backlog.push_back(Part::Resize(size));
    }

    /// The questions up to here have their answers.
    pub(super) fn answered(&mut self) {
        self.note(&Entry::Answered);
    }

    fn note(&mut self, entry: &Entry) {
        let Some(log) = &mut self.log else { return };
        let mut bytes = Vec::new();
        screen_log::write(&mut bytes, entry);
        match log.write_all(&bytes) {
            Ok(()) => self.length += bytes.len() as u64,
            Err(error) => {
                // A full disk, most likely. Half an entry ends the log; what is there is kept.
                note!("steward: screen: {error}");
                let _ = log.set_len(self.length);
            }
        }
    }

    /// Whether the terminal should not be read for a while.
    pub(super) fn is_full(&self) -> bool {
        self.waiting > BACKLOG
    }

    pub(super) fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Lets the emulator work until then.
    pub(super) fn feed(&mut self, until: Instant) -> Answers {
        let mut answers = Vec::new();
        while let Some(part) = self.backlog.front_mut() {
            let began = Instant::now();
            if began >= until {
                break;
            }
            match part {
                Part::Resize(size) => {
                    let size = *size;
                    self.screen.resize(size);
                    self.backlog.pop_front();
                }
                Part::Bytes { origin, bytes, fed, end, .. } => {
                    let piece = bytes.get(*fed..).unwrap_or_default();
                    let piece = piece.get(..PIECE).unwrap_or(piece);
                    *fed += piece.len();
                    self.waiting = self.waiting.saturating_sub(piece.len());
                    let answer = self.screen.feed(piece);
                    if !answer.is_empty() {
                        answers.push((*origin, answer));
                    }
                    self.midway = *fed < bytes.len();
                    if !self.midway {
                        self.seen = *end;
                        self.backlog.pop_front();
                    }
                    self.spent += began.elapsed();
                }
            }
        }
        if !self.midway && (self.length > LOG || self.spent > LONG) {
            self.begin_log_anew();
        }
        answers
    }

    fn begin_log_anew(&mut self) {
        let mut counted = self.counted;
        let mut rest = Vec::new();
        for part in &self.backlog {
            let entry = match part {
                Part::Resize(size) => Entry::Resized(*size),
                Part::Bytes { number: Some(number), bytes, .. } => {
                    if *number == counted.number {
                        counted.bytes = counted.bytes.saturating_sub(bytes.len() as u64);
                    }
                    Entry::Output(*number, Bytes::from(bytes))
                }
                Part::Bytes { origin, bytes, number: None, .. } => Entry::Bytes(*origin, Bytes::from(bytes)),
            };
            screen_log::write(&mut rest, &entry);
        }
        let mut bytes = Vec::new();
        let snapshot = Entry::Snapshot(self.screen.size(), counted, Bytes(self.screen.restore()));
        screen_log::write(&mut bytes, &snapshot);
        bytes.extend(rest);
        self.spent = Duration::ZERO;
        let renewed = crate::dir::write_atomically(&self.path, &bytes).and_then(|()| open_log(&self.path));
        match renewed {
            Ok(log) => (self.log, self.length) = (Some(log), bytes.len() as u64),
            Err(error) => {
                note!("steward: screen: {error}");
                // Tried again when as much has come.
                self.length = 0;
            }
        }
    }

    /// Whether the cursor stands at the beginning of a line, as far as is known.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.is_behind() || self.screen.column() == 0
    }

    /// For a person who begins now: what makes a terminal of the same size look the same, and the place that it leads to.
    pub(crate) fn beginning(&mut self) -> Option<(Vec<u8>, u64)> {
        (!self.midway).then(|| (self.screen.restore(), self.seen))
    }

    /// The picture, for a person whose window is larger.
    pub(crate) fn frame(&self) -> Option<stead_term::screen::Frame> {
        (!self.midway).then(|| self.screen.frame())
    }

    /// What came after a place, as far as it is kept; `None`: it isn't any more.
    pub(crate) fn after(&self, place: u64, most: usize) -> Option<&[u8]> {
        let from = usize::try_from(place.checked_sub(self.kept_from)?).ok()?;
        let rest = self.kept.get(from..)?;
        Some(rest.get(..most).unwrap_or(rest))
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}
