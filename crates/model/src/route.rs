//! Which part of a project's paths is kept where: the longest prefix counts, at the ends of names.

use crate::place::{Place, below, join};
use std::collections::BTreeSet;

/// What keeps the files of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A directory of the project.
    Filesystem { root: Root },
    /// RAM, with a journal: it lasts.
    Store,
    /// RAM of one session: it goes with it.
    State,
}

impl Backend {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Filesystem { .. } => "filesystem",
            Self::Store => "store",
            Self::State => "state",
        }
    }
}

/// A directory of a project that a route may show. None of them lies in another, or in what a sandbox can write to: no
/// link on the way can lead out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    Repo,
    Home,
    Tmp,
    Persistent,
    /// `routes/NAME`.
    Named(String),
}

/// Longer names of directories make no route clearer.
const MAX_NAMED: usize = 64;
const MAX_ROUTES: usize = 64;

impl Root {
    /// As it is written, which is also where it is below the project's directory.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim_end_matches('/') {
            "repo" => Some(Self::Repo),
            "home" => Some(Self::Home),
            "tmp" => Some(Self::Tmp),
            ".memories/persistent" => Some(Self::Persistent),
            other => {
                let name = other.strip_prefix("routes/")?;
                let plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
                let fits = !name.is_empty() && name.len() <= MAX_NAMED && name.chars().all(plain);
                (fits && !name.starts_with('.')).then(|| Self::Named(name.to_owned()))
            }
        }
    }

    pub fn path(&self) -> String {
        match self {
            Self::Repo => "repo".to_owned(),
            Self::Home => "home".to_owned(),
            Self::Tmp => "tmp".to_owned(),
            Self::Persistent => ".memories/persistent".to_owned(),
            Self::Named(name) => format!("routes/{name}"),
        }
    }

    /// Of a route that names none.
    fn of(prefix: &Place) -> Self {
        match prefix.to_string().as_str() {
            "/workspace" => Self::Repo,
            "/memories/persistent" => Self::Persistent,
            "/" => Self::Named("root".to_owned()),
            other => {
                let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
                let name: String = other.trim_start_matches('/').chars().map(plain).collect();
                // Two that are the same in these letters are told apart by their sum.
                let sum = crc32fast::hash(other.as_bytes());
                let short: String = name.trim_start_matches('.').chars().take(16).collect();
                Self::Named(format!("{short}-{sum:08x}"))
            }
        }
    }
}

/// A route as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub prefix: String,
    pub kind: String,
    pub root: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("route `{prefix}`: {message}")]
pub struct InvalidRoute {
    pub prefix: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    prefix: Place,
    pub backend: Backend,
}

impl Route {
    pub fn prefix(&self) -> &Place {
        &self.prefix
    }
}

/// The table, the longest prefix first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Default for Routes {
    fn default() -> Self {
        let route =
            |prefix: &str, backend| Route { prefix: Place::parse(prefix.as_bytes()).unwrap_or_default(), backend };
        Self::sorted(vec![
            route("/workspace", Backend::Filesystem { root: Root::Repo }),
            route("/memories/hot", Backend::Store),
            route("/memories/persistent", Backend::Filesystem { root: Root::Persistent }),
            route("/tmp", Backend::State),
        ])
    }
}

impl Routes {
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<Self, InvalidRoute> {
        let mut routes: Vec<Route> = Vec::new();
        for entry in entries {
            let wrong = |message: String| InvalidRoute { prefix: entry.prefix.clone(), message };
            if !entry.prefix.starts_with('/') {
                return Err(wrong("it does not begin with `/`".to_owned()));
            }
            let prefix = Place::parse(entry.prefix.as_bytes()).map_err(|error| wrong(error.to_string()))?;
            let prefix = Place::from_key(prefix.key());
            if routes.iter().any(|route| route.prefix == prefix) {
                return Err(wrong("it is there twice".to_owned()));
            }
            let backend = match (entry.kind.as_str(), &entry.root) {
                ("filesystem", None) => Backend::Filesystem { root: Root::of(&prefix) },
                ("filesystem", Some(root)) => {
                    let root = Root::parse(root).ok_or_else(|| {
                        let known = "`repo`, `home`, `tmp`, `.memories/persistent` or `routes/NAME`";
                        wrong(format!("`root` is {known}, not `{root}`"))
                    })?;
                    Backend::Filesystem { root }
                }
                ("store", None) => Backend::Store,
                ("state", None) => Backend::State,
                ("store" | "state", Some(_)) => {
                    return Err(wrong(format!("`{}` is kept in memory and has no `root`", entry.kind)));
                }
                (other, _) => return Err(wrong(format!("`{other}` is none of `filesystem`, `store`, `state`"))),
            };
            routes.push(Route { prefix, backend });
        }
        if routes.is_empty() || routes.len() > MAX_ROUTES {
            let message = format!("a table has from 1 to {MAX_ROUTES} routes");
            return Err(InvalidRoute { prefix: "/".to_owned(), message });
        }
        Ok(Self::sorted(routes))
    }

    fn sorted(mut routes: Vec<Route>) -> Self {
        routes.sort_by(|a, b| b.prefix.key().len().cmp(&a.prefix.key().len()).then_with(|| a.prefix.cmp(&b.prefix)));
        Self(routes)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// Where a key is kept, and the rest of it below the route.
    pub fn find<'k>(&self, key: &'k [u8]) -> Option<(&Route, &'k [u8])> {
        self.0.iter().find_map(|route| Some((route, below(key, route.prefix.key())?)))
    }

