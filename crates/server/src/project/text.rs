//! The configuration of a project as JSON: in requests, in the database, in the mirror of its row.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use stead_model::enclosure::Network;
use stead_model::env::Secret;
use stead_model::ids::ProviderName;
use stead_model::project::{Config, InvalidProject, Limits, RepoUrl, Schemes};
use utoipa::ToSchema;

/// What the threads of a project begin with. Whatever is absent is as the provider, the server or the agent has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigText {
    /// By its configured name.
    pub provider: Option<String>,
    /// Where the provider has images.
    pub image: Option<String>,
    /// What their shells begin with; a thread's own stands above. Not for secrets.
    pub env: BTreeMap<String, String>,
    /// `host` or `none`, where the provider can.
    pub network: Option<String>,
    pub limits: LimitsText,
    /// Path to backend, as `{"/workspace/": {"type": "filesystem"}}`.
    #[schema(value_type = Option<Object>)]
    pub routes: Option<Value>,
    /// Cloned into the workspace when the project is made: `https`, `ssh` or `git`. Credentials in it are used, not kept.
    pub repo_url: Option<String>,
    pub agent: Option<String>,
    pub agent_model: Option<String>,
    #[schema(minimum = 1, maximum = 36_500)]
    pub cleanup_after_days: Option<u32>,
}

/// Sizes in bytes, or as `512MiB`. The first three are of each instance, where the provider can.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsText {
    pub memory: Option<SizeText>,
    #[schema(minimum = 1)]
    pub processes: Option<u64>,
    /// Processors, as `1.5`.
    pub cpu: Option<f64>,
    /// All that the project has on disk.
    pub disk: Option<SizeText>,
    /// Instances that are live at once.
    #[schema(minimum = 1)]
    pub instances: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a size is written as `512MiB`, `2GiB` or a number of bytes")]
pub enum SizeText {
    Bytes(u64),
    Text(String),
}

fn wrong(setting: &'static str, message: impl Into<String>) -> InvalidProject {
    InvalidProject::Config { setting, message: message.into() }
}

impl SizeText {
    fn read(&self, setting: &'static str) -> Result<u64, InvalidProject> {
        let bytes = match self {
            Self::Bytes(bytes) => Some(*bytes),
            Self::Text(text) => crate::config::read_size(text),
        };
        bytes.ok_or_else(|| wrong(setting, "write a size as `512MiB`, `2GiB` or a number of bytes"))
    }
}

impl ConfigText {
    pub fn of(config: &Config) -> Self {
        let Limits { memory, processes, cpu_millis, disk, instances } = config.limits;
        Self {
            provider: config.provider.as_ref().map(ToString::to_string),
            image: config.image.clone(),
            env: config.env.clone(),
            network: config.network.map(|network| network_name(network).to_owned()),
            limits: LimitsText {
                memory: memory.map(SizeText::Bytes),
                processes,
                cpu: cpu_millis.map(|millis| f64::from(millis) / 1000.0),
                disk: disk.map(SizeText::Bytes),
                instances,
            },
            routes: config.routes.as_deref().and_then(|routes| serde_json::from_str(routes).ok()),
            repo_url: config.repo_url.as_ref().map(ToString::to_string),
            agent: config.agent.clone(),
            agent_model: config.agent_model.clone(),
            cleanup_after_days: config.cleanup_after_days,
        }
    }

    /// As somebody asks for it, with the credentials that were in the address of the repository.
    pub fn asked(self, schemes: Schemes) -> Result<(Config, Option<Secret>), InvalidProject> {
        let (repo_url, credentials) = match &self.repo_url {
            Some(text) => {
                let (url, credentials) = RepoUrl::parse(text, schemes)?;
                (Some(url), credentials.map(Secret::new))
            }
            None => (None, None),
        };
        let routes = self.routes.as_ref().map(routes_text).transpose()?;
        let config = Config {
            provider: self.provider.as_deref().map(provider).transpose()?,
            image: self.image,
            env: self.env,
            network: self.network.as_deref().map(network).transpose()?,
            limits: self.limits.read()?,
            routes,
            repo_url,
            agent: self.agent,
            agent_model: self.agent_model,
            cleanup_after_days: self.cleanup_after_days,
        };
        Ok((config, credentials))
    }

