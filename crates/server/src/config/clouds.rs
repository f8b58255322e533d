//! Providers of kind `e2b`, `daytona` and `agentbay`. Keys come from the environment and are in no file of ours.

use super::provider::{At, WrittenProvider, absolute};
use super::{ConfigError, Ground, docker};
use crate::provider::far::{Far, FarConfig};
use sha2::Digest;
use std::sync::Arc;
use std::time::Duration;
use stead_clouds::{Cloud, CloudError, agentbay, daytona, e2b};
use stead_model::enclosure::Network;
use stead_model::env::Secret;
use stead_model::ids::ProviderName;
use stead_model::lease::Caveat;

/// What may be on its way from a sandbox. Daytona cuts off whoever is 256 messages behind, and those may be small.
const WINDOW: u64 = 1 << 20;
const DAYTONA_WINDOW: u64 = 128 << 10;

/// The kinds, and where each one's key is looked for.
pub(super) const CLOUDS: [(&str, &str); 3] =
    [("e2b", "E2B_API_KEY"), ("daytona", "DAYTONA_API_KEY"), ("agentbay", "AGENTBAY_API_KEY")];

impl WrittenProvider {
    pub(super) fn cloud(
        self,
        at: &At<'_>,
        name: ProviderName,
        ground: &Ground,
        (kind, usual_key): (&'static str, &'static str),
    ) -> Result<Far, ConfigError> {
        let others = [
            ("user", self.user.is_some()),
            ("read_only", self.read_only.is_some()),
            ("socket", self.socket.is_some()),
            ("read_only_root", self.read_only_root.is_some()),
            ("root", self.root.is_some()),
            ("limits", !self.limits.is_empty()),
            ("domain", self.domain.is_some() && kind != "e2b"),
            ("target", self.target.is_some() && kind != "daytona"),
            ("region", self.region.is_some() && kind != "agentbay"),
            ("can_pause", self.can_pause.is_some() && kind != "agentbay"),
            ("network", self.network.is_some() && kind == "agentbay"),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
            return Err(at.wrong(key, &format!("a sandbox of kind `{kind}` is as its template makes it")));
        }
        if self.image.is_some() && self.template.is_some() {
            return Err(at.wrong("image", "it is another word for `template`; write one of them"));
        }
        let variable = self.api_key_variable.clone().unwrap_or_else(|| usual_key.to_owned());
        let key = ground.environment.get(&variable).filter(|key| !key.is_empty());
        let missing = key.is_none().then(|| {
            let hint =
                format!("set {variable} where the server runs; the file may name another with `api_key_variable`");
            (format!("there is no key in {variable}"), hint)
        });
        // Nobody is asked without a key, but some clients can't be made without one; a server that uses no cloud has none.
        let secret = Secret::new(key.map_or("none", String::as_str));
        let cloud = self.client(at, kind, secret, ground)?;
        let network = match self.network.as_deref() {
            None => None,
            Some("host") => Some(Network::Host),
            Some("none") => Some(Network::None),
            Some(other) => return Err(at.wrong("network", &format!("`{other}` is none of `host`, `none`"))),
        };
        let mount_path = match self.mount_path {
            Some(path) => absolute(at, "mount_path", path)?.display().to_string(),
            None => "/workspace".to_owned(),
        };
        let caveat = Caveat {
            code: "pause-ends-processes".to_owned(),
            message: "Daytona keeps the disk of a paused sandbox; what runs in it ends".to_owned(),
        };
        Ok(Far::new(FarConfig {
            kind,
            cloud,
            can_pause: self.can_pause.unwrap_or(kind != "agentbay"),
            live_pause: kind != "daytona",
            data: ground.data.join("providers").join(name.as_str()),
            workspaces: ground.data.join("workspaces"),
            name,
            program: docker::steward(ground),
            stead: stead(ground),
            template: self.template.or(self.image),
            mount_path,
            network,
            window: if kind == "daytona" { DAYTONA_WINDOW } else { WINDOW },
            caveats: if kind == "daytona" { vec![caveat] } else { Vec::new() },
            missing,
        }))
    }

    fn client(&self, at: &At<'_>, kind: &str, key: Secret, ground: &Ground) -> Result<Arc<dyn Cloud>, ConfigError> {
        let said = |setting: &Option<String>, variable: &str| {
            setting.clone().or_else(|| ground.environment.get(variable).filter(|value| !value.is_empty()).cloned())
        };
        let timeout = match self.timeout_s {
            None => None,
            Some(seconds @ 60..=86_400) => Some(Duration::from_secs(seconds)),
            Some(_) => return Err(at.wrong("timeout_s", "write a number of seconds from 60 to 86400")),
        };
        let wrong = |error: CloudError| at.wrong("api_url", &error.to_string());
        Ok(match kind {
            "e2b" => {
                let domain = said(&self.domain, "E2B_DOMAIN").unwrap_or_else(|| "e2b.app".to_owned());
                let mut config = e2b::Config::of(key, &domain);
                if let Some(url) = address(at, said(&self.api_url, "E2B_API_URL"))? {
                    config.api_url = url;
                }
                config.sandbox_url = address(at, said(&None, "E2B_SANDBOX_URL"))?;
                config.timeout = timeout.unwrap_or(config.timeout);
                Arc::new(e2b::cloud(config).map_err(wrong)?)
            }
            "daytona" => {
                let mut config = daytona::Config::new(key);
                if let Some(url) = address(at, said(&self.api_url, "DAYTONA_API_URL"))? {
                    config.api_url = url;
                }
                config.target = said(&self.target, "DAYTONA_TARGET");
                config.auto_stop = timeout.unwrap_or(config.auto_stop);
                Arc::new(daytona::cloud(config).map_err(wrong)?)
            }
            _ => {
                let mut config = agentbay::Config::new(key);
                if let Some(endpoint) = said(&self.api_url, "AGENTBAY_ENDPOINT") {
                    config.endpoint = endpoint;
                }
                config.region = said(&self.region, "AGENTBAY_REGION_ID");
                config.idle_timeout = timeout.unwrap_or(config.idle_timeout);
                Arc::new(agentbay::cloud(config).map_err(wrong)?)
            }
        })
    }
}

/// Whole, and of a kind that can be called.
fn address(at: &At<'_>, url: Option<String>) -> Result<Option<String>, ConfigError> {
    let Some(url) = url else { return Ok(None) };
    let plain = url.trim_end_matches('/');
    if plain.starts_with("https://") || plain.starts_with("http://") {
        return Ok(Some(plain.to_owned()));
    }
    Err(at.wrong("api_url", &format!("`{url}` is no address; write it as `https://host`")))
}

/// Tells this server's sandboxes from those of others with the same key: by where its data is, on which machine.
fn stead(ground: &Ground) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let data = ground.data.canonicalize().unwrap_or_else(|_| ground.data.clone());
    let digest = sha2::Sha256::digest(format!("{}\n{}", machine.trim(), data.display()).as_bytes());
    digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
