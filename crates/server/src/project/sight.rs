//! What the sandboxes of a project see of its memories: whatever its routes keep at `/memories` and below.
//!
//! ```text
//! filesystem ─► its directory           store ─► a directory that is made the same as RAM           state ─► nothing
//! ```
//!
//! A provider of this machine knows a project by its directory alone, so it is written there, in `.sight`, before an
//! instance is made. It follows from the table of routes; what is read from the file is believed only as far as a table
//! could have said it.

use super::ProjectPlace;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use stead_model::place::{Place, below};
use stead_model::route::{Backend, Root, Routes};

/// Where memories are, inside.
pub(crate) const MEMORIES: &str = "/memories";
const KEY: &[u8] = b"memories";
/// What has been mirrored from the first, and so has the plain name.
const HOT: &[u8] = b"memories\0hot";
const SHOWN: &str = ".memories/shown";
const FILE: &str = ".sight";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    /// Those that others lie in first.
    pub(crate) shares: Vec<Share>,
    /// What can't be shown, and why.
    pub(crate) unseen: Vec<String>,
}

/// A directory of the project, and where it is inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) inside: String,
    /// Below the project's directory.
    pub(crate) dir: String,
}

/// A part of hot memory that is shown as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirrored {
    /// The key of its route.
    pub(crate) base: Vec<u8>,
    /// Where the files are.
    pub(crate) dir: PathBuf,
    /// Where it is written what is known of them.
    pub(crate) notes: PathBuf,
}

impl Sight {
    pub(crate) fn of(routes: &Routes) -> Self {
        let mut shares = Vec::new();
        let mut unseen = Vec::new();
        if let Some((route, _)) = routes.find(KEY)
            && route.prefix().key() != KEY
            && route.backend != Backend::State
        {
            let whole = route.prefix();
            unseen.push(format!(
                "`{MEMORIES}` is a part of route `{whole}`; give it one of its own to see it in sandboxes"
            ));
        }
        for route in inner(routes) {
            let (prefix, key) = (route.prefix().to_string(), route.prefix().key());
            match &route.backend {
                Backend::Filesystem { root } => shares.push(Share { inside: prefix, dir: root.path() }),
                Backend::Store if is_in_another_store(routes, key) => {}
                Backend::Store => shares.push(Share { inside: prefix, dir: shown(key) }),
                Backend::State => unseen.push(format!("`{prefix}` is kept for sessions alone, and no sandbox sees it")),
            }
        }
        Self { shares, unseen }
    }

    /// The same as it was written for a project, if that was done; else by the standard table.
    pub(crate) fn read(place: &ProjectPlace) -> Self {
        let text = fs::read_to_string(place.root().join(FILE)).ok();
        let read: Option<Self> = text.and_then(|text| serde_json::from_str(&text).ok());
        let mut sight = read.unwrap_or_else(|| Self::of(&Routes::default()));
        sight.shares.retain(Share::is_possible);
        sight
    }

    /// Whole or not at all, and only if it is another.
    pub(crate) fn write(&self, place: &ProjectPlace) -> io::Result<()> {
        let path = place.root().join(FILE);
        let text = serde_json::to_string(self)? + "\n";
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        let fresh = place.root().join(format!("{FILE}.new"));
        fs::write(&fresh, text)?;
        fs::rename(fresh, path)
    }

    /// The directories of this machine and where they are inside; made where they are not.
    pub(crate) fn directories(&self, place: &ProjectPlace) -> Vec<(PathBuf, PathBuf)> {
        let made = self.shares.iter().filter_map(|share| {
            let host = place.root().join(&share.dir);
            make(place.root(), Path::new(&share.dir)).ok()?;
            if share.inside == MEMORIES {
                // Where one would look for them; whatever has these names already is left.
                for name in ["hot", "persistent"] {
                    let _ = DirBuilder::new().mode(0o700).create(host.join(name));
                }
            }
            Some((host, PathBuf::from(&share.inside)))
        });
        made.collect()
    }
}

impl Mirrored {
    /// The directory, as far as it isn't there.
    pub(crate) fn make(&self, place: &ProjectPlace) -> io::Result<()> {
        let dir = self.dir.strip_prefix(place.root()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        make(place.root(), dir)
    }
}

impl Share {
    fn is_possible(&self) -> bool {
        let suffix = self.dir.strip_prefix(SHOWN);
        let digits = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_shown = suffix.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(digits));
        let place = Place::parse(self.inside.as_bytes());
        let is_inside = place.is_ok_and(|place| below(place.key(), KEY).is_some());
        self.inside.starts_with('/') && is_inside && (is_shown || Root::parse(&self.dir).is_some())
    }
}

/// What of hot memory is shown as files by a table.
pub(crate) fn mirrored(routes: &Routes, place: &ProjectPlace) -> Vec<Mirrored> {
    let stores = inner(routes).filter(|route| route.backend == Backend::Store);
    let outermost = stores.filter(|route| !is_in_another_store(routes, route.prefix().key()));
    let mirrored = outermost.map(|route| {
        let (base, dir) = (route.prefix().key().to_vec(), shown(route.prefix().key()));
        let name = dir.rsplit('/').next().unwrap_or_default().to_owned();
        Mirrored { base, dir: place.root().join(dir), notes: place.hot().join(name) }
    });
    mirrored.collect()
}