    /// As we wrote it: what may be asked for now may be less than it was then.
    pub(crate) fn stored(self) -> Result<Config, InvalidProject> {
        Ok(self.asked(Schemes { files: true })?.0)
    }
}

impl LimitsText {
    fn read(&self) -> Result<Limits, InvalidProject> {
        let cpu_millis = match self.cpu {
            None => None,
            // A thousandth of a processor to more than any machine has: what is left fits the type.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked by the guard")]
            Some(cpu) if (0.001..=100_000.0).contains(&cpu) => Some((cpu * 1000.0).round() as u32),
            Some(_) => return Err(wrong("limits.cpu", "a number of processors, as `1.5`")),
        };
        Ok(Limits {
            memory: self.memory.as_ref().map(|size| size.read("limits.memory")).transpose()?,
            processes: self.processes,
            cpu_millis,
            disk: self.disk.as_ref().map(|size| size.read("limits.disk")).transpose()?,
            instances: self.instances,
        })
    }
}

fn provider(name: &str) -> Result<ProviderName, InvalidProject> {
    ProviderName::parse(name).map_err(|error| wrong("provider", error.to_string()))
}

fn network(name: &str) -> Result<Network, InvalidProject> {
    match name {
        "host" => Ok(Network::Host),
        "none" => Ok(Network::None),
        _ => Err(wrong("network", "it is `host` or `none`")),
    }
}

fn network_name(network: Network) -> &'static str {
    match network {
        Network::Host => "host",
        Network::None => "none",
    }
}

/// A table of routes, as it is kept.
fn routes_text(routes: &Value) -> Result<String, InvalidProject> {
    let entries = routes.as_object().ok_or_else(|| wrong("routes", "an object of paths and backends"))?;
    crate::space::table(entries.clone()).map_err(|error| wrong("routes", error.to_string()))?;
    Ok(routes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Config, String> {
        let text: ConfigText = serde_json::from_str(json).map_err(|error| error.to_string())?;
        text.asked(Schemes::default()).map(|(config, _)| config).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let json = r#"{"provider": "box", "env": {"A": "1"}, "network": "none",
            "limits": {"memory": "2GiB", "processes": 9, "cpu": 1.5, "disk": 1048576, "instances": 2},
            "routes": {"/tmp/": {"type": "state"}}, "repo_url": "https://u:p@h/r.git",
            "agent": "codex", "agent_model": "gpt-5", "cleanup_after_days": 7}"#;
        let config = read(json).unwrap();
        assert_eq!((config.limits.memory, config.limits.cpu_millis), (Some(2 << 30), Some(1500)));
        let written = serde_json::to_string(&ConfigText::of(&config)).unwrap();
        assert!(!written.contains("u:p"), "{written}");
        assert_eq!(serde_json::from_str::<ConfigText>(&written).unwrap().stored().unwrap(), config);
        assert_eq!(read("{}").unwrap(), Config::default());
    }

    #[test]
    fn what_is_unknown_or_wrong_is_named() {
        for (json, key) in [
            (r#"{"colour": 1}"#, "colour"),
            (r#"{"limits": {"tmp": 1}}"#, "tmp"),
            (r#"{"limits": {"memory": "2 apples"}}"#, "limits.memory"),
            (r#"{"limits": {"cpu": -1}}"#, "limits.cpu"),
            (r#"{"limits": {"disk": "x"}}"#, "limits.disk"),
            (r#"{"limits": {"disk": -1}}"#, "512MiB"),
            (r#"{"network": "bridge"}"#, "network"),
            (r#"{"provider": "a b"}"#, "provider"),
            (r#"{"routes": []}"#, "routes"),
            (r#"{"routes": {"/x/": {"type": "s3"}}}"#, "routes"),
            (r#"{"repo_url": "ext::sh"}"#, "repo_url"),
            (r#"{"cleanup_after_days": -1}"#, "cleanup_after_days"),
            (r#"{"env": {"A": 1}}"#, "invalid type"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.contains(key) || key == "cleanup_after_days", "{json}: {error}");
        }
    }
}
