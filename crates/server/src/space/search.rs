//! Looking around: list, glob, grep. The patterns are those of every other file operation.

use super::{At, Item, Space, needs_session};
use crate::error::Error;
use crate::files::THROUGH;
use crate::files::{
    Cursor, Grep, Kind, Matches, Next, PATIENCE, Page, Search, Searched, cursor, matcher, parse_cursor,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use stead_model::place::{Place, join, keyed, relative};

/// As deep as a path may be.
const MAX_DEPTH: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    pub items: Vec<Item>,
    /// Where it ended, if there may be more.
    pub next: Option<Vec<u8>>,
}

impl Space {
    /// What is in a directory and, with a depth of more than 1, below it.
    pub fn list(&self, dir: &Place, depth: usize, page: &Page) -> Result<Found, Error> {
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(Error::Invalid(format!("`depth` is from 1 to {MAX_DEPTH}")));
        }
        self.gather(dir, depth, page, |_| true)
    }

    /// The paths below a directory that fit a pattern.
    pub fn glob(&self, dir: &Place, pattern: &str, page: &Page) -> Result<Found, Error> {
        let matcher = matcher(pattern)?;
        let depth = if pattern.contains("**") { MAX_DEPTH } else { pattern.matches('/').count() + 1 };
        self.gather(dir, depth, page, |path| matcher.is_match(Path::new(OsStr::from_bytes(path))))
    }

    fn gather(&self, dir: &Place, depth: usize, page: &Page, fits: impl Fn(&[u8]) -> bool) -> Result<Found, Error> {
        self.named_dir(dir)?;
        let after = page.after.as_deref().map(keyed);
        let mut items = Vec::new();
        let next = self.walk(dir, depth, after.as_deref(), Instant::now() + PATIENCE, |rest, item| {
            // One more than fits tells that there is more.
            if fits(&relative(rest)) {
                items.push(item.clone());
            }
            Ok(if items.len() > page.limit { Next::Stop } else { Next::On })
        })?;
        if items.len() <= page.limit {
            return Ok(Found { items, next: next.map(|next| relative(&next)) });
        }
        items.truncate(page.limit);
        let last = items.last().and_then(|item| stead_model::place::below(&item.key, dir.key()));
        let next = last.map(relative);
        Ok(Found { items, next })
    }

    /// Lines that fit an expression, in a file or in every plain file below a directory.
    pub fn grep(&self, place: &Place, grep: &Grep, page: &Page) -> Result<Matches, Error> {
        let mut search = Search::new(grep, page.limit, place.shown())?;
        let after: Option<Cursor> = page.after.as_deref().map(parse_cursor).transpose()?;
        if matches!(self.at_named(place)?, At::Disk(_) | At::Ram(..)) && self.is_file(place)? {
            let line = after.map_or(0, |(line, _)| line);
            if let Searched::Until(line) = look(&mut search, b"", self.reader(place)?, line)? {
                search.found.next = Some(cursor(line, b""));
            }
            return Ok(search.found);
        }
        self.named_dir(place)?;
        let resumed = after.as_ref().map(|(_, path)| keyed(path));
        // The file in whose middle the last page ended comes first.
        if let Some((line, within)) = after.filter(|(line, _)| *line != THROUGH) {
            let rest = Place::from_key(&join(place.key(), &keyed(&within)));
            if let Ok(reader) = self.reader(&rest)
                && let Searched::Until(line) = look(&mut search, &within, reader, line)?
            {
                search.found.next = Some(cursor(line, &within));
                return Ok(search.found);
            }
        }
        let mut stopped = None;
        let deadline = search.deadline;
        let last = self.walk(place, MAX_DEPTH, resumed.as_deref(), deadline, |rest, item| {
            let path = relative(rest);
            if item.kind != Kind::File || !search.wants(&path) {
                return Ok(Next::On);
            }
            let Ok(reader) = self.reader(&Place::from_key(&item.key)) else {
                search.skip(&path, "unreadable");
                return Ok(Next::On);
            };
            match look(&mut search, &path, reader, 0)? {
                Searched::Through => Ok(Next::On),
                Searched::Until(line) => {
                    stopped = Some(line);
                    Ok(Next::Stop)
                }
            }
        })?;
        search.found.next = last.map(|path| cursor(stopped.unwrap_or(THROUGH), &relative(&path)));
        Ok(search.found)
    }

    /// Whether what is named is anything but a directory; a link is what it leads to.
    fn is_file(&self, place: &Place) -> Result<bool, Error> {
        match self.stat(place)?.kind {
            Kind::Dir => Ok(false),
            Kind::File | Kind::Other => Ok(true),
            Kind::Symlink => Ok(self.disk.children_now(&place.shown(), None).is_err()),
        }
    }

    /// That it is known whose a directory is.
    fn named_dir(&self, place: &Place) -> Result<(), Error> {
        match self.at(place)? {
            At::Nobody if !place.is_root() => Err(needs_session(place)),
            // Of the others it is told when they are looked into.
            At::Nobody | At::Point | At::Disk(_) | At::Ram(..) => Ok(()),
        }
    }
}

fn look(search: &mut Search, path: &[u8], reader: Box<dyn std::io::Read>, after: u64) -> Result<Searched, Error> {
    let shown = || String::from_utf8_lossy(path).into_owned();
    search.search(path, reader, after).map_err(|error| Error::Io(format!("can't read `{}`: {error}", shown())))
}