/// The routes at `/memories` and below it, from the outside in.
fn inner(routes: &Routes) -> impl Iterator<Item = &stead_model::route::Route> {
    let mut inner: Vec<_> = routes.iter().filter(|route| below(route.prefix().key(), KEY).is_some()).collect();
    inner.reverse();
    inner.into_iter()
}

/// Whether the files of a store are among those of the route around it: all stores are one tree in RAM.
fn is_in_another_store(routes: &Routes, key: &[u8]) -> bool {
    let around = routes.iter().find(|route| {
        let prefix = route.prefix().key();
        prefix != key && below(prefix, KEY).is_some() && below(key, prefix).is_some()
    });
    around.is_some_and(|route| route.backend == Backend::Store)
}

/// Where a store is shown, below the project's directory.
fn shown(key: &[u8]) -> String {
    if key == HOT {
        return SHOWN.to_owned();
    }
    let digest = Sha256::digest(key);
    digest.iter().take(4).fold(format!("{SHOWN}-"), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Makes a directory below another; a link on the way would lead elsewhere.
fn make(root: &Path, dir: &Path) -> io::Result<()> {
    let mut path = root.to_owned();
    for name in dir.components() {
        let Component::Normal(name) = name else { return Err(io::ErrorKind::InvalidInput.into()) };
        path.push(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        if !path.symlink_metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::table;

    fn routes(json: &str) -> Routes {
        let written: std::collections::BTreeMap<String, serde_json::Value> = serde_json::from_str(json).unwrap();
        table(written).unwrap()
    }

    fn seen(json: &str) -> Vec<(String, String)> {
        let shares = Sight::of(&routes(json)).shares;
        shares.into_iter().map(|share| (share.inside, share.dir)).collect()
    }

    fn pairs<const N: usize>(wanted: [(&str, &str); N]) -> Vec<(String, String)> {
        wanted.map(|(inside, dir)| (inside.to_owned(), dir.to_owned())).to_vec()
    }

    #[test]
    fn every_table_shows_what_it_keeps_as_memories() {
        let standard = pairs([("/memories/hot", ".memories/shown"), ("/memories/persistent", ".memories/persistent")]);
        let usual = Sight::of(&Routes::default());
        assert_eq!(usual.unseen, [""; 0]);
        let mut shares: Vec<_> = usual.shares.into_iter().map(|share| (share.inside, share.dir)).collect();
        shares.sort();
        assert_eq!(shares, standard);
        let on_disk = r#"{"/memories/": {"type": "filesystem", "root": "routes/m"}, "/workspace/": "filesystem"}"#;
        assert_eq!(seen(on_disk), pairs([("/memories", "routes/m")]));
        let in_ram = seen(r#"{"/memories/": "store", "/memories/deep/": "store", "/": "state"}"#);
        let dir = shown(KEY);
        assert_eq!(in_ram, pairs([("/memories", &dir)]));
        assert!(dir.starts_with(".memories/shown-"), "{dir}");
        let mixed = r#"{"/memories": "store", "/memories/notes": {"type": "filesystem", "root": "routes/n"},
            "/memories/notes/hot": "store", "/notes": "store"}"#;
        let inner = shown(b"memories\0notes\0hot");
        assert_eq!(
            seen(mixed),
            pairs([("/memories", &dir), ("/memories/notes", "routes/n"), ("/memories/notes/hot", &inner)])
        );
        let place = ProjectPlace::at(PathBuf::from("/p"));
        let bases: Vec<_> = mirrored(&routes(mixed), &place).into_iter().map(|one| one.base).collect();
        assert_eq!(bases, [KEY, b"memories\0notes\0hot"]);
    }

    #[test]
    fn what_can_not_be_shown_is_said() {
        for (json, told) in [
            (r#"{"/": "filesystem"}"#, Some("route `/`")),
            (r#"{"/": "store", "/memories/hot": "store"}"#, Some("route `/`")),
            (r#"{"/": "state", "/memories/hot": "store"}"#, None),
            (r#"{"/memories/now": "state"}"#, Some("`/memories/now`")),
            (r#"{"/x": "store"}"#, None),
        ] {
            let unseen = Sight::of(&routes(json)).unseen;
            assert_eq!(unseen.len(), usize::from(told.is_some()), "{json}: {unseen:?}");
            assert!(unseen.iter().all(|text| text.contains(told.unwrap_or_default())), "{json}: {unseen:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_only_what_a_table_could_say_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let place = ProjectPlace::at(dir.path().to_owned());
        assert_eq!(Sight::read(&place), Sight::of(&Routes::default()), "before anything is written");
        let sight = Sight::of(&routes(r#"{"/memories/": "store", "/memories/now/": "state"}"#));
        sight.write(&place).unwrap();
        assert_eq!(Sight::read(&place), sight);
        let share = |inside: &str, dir: &str| Share { inside: inside.to_owned(), dir: dir.to_owned() };
        let wrong = [
            share("/memories", "../other/repo"),
            share("/memories", ".memories/shown-../x"),
            share("/memories", "/etc"),
            share("/etc", "repo"),
            share("/memories/../etc", "repo"),
            share("memories", "repo"),
        ];
        Sight { shares: wrong.to_vec(), unseen: Vec::new() }.write(&place).unwrap();
        assert_eq!(Sight::read(&place).shares, []);
        // A link in the place of a directory is nothing to show.
        fs::create_dir(dir.path().join("routes")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("routes/m")).unwrap();
        let sight = Sight { shares: vec![share("/memories", "routes/m")], unseen: Vec::new() };
        assert_eq!(sight.directories(&place), []);
    }
}
