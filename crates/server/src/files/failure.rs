//! What went wrong with a place, before it is known by which path it was asked for.

use crate::error::Error;
use rustix::io::Errno;

#[derive(Debug)]
pub(super) enum Failure {
    /// The path can't be used, and why.
    Path(&'static str),
    Os(std::io::Error),
    Is(Error),
}

impl Failure {
    pub(super) fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Os(error) if error.raw_os_error() == Some(errno.raw_os_error()))
    }

    pub(super) fn at(self, path: &[u8]) -> Error {
        let path = String::from_utf8_lossy(path).into_owned();
        let error = match self {
            Self::Is(error) => return error,
            Self::Path(message) => return Error::Path { path, message: message.to_owned() },
            Self::Os(error) if crate::stoppable::is_stopped(&error) => return Error::Stopping,
            Self::Os(error) => error,
        };
        let unusable = |message: &str| Error::Path { path: path.clone(), message: message.to_owned() };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Error::NotFound { kind: "file", id: path },
            Some(Errno::EXIST) => Error::AlreadyExists { kind: "file", id: path },
            Some(Errno::XDEV | Errno::LOOP) => unusable("it leads out of the sandbox"),
            Some(Errno::NOTDIR) => unusable("what should be a directory is none"),
            Some(Errno::ISDIR) => unusable("it is a directory"),
            Some(Errno::NAMETOOLONG) => unusable("a name in it is too long"),
            Some(Errno::INVAL) => unusable("the file system can't do that with it"),
            Some(Errno::NOTEMPTY) => Error::Conflict(format!("directory `{path}` is not empty")),
            Some(Errno::NOSPC | Errno::DQUOT) => Error::NoSpace(format!("no space is left for `{path}`")),
            Some(Errno::FBIG) => Error::TooLarge(format!("`{path}` is larger than the file system takes")),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Error::Forbidden(format!("can't use `{path}`: {error}")),
            _ => Error::Io(format!("can't use `{path}`: {error}")),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Os(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Os(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Is(error)
    }
}
