//! The files of a project through its routes: one tree of directories, memories in RAM and files of a session, and one
//! implementation of every operation on it. A backend says what is at a place, what is in a directory, and changes one
//! file; all the rest is here, so it is the same whichever holds a file.

mod change;
mod search;
mod table;
#[cfg(test)]
mod tests;
mod walk;

pub use change::Writing;
pub use search::Found;
pub use table::table;

use crate::clock::Clock;
use crate::error::Error;
use crate::files::{Entry, Files, Kind, Reading};
use crate::memory::{Held, Hot, Kept, Memories, Node, etag};
use crate::provider::Tree;
use bytes::Bytes;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use stead_model::clock::Timestamp;
use stead_model::place::{Place, name, shown};
use stead_model::route::{Backend, Route, Routes};
use tokio_util::task::TaskTracker;

#[derive(Debug, Clone)]
pub struct Space {
    routes: Arc<Routes>,
    disk: Files,
    hot: Option<Arc<Hot>>,
    /// Of the session that asks; absent: nothing is in its routes.
    state: Option<Arc<Kept>>,
    clock: Arc<dyn Clock>,
    /// Told of changes to hot memory.
    memories: Option<Arc<Memories>>,
}

/// What a space is made of.
#[derive(Debug, Clone)]
pub struct Parts {
    pub routes: Arc<Routes>,
    pub hot: Option<Arc<Hot>>,
    pub state: Option<Arc<Kept>>,
    pub clock: Arc<dyn Clock>,
    pub memories: Option<Arc<Memories>>,
}

/// What there is to say about a file or a directory, wherever it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// From the root of the space; its names are separated by NUL.
    pub key: Vec<u8>,
    pub kind: Kind,
    /// Of a plain file.
    pub size: Option<u64>,
    /// Unknown of what leads to routes.
    pub modified_at: Option<Timestamp>,
    pub target: Option<Vec<u8>>,
    /// Of a plain file.
    pub etag: Option<String>,
}

/// A file that is read: at once, or from a disk as it is sent.
#[derive(Debug)]
pub enum Content {
    Ram { bytes: Bytes, etag: String, modified_at: Timestamp },
    Disk(Box<Reading>),
}

/// Where a place is kept.
#[derive(Debug)]
enum At<'a> {
    /// By its path.
    Disk(Vec<u8>),
    /// Below the key of its route.
    Ram(&'a Kept, &'a [u8]),
    /// A directory that leads to routes.
    Point,
    /// Of a session that nobody named.
    Nobody,
}

impl Space {
    /// Over the directory of a project.
    pub fn new(dir: &Path, parts: Parts, tasks: TaskTracker) -> Self {
        let tree = |route: &Route| match &route.backend {
            Backend::Filesystem { root } => {
                Some(Tree { inside: route.prefix().to_string(), outside: dir.join(root.path()) })
            }
            Backend::Store | Backend::State => None,
        };
        let trees = parts.routes.iter().filter_map(tree).collect();
        let Parts { routes, hot, state, clock, memories } = parts;
        Self { routes, disk: Files::over(trees, tasks), hot, state, clock, memories }
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Whether a place is kept where asking may wait for a disk.
    pub fn is_on_disk(&self, place: &Place) -> bool {
        self.routes.find(place.key()).is_some_and(|(route, _)| matches!(route.backend, Backend::Filesystem { .. }))
    }

    fn at(&self, place: &Place) -> Result<At<'_>, Error> {
        if self.routes.is_above(place.key()) {
            return Ok(At::Point);
        }
        let Some((route, _)) = self.routes.find(place.key()) else {
            return Err(Error::NotFound { kind: "file", id: place.to_string() });
        };
        self.kept(route, place)
    }

    fn kept<'a>(&'a self, route: &'a Route, place: &Place) -> Result<At<'a>, Error> {
        let base = route.prefix().key();
        Ok(match &route.backend {
            Backend::Filesystem { .. } => At::Disk(path(place)),
            Backend::Store => match &self.hot {
                Some(hot) => At::Ram(&hot.kept, base),
                None => return Err(Error::Io("hot memory is not there".to_owned())),
            },
            Backend::State => self.state.as_deref().map_or(At::Nobody, |state| At::Ram(state, base)),
        })
    }

