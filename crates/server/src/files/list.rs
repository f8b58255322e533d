//! What is in a directory, and which paths fit a pattern.

use super::entry::{Entry, below, kind};
use super::failure::Failure;
use super::ground::{Ground, Last, MAX_DEPTH, Way};
use super::traverse::{Next, Traverse};
use super::{Files, Kind};
use crate::error::Error;
use globset::{GlobBuilder, GlobMatcher};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Which part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub limit: usize,
    /// Where the part before this one ended.
    pub after: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    pub items: Vec<Entry>,
    /// Where it ended, if there may be more: the page is full, or looking took too long.
    pub next: Option<Vec<u8>>,
}

impl Files {
    /// What is in a directory and, with a depth of more than 1, below it; not through links. In the order of names, a
    /// directory before what is in it.
    pub async fn list(&self, path: impl AsRef<[u8]>, depth: usize, page: Page) -> Result<Listed, Error> {
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(Error::Invalid(format!("`depth` is from 1 to {MAX_DEPTH}")));
        }
        self.at(path.as_ref(), move |ground, path| gather(ground, path, depth, page, |_| true)).await
    }

    /// The paths below a directory that fit a pattern: `*` and `?` within a name, `**` across directories, `[a-z]`,
    /// `{one,other}`. A name that begins with a point is one like any other.
    pub async fn glob(&self, path: impl AsRef<[u8]>, pattern: &str, page: Page) -> Result<Listed, Error> {
        let matcher = matcher(pattern)?;
        let across = pattern.contains("**");
        let depth = if across { MAX_DEPTH } else { pattern.matches('/').count() + 1 };
        self.at(path.as_ref(), move |ground, path| {
            gather(ground, path, depth, page, |path| matcher.is_match(Path::new(OsStr::from_bytes(path))))
        })
        .await
    }
}

pub(crate) fn matcher(pattern: &str) -> Result<GlobMatcher, Error> {
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        let message = "a pattern is relative to `path`, and goes down only".to_owned();
        return Err(Error::Path { path: pattern.to_owned(), message });
    }
    if pattern.is_empty() || pattern.len() > 4096 {
        return Err(Error::Invalid("a pattern has from 1 to 4096 bytes".to_owned()));
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    Ok(glob.map_err(|error| Error::Invalid(format!("pattern `{pattern}`: {}", error.kind())))?.compile_matcher())
}

fn gather(
    ground: &Ground,
    path: &[u8],
    depth: usize,
    page: Page,
    fits: impl Fn(&[u8]) -> bool,
) -> Result<Listed, Failure> {
    let Some(base) = open_base(ground, path)? else { return Ok(Listed::default()) };
    let shown = Ground::absolute(path);
    let mut items = Vec::new();
    let next = Traverse::new(depth, page.after, ground.private_ids()).run(base, |visit| {
        // One more than fits tells that there is more.
        if fits(visit.path) {
            items.push(Entry::new(below(&shown, OsStr::from_bytes(visit.path)), visit.stat, visit.target()));
        }
        Ok(if items.len() > page.limit { Next::Stop } else { Next::On })
    })?;
    if items.len() <= page.limit {
        return Ok(Listed { items, next });
    }
    items.truncate(page.limit);
    let last = items.last().map(|entry| entry.path.get(shown.len() + 1..).unwrap_or_default().to_vec());
    Ok(Listed { items, next: last })
}

/// A directory to be looked through; none if it is that of a workspace in which nothing was done yet.
pub(super) fn open_base(ground: &Ground, path: &[u8]) -> Result<Option<OwnedFd>, Failure> {
    let spot = match ground.find(path, Last::Follow, Way::MustBe) {
        Err(failure) if failure.is(Errno::NOENT) && ground.is_root(path) => return Ok(None),
        found => found?,
    };
    match spot.stat()? {
        None => Err(Errno::NOENT.into()),
        Some(stat) if kind(&stat) == Kind::Dir => Ok(Some(spot.open_dir()?)),
        Some(_) => Err(Failure::Path("it is not a directory")),
    }
}
