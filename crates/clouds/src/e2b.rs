//! E2B: one REST interface for the life of sandboxes, and in every sandbox a daemon (`envd`) that runs programs and holds
//! files, spoken to in JSON over the Connect protocol.
//!
//! ```text
//! api      POST /sandboxes, GET, DELETE, /pause, /connect, /refreshes, /metrics     X-API-Key
//! envd     where a sandbox is, and the token that it wants                          X-Access-Token
//! connect  envelopes: a flag, a length, JSON
//! process  start, hear, run
//! channel  a program's input and output as one stream of bytes each way
//! file     upload beside, then rename
//! ```
//!
//! Sandboxes have a time to live that no traffic extends; ours fall asleep when it is over. Only `resume` wakes one (and
//! `create`, when it finds one of the same labels asleep): nothing here sends traffic to learn whether it wakes.

mod api;
mod channel;
mod connect;
mod envd;
mod file;
mod process;

use crate::wire::{self, Call};
use crate::{Channel, Cloud, CloudError, Condition, Effect, Listed, Metrics, Ran, Trouble, Wish};
use api::{Api, NewSandbox};
use async_trait::async_trait;
use bytes::Bytes;
use envd::Envd;
use reqwest::header::HeaderValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stead_model::env::Secret;

pub const DOMAIN: &str = "e2b.app";

#[derive(Debug, Clone)]
pub struct Config {
    pub api_key: Secret,
    /// Of the REST interface.
    pub api_url: String,
    /// Below it are the sandboxes, unless the cloud names another one for a sandbox.
    pub domain: String,
    /// One address for the daemons of all sandboxes instead of one below the domain.
    pub sandbox_url: Option<String>,
    /// Of sandboxes for which no other is wished for.
    pub template: String,
    /// How long a sandbox lives without being kept awake; then it sleeps.
    pub timeout: Duration,
}

impl Config {
    /// With all defaults of a domain.
    pub fn of(api_key: Secret, domain: &str) -> Self {
        Self {
            api_key,
            api_url: format!("https://api.{domain}"),
            domain: domain.to_owned(),
            sandbox_url: None,
            template: "base".to_owned(),
            timeout: Duration::from_mins(5),
        }
    }
}

/// How long answers may take.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub read: Duration,
    pub change: Duration,
    /// Memory is written to disk: some seconds for each GiB.
    pub pause: Duration,
    /// How often a program that says nothing gives a sign of life; without three in a row it counts as lost. In whole
    /// seconds.
    pub sign_of_life: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            read: Duration::from_secs(20),
            change: Duration::from_mins(1),
            pause: Duration::from_mins(2),
            sign_of_life: Duration::from_secs(20),
        }
    }
}

#[derive(Debug)]
pub struct E2b {
    api: Api,
    envd: Arc<Envd>,
    template: String,
    timeout: Duration,
}

pub fn cloud(config: Config) -> Result<E2b, CloudError> {
    with_times(config, Times::default())
}

pub fn with_times(config: Config, times: Times) -> Result<E2b, CloudError> {
    let user_agent = concat!("stead/", env!("CARGO_PKG_VERSION"));
    let Ok(mut key) = HeaderValue::from_bytes(config.api_key.reveal()) else {
        let message = "`api_key` has bytes in it that no header can have";
        return Err(CloudError::new("use E2B", Trouble::Denied, Effect::None, message));
    };
    key.set_sensitive(true);
    let url = config.api_url.trim_end_matches('/').to_owned();
    let api = Api { client: wire::client(user_agent)?, url, key, times };
    let client = wire::client_http1(user_agent)?;
    let sandbox_url = config.sandbox_url.map(|url| url.trim_end_matches('/').to_owned());
    let envd = Arc::new(Envd::new(api.clone(), client, config.domain, sandbox_url));
    Ok(E2b { api, envd, template: config.template, timeout: config.timeout })
}

impl E2b {
    /// The sandbox with exactly these labels; of several the one that runs, or the oldest.
    async fn find(&self, labels: &BTreeMap<String, String>) -> Result<Option<Listed>, CloudError> {
        let mut found = self.list(labels).await?;
        found.retain(|listed| listed.labels == *labels);
        found.sort_by_key(|listed| listed.condition != Condition::Running);
        Ok(found.into_iter().next())
    }

    async fn usable(&self, found: Listed) -> Result<String, CloudError> {
        match found.condition {
            Condition::Running => {}
            Condition::Paused | Condition::Gone | Condition::Unclear => self.resume(&found.id).await?,
        }
        Ok(found.id)
    }
}

#[async_trait]
impl Cloud for E2b {
    async fn check(&self) -> Result<Vec<String>, CloudError> {
        let page = self.api.page("ask for sandboxes", &BTreeMap::new(), None, 1).await?;
        let running = page.running.map(|count| format!("{count} sandboxes run"));
        let template =
            format!("sandboxes are made from `{}` and sleep after {} s", self.template, self.timeout.as_secs());
        Ok([format!("{} accepts the key", self.api.url)].into_iter().chain(running).chain([template]).collect())
    }