    /// The same for one who names the place: files of a session are somebody's.
    fn at_named(&self, place: &Place) -> Result<At<'_>, Error> {
        match self.at(place)? {
            At::Nobody => Err(needs_session(place)),
            at @ (At::Disk(_) | At::Ram(..) | At::Point) => Ok(at),
        }
    }

    /// What is there; of a link, the link itself.
    pub fn stat(&self, place: &Place) -> Result<Item, Error> {
        match self.at_named(place)? {
            At::Nobody => Err(needs_session(place)),
            At::Point | At::Disk(_) | At::Ram(..) if self.routes.is_point(place.key()) => Ok(Item::point(place.key())),
            At::Point => Ok(Item::point(place.key())),
            At::Disk(path) => Ok(Item::on_disk(place.key(), self.disk.stat_now(&path)?)),
            At::Ram(kept, base) => {
                let held = kept.look(place.key()).ok_or_else(|| kept.missing(base, place.key()))?;
                if place.is_as_dir() && held.node != Node::Dir {
                    return Err(not_a_dir(place));
                }
                Ok(Item::in_ram(place.key().to_vec(), &held))
            }
        }
    }

    /// All of a file of at most so many bytes.
    pub fn read(&self, place: &Place, most: u64) -> Result<(Bytes, Item), Error> {
        match self.at_named(place)? {
            At::Disk(path) => {
                let (bytes, entry) = self.disk.read_now(&path, most)?;
                Ok((bytes.into(), Item::on_disk(place.key(), entry)))
            }
            at @ (At::Ram(..) | At::Point | At::Nobody) => {
                let (bytes, held) = in_ram(&at, place)?;
                if bytes.len() as u64 > most {
                    return Err(Error::TooLarge(format!("`{place}` has more than {most} bytes")));
                }
                Ok((bytes, Item::in_ram(place.key().to_vec(), &held)))
            }
        }
    }

    /// Opens a file to be sent.
    pub async fn open(&self, place: &Place) -> Result<Content, Error> {
        match self.at_named(place)? {
            At::Disk(path) => Ok(Content::Disk(Box::new(self.disk.open(&path).await?))),
            at @ (At::Ram(..) | At::Point | At::Nobody) => {
                let (bytes, held) = in_ram(&at, place)?;
                Ok(Content::Ram { bytes, etag: etag(&held), modified_at: held.at })
            }
        }
    }

    /// A plain file, to be searched.
    fn reader(&self, place: &Place) -> Result<Box<dyn Read>, Error> {
        match self.at_named(place)? {
            At::Disk(path) => Ok(Box::new(self.disk.open_now(&path)?.0)),
            at @ (At::Ram(..) | At::Point | At::Nobody) => {
                let (bytes, _) = in_ram(&at, place)?;
                Ok(Box::new(std::io::Cursor::new(bytes)))
            }
        }
    }
}

fn in_ram(at: &At<'_>, place: &Place) -> Result<(Bytes, Held), Error> {
    let At::Ram(kept, base) = at else { return Err(is_a_dir(place)) };
    if *base == place.key() {
        return Err(is_a_dir(place));
    }
    let held = kept.get(place.key()).ok_or_else(|| kept.missing(base, place.key()))?;
    match &held.node {
        Node::Dir => Err(is_a_dir(place)),
        Node::File(_) if place.is_as_dir() => Err(not_a_dir(place)),
        Node::File(bytes) => Ok((bytes.clone(), held)),
    }
}

impl Item {
    fn point(key: &[u8]) -> Self {
        Self { key: key.to_vec(), kind: Kind::Dir, size: None, modified_at: None, target: None, etag: None }
    }

    fn on_disk(key: &[u8], entry: Entry) -> Self {
        let size = (entry.kind == Kind::File).then_some(entry.size);
        let Entry { kind, modified_at, target, etag, .. } = entry;
        Self { key: key.to_vec(), kind, size, modified_at: Some(modified_at), target, etag }
    }

    fn in_ram(key: Vec<u8>, held: &Held) -> Self {
        let (kind, size, tag) = match &held.node {
            Node::File(bytes) => (Kind::File, Some(bytes.len() as u64), Some(etag(held))),
            Node::Dir => (Kind::Dir, None, None),
        };
        let modified_at = (held.number > 0).then_some(held.at);
        Self { key, kind, size, modified_at, target: None, etag: tag }
    }

    pub fn name(&self) -> &[u8] {
        name(&self.key)
    }

    /// Absolute, as people write it.
    pub fn path(&self) -> Vec<u8> {
        shown(&self.key)
    }
}

/// A place as a file system's path.
fn path(place: &Place) -> Vec<u8> {
    let mut path = place.shown();
    if place.is_as_dir() && !place.is_root() {
        path.push(b'/');
    }
    path
}

fn unusable(place: &Place, message: &str) -> Error {
    Error::Path { path: place.to_string(), message: message.to_owned() }
}

fn is_a_dir(place: &Place) -> Error {
    unusable(place, "it is a directory")
}

fn not_a_dir(place: &Place) -> Error {
    unusable(place, "what should be a directory is none")
}

fn needs_session(place: &Place) -> Error {
    Error::Invalid(format!("`{place}` is kept for a session: name it with `session_id`"))
}

/// A path from outside.
pub fn parse(path: &[u8]) -> Result<Place, Error> {
    let wrong = |message: &str| Error::Path {
        path: String::from_utf8_lossy(path).chars().take(200).collect(),
        message: message.to_owned(),
    };
    Place::parse(path).map_err(|error| wrong(error.message))
}
