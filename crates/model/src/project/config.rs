//! What the threads of a project begin with.

use super::{InvalidProject, MOST_DAYS, shown};
use crate::enclosure::Network;
use crate::env::check as check_env;
use crate::ids::ProviderName;
use crate::state::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// What a line of settings may hold: a name of an image, an agent, a model.
const MOST_NAME: usize = 256;
/// What a URL may hold.
const MOST_URL: usize = 2048;
/// A disk limit below this would refuse a project before its first command.
const LEAST_DISK: u64 = 1 << 20;

/// Absent is whatever the provider, the server or the agent does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    pub provider: Option<ProviderName>,
    pub image: Option<String>,
    /// What shells of its threads begin with. Not for secrets.
    pub env: BTreeMap<String, String>,
    pub network: Option<Network>,
    pub limits: Limits,
    /// The route table, as JSON; whoever keeps the routes has checked it.
    pub routes: Option<String>,
    pub repo_url: Option<RepoUrl>,
    pub agent: Option<String>,
    pub agent_model: Option<String>,
    pub cleanup_after_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of each instance, in bytes.
    pub memory: Option<u64>,
    /// Of each instance.
    pub processes: Option<u64>,
    /// Of each instance, in thousandths of a processor.
    pub cpu_millis: Option<u32>,
    /// Of all that the project has on disk, in bytes.
    pub disk: Option<u64>,
    /// That are live at once.
    pub instances: Option<u32>,
}

/// What a project asks of the provider of its instances, beyond what that does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demands {
    pub image: Option<String>,
    pub network: Option<Network>,
    /// Of each instance: memory in bytes, processes, thousandths of a processor.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    pub cpu_millis: Option<u32>,
}

impl Config {
    pub fn demands(&self) -> Demands {
        Demands {
            image: self.image.clone(),
            network: self.network,
            memory: self.limits.memory,
            processes: self.limits.processes,
            cpu_millis: self.limits.cpu_millis,
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidProject> {
        let wrong = |setting, message: &str| Err(InvalidProject::Config { setting, message: message.to_owned() });
        let names = [("image", &self.image), ("agent", &self.agent), ("agent_model", &self.agent_model)];
        for (setting, name) in names {
            let plain = |name: &String| {
                (1..=MOST_NAME).contains(&name.len())
                    && !name.starts_with('-')
                    && !name.chars().any(|c| c.is_control() || c.is_whitespace())
            };
            if name.as_ref().is_some_and(|name| !plain(name)) {
                return wrong(setting, "a name of 1 to 256 characters without spaces, not beginning with a hyphen");
            }
        }
        self.check_env()?;
        let Limits { memory, processes, cpu_millis, disk, instances } = self.limits;
        let nothing = [
            ("limits.memory", memory == Some(0)),
            ("limits.processes", processes == Some(0)),
            ("limits.cpu", cpu_millis == Some(0)),
            ("limits.instances", instances == Some(0)),
        ];
        if let Some((setting, _)) = nothing.into_iter().find(|(_, none)| *none) {
            return wrong(setting, "nothing can run in 0");
        }
        if disk.is_some_and(|disk| disk < LEAST_DISK) {
            return wrong("limits.disk", "1 MiB is the least");
        }
        if self.cleanup_after_days.is_some_and(|days| !(1..=MOST_DAYS).contains(&days)) {
            return wrong("cleanup_after_days", "1 to 36500 days");
        }
        Ok(())
    }

    fn check_env(&self) -> Result<(), InvalidProject> {
        let bytes: Vec<_> = self.env.iter().map(|(name, value)| (Bytes::from(name.as_bytes()), value)).collect();
        let checked = check_env(bytes.iter().map(|(name, value)| (name, Some(value.as_bytes()))));
        checked.map_err(InvalidProject::Env)
    }
}

/// Which kinds of addresses a repository may be at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schemes {
    /// Repositories of this machine, which whoever makes a project could so read with the server's eyes.
    pub files: bool,
}

/// Where a repository is, without what lets one in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoUrl(String);

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RepoUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From an address as somebody writes it: the address without credentials, and those (`user:password`) if there were
    /// any. `https`, `ssh` and `git` are taken, and `file` where that is allowed; nothing that is not an address with a
    /// scheme, so neither an option of `git` nor one of its `helper::address` forms can be one.
    pub fn parse(text: &str, schemes: Schemes) -> Result<(Self, Option<String>), InvalidProject> {
        let wrong = |message: String| InvalidProject::Config { setting: "repo_url", message };
        let plain = text.len() <= MOST_URL && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let parts = text.split_once("://").filter(|_| plain);
        let (scheme, rest) = parts.ok_or_else(|| {
            wrong("write an address as `https://host/path.git`; `ssh://` and `git://` can be used too".to_owned())
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) {
            return Err(wrong("an address of a repository has neither `?` nor `#`".to_owned()));
        }
        if path.trim_matches('/').is_empty() {
            return Err(wrong("the address names no repository".to_owned()));
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let proper = |host: &str| {
            let name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
            !host.is_empty() && !host.starts_with('-') && name
        };
        match scheme {
            "https" if proper(host) => Ok((Self(format!("https://{host}/{path}")), user.map(str::to_owned))),
            "git" if proper(host) && user.is_none() => Ok((Self(text.to_owned()), None)),
            "ssh" if proper(host) => {
                let name = user.map(|user| user.split_once(':').map_or(user, |(name, _)| name));
                let word = |name: &str| {
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
                    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
                };
                if user.is_some_and(|user| user.contains(':')) {
                    return Err(wrong("`ssh` takes no password in an address; use a key".to_owned()));
                }
                match name {
                    Some(name) if !word(name) => Err(wrong("the name in front of `@` is none".to_owned())),
                    Some(_) | None => Ok((Self(text.to_owned()), None)),
                }
            }
            "file" if schemes.files && authority.is_empty() => Ok((Self(text.to_owned()), None)),
            "file" if !schemes.files => {
                Err(wrong("repositories of this machine are not allowed; set `projects.clone_from_files`".to_owned()))
            }
            "https" | "ssh" | "git" | "file" => Err(wrong("there is no host in it that could be one".to_owned())),
            other => Err(wrong(format!("`{}` is none of `https`, `ssh`, `git`", shown(other)))),
        }
    }
}
