//! A tree in RAM and its one writer. With a journal it lasts: a change is in the journal before anybody can see it, and
//! before it is acknowledged. Without one it goes with the process.

use super::journal::Journal;
use super::ram::{Held, Node, Ram, cost};
use crate::error::Error;
use crate::files::Condition;
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_model::clock::Timestamp;
use stead_model::memory::{Note, What};
use stead_model::place::{ancestors, shown};

/// What a tree may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// All of it together, in bytes.
    pub total: u64,
    /// One value.
    pub value: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { total: 256 << 20, value: 16 << 20 }
    }
}

#[derive(Debug)]
pub struct Kept {
    pub(crate) ram: Ram,
    bounds: Bounds,
    pub(crate) writer: Mutex<Writer>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    /// Of the last change.
    pub(crate) number: u64,
    pub(crate) journal: Option<Journal>,
    /// Whether something was changed since the last snapshot began.
    pub(crate) is_changed: bool,
    /// Nothing is written any more: where it would be kept is no longer looked at.
    pub(crate) is_closed: bool,
}

/// A file or a directory as it became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub created: bool,
    pub held: Held,
}

/// Whether a directory goes with what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Alone,
    WithAllBelow,
}

impl Kept {
    pub(crate) fn new(ram: Ram, bounds: Bounds, number: u64, journal: Option<Journal>) -> Self {
        Self { ram, bounds, writer: Mutex::new(Writer { number, journal, is_changed: false, is_closed: false }) }
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub fn get(&self, key: &[u8]) -> Option<Held> {
        self.ram.get(key)
    }

    /// The same, and a directory also where only what is below it is kept: it may have been the root of a route.
    pub fn look(&self, key: &[u8]) -> Option<Held> {
        let implied = || self.ram.has_below(key).then_some(Held { node: Node::Dir, number: 0, at: Timestamp(0) });
        self.ram.get(key).or_else(implied)
    }

    /// The bytes of a file; the shortest way to them.
    pub fn value(&self, key: &[u8]) -> Option<Bytes> {
        self.ram.value(key)
    }

    /// Whether a file could be written so; the same is looked at again when it is.
    pub(crate) fn check(&self, base: &[u8], key: &[u8], condition: &Condition) -> Result<Option<Held>, Error> {
        if key.len() <= base.len() {
            return Err(wrong(key, "it is the root of a tree, or has no name of its own"));
        }
        let above = ancestors(key).filter(|above| above.len() > base.len());
        for above in above {
            if matches!(self.ram.get(above), Some(Held { node: Node::File(_), .. })) {
                return Err(wrong(key, "what should be a directory is none"));
            }
        }
        let there = self.ram.get(key);
        if matches!(there, Some(Held { node: Node::Dir, .. })) {
            return Err(wrong(key, "it is a directory"));
        }
        condition.check_tag(there.as_ref().map(etag).as_deref())?;
        Ok(there)
    }

    /// Writes a file below the root of a route, `base`; makes the directories above it.
    pub fn put(
        &self,
        base: &[u8],
        key: &[u8],
        value: Bytes,
        condition: &Condition,
        now: Timestamp,
    ) -> Result<Put, Error> {
        if value.len() as u64 > self.bounds.value {
            let (path, most) = (text(key), self.bounds.value);
            return Err(Error::TooLarge(format!("`{path}`: a value kept in memory has at most {most} bytes")));
        }
        let mut writer = self.writer();
        let there = self.check(base, key, condition)?;
        let held = Held { node: Node::File(value), number: writer.number + 1, at: now };
        let missing: Vec<_> =
            ancestors(key).filter(|above| above.len() > base.len() && self.ram.get(above).is_none()).collect();
        let less = there.as_ref().map_or(0, |there| cost(key, &there.node));
        let more: u64 = cost(key, &held.node) + missing.iter().map(|above| cost(above, &Node::Dir)).sum::<u64>();
        // One that shrinks is always taken: that is how room is made.
        if more > less && self.ram.bytes() + more - less > self.bounds.total {
            let most = self.bounds.total;
            return Err(Error::NoSpace(format!("`{}`: memory is full, at most {most} bytes are kept", text(key))));
        }
        let Node::File(value) = &held.node else { return Err(wrong(key, "it is a directory")) };
        let note = Note { number: held.number, at: now, key, what: What::File(value) };
        writer.note(&note)?;
        for above in missing {
            self.ram.set(above, Held { node: Node::Dir, number: held.number, at: now });
        }
        self.ram.set(key, held.clone());
        Ok(Put { created: there.is_none(), held })
    }

    /// Removes a file or a directory.
    pub fn remove(
        &self,
        base: &[u8],
        key: &[u8],
        as_dir: bool,
        depth: Depth,
        condition: &Condition,
        now: Timestamp,
    ) -> Result<(), Error> {
        if key.len() <= base.len() {
            return Err(wrong(key, "it is the root of a tree, or has no name of its own"));
        }
        let mut writer = self.writer();
        let there = self.ram.get(key).ok_or_else(|| self.missing(base, key))?;
        if as_dir && there.node != Node::Dir {
            return Err(wrong(key, "what should be a directory is none"));
        }
        condition.check_tag(Some(&etag(&there)))?;
        if depth == Depth::Alone && self.ram.has_below(key) {
            return Err(Error::Conflict(format!("directory `{}` is not empty", text(key))));
        }
        let number = writer.number + 1;
        writer.note(&Note { number, at: now, key, what: What::Gone })?;
        self.clear(key);
        Ok(())
    }

    /// Takes away a key with all below it.
    pub(crate) fn clear(&self, key: &[u8]) {
        loop {
            let below = self.ram.keys_below(key, None, 1024);
            if below.is_empty() {
                break;
            }
            for key in &below {
                self.ram.remove(key);
            }
        }
        self.ram.remove(key);
    }

    /// Why there is nothing: as a file system tells it.
    pub(crate) fn missing(&self, base: &[u8], key: &[u8]) -> Error {
        let above = ancestors(key).filter(|above| above.len() > base.len());
        let through_file =
            above.into_iter().any(|above| matches!(self.ram.get(above), Some(Held { node: Node::File(_), .. })));
        if through_file {
            return wrong(key, "what should be a directory is none");
        }
        Error::NotFound { kind: "file", id: text(key) }
    }
}

impl Writer {
    /// Makes a change last, then counts it.
    fn note(&mut self, note: &Note<'_>) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::Moving);
        }
        if let Some(journal) = &mut self.journal {
            journal.append(note)?;
        }
        self.number = note.number;
        self.is_changed = true;
        Ok(())
    }
}

/// A strong one: every change has a number of its own.
pub(crate) fn etag(held: &Held) -> String {
    format!("\"m{:x}-{:x}\"", held.number, held.at.0)
}

pub(crate) fn wrong(key: &[u8], message: &str) -> Error {
    Error::Path { path: text(key), message: message.to_owned() }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(&shown(key)).into_owned()
}
