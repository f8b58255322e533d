//! Going through the tree: names by their bytes, a directory before what is in it, wherever each is kept. What leads to
//! routes stands in the place of whatever a backend has under the same name.

use super::{At, Item, Space, unusable};
use crate::error::Error;
use crate::files::{Kind, Next};
use std::collections::VecDeque;
use std::time::Instant;
use stead_model::place::{Place, join, name};

/// How many entries of a directory in RAM are held.
const AT_ONCE: usize = 1000;

/// A part of a directory, and the name after which to go on.
struct Part {
    items: VecDeque<Item>,
    after: Option<Vec<u8>>,
}

struct Level {
    key: Vec<u8>,
    held: Part,
}

impl Space {
    /// Shows every entry below a directory, until told to stop or out of time. The last one shown, from the directory on,
    /// if it isn't through.
    pub(super) fn walk(
        &self,
        base: &Place,
        depth: usize,
        after: Option<&[u8]>,
        deadline: Instant,
        mut show: impl FnMut(&[u8], &Item) -> Result<Next, Error>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut levels = self.resume(base, depth, after)?;
        while let Some(level) = levels.last_mut() {
            let Some(item) = level.held.items.pop_front() else {
                match level.held.after.take() {
                    Some(last) => level.held = self.children(&Place::from_key(&level.key), Some(&last))?,
                    None => drop(levels.pop()),
                }
                continue;
            };
            let rest = stead_model::place::below(&item.key, base.key()).unwrap_or_default().to_vec();
            if show(&rest, &item)? == Next::Stop || Instant::now() > deadline {
                return Ok(Some(rest));
            }
            if item.kind == Kind::Dir && levels.len() < depth {
                self.descend(&mut levels, item.key, None)?;
            }
        }
        Ok(None)
    }

    fn resume(&self, base: &Place, depth: usize, after: Option<&[u8]>) -> Result<Vec<Level>, Error> {
        let mut names = after.unwrap_or_default().split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut at = names.next();
        let held = self.children(base, at)?;
        let mut levels = vec![Level { key: base.key().to_vec(), held }];
        while let Some(name) = at {
            let Some(level) = levels.last().filter(|_| levels.len() < depth) else { break };
            let key = join(&level.key, name);
            at = names.next();
            if !self.descend(&mut levels, key, at)? {
                break;
            }
        }
        Ok(levels)
    }

    /// One level down; false if there is none to go to. One that is gone since, or that can't be read, isn't entered.
    fn descend(&self, levels: &mut Vec<Level>, key: Vec<u8>, after: Option<&[u8]>) -> Result<bool, Error> {
        match self.children(&Place::from_key(&key), after) {
            Ok(held) => levels.push(Level { key, held }),
            Err(Error::NotFound { .. } | Error::Path { .. } | Error::Forbidden(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// The first entries of a directory, after a name.
    fn children(&self, dir: &Place, after: Option<&[u8]>) -> Result<Part, Error> {
        let (mut items, more) = self.kept_children(dir, after)?;
        let points = self.routes.names_below(dir.key());
        if points.is_empty() {
            return Ok(part(items, more));
        }
        items.retain(|item| !points.contains(item.name()));
        let last = items.back().filter(|_| more).map(|item| item.name().to_vec());
        // Those behind the end of this part come with the part that they are in.
        let shown = points.into_iter().filter(|name| after.is_none_or(|after| name.as_slice() > after));
        let shown = shown.filter(|name| last.as_ref().is_none_or(|last| name < last));
        items.extend(shown.map(|name| Item::point(&join(dir.key(), &name))));
        items.make_contiguous().sort_unstable_by(|a, b| a.name().cmp(b.name()));
        Ok(part(items, more))
    }

    fn kept_children(&self, dir: &Place, after: Option<&[u8]>) -> Result<(VecDeque<Item>, bool), Error> {
        let nothing = || (VecDeque::new(), false);
        let Some((route, rest)) = self.routes.find(dir.key()) else {
            // Above routes, and in none itself.
            let there = self.routes.is_point(dir.key());
            return if there { Ok(nothing()) } else { Err(Error::NotFound { kind: "file", id: dir.to_string() }) };
        };
        let found = match self.kept(route, dir)? {
            At::Disk(path) => self.disk.children_now(&path, after).map(|(entries, more)| {
                let item = |entry: crate::files::Entry| {
                    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
                    Item::on_disk(&join(dir.key(), &name), entry)
                };
                (entries.into_iter().map(item).collect(), more)
            }),
            At::Ram(kept, base) => {
                let node = (!rest.is_empty()).then(|| kept.look(dir.key()));
                match node {
                    Some(None) => Err(kept.missing(base, dir.key())),
                    Some(Some(held)) if held.node != crate::memory::Node::Dir => {
                        Err(unusable(dir, "it is not a directory"))
                    }
                    Some(Some(_)) | None => {
                        let found = kept.ram.children(dir.key(), after, AT_ONCE);
                        let more = found.len() == AT_ONCE;
                        let item = |(name, held): (Vec<u8>, _)| Item::in_ram(join(dir.key(), &name), &held);
                        Ok((found.into_iter().map(item).collect(), more))
                    }
                }
            }
            // Nobody's are not there, and can't be in the way.
            At::Nobody | At::Point => Ok(nothing()),
        };
        match found {
            // It leads to routes, whatever the backend knows of it.
            Err(Error::NotFound { .. } | Error::Path { .. }) if self.routes.is_above(dir.key()) => Ok(nothing()),
            found => found,
        }
    }
}

fn part(items: VecDeque<Item>, more: bool) -> Part {
    let after = items.back().filter(|_| more).map(|item| name(&item.key).to_vec());
    Part { items, after }
}
