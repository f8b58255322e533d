//! `[provider.NAME]`: what is written of one, and the provider that it makes. Containers and clouds have files of their own.

use super::size::Size;
use super::{ConfigError, DOCKER, Ground, LOCAL, NAMESPACE, clouds};
use crate::provider::local::LocalConfig;
use crate::provider::namespace::NamespaceConfig;
use crate::provider::{Provider, local, namespace};
use crate::stead::{OnExit, Treatment};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::enclosure::{Network, User};
use stead_model::ids::ProviderName;
use stead_term::cgroup::Limits;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenProvider {
    pub(super) kind: String,
    pub(super) on_exit: Option<String>,
    #[serde(default)]
    pub(super) init_commands: Vec<String>,
    pub(super) image: Option<String>,
    pub(super) root: Option<PathBuf>,
    pub(super) template: Option<String>,
    pub(super) mount_path: Option<PathBuf>,
    pub(super) network: Option<String>,
    pub(super) user: Option<String>,
    pub(super) read_only: Option<Vec<PathBuf>>,
    pub(super) socket: Option<String>,
    pub(super) read_only_root: Option<bool>,
    pub(super) api_key_variable: Option<String>,
    pub(super) api_url: Option<String>,
    pub(super) domain: Option<String>,
    pub(super) target: Option<String>,
    pub(super) region: Option<String>,
    pub(super) timeout_s: Option<u64>,
    pub(super) can_pause: Option<bool>,
    #[serde(default)]
    pub(super) limits: WrittenLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLimits {
    pub(super) memory: Option<Size>,
    pub(super) processes: Option<u64>,
    pub(super) cpu: Option<f64>,
    pub(super) tmp: Option<Size>,
}

/// Where in a file something is wrong.
pub(super) struct At<'a> {
    pub(super) file: &'a str,
    pub(super) provider: &'a str,
}

impl At<'_> {
    pub(super) fn wrong(&self, key: &str, message: &str) -> ConfigError {
        let dot = if key.is_empty() { "" } else { "." };
        let key = format!("provider.{}{dot}{key}", self.provider);
        ConfigError::Setting { file: self.file.to_owned(), key, message: message.to_owned() }
    }
}

