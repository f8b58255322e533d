//! From a path to a place. Every step is one name, resolved by the kernel below a directory that we hold (openat2, no
//! links followed); links are read and walked by us, in the sandbox's own terms. So whoever swaps a directory for a link
//! meanwhile changes which place inside is found, never that it is inside.
//!
//! - a path that isn't absolute is relative to the workspace;
//! - `..` may not climb above the root of the tree that it is in;
//! - an absolute link counts from the sandbox's `/`, and must lead into the workspace or the home directory again, or
//!   stay in the tree that it is in.

use super::failure::Failure;
use super::spot::{Id, Root, Spot, id, link_at, step};
use crate::provider::Tree;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// As long as a path may be for the kernel.
pub(super) const MAX_PATH: usize = 4096;
/// A directory is held for each level.
pub(super) const MAX_DEPTH: usize = 256;
/// As many as the kernel follows.
const MAX_LINKS: u32 = 40;
/// On `local` it is everybody's: a link of the workspace that leads there leads out.
const SCRATCH: &str = "/tmp";

/// The trees of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    trees: Vec<Tree>,
    private: Vec<PathBuf>,
    /// Whether `/tmp` is everybody's.
    has_scratch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    /// What is named is the link itself.
    Keep,
}

/// What happens where a directory on the way isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    MustBe,
    Make,
    /// The way ends at the last one that is there.
    AsFarAsItGoes,
}

impl Ground {
    pub(super) fn new(mut trees: Vec<Tree>, private: Vec<PathBuf>) -> Self {
        // Wherever it is mounted, the workspace has this name, too.
        if let Some(workspace) = trees.first().filter(|_| !trees.iter().any(|tree| tree.inside == "/workspace")) {
            trees.push(Tree { inside: "/workspace".to_owned(), outside: workspace.outside.clone() });
        }
        Self { trees, private, has_scratch: true }
    }

    /// Trees under the paths that they have, and no other.
    pub(super) fn over(trees: Vec<Tree>) -> Self {
        Self { trees, private: Vec::new(), has_scratch: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    pub(super) fn is_root(&self, path: &[u8]) -> bool {
        let path = Self::absolute(path);
        self.trees.iter().any(|tree| tree.inside.as_bytes() == path)
    }

    /// What of these trees is no sandbox's.
    pub(super) fn private_ids(&self) -> Vec<Id> {
        self.private.iter().filter_map(|path| rustix::fs::stat(path).ok()).map(|stat| id(&stat)).collect()
    }

    /// Whether a link that stands in a directory, both as the sandbox knows them, leads to a place inside.
    pub(super) fn leads_inside(&self, dir: &[u8], target: &[u8]) -> bool {
        let Ok((root, mut way)) = self.enter(dir, None) else { return false };
        if target.starts_with(b"/") {
            let Ok((_, rest)) = self.enter(&Self::absolute(target), Some(&root)) else { return false };
            way = rest;
        } else {
            way.append(&mut parts(target));
        }
        stays_below(&way)
    }

    /// Whether something private lies in or below an entry.
    pub(super) fn holds_private(&self, dir: &OwnedFd, name: &OsStr) -> bool {
        let Ok(real) = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())) else { return true };
        let real = real.join(name);
        self.private.iter().any(|path| path.canonicalize().is_ok_and(|path| path.starts_with(&real)))
    }

    /// A path as the sandbox knows it.
    pub(super) fn absolute(path: &[u8]) -> Vec<u8> {
        let start: &[u8] = if path.starts_with(b"/") { b"" } else { b"/workspace" };
        let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let whole = parts.fold(start.to_vec(), |whole, part| [&whole, b"/".as_slice(), part].concat());
        if whole.is_empty() { b"/".to_vec() } else { whole }
    }

    pub(super) fn find(&self, path: &[u8], last: Last, way: Way) -> Result<Spot, Failure> {
        if path.is_empty() {
            return Err(Failure::Path("it is empty"));
        }
        if path.contains(&0) {
            return Err(Failure::Path("it has a NUL in it"));
        }
        if path.len() > MAX_PATH {
            return Err(Failure::Path("it is longer than 4096 bytes"));
        }
        let (root, rest) = self.enter(&Self::absolute(path), None)?;
        // What leads out by its words alone does so whether or not the directories on its way are there.
        if !stays_below(&rest) {
            return Err(Failure::Path(LEADS_OUT));
        }
        let mut walk = Walk {
            ground: self,
            private: self.private_ids(),
            held: vec![Self::open_root(&root, way)?],
            root,
            ahead: rest,
            links: 0,
            as_dir: ends_as_dir(path),
        };
        walk.go(last, way)
    }

