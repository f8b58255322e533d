//! What was typed and what is in the environment, as what it means. The one place that reads the environment.

use crate::args::{Place, Reach};
use crate::client::{Address, Server, Start, UrlError, Way};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_server::config::{Config, ConfigError, Ground};
use stead_server::provider::Program;

// `EMBEDDED_STEWARD`: what STEAD_EMBED_STEWARD named when this was built.
include!(concat!(env!("OUT_DIR"), "/embedded_steward.rs"));

#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("there is no home directory to keep data in; say where with `--data DIR`")]
    NoHome,
    #[error("can't tell which program this is")]
    NoProgram(#[source] std::io::Error),
    #[error("can't read `{}`", file.display())]
    EnvFile { file: PathBuf, source: std::io::Error },
    #[error("`{}`, line {number}: write `NAME=VALUE`", file.display())]
    EnvLine { file: PathBuf, number: usize },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("can't tell where `{path}` is")]
    NoPlace { path: PathBuf, source: std::io::Error },
}

impl SettingsError {
    pub(crate) fn advice(&self) -> Option<String> {
        match self {
            Self::Url(UrlError::Tls(_)) => Some(
                "let a proxy or a tunnel on this machine speak it (`ssh -L 7878:localhost:7878 HOST`), and set STEAD_URL to \
                 `http://127.0.0.1:7878`"
                    .to_owned(),
            ),
            Self::Url(UrlError::Malformed(_) | UrlError::Token)
            | Self::NoHome
            | Self::NoProgram(_)
            | Self::Config(_)
            | Self::EnvFile { .. }
            | Self::EnvLine { .. }
            | Self::NoPlace { .. } => None,
        }
    }
}

/// The server that a verb speaks to. One elsewhere is never started.
pub(crate) fn server(reach: &Reach) -> Result<Server, SettingsError> {
    if let Some(url) = reach.url.as_deref().filter(|url| !url.is_empty()) {
        let token = std::env::var("STEAD_TOKEN").ok().filter(|token| !token.is_empty());
        return Ok(Server { way: Way::Http(Address::parse(url, token)?), start: None });
    }
    let data = absolute(&data(&reach.place)?)?;
    let socket = data.join("stead.sock");
    let config = reach.place.config.clone().or_else(found).map(|file| absolute(&file)).transpose()?;
    let program = std::env::current_exe().map_err(SettingsError::NoProgram)?;
    let env_file = reach.place.env_file.as_deref().map(absolute).transpose()?;
    let start = Start { program, data, config, env_file, socket: socket.clone() };
    Ok(Server { way: Way::Socket(socket), start: Some(Arc::new(start)) })
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, SettingsError> {
    std::path::absolute(path).map_err(|source| SettingsError::NoPlace { path: path.to_owned(), source })
}

fn data(place: &Place) -> Result<PathBuf, SettingsError> {
    match &place.data {
        Some(data) => Ok(data.clone()),
        None => Ok(base("XDG_DATA_HOME", ".local/share").ok_or(SettingsError::NoHome)?.join("stead")),
    }
}

/// Whether colours are wanted where there is a terminal to show them.
pub(crate) fn colours() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_some_and(|term| term != "dumb")
}

/// The configuration, and the file it came from.
pub(crate) fn load(place: &Place) -> Result<(Config, Option<PathBuf>), SettingsError> {
    let ground = ground(place)?;
    let file = place.config.clone().or_else(found);
    let config = Config::load(file.as_deref(), &ground)?;
    Ok((config, file))
}

pub(crate) fn ground(place: &Place) -> Result<Ground, SettingsError> {
    let data = data(place)?;
    let program = std::env::current_exe().map_err(SettingsError::NoProgram)?;
    let path = std::env::var_os("PATH").and_then(|path| path.into_string().ok());
    Ok(Ground {
        data,
        program: Program { path: program, call: vec!["steward".to_owned()] },
        path: path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned()),
        variables: variables(place)?,
        home: std::env::var_os("HOME").map(PathBuf::from),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        steward: EMBEDDED_STEWARD,
    })
}

/// Variables of the environment that may be settings, behind those of a file of them.
fn variables(place: &Place) -> Result<Vec<(String, String)>, SettingsError> {
    let mut variables = Vec::new();
    if let Some(file) = &place.env_file {
        let failed = |source| SettingsError::EnvFile { file: file.clone(), source };
        let text = std::fs::read_to_string(file).map_err(failed)?;
        for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let pair = line.strip_prefix("export ").unwrap_or(line).split_once('=');
            let pair = pair.map(|(name, value)| (name.trim(), value)).filter(|(name, _)| is_name(name));
            let (name, value) = pair.ok_or_else(|| SettingsError::EnvLine { file: file.clone(), number })?;
            variables.push((name.to_owned(), unquoted(value.trim()).to_owned()));
        }
    }
    variables.extend(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    variables.retain(|(name, _)| name.starts_with("STEAD_") || stead_server::config::is_alias(name));
    Ok(variables)
}

/// Whether it can be the name of a variable: what isn't would be passed over without a word.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// The configuration that is there without being named.
fn found() -> Option<PathBuf> {
    let here = PathBuf::from("stead.toml");
    let own = base("XDG_CONFIG_HOME", ".config").map(|base| base.join("stead/stead.toml"));
    [Some(here), own].into_iter().flatten().find(|file| file.is_file())
}

/// A directory of the XDG specification: by its variable if that is an absolute path, else below the home directory.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").and_then(absolute).map(|home| home.join(below_home));
    std::env::var_os(variable).and_then(absolute).or_else(home)
}
