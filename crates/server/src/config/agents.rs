//! Settings of terminal agents, and agents that are described in the configuration.

use super::{ConfigError, Ground};
use crate::agents::AgentSettings;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use stead_agent::Specs;
use stead_agent::spec::SpecError;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    allowed_roots: Vec<PathBuf>,
    idle_timeout_s: Option<u64>,
    activity_timeout_s: Option<u64>,
    permission_timeout_s: Option<u64>,
}

/// A month.
const MOST_SECONDS: u64 = 2_678_400;

impl Written {
    pub(super) fn read(self, file: &str, agents: &toml::Table, ground: &Ground) -> Result<AgentSettings, ConfigError> {
        let wrong = |key: String, message: String| ConfigError::Setting { file: file.to_owned(), key, message };
        let mut specs = Specs::built_in();
        specs.extend(agents).map_err(|error| match error {
            SpecError::Invalid { name, what } => wrong(format!("agent.{name}"), what),
            SpecError::Syntax(what) => wrong("agent".to_owned(), what),
        })?;
        let standard = AgentSettings::new(specs);
        for root in &self.allowed_roots {
            if !root.is_absolute() {
                let message = format!("`{}` is not an absolute path", root.display());
                return Err(wrong("agents.allowed_roots".to_owned(), message));
            }
        }
        let within = |key: &str, asked: Option<u64>, standard: Duration| match asked {
            None => Ok(standard),
            Some(seconds @ 1..=MOST_SECONDS) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(wrong(format!("agents.{key}"), format!("it is 1 to {MOST_SECONDS} seconds"))),
        };
        let named = standard.specs.iter().flat_map(|spec| spec.credential_vars.iter());
        let variables = named.filter_map(|name| Some((name.clone(), ground.environment.get(name)?.clone())));
        Ok(AgentSettings {
            allowed_roots: self.allowed_roots,
            idle_timeout: within("idle_timeout_s", self.idle_timeout_s, standard.idle_timeout)?,
            activity_timeout: within("activity_timeout_s", self.activity_timeout_s, standard.activity_timeout)?,
            permission_timeout: within("permission_timeout_s", self.permission_timeout_s, standard.permission_timeout)?,
            home: ground.home.clone(),
            variables: variables.collect(),
            path: ground.path.clone(),
            ..standard
        })
    }
}
