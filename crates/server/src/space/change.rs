//! Writing, editing, removing.

use super::{At, Item, Space, is_a_dir, needs_session, unusable};
use crate::error::Error;
use crate::files::{self, Condition, Edit, MAX_EDITED, exchange};
use crate::memory::{Depth, Kept};
use bytes::{Bytes, BytesMut};
use stead_model::place::Place;
use stead_model::route::Backend;

/// A file that is being written. Dropped, it was never there.
#[derive(Debug)]
pub enum Writing {
    Disk { place: Place, writing: Box<files::Writing> },
    Ram { space: Space, place: Place, condition: Condition, bytes: BytesMut, most: u64 },
}

impl Space {
    /// Where a file can be written.
    fn writable(&self, place: &Place) -> Result<At<'_>, Error> {
        if self.routes.is_above(place.key()) {
            return Err(is_a_dir(place));
        }
        let Some((route, rest)) = self.routes.find(place.key()) else {
            return Err(unusable(place, "no route leads there"));
        };
        if rest.is_empty() {
            return Err(unusable(place, "it is the root of a tree, or has no name of its own"));
        }
        if place.is_as_dir() {
            return Err(unusable(place, "a slash at its end says that it is a directory"));
        }
        match self.kept(route, place)? {
            At::Nobody => Err(needs_session(place)),
            at @ (At::Disk(_) | At::Ram(..) | At::Point) => Ok(at),
        }
    }

    /// Writes a file, whole or not at all; makes the directories above it. True if there was none.
    pub fn write(&self, place: &Place, bytes: Bytes, condition: &Condition) -> Result<(bool, Item), Error> {
        match self.writable(place)? {
            At::Disk(path) => {
                let written = self.disk.put_now(&path, &bytes, condition)?;
                Ok((written.created, Item::on_disk(place.key(), written.entry)))
            }
            At::Ram(kept, base) => {
                let put = kept.put(base, place.key(), bytes, condition, self.clock.now())?;
                self.told(kept);
                Ok((put.created, Item::in_ram(place.key().to_vec(), &put.held)))
            }
            At::Point | At::Nobody => Err(is_a_dir(place)),
        }
    }

    /// Begins to write; the condition is looked at now, so that nobody sends what will be refused, and again at the end.
    pub async fn begin(&self, place: &Place, condition: Condition) -> Result<Writing, Error> {
        match self.writable(place)? {
            At::Disk(path) => {
                let writing = Box::new(self.disk.begin(&path, condition).await?);
                Ok(Writing::Disk { place: place.clone(), writing })
            }
            At::Ram(kept, base) => {
                kept.check(base, place.key(), &condition)?;
                let most = kept.bounds().value;
                let (space, place) = (self.clone(), place.clone());
                Ok(Writing::Ram { space, place, condition, bytes: BytesMut::new(), most })
            }
            At::Point | At::Nobody => Err(is_a_dir(place)),
        }
    }

    /// Exchanges text, if it is there exactly as often as the caller believes and nobody else changes the file meanwhile.
    pub fn edit(&self, place: &Place, edit: &Edit) -> Result<(u64, Item), Error> {
        edit.check()?;
        let (bytes, item) = self.read(place, MAX_EDITED)?;
        let (bytes, replaced) = exchange(&bytes, edit.old.as_bytes(), edit.new.as_bytes());
        if replaced != edit.count {
            let message = format!("`old` is {replaced} times in `{place}`, not {} times", edit.count);
            return Err(Error::Conflict(message));
        }
        let condition = Condition::Is(item.etag.into_iter().collect());
        match self.write(place, bytes.into(), &condition) {
            Err(Error::PreconditionFailed(_)) => {
                Err(Error::Conflict(format!("`{place}` was changed by somebody else meanwhile")))
            }
            written => Ok((replaced, written?.1)),
        }
    }

    /// Removes a file, a link, or a directory.
    pub fn remove(&self, place: &Place, depth: Depth, condition: &Condition) -> Result<(), Error> {
        if self.routes.is_point(place.key()) {
            return Err(unusable(place, "it is the root of a tree, or has no name of its own"));
        }
        match self.at_named(place)? {
            At::Disk(_) => self.disk.remove_now(&super::path(place), depth, condition),
            At::Ram(kept, base) => {
                kept.remove(base, place.key(), place.is_as_dir(), depth, condition, self.clock.now())?;
                self.told(kept);
                Ok(())
            }
            At::Point | At::Nobody => Err(is_a_dir(place)),
        }
    }

    fn told(&self, kept: &Kept) {
        if let (Some(memories), Some(hot)) = (&self.memories, &self.hot)
            && std::ptr::eq(kept, &raw const hot.kept)
        {
            memories.changed(hot);
        }
    }

    /// Whether writing there is writing to a disk.
    pub fn is_written_to_disk(&self, place: &Place) -> bool {
        self.routes.find(place.key()).is_some_and(|(route, _)| matches!(route.backend, Backend::Filesystem { .. }))
    }
}

impl Writing {
    pub async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        match self {
            Self::Disk { writing, .. } => writing.write(piece).await,
            Self::Ram { bytes, most, place, .. } => {
                if (bytes.len() + piece.len()) as u64 > *most {
                    let message = format!("`{place}`: a value kept in memory has at most {most} bytes");
                    return Err(Error::TooLarge(message));
                }
                bytes.extend_from_slice(&piece);
                Ok(())
            }
        }
    }

    /// Gives it its name. True if there was none.
    pub async fn commit(self) -> Result<(bool, Item), Error> {
        match self {
            Self::Disk { place, writing } => {
                let written = writing.commit().await?;
                Ok((written.created, Item::on_disk(place.key(), written.entry)))
            }
            Self::Ram { space, place, condition, bytes, .. } => space.write(&place, bytes.freeze(), &condition),
        }
    }
}