impl WrittenProvider {
    pub(super) fn plain(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            on_exit: None,
            init_commands: Vec::new(),
            image: None,
            template: None,
            mount_path: None,
            network: None,
            user: None,
            read_only: None,
            socket: None,
            read_only_root: None,
            root: None,
            api_key_variable: None,
            api_url: None,
            domain: None,
            target: None,
            region: None,
            timeout_s: None,
            can_pause: None,
            limits: WrittenLimits::default(),
        }
    }

    pub(super) fn treatment(&self, at: &At<'_>) -> Result<Treatment, ConfigError> {
        let on_exit = match self.on_exit.as_deref() {
            None | Some("leave") => OnExit::Leave,
            Some("pause") => OnExit::Pause,
            Some("destroy") => OnExit::Destroy,
            Some(other) => {
                return Err(at.wrong("on_exit", &format!("`{other}` is none of `leave`, `pause`, `destroy`")));
            }
        };
        Ok(Treatment { on_exit, init_commands: self.init_commands.clone() })
    }

    pub(super) fn build(
        self,
        at: &At<'_>,
        name: ProviderName,
        ground: &Ground,
        programs: &[PathBuf],
    ) -> Result<Arc<dyn Provider>, ConfigError> {
        let limits = self.limits.read(at)?;
        if let Some(cloud) = clouds::CLOUDS.into_iter().find(|(kind, _)| *kind == self.kind) {
            return Ok(Arc::new(self.cloud(at, name, ground, cloud)?));
        }
        let of_clouds = [
            ("api_key_variable", self.api_key_variable.is_some()),
            ("api_url", self.api_url.is_some()),
            ("domain", self.domain.is_some()),
            ("target", self.target.is_some()),
            ("region", self.region.is_some()),
            ("timeout_s", self.timeout_s.is_some()),
            ("can_pause", self.can_pause.is_some()),
        ];
        if let Some((key, _)) = of_clouds.into_iter().find(|(_, given)| *given) {
            return Err(at.wrong(key, &format!("a provider of kind `{}` is on this machine", self.kind)));
        }
        if self.kind == DOCKER {
            return Ok(Arc::new(self.docker(at, name, ground, limits)?));
        }
        let of_containers = [
            ("image", self.image.is_some()),
            ("root", self.root.is_some()),
            ("template", self.template.is_some()),
            ("socket", self.socket.is_some()),
            ("read_only_root", self.read_only_root.is_some()),
        ];
        if let Some((key, _)) = of_containers.into_iter().find(|(_, given)| *given) {
            return Err(at.wrong(key, &format!("a provider of kind `{}` has no images and no engine", self.kind)));
        }
        let data = ground.data.join("providers").join(name.as_str());
        let workspaces = ground.data.join("workspaces");
        match self.kind.as_str() {
            LOCAL => {
                let only_walled = [
                    ("mount_path", self.mount_path.is_some()),
                    ("network", self.network.is_some()),
                    ("user", self.user.is_some()),
                    ("read_only", self.read_only.is_some()),
                    ("limits.tmp", self.limits.tmp.is_some()),
                ];
                if let Some((key, _)) = only_walled.into_iter().find(|(_, given)| *given) {
                    return Err(at.wrong(key, "kind `local` has no walls and can't enforce it"));
                }
                let (program, path) = (ground.program.clone(), ground.path.clone());
                Ok(Arc::new(local::provider(LocalConfig { name, data, workspaces, program, path, limits })))
            }
            NAMESPACE => {
                let mut config = NamespaceConfig::new(name, data, workspaces, ground.program.clone());
                config.limits = limits;
                if let Some(tmp) = &self.limits.tmp {
                    config.tmp_bytes = tmp.read(at, "limits.tmp")?;
                }
                config.network = match self.network.as_deref() {
                    None | Some("host") => Network::Host,
                    Some("none") => Network::None,
                    Some(other) => {
                        return Err(at.wrong("network", &format!("`{other}` is none of `host`, `none`")));
                    }
                };
                if let Some(user) = &self.user {
                    config.user = read_user(user).ok_or_else(|| {
                        at.wrong("user", &format!("`{user}` is not `NAME:UID:GID`, as in `agent:1000:1000`"))
                    })?;
                }
                if let Some(path) = self.mount_path {
                    config.mount_path = absolute(at, "mount_path", path)?;
                }
                for path in self.read_only.unwrap_or_default() {
                    let path = absolute(at, "read_only", path)?;
                    if !path.exists() {
                        return Err(at.wrong("read_only", &format!("`{}` is not there", path.display())));
                    }
                    config.read_only.push(path);
                }
                // What is seen anyway, or can't be shown, is left out where the enclosure is made.
                config.read_only.extend(programs.iter().cloned());
                Ok(Arc::new(namespace::provider(config)))
            }
            other => Err(at.wrong(
                "kind",
                &format!("`{other}` is none of `namespace`, `local`, `docker`, `e2b`, `daytona`, `agentbay`"),
            )),
        }
    }
}

impl WrittenLimits {
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_none() && self.processes.is_none() && self.cpu.is_none() && self.tmp.is_none()
    }

    pub(super) fn read(&self, at: &At<'_>) -> Result<Limits, ConfigError> {
        let memory = self.memory.as_ref().map(|memory| memory.read(at, "limits.memory")).transpose()?;
        if self.processes == Some(0) {
            return Err(at.wrong("limits.processes", "nothing can run in 0 processes"));
        }
        let cpu_millis = match self.cpu {
            None => None,
            // A thousandth of a processor to more than any machine has: what is left fits the type.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked by the guard")]
            Some(cpu) if (0.001..=100_000.0).contains(&cpu) => Some((cpu * 1000.0).round() as u32),
            Some(cpu) => return Err(at.wrong("limits.cpu", &format!("`{cpu}` is not a number of processors"))),
        };
        Ok(Limits { memory, processes: self.processes, cpu_millis })
    }
}

pub(super) fn read_user(text: &str) -> Option<User> {
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte))
    })?;
    let (uid, gid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then(|| User { name: name.to_owned(), uid, gid })
}

pub(super) fn absolute(at: &At<'_>, key: &str, path: PathBuf) -> Result<PathBuf, ConfigError> {
    let plain =
        path.is_absolute() && path.parent().is_some() && !path.components().any(|part| part.as_os_str() == "..");
    if plain { Ok(path) } else { Err(at.wrong(key, &format!("`{}` is not an absolute path", path.display()))) }
}
