//! Settings of memories, and the table of routes.

use super::ConfigError;
use super::size::Size;
use crate::memory::{Bounds, MemorySettings};
use crate::space::table;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use stead_model::route::Routes;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    snapshot_enabled: Option<bool>,
    snapshot_interval_s: Option<u64>,
    hot_limit: Option<Size>,
    state_limit: Option<Size>,
    value_limit: Option<Size>,
    unload_after_s: Option<u64>,
}

/// A year: longer is never.
const MOST_SECONDS: u64 = 31_536_000;
/// What a record of the journal can hold.
const MOST_VALUE: u64 = 64 << 20;

impl Written {
    pub(super) fn read(self, file: &str) -> Result<MemorySettings, ConfigError> {
        let wrong = |key: &str, message: String| ConfigError::Setting {
            file: file.to_owned(),
            key: format!("memory.{key}"),
            message,
        };
        let standard = MemorySettings::default();
        let seconds = |key: &str, asked: Option<u64>, standard: Duration| match asked {
            None => Ok(standard),
            Some(seconds @ 1..=MOST_SECONDS) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(wrong(key, format!("it is 1 to {MOST_SECONDS} seconds"))),
        };
        let size = |key: &str, asked: &Option<Size>, standard: u64| match asked {
            None => Ok(standard),
            Some(size) => size
                .bytes()
                .ok_or_else(|| wrong(key, "write a size as `512MiB`, `2GiB` or a number of bytes".to_owned())),
        };
        let every = seconds("snapshot_interval_s", self.snapshot_interval_s, Duration::from_mins(5))?;
        let value = size("value_limit", &self.value_limit, standard.hot.value)?;
        if value > MOST_VALUE {
            return Err(wrong("value_limit", format!("it is at most {MOST_VALUE} bytes")));
        }
        Ok(MemorySettings {
            hot: Bounds { total: size("hot_limit", &self.hot_limit, standard.hot.total)?, value },
            state: Bounds { total: size("state_limit", &self.state_limit, standard.state.total)?, value },
            snapshot_every: self.snapshot_enabled.unwrap_or(true).then_some(every),
            unload_after: seconds("unload_after_s", self.unload_after_s, standard.unload_after)?,
            long_journal: standard.long_journal,
        })
    }
}

/// The routes of projects that have none of their own.
pub(super) fn routes(written: Option<BTreeMap<String, Value>>, file: &str) -> Result<Routes, ConfigError> {
    let Some(written) = written else { return Ok(Routes::default()) };
    table(written).map_err(|error| ConfigError::Setting {
        file: file.to_owned(),
        key: format!("routes.\"{}\"", error.prefix),
        message: error.message,
    })
}