    /// The tree that an absolute path is in, and the way there from its root. The longest match counts: a tree may lie
    /// within another.
    fn enter(&self, path: &[u8], from: Option<&Root>) -> Result<(Root, VecDeque<OsString>), Failure> {
        let path = Path::new(OsStr::from_bytes(path));
        let found = self.trees.iter().filter_map(|tree| Some((tree, path.strip_prefix(&tree.inside).ok()?)));
        let (tree, rest) = found
            .max_by_key(|(tree, _)| tree.inside.len())
            .ok_or(Failure::Path("it is not in the workspace, the home directory or another tree of the sandbox"))?;
        let root = Root { outside: tree.outside.clone(), is_scratch: self.has_scratch && tree.inside == SCRATCH };
        if root.is_scratch && from.is_some_and(|from| !from.is_scratch) {
            return Err(Failure::Path(LEADS_OUT));
        }
        Ok((root, parts(rest.as_os_str().as_bytes())))
    }

    fn open_root(root: &Root, way: Way) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&root.outside, flags, Mode::empty()) {
            // Nothing has run there yet: a workspace begins with its first file.
            Err(Errno::NOENT) if way != Way::MustBe && !root.is_scratch => {
                DirBuilder::new().recursive(true).mode(0o700).create(&root.outside)?;
                Ok(rustix::fs::open(&root.outside, flags, Mode::empty())?)
            }
            opened => Ok(opened?),
        }
    }
}

const LEADS_OUT: &str = "it leads out of the sandbox";

struct Walk<'a> {
    ground: &'a Ground,
    private: Vec<Id>,
    root: Root,
    /// From the tree's root down to where we are.
    held: Vec<OwnedFd>,
    ahead: VecDeque<OsString>,
    links: u32,
    as_dir: bool,
}

impl Walk<'_> {
    fn go(&mut self, last: Last, way: Way) -> Result<Spot, Failure> {
        while let Some(part) = self.ahead.pop_front() {
            if part == ".." {
                self.held.pop();
                if self.held.is_empty() {
                    return Err(Failure::Path(LEADS_OUT));
                }
                continue;
            }
            let dir = self.held.last().ok_or(Failure::Path(LEADS_OUT))?;
            let is_last = self.ahead.is_empty();
            let stays = is_last && last == Last::Keep && !self.as_dir;
            if !stays && let Some(target) = link_at(dir, &part)? {
                self.follow(&target)?;
                continue;
            }
            if is_last {
                return self.spot(Some(part), false);
            }
            match step(dir, &part) {
                Err(Errno::NOENT) if way == Way::AsFarAsItGoes => return self.spot(Some(part), true),
                Err(Errno::NOENT) if way == Way::Make => {
                    match rustix::fs::mkdirat(dir, &part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    // Looked at again: somebody may have been quicker, with a link.
                    self.ahead.push_front(part);
                }
                // A link since a moment ago.
                Err(Errno::LOOP) => {
                    self.count_link()?;
                    self.ahead.push_front(part);
                }
                next => self.hold(next?)?,
            }
        }
        self.spot(None, false)
    }

    fn hold(&mut self, dir: OwnedFd) -> Result<(), Failure> {
        if !self.private.is_empty() && self.private.contains(&id(&rustix::fs::fstat(&dir)?)) {
            return Err(Failure::Path("it is not the sandbox's"));
        }
        if self.held.len() >= MAX_DEPTH {
            return Err(Failure::Path("it is more than 256 directories deep"));
        }
        self.held.push(dir);
        Ok(())
    }

    fn count_link(&mut self) -> Result<(), Failure> {
        self.links += 1;
        if self.links > MAX_LINKS { Err(Failure::Path("it has too many links on its way")) } else { Ok(()) }
    }

    fn follow(&mut self, target: &[u8]) -> Result<(), Failure> {
        self.count_link()?;
        self.as_dir |= self.ahead.is_empty() && ends_as_dir(target);
        let mut way = if target.starts_with(b"/") {
            let (root, rest) =
                self.ground.enter(&Ground::absolute(target), Some(&self.root)).map_err(|_| Failure::Path(LEADS_OUT))?;
            self.held = vec![Ground::open_root(&root, Way::MustBe)?];
            self.root = root;
            rest
        } else {
            parts(target)
        };
        way.append(&mut self.ahead);
        self.ahead = way;
        Ok(())
    }

    fn spot(&mut self, name: Option<OsString>, cut: bool) -> Result<Spot, Failure> {
        let dir = self.held.pop().ok_or(Failure::Path(LEADS_OUT))?;
        // The last name may be that of a private directory.
        if let Some(name) = name.as_ref().filter(|_| !cut && !self.private.is_empty())
            && rustix::fs::statat(&dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| self.private.contains(&id(&stat)))
        {
            return Err(Failure::Path("it is not the sandbox's"));
        }
        Ok(Spot { dir, name, cut, as_dir: self.as_dir, root: self.root.clone() })
    }
}

fn parts(path: &[u8]) -> VecDeque<OsString> {
    let named = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    named.map(|part| OsString::from_vec(part.to_vec())).collect()
}

/// Whether a way never climbs above where it began.
fn stays_below(way: &VecDeque<OsString>) -> bool {
    let mut depth = 0_usize;
    way.iter().all(|part| {
        let next = if part == ".." { depth.checked_sub(1) } else { Some(depth + 1) };
        depth = next.unwrap_or(0);
        next.is_some()
    })
}

fn ends_as_dir(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}