    /// Whether a route lies below a key: then that is a directory, whatever a backend says.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.0.iter().any(|route| below(route.prefix.key(), key).is_some_and(|rest| !rest.is_empty()))
    }

    /// Whether a key is the root of a route, or above one.
    pub fn is_point(&self, key: &[u8]) -> bool {
        key.is_empty() || self.0.iter().any(|route| below(route.prefix.key(), key).is_some())
    }

    /// Names directly below a key that lead to routes, in order.
    pub fn names_below(&self, key: &[u8]) -> BTreeSet<Vec<u8>> {
        let rests = self.0.iter().filter_map(|route| below(route.prefix.key(), key)).filter(|rest| !rest.is_empty());
        rests.filter_map(|rest| rest.split(|byte| *byte == 0).next()).map(<[u8]>::to_vec).collect()
    }

    /// What is shown of a route's own key.
    pub fn full(route: &Route, rest: &[u8]) -> Vec<u8> {
        join(route.prefix.key(), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(prefix: &str, kind: &str) -> Entry {
        Entry { prefix: prefix.to_owned(), kind: kind.to_owned(), root: None }
    }

    fn table(entries: &[(&str, &str)]) -> Routes {
        Routes::new(entries.iter().map(|(prefix, kind)| entry(prefix, kind))).unwrap()
    }

    fn found(routes: &Routes, path: &str) -> Option<String> {
        let place = Place::parse(path.as_bytes()).unwrap();
        let (route, rest) = routes.find(place.key())?;
        Some(format!("{} {} {}", route.prefix, route.backend.name(), Place::from_key(rest)))
    }

    #[test]
    fn the_longest_prefix_at_the_end_of_a_name_counts() {
        let routes =
            table(&[("/", "state"), ("/a/", "store"), ("/a/b", "filesystem"), ("/ö/", "filesystem"), ("/x", "store")]);
        for (path, want) in [
            ("/", "/ state /"),
            ("/q", "/ state /q"),
            ("/ab", "/ state /ab"),
            ("/a", "/a store /"),
            ("/a/c", "/a store /c"),
            ("/a/bc", "/a store /bc"),
            ("/a/b", "/a/b filesystem /"),
            ("/a/b/c/d", "/a/b filesystem /c/d"),
            ("/ö/ü", "/ö filesystem /ü"),
            ("/x/", "/x store /"),
            ("/x/y", "/x store /y"),
        ] {
            assert_eq!(found(&routes, path).as_deref(), Some(want), "{path}");
        }
        assert_eq!(found(&Routes::default(), "/nowhere"), None);
        assert_eq!(found(&Routes::default(), "/memories"), None);
        assert_eq!(found(&Routes::default(), "/memories/hotter"), None);
    }

    #[test]
    fn directories_above_routes_are_there() {
        let routes = Routes::default();
        let names = |key: &[u8]| -> Vec<String> {
            routes.names_below(key).into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
        };
        assert_eq!(names(b""), ["memories", "tmp", "workspace"]);
        assert_eq!(names(b"memories"), ["hot", "persistent"]);
        assert_eq!(names(b"tmp"), [""; 0]);
        assert!(routes.is_above(b"memories") && !routes.is_above(b"memories\0hot") && !routes.is_above(b"mem"));
        assert!(routes.is_point(b"memories\0hot") && !routes.is_point(b"memories\0hot\0x"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_entry() {
        let rooted = |root: &str| Entry { root: Some(root.to_owned()), ..entry("/m", "filesystem") };
        let stored = Entry { root: Some("repo".to_owned()), ..entry("/m", "store") };
        for (entries, named) in [
            (vec![entry("m", "store")], "`m`"),
            (vec![entry("/m", "disk")], "`disk`"),
            (vec![entry("/m/../n", "store")], "`/m/../n`"),
            (vec![entry("/m", "store"), entry("/m/", "state")], "`/m/`"),
            (vec![rooted("../x")], "`../x`"),
            (vec![rooted("/etc")], "`/etc`"),
            (vec![rooted("repo/x")], "`repo/x`"),
            (vec![rooted("routes/..")], "`routes/..`"),
            (vec![stored], "no `root`"),
            (vec![], "from 1 to 64"),
        ] {
            let error = Routes::new(entries.clone()).unwrap_err().to_string();
            assert!(error.contains(named), "{entries:?}: {error}");
        }
        assert!(Routes::new([rooted("routes/notes"), entry("/n", "store")]).is_ok());
    }

    #[test]
    fn routes_without_a_root_get_one_of_their_own() {
        let root = |prefix: &str| match table(&[(prefix, "filesystem")]).0.remove(0).backend {
            Backend::Filesystem { root } => root.path(),
            Backend::Store | Backend::State => unreachable!("it is a file system's"),
        };
        assert_eq!((root("/workspace/"), root("/memories/persistent")), ("repo".into(), ".memories/persistent".into()));
        assert_ne!(root("/a/b"), root("/a_b"));
        assert_eq!(Root::parse(&root("/ö/b c")).unwrap().path(), root("/ö/b c"));
        assert_eq!(Root::parse(&root("/.x")).unwrap().path(), root("/.x"));
    }
}
