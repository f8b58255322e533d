//! Settings of the server itself.

use super::ConfigError;
use crate::http::Limits;
use serde::Deserialize;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    listen: Option<String>,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    max_connections: Option<usize>,
    head_timeout_s: Option<u64>,
    body_timeout_s: Option<u64>,
    requests_per_second: Option<u32>,
    journal_limit: Option<super::size::Size>,
    log: Option<String>,
    log_format: Option<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Whether somebody chose it.
    pub listen_chosen: bool,
    pub allowed_hosts: Vec<String>,
    pub limits: Limits,
    /// For each token; absent: any number.
    pub requests_per_second: Option<NonZeroU32>,
    /// Of the output of all commands, in bytes.
    pub journal_limit: u64,
    /// As `tracing` has it: `info`, `stead_server=debug`...
    pub log: String,
    pub log_format: LogFormat,
}

const JOURNAL_LIMIT: u64 = 20 << 30;

/// Enough for any client that means well.
const REQUESTS_PER_SECOND: u32 = 10_000;

/// A day: whoever needs longer for a request isn't sending one.
const MOST_SECONDS: u64 = 86_400;

impl Written {
    pub(super) fn read(self, file: &str) -> Result<ServerConfig, ConfigError> {
        let wrong = |key: &str, message: String| ConfigError::Setting {
            file: file.to_owned(),
            key: format!("server.{key}"),
            message,
        };
        let listen_chosen = self.listen.is_some();
        let listen = self.listen.as_deref().unwrap_or("127.0.0.1:7878");
        let listen = listen
            .parse()
            .map_err(|_| wrong("listen", format!("`{listen}` is not an address and a port, as in `127.0.0.1:7878`")))?;
        for host in &self.allowed_hosts {
            if host.is_empty() || host.contains(['/', ' ', '*']) || (host.contains(':') && !host.starts_with('[')) {
                return Err(wrong("allowed_hosts", format!("`{host}` is not a host name without a port")));
            }
        }
        let mut limits = Limits::default();
        if let Some(connections) = self.max_connections {
            if connections == 0 {
                return Err(wrong("max_connections", "nobody could connect".to_owned()));
            }
            limits.connections = connections;
        }
        let journal_limit = match &self.journal_limit {
            None => JOURNAL_LIMIT,
            Some(size) => size.bytes().ok_or_else(|| {
                wrong("journal_limit", "write a size as `512MiB`, `2GiB` or a number of bytes".to_owned())
            })?,
        };
        let within = |key: &str, asked: Option<u64>, standard: Duration| match asked {
            None => Ok(standard),
            Some(seconds @ 1..=MOST_SECONDS) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(wrong(key, format!("it is 1 to {MOST_SECONDS} seconds"))),
        };
        limits.head = within("head_timeout_s", self.head_timeout_s, limits.head)?;
        limits.body = within("body_timeout_s", self.body_timeout_s, limits.body)?;
        let log_format = match self.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => return Err(wrong("log_format", format!("`{other}` is none of `text`, `json`"))),
        };
        Ok(ServerConfig {
            listen,
            listen_chosen,
            allowed_hosts: self.allowed_hosts,
            limits,
            requests_per_second: NonZeroU32::new(self.requests_per_second.unwrap_or(REQUESTS_PER_SECOND)),
            journal_limit,
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            log_format,
        })
    }
}
