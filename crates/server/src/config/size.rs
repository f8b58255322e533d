//! Sizes, as people write them.

use super::ConfigError;
use super::provider::At;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    pub(super) fn read(&self, at: &At<'_>, key: &str) -> Result<u64, ConfigError> {
        self.bytes().ok_or_else(|| at.wrong(key, "write a size as `512MiB`, `2GiB` or a number of bytes"))
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        let bytes = match self {
            Self::Bytes(bytes) => Some(*bytes),
            Self::Text(text) => read_size(text),
        };
        bytes.filter(|bytes| *bytes > 0)
    }
}

pub(crate) fn read_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..)? {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}
