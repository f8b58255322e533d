//! A path through the routes of a project, in one form: absolute, no empty names, no `.`; `..` is refused, names that
//! merely contain it are names like any other.
//!
//! Inside, names are separated by NUL, which no name has: so the order of bytes is the order of the tree, a directory
//! directly before what is in it.

use std::fmt;

/// As long as a path may be for the kernel.
const MAX_PATH: usize = 4096;
/// As long as a name may be on the file systems that we know.
const MAX_NAME: usize = 255;
const MAX_NAMES: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    key: Vec<u8>,
    as_dir: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidPlace {
    pub message: &'static str,
}

impl Place {
    pub fn parse(path: &[u8]) -> Result<Self, InvalidPlace> {
        let wrong = |message| Err(InvalidPlace { message });
        if path.contains(&0) {
            return wrong("it has a NUL in it");
        }
        if path.len() > MAX_PATH {
            return wrong("it is longer than 4096 bytes");
        }
        let (mut key, mut names) = (Vec::with_capacity(path.len()), 0);
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return wrong("`..` leads nowhere here"),
                name if name.len() > MAX_NAME => return wrong("a name in it is too long"),
                name => {
                    if names > 0 {
                        key.push(0);
                    }
                    key.extend_from_slice(name);
                    names += 1;
                }
            }
        }
        if names > MAX_NAMES {
            return wrong("it is more than 256 directories deep");
        }
        let as_dir = path.ends_with(b"/") || path.ends_with(b"/.");
        Ok(Self { key, as_dir })
    }

    /// What is one already.
    pub fn from_key(key: &[u8]) -> Self {
        Self { key: key.to_vec(), as_dir: false }
    }

    /// The names, separated by NUL.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether a slash at its end said that it is a directory.
    pub fn is_as_dir(&self) -> bool {
        self.as_dir
    }

    pub fn is_root(&self) -> bool {
        self.key.is_empty()
    }

    /// As people write it: absolute, no slash at its end.
    pub fn shown(&self) -> Vec<u8> {
        shown(&self.key)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.shown()))
    }
}

/// A key as people write it.
pub fn shown(key: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(key.len() + 1);
    path.push(b'/');
    path.extend(key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }));
    path
}

/// A path that is relative to somewhere, as a key; the other way round than [`relative`].
pub fn keyed(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect()
}

/// A key as a path from somewhere: no slash before it.
pub fn relative(key: &[u8]) -> Vec<u8> {
    key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect()
}

/// A name below a key.
pub fn join(key: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if key.is_empty() || name.is_empty() { b"" } else { b"\0" };
    [key, separator, name].concat()
}

/// What is left of a key below another one: nothing if they are the same. None if it isn't below.
pub fn below<'a>(key: &'a [u8], above: &[u8]) -> Option<&'a [u8]> {
    let rest = key.strip_prefix(above)?;
    match rest.split_first() {
        _ if above.is_empty() => Some(rest),
        None => Some(rest),
        Some((0, rest)) => Some(rest),
        Some(_) => None,
    }
}

/// The keys above one, from the top, without the root.
pub fn ancestors(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.iter().enumerate().filter(|(_, byte)| **byte == 0).filter_map(|(at, _)| key.get(..at))
}

/// The last name.
pub fn name(key: &[u8]) -> &[u8] {
    key.rsplit(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_form() {
        for (path, want) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("a", "/a"),
            ("/a/", "/a"),
            ("//a//./b/.", "/a/b"),
            ("/report..final.md", "/report..final.md"),
            ("/[...slug].ts", "/[...slug].ts"),
            ("/...", "/..."),
            ("/ö/日本", "/ö/日本"),
            ("/~/x", "/~/x"),
        ] {
            assert_eq!(Place::parse(path.as_bytes()).unwrap().to_string(), want, "{path}");
        }
        let long = format!("/{}", "x".repeat(256));
        let deep = "/a".repeat(257);
        for bad in ["..", "/..", "/a/..", "/a/../b", "/a\0b", &long, &deep, &"/a".repeat(2049)] {
            assert!(Place::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Place::parse(b"/a/").unwrap().is_as_dir() && !Place::parse(b"/a").unwrap().is_as_dir());
    }

    #[test]
    fn the_order_of_keys_is_that_of_the_tree() {
        let mut places: Vec<_> = ["/a-b", "/a/x", "/a", "/a/x/y", "/a.b", "/b"]
            .iter()
            .map(|path| Place::parse(path.as_bytes()).unwrap())
            .collect();
        places.sort();
        let shown: Vec<_> = places.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["/a", "/a/x", "/a/x/y", "/a-b", "/a.b", "/b"]);
    }

    #[test]
    fn below_is_decided_at_the_ends_of_names() {
        let key = |path: &str| Place::parse(path.as_bytes()).unwrap().key().to_vec();
        for (path, above, rest) in [
            ("/a/b/c", "/a", Some("b\0c")),
            ("/a", "/a", Some("")),
            ("/ab", "/a", None),
            ("/a", "/a/b", None),
            ("/a/b", "/", Some("a\0b")),
            ("/", "/", Some("")),
            ("/ö/x", "/ö", Some("x")),
        ] {
            let (path, above) = (key(path), key(above));
            assert_eq!(below(&path, &above), rest.map(str::as_bytes));
        }
        let deep = key("/a/b/c");
        assert_eq!(ancestors(&deep).map(shown).collect::<Vec<_>>(), [b"/a".to_vec(), b"/a/b".to_vec()]);
        assert_eq!((name(&deep), name(b"")), (b"c".as_slice(), b"".as_slice()));
    }
}
