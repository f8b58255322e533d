//! What was typed and what is in the environment, as what it means. The one place that reads the environment.

use crate::args::Place;
use std::ffi::OsString;
use std::path::PathBuf;
use stead_server::config::{Config, ConfigError, Ground};
use stead_server::provider::Program;

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
}

/// The configuration, and the file it came from.
pub(crate) fn load(place: &Place) -> Result<(Config, Option<PathBuf>), SettingsError> {
    let ground = ground(place)?;
    let file = place.config.clone().or_else(found);
    let config = Config::load(file.as_deref(), &ground)?;
    Ok((config, file))
}

pub(crate) fn ground(place: &Place) -> Result<Ground, SettingsError> {
    let data = match &place.data {
        Some(data) => data.clone(),
        None => base("XDG_DATA_HOME", ".local/share").ok_or(SettingsError::NoHome)?.join("stead"),
    };
    let program = std::env::current_exe().map_err(SettingsError::NoProgram)?;
    let path = std::env::var_os("PATH").and_then(|path| path.into_string().ok());
    Ok(Ground {
        data,
        program: Program { path: program, call: vec!["steward".to_owned()] },
        path: path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned()),
        variables: variables(place)?,
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
            let (name, value) = pair.ok_or_else(|| SettingsError::EnvLine { file: file.clone(), number })?;
            variables.push((name.trim().to_owned(), unquoted(value.trim()).to_owned()));
        }
    }
    variables.extend(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    variables.retain(|(name, _)| name.starts_with("STEAD_"));
    Ok(variables)
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
