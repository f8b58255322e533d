//! Projects on disk and as they are written: the directories of each, the readable mirror of its row, its configuration
//! as JSON. What is done with them is `stead/projects`.

mod metadata;
mod place;
pub(crate) mod sight;
mod text;

pub use metadata::{Metadata, MetadataError};
pub use place::ProjectPlace;
pub use text::{ConfigText, LimitsText, SizeText};

use std::path::PathBuf;
use stead_model::project::{KEEP_DAYS, Schemes};

/// How projects are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSettings {
    /// Where they are; absent where nothing is kept on a disk, as in a simulation.
    pub root: Option<PathBuf>,
    /// Outside the trash.
    pub most: u32,
    /// How long one is kept that doesn't say.
    pub keep_days: u32,
    pub schemes: Schemes,
    /// Whether the instance of a session is stopped when its last connection goes.
    pub stop_on_disconnect: bool,
    /// Whether whoever comes back gets a fresh instance rather than the one that was stopped.
    pub recreate_on_reconnect: bool,
}

impl Default for ProjectSettings {
    fn default() -> Self {
        Self {
            root: None,
            most: 1000,
            keep_days: KEEP_DAYS,
            schemes: Schemes::default(),
            stop_on_disconnect: true,
            recreate_on_reconnect: true,
        }
    }
}
