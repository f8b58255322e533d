//! Why a verb came to nothing, and what to do next.

use crate::client::{ClientError, SseError};
use crate::exec::tape::TapeError;
use crate::image::BuildError;
use crate::settings::SettingsError;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Image(#[from] BuildError),
    #[error("can't begin")]
    Runtime(#[source] io::Error),
    #[error("can't read standard input")]
    Input(#[source] io::Error),
    #[error("can't write the output")]
    Output(#[source] io::Error),
    #[error("nobody reads the output any more")]
    Unread,
    #[error(transparent)]
    Events(#[from] SseError),
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error("`{path}`")]
    File { path: PathBuf, source: io::Error },
    #[error("the archive is not usable")]
    Archive(#[source] io::Error),
    #[error("the archive holds `{0}`, which lies outside of where it is unpacked; nothing was written")]
    Escape(String),
    #[error("`{0}` exists")]
    Exists(PathBuf),
    #[error("{0}")]
    Asked(String),
    #[error("command `{command}` goes on, but can't be followed")]
    Unfollowed { command: String, source: Box<Failure> },
    #[error(
        "the connection broke while input was sent to command `{command}`; it was cancelled, because nobody knows how much arrived"
    )]
    InputLost { command: String, source: Box<Failure> },
}

impl Failure {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// What to do next; `None` where the message says it.
    pub(crate) fn advice(&self) -> Option<String> {
        match self {
            Self::Settings(error) => error.advice(),
            Self::Client(error) => error.advice(),
            Self::Image(error) => error.advice(),
            Self::Unfollowed { command, .. } => {
                Some(format!("`stead logs -f {command}` follows it, `stead cancel {command}` stops it"))
            }
            Self::Exists(_) => Some("`--force` puts it in the place of what is there".to_owned()),
            Self::InputLost { .. } => Some("run it again".to_owned()),
            Self::Tape(_) | Self::Events(_) => {
                Some("the whole output is kept by the server: `stead logs CMD` prints it".to_owned())
            }
            Self::Runtime(_)
            | Self::Input(_)
            | Self::Output(_)
            | Self::Unread
            | Self::File { .. }
            | Self::Archive(_)
            | Self::Escape(_)
            | Self::Asked(_) => None,
        }
    }
}
