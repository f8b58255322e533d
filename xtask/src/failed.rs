//! Why a chore stopped. People read it and nothing acts on it, so one type with a sentence and a cause is enough.

use std::error::Error;
use std::fmt;

pub(crate) type Result<T = ()> = std::result::Result<T, Failed>;

#[derive(Debug)]
pub(crate) struct Failed {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Says what was being done when something failed.
pub(crate) trait While<T> {
    fn or_failed(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> While<T> for std::result::Result<T, E> {
    fn or_failed(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Failed { what: what.into(), source: Some(error.into()) })
    }
}

impl<T> While<T> for Option<T> {
    fn or_failed(self, what: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| Failed::new(what))
    }
}
