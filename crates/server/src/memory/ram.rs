//! A tree of files in RAM. Readers ask one of many shards and never wait for more than one write to it; who wants an
//! order asks an index beside them.
//!
//! Only the owner of a tree changes it, one change at a time (see [`super::kept`]).

use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use stead_model::clock::Timestamp;
use stead_model::place::below;

/// What an entry costs beside its key and its value: two places in tables, counts, times.
const OVERHEAD: u64 = 160;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File(Bytes),
    Dir,
}

/// What is kept under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub node: Node,
    /// Of the change that made it so.
    pub number: u64,
    pub at: Timestamp,
}

type Key = Arc<[u8]>;

#[derive(Debug)]
pub(crate) struct Ram {
    shards: Box<[RwLock<HashMap<Key, Held>>]>,
    order: RwLock<BTreeSet<Key>>,
    bytes: AtomicU64,
}

impl Ram {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards.max(1)).map(|_| RwLock::default()).collect();
        Self { shards, order: RwLock::default(), bytes: AtomicU64::new(0) }
    }

    /// Many at once, in order and each key once, into a tree that is empty.
    pub(crate) fn fill(&self, entries: impl IntoIterator<Item = (Key, Held)>) {
        let mut keys = Vec::new();
        for (key, held) in entries {
            self.bytes.fetch_add(cost(&key, &held.node), Ordering::Relaxed);
            write(self.shard(&key)).insert(Arc::clone(&key), held);
            keys.push(key);
        }
        *write(&self.order) = keys.into_iter().collect();
    }

    fn shard(&self, key: &[u8]) -> &RwLock<HashMap<Key, Held>> {
        let at = crc32fast::hash(key) as usize % self.shards.len();
        // There is at least one, and a remainder is less than what it was divided by.
        #[expect(clippy::indexing_slicing, reason = "see above")]
        &self.shards[at]
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Held> {
        read(self.shard(key)).get(key).cloned()
    }

    /// The bytes of a file; the shortest way to them.
    pub(crate) fn value(&self, key: &[u8]) -> Option<Bytes> {
        match read(self.shard(key)).get(key)?.node {
            Node::File(ref value) => Some(value.clone()),
            Node::Dir => None,
        }
    }

    pub(crate) fn set(&self, key: &[u8], held: Held) {
        let more = cost(key, &held.node);
        let mut shard = write(self.shard(key));
        if let Some(place) = shard.get_mut(key) {
            let less = cost(key, &place.node);
            *place = held;
            drop(shard);
            self.count(more, less);
            return;
        }
        let key: Key = key.into();
        shard.insert(Arc::clone(&key), held);
        drop(shard);
        write(&self.order).insert(key);
        self.count(more, 0);
    }

    /// What is to be shown of a directory is told by its order: first it goes from there.
    pub(crate) fn remove(&self, key: &[u8]) {
        write(&self.order).remove(key);
        let gone = write(self.shard(key)).remove(key);
        if let Some(held) = gone {
            self.count(0, cost(key, &held.node));
        }
    }

    fn count(&self, more: u64, less: u64) {
        self.bytes.fetch_add(more.wrapping_sub(less), Ordering::Relaxed);
    }

    /// What everything takes together, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        read(&self.order).len()
    }

    pub(crate) fn has_below(&self, key: &[u8]) -> bool {
        !self.keys_below(key, None, 1).is_empty()
    }

    /// The first keys below one, after one, in order.
    pub(crate) fn keys_below(&self, key: &[u8], after: Option<&[u8]>, most: usize) -> Vec<Key> {
        let from = after.unwrap_or(key);
        let order = read(&self.order);
        let keys = order.range::<[u8], _>((Bound::Excluded(from), Bound::Unbounded));
        let inside = |other: &&Key| below(other, key).is_some();
        keys.take_while(inside).take(most).cloned().collect()
    }

    /// The first names directly below a key, after a name, in order, and what is there.
    pub(crate) fn children(&self, key: &[u8], after: Option<&[u8]>, most: usize) -> Vec<(Vec<u8>, Held)> {
        let base = if key.is_empty() { Vec::new() } else { [key, b"\0"].concat() };
        let base = base.as_slice();
        let behind = |name: &[u8]| [base, name, b"\x01"].concat();
        let mut from = after.map_or_else(|| base.to_vec(), behind);
        let mut names = Vec::new();
        {
            let order = read(&self.order);
            while names.len() < most {
                let next = order.range::<[u8], _>((Bound::Included(from.as_slice()), Bound::Unbounded)).next();
                let Some(rest) = next.and_then(|next| next.strip_prefix(base)) else { break };
                let name = rest.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
                from = behind(&name);
                names.push(name);
            }
        }
        let known = |name: Vec<u8>| {
            let held = self.get(&[base, &name].concat());
            // Only the root of a route that lies below this one isn't kept itself.
            let held = held.unwrap_or(Held { node: Node::Dir, number: 0, at: Timestamp(0) });
            (name, held)
        };
        names.into_iter().map(known).collect()
    }
}

pub(crate) fn cost(key: &[u8], node: &Node) -> u64 {
    let value = match node {
        Node::File(value) => value.len(),
        Node::Dir => 0,
    };
    (key.len() + value) as u64 + OVERHEAD
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &'static str) -> Held {
        Held { node: Node::File(Bytes::from_static(text.as_bytes())), number: 1, at: Timestamp(1) }
    }

    #[test]
    fn children_are_told_once_and_in_order() {
        let ram = Ram::new(4);
        for key in ["a", "a-b", "a\0x", "a\0x\0y", "a\0z", "ab", "b\0c"] {
            ram.set(key.as_bytes(), file("1"));
        }
        let names = |key: &str, after: Option<&str>, most| -> Vec<String> {
            let found = ram.children(key.as_bytes(), after.map(str::as_bytes), most);
            found.into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect()
        };
        assert_eq!(names("", None, 10), ["a", "a-b", "ab", "b"]);
        assert_eq!(names("", Some("a"), 2), ["a-b", "ab"]);
        assert_eq!(names("a", None, 10), ["x", "z"]);
        assert_eq!(names("a", Some("x"), 10), ["z"]);
        assert_eq!(names("a\0z", None, 10), [""; 0]);
        assert!(ram.has_below(b"b") && !ram.has_below(b"ab"));
    }

    #[test]
    fn what_it_takes_is_counted() {
        let ram = Ram::new(1);
        ram.set(b"k", file("four"));
        ram.set(b"k", file("1"));
        assert_eq!(ram.bytes(), 1 + 1 + OVERHEAD);
        ram.remove(b"k");
        ram.remove(b"k");
        assert_eq!((ram.bytes(), ram.len()), (0, 0));
    }
}