    async fn create(&self, wish: &Wish) -> Result<String, CloudError> {
        const WHAT: &str = "create a sandbox";
        let refuse = |message| Err(CloudError::new(WHAT, Trouble::Unsupported, Effect::None, message));
        if wish.labels.is_empty() {
            return refuse("a sandbox without labels could not be found again");
        }
        if wish.cpus.is_some() || wish.memory_bytes.is_some() {
            return refuse("CPUs and memory are the template's; build one that has them");
        }
        if let Some(found) = self.find(&wish.labels).await? {
            return self.usable(found).await;
        }
        let new = NewSandbox {
            template_id: wish.template.as_deref().unwrap_or(&self.template),
            timeout: self.timeout.as_secs(),
            auto_pause: true,
            secure: true,
            allow_internet_access: wish.network,
            metadata: &wish.labels,
        };
        let error = match self.api.create(WHAT, &new).await {
            Ok(told) => {
                self.envd.learn(&told)?;
                return Ok(told.id);
            }
            Err(error) => error,
        };
        // It may have been made all the same; if not yet, whoever asks again finds it.
        match error.effect {
            Effect::None => Err(error),
            Effect::Unknown => match self.find(&wish.labels).await {
                Ok(Some(found)) => self.usable(found).await,
                Ok(None) | Err(_) => Err(error),
            },
        }
    }

    async fn look(&self, id: &str) -> Result<Condition, CloudError> {
        let told = match self.api.get("look at a sandbox", id).await {
            Err(error) if error.trouble == Trouble::NotFound => return Ok(Condition::Gone),
            told => told?,
        };
        self.envd.learn(&told)?;
        let condition = told.condition();
        // The cloud goes on saying so for a while when the machine below is lost. Who stands before the sandboxes knows
        // better.
        let is_missing = condition == Condition::Running && self.envd.is_missing(id).await;
        Ok(if is_missing { Condition::Unclear } else { condition })
    }

    async fn pause(&self, id: &str) -> Result<(), CloudError> {
        const WHAT: &str = "pause a sandbox";
        let error = match self.api.pause(WHAT, id).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // That is the answer for one that sleeps; but not for that alone.
        if error.trouble == Trouble::Conflict && self.api.get(WHAT, id).await?.condition() == Condition::Paused {
            return Ok(());
        }
        Err(error)
    }

    async fn resume(&self, id: &str) -> Result<(), CloudError> {
        const WHAT: &str = "resume a sandbox";
        let told = self.api.connect(WHAT, id, self.timeout).await?;
        if told.id != id {
            let message = format!("it came back as another one, `{}`", told.id);
            return Err(CloudError::new(WHAT, Trouble::Broken, Effect::Unknown, message));
        }
        self.envd.learn(&told)
    }

    async fn destroy(&self, id: &str) -> Result<(), CloudError> {
        self.api.delete("destroy a sandbox", id).await?;
        self.envd.forget_all_of(id);
        Ok(())
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Listed>, CloudError> {
        self.api.list("list sandboxes", labels).await
    }

    async fn upload(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
        file::upload(&self.envd, id, path, bytes).await
    }

    async fn run(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
        process::run(&self.envd, id, script, patience).await
    }

    async fn open(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Box<dyn Channel>, CloudError> {
        Ok(Box::new(channel::open(&self.envd, id, program, arguments).await?))
    }

    async fn keep_awake(&self, id: &str) -> Result<(), CloudError> {
        const WHAT: &str = "keep a sandbox awake";
        let error = match self.api.refresh(WHAT, id, self.timeout).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // One that sleeps isn't found here; it is there all the same.
        if error.trouble == Trouble::NotFound && self.api.get(WHAT, id).await?.condition() == Condition::Paused {
            return Err(CloudError::new(WHAT, Trouble::Conflict, Effect::None, "it sleeps"));
        }
        Err(error)
    }

    async fn metrics(&self, id: &str) -> Result<Metrics, CloudError> {
        let samples = self.api.metrics("measure a sandbox", id).await?;
        let newest = samples.into_iter().max_by_key(|sample| sample.timestamp_unix);
        Ok(newest.map_or_else(Metrics::default, |sample| Metrics {
            cpu_percent: sample.cpu_used_pct,
            memory_used_bytes: sample.mem_used,
            memory_limit_bytes: sample.mem_total,
            disk_used_bytes: sample.disk_used,
            network_rx_bytes: None,
            network_tx_bytes: None,
        }))
    }
}

/// Whoever can be told from the outside that nothing was done may be asked again, whatever it is.
async fn again_if_nothing_was_done<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, CloudError>
where
    F: Future<Output = Result<T, CloudError>>,
{
    let outcome = crate::retry::PATIENT.call(|| {
        let attempt = attempt();
        async move {
            match attempt.await {
                Err(error) if error.effect == Effect::Unknown => Ok(Err(error)),
                outcome => outcome.map(Ok),
            }
        }
    });
    outcome.await?
}

/// What an answer in JSON says, or that it makes no sense.
fn understood<T: serde::de::DeserializeOwned>(what: &'static str, call: Call, body: &[u8]) -> Result<T, CloudError> {
    let effect = match call {
        Call::Reads => Effect::None,
        Call::Changes => Effect::Unknown,
    };
    serde_json::from_slice(body)
        .map_err(|error| CloudError::new(what, Trouble::Broken, effect, format!("its answer makes no sense: {error}")))
}
