//! Where things are copied from and to.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// What is to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
    /// What is in a directory, without the directory.
    Contents,
}

pub(super) fn kind(path: &Path) -> Result<Kind, Failure> {
    let meta = std::fs::metadata(path).map_err(Failure::file(path))?;
    let shown = path.as_os_str().to_string_lossy();
    match (meta.is_dir(), shown.ends_with("/.") || shown == ".") {
        (true, true) => Ok(Kind::Contents),
        (true, false) => Ok(Kind::Dir),
        (false, _) => Ok(Kind::File),
    }
}

/// The last part of a path as a name there, where names are text.
pub(super) fn basename(path: &Path) -> Result<String, Failure> {
    let named = path.file_name().map(std::ffi::OsStr::to_os_string);
    // `..` has a name only once it is resolved.
    let named = named.or_else(|| path.canonicalize().ok()?.file_name().map(std::ffi::OsStr::to_os_string));
    let name = named.as_deref().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| Failure::Asked(format!("`{}` has no name to be copied under; name one", path.display())))
}

pub(super) fn joined(dir: &str, name: &str) -> String {
    match dir {
        "." => name.to_owned(),
        _ => format!("{}/{name}", dir.trim_end_matches('/')),
    }
}

/// Whether a name that another machine gave is one part of a path.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// Where on this side something is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Under this name, which nothing may have yet.
    New(PathBuf),
    /// Each thing in it for itself.
    Into(PathBuf),
}

impl Target {
    pub(super) fn of(local: &Path, name: &str) -> Self {
        if local.is_dir() { Self::New(local.join(name)) } else { Self::New(local.to_owned()) }
    }

    pub(super) fn contents(local: &Path) -> Self {
        if local.is_dir() { Self::Into(local.to_owned()) } else { Self::New(local.to_owned()) }
    }

    /// The directory in which it will appear; what isn't complete lies beside it, so that a rename is all that is left.
    pub(super) fn parent(&self) -> &Path {
        let parent = match self {
            Self::New(path) => path.parent().unwrap_or(Path::new("/")),
            Self::Into(path) => path,
        };
        if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_takes_things_in_and_any_other_name_is_theirs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Target::of(dir.path(), "x"), Target::New(dir.path().join("x")));
        assert_eq!(Target::of(&dir.path().join("y"), "x"), Target::New(dir.path().join("y")));
        assert_eq!(Target::contents(dir.path()), Target::Into(dir.path().to_owned()));
        assert_eq!(Target::New("x".into()).parent(), Path::new("."));
    }

    #[test]
    fn names_are_one_part_of_a_path() {
        assert!(is_plain("a b") && is_plain("..."));
        for name in ["", ".", "..", "a/b", "a\0"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert_eq!(joined("/workspace/", "a"), "/workspace/a");
        assert_eq!(joined(".", "a"), "a");
    }

    #[test]
    fn what_is_in_a_directory_is_meant_with_a_dot() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kind(dir.path()).unwrap(), Kind::Dir);
        assert_eq!(kind(&dir.path().join(".")).unwrap(), Kind::Contents);
        assert!(kind(&dir.path().join("none")).is_err());
    }
}
