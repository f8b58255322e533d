//! Lines that fit a regular expression. The engine takes time in proportion to the text whatever the pattern; what a
//! request may look at is bounded by time and by matches, and it says where it stopped.

use super::entry::{Kind, below, kind};
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::list::matcher;
use super::spot::{Spot, is_dir};
use super::traverse::{Next, PATIENCE, Traverse};
use super::{Files, Page};
use crate::error::Error;
use globset::GlobMatcher;
use regex::bytes::{Regex, RegexBuilder};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// A longer line is searched in pieces.
const MAX_LINE: u64 = 1024 * 1024;
/// How much of a line is shown.
const MAX_SHOWN: usize = 1000;
/// Where a NUL makes a file a binary one.
const LOOKED_AT: usize = 8192;
/// How many files that were skipped are named.
const MAX_SKIPPED: usize = 100;
/// What a compiled pattern may take.
const MAX_PATTERN: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grep {
    pub pattern: String,
    /// The pattern is text as it stands, no expression.
    pub literal: bool,
    pub ignore_case: bool,
    /// Only files whose path below the directory fits this.
    pub glob: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: Vec<u8>,
    pub line: u64,
    /// Of the first byte that fits, from 1.
    pub column: u64,
    pub text: Vec<u8>,
    /// The line goes on.
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: Vec<u8>,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matches {
    pub items: Vec<Match>,
    /// The first hundred.
    pub skipped: Vec<Skipped>,
    pub files_skipped: u64,
    pub files_searched: u64,
    pub next: Option<Vec<u8>>,
}

impl Files {
    /// Searches a file, or every plain file below a directory; not through links.
    pub async fn grep(&self, path: impl AsRef<[u8]>, grep: Grep, page: Page) -> Result<Matches, Error> {
        let search = Search::new(&grep, page.limit, Ground::absolute(path.as_ref()))?;
        self.at(path.as_ref(), move |ground, path| {
            let after = page.after.map(|after| parse_cursor(&after)).transpose()?;
            search.run(ground, path, after)
        })
        .await
    }
}

/// A search under way; wherever the files are.
pub(crate) struct Search {
    regex: Regex,
    glob: Option<GlobMatcher>,
    limit: usize,
    shown: Vec<u8>,
    pub(crate) found: Matches,
    pub(crate) deadline: Instant,
}

/// For a file that was searched to its end: what follows is in the next.
pub(crate) const THROUGH: u64 = u64::MAX;

/// The line after which to go on, and its file.
pub(crate) type Cursor = (u64, Vec<u8>);

pub(crate) enum Searched {
    Through,
    /// Full or out of time, after this line.
    Until(u64),
}

impl Search {
    /// Below a path, as it is shown.
    pub(crate) fn new(grep: &Grep, limit: usize, shown: Vec<u8>) -> Result<Self, Error> {
        let pattern = if grep.literal { regex::escape(&grep.pattern) } else { grep.pattern.clone() };
        let regex = RegexBuilder::new(&pattern).case_insensitive(grep.ignore_case).size_limit(MAX_PATTERN).build();
        let regex = regex.map_err(|error| Error::Invalid(format!("`pattern`: {error}")))?;
        let glob = grep.glob.as_deref().map(matcher).transpose()?;
        let deadline = Instant::now() + PATIENCE;
        Ok(Self { regex, glob, limit, shown, found: Matches::default(), deadline })
    }

    /// Whether a file is searched at all, by its path below where the search began.
    pub(crate) fn wants(&self, path: &[u8]) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match(Path::new(OsStr::from_bytes(path))))
    }

    fn run(mut self, ground: &Ground, path: &[u8], after: Option<Cursor>) -> Result<Matches, Failure> {
        let spot = ground.find(path, Last::Follow, Way::MustBe)?;
        if !spot.stat()?.is_some_and(|stat| is_dir(&stat)) {
            let (file, _) = spot.open_file()?;
            let line = after.map_or(0, |(line, _)| line);
            if let Searched::Until(line) = self.search(b"", file, line)? {
                self.found.next = Some(cursor(line, b""));
            }
            return Ok(self.found);
        }
        let resumed = after.as_ref().map(|(_, path)| path.clone());
        // The file in whose middle the last page ended comes first.
        if let Some((line, within)) = after.filter(|(line, _)| *line != THROUGH) {
            let rest = ground.find(&below(path, OsStr::from_bytes(&within)), Last::Keep, Way::MustBe);
            if let Ok((file, _)) = rest.and_then(|spot: Spot| spot.open_file())
                && let Searched::Until(line) = self.search(&within, file, line)?
            {
                self.found.next = Some(cursor(line, &within));
                return Ok(self.found);
            }
        }
        let mut stopped = None;
        let last =
            Traverse::new(super::ground::MAX_DEPTH, resumed, ground.private_ids()).run(spot.open_dir()?, |visit| {
                if kind(visit.stat) != Kind::File || !self.wants(visit.path) {
                    return Ok(Next::On);
                }
                let spot = visit.spot()?;
                let Ok((file, _)) = spot.open_file() else {
                    self.skip(visit.path, "unreadable");
                    return Ok(Next::On);
                };
                match self.search(visit.path, file, 0)? {
                    Searched::Through => Ok(Next::On),
                    Searched::Until(line) => {
                        stopped = Some(line);
                        Ok(Next::Stop)
                    }
                }
            })?;
        self.found.next = last.map(|path| cursor(stopped.unwrap_or(THROUGH), &path));
        Ok(self.found)
    }

    /// Looks through one file, behind a line. An empty path is the one that the search began with.
    pub(crate) fn search(&mut self, path: &[u8], file: impl Read, after: u64) -> std::io::Result<Searched> {
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let start = reader.fill_buf()?;
        if start.iter().take(LOOKED_AT).any(|byte| *byte == 0) {
            self.skip(path, "binary");
            return Ok(Searched::Through);
        }
        self.found.files_searched += 1;
        let (mut line, mut text, mut whole) = (0, Vec::new(), true);
        loop {
            text.clear();
            if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut text)? == 0 {
                return Ok(Searched::Through);
            }
            line += u64::from(whole);
            // The last line of a file may end without an end.
            let goes_on = text.last() != Some(&b'\n') && text.len() as u64 == MAX_LINE;
            whole = !goes_on;
            if line <= after {
                continue;
            }
            if text.contains(&0) {
                self.skip(path, "binary");
                return Ok(Searched::Through);
            }
            let end = text.strip_suffix(b"\n").unwrap_or(&text);
            let end = end.strip_suffix(b"\r").unwrap_or(end);
            if let Some(hit) = self.regex.find(end) {
                // Full, and there is more: said by a cursor that leads here.
                if self.found.items.len() >= self.limit {
                    return Ok(Searched::Until(line - 1));
                }
                let path =
                    if path.is_empty() { self.shown.clone() } else { below(&self.shown, OsStr::from_bytes(path)) };
                let text: Vec<u8> = end.iter().take(MAX_SHOWN).copied().collect();
                let cut = text.len() < end.len() || goes_on;
                self.found.items.push(Match { path, line, column: hit.start() as u64 + 1, text, cut });
            }
            if line % 1024 == 0 && Instant::now() > self.deadline {
                return Ok(Searched::Until(line));
            }
        }
    }

    pub(crate) fn skip(&mut self, path: &[u8], reason: &'static str) {
        self.found.files_skipped += 1;
        if self.found.skipped.len() < MAX_SKIPPED {
            let path = if path.is_empty() { self.shown.clone() } else { below(&self.shown, OsStr::from_bytes(path)) };
            self.found.skipped.push(Skipped { path, reason });
        }
    }
}

pub(crate) fn cursor(line: u64, path: &[u8]) -> Vec<u8> {
    [line.to_string().as_bytes(), b":", path].concat()
}

pub(crate) fn parse_cursor(cursor: &[u8]) -> Result<Cursor, Error> {
    let parse = || {
        let at = cursor.iter().position(|byte| *byte == b':')?;
        let (line, path) = cursor.split_at(at);
        Some((std::str::from_utf8(line).ok()?.parse().ok()?, path.get(1..)?.to_vec()))
    };
    parse().ok_or_else(|| Error::Invalid("`cursor` is none of ours".to_owned()))
}
