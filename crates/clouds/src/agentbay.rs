//! `AgentBay`: sessions are cloud machines that do what tools can do. A tool runs a command for at most 50 s and there is
//! no stream, so a program is spoken to through a ferry ([`ferry`]). Every call is a named action in a form; a session's
//! own link is used for tools where there is one.
//!
//! A session that sleeps refuses tools and even deletion: to be ended it is woken first. Sleep itself is for accounts that
//! the cloud has on a list.

mod create;
mod ferry;
mod front;
mod lifecycle;
mod link;
mod sessions;
mod shell;
mod tool;
mod upload;

use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{Channel, Cloud, CloudError, Condition, Effect, Listed, Metrics, Ran, Trouble, Wish};
use async_trait::async_trait;
use bytes::Bytes;
use front::Front;
use lifecycle::Aim;
use sessions::Sessions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stead_model::env::Secret;
use tokio_util::task::TaskTracker;

/// Shanghai; the other is `wuyingai.ap-southeast-1.aliyuncs.com`.
pub const ENDPOINT: &str = "wuyingai.cn-shanghai.aliyuncs.com";

pub const IMAGE: &str = "linux_latest";

/// What a tool may take, at most.
const LONGEST: Duration = Duration::from_secs(50);

#[derive(Debug, Clone)]
pub struct Config {
    pub api_key: Secret,
    /// A host, with or without a port; or where it begins with `http://` or `https://`, a whole address.
    pub endpoint: String,
    pub region: Option<String>,
    /// Where a wish names no template.
    pub image: String,
    /// After so long without [`Cloud::keep_awake`] a session ends, with all that is on it.
    pub idle_timeout: Duration,
    /// For one call that runs nothing.
    pub patience: Duration,
}

impl Config {
    pub fn new(api_key: Secret) -> Self {
        Self {
            api_key,
            endpoint: ENDPOINT.to_owned(),
            region: None,
            image: IMAGE.to_owned(),
            idle_timeout: Duration::from_mins(5),
            patience: Duration::from_mins(1),
        }
    }
}

#[derive(Debug)]
pub struct AgentBay {
    inner: Arc<Inner>,
    /// What carries the bytes of open channels.
    tasks: TaskTracker,
}

/// Shared with whoever carries bytes.
#[derive(Debug)]
struct Inner {
    front: Front,
    sessions: Sessions,
    config: Config,
}

pub fn cloud(config: Config) -> Result<AgentBay, CloudError> {
    let front = Front::new(&config)?;
    let inner = Arc::new(Inner { front, sessions: Sessions::default(), config });
    Ok(AgentBay { inner, tasks: TaskTracker::new() })
}

#[async_trait]
impl Cloud for AgentBay {
    async fn check(&self) -> Result<Vec<String>, CloudError> {
        PATIENT.call(|| self.inner.page("ask for sessions", "{}", 1, None)).await?;
        let config = &self.inner.config;
        Ok(vec![
            format!("sessions are of `{}` and end after {} s without use", config.image, config.idle_timeout.as_secs()),
            "a session can only sleep if AgentBay has this account on its list".to_owned(),
            "a command runs for at most 50 s by itself; longer ones run by the steward".to_owned(),
        ])
    }

    async fn create(&self, wish: &Wish) -> Result<String, CloudError> {
        self.inner.create(wish).await
    }

    async fn look(&self, id: &str) -> Result<Condition, CloudError> {
        const WHAT: &str = "look at a session";
        let condition = PATIENT.call(|| self.inner.see(WHAT, id)).await?.condition();
        if condition != Condition::Running || !self.inner.sessions.is_doubted(id) {
            return Ok(condition);
        }
        // Its tools were gone while the front door says that it runs: the machine itself must know.
        match self.inner.answers(WHAT, id).await {
            Ok(()) => {
                self.inner.sessions.trust(id);
                Ok(Condition::Running)
            }
            Err(error) if error.trouble == Trouble::NotFound => Ok(Condition::Gone),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, id: &str) -> Result<(), CloudError> {
        self.inner.bring("pause a session", id, Aim::Asleep).await
    }

    async fn resume(&self, id: &str) -> Result<(), CloudError> {
        self.inner.bring("resume a session", id, Aim::Awake).await
    }

    async fn destroy(&self, id: &str) -> Result<(), CloudError> {
        self.inner.bring("end a session", id, Aim::Gone).await?;
        self.inner.sessions.forget(id);
        Ok(())
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Listed>, CloudError> {
        self.inner.list("list sessions", labels).await
    }

    async fn upload(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
        self.inner.upload(id, path, &bytes).await
    }

    async fn run(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
        const WHAT: &str = "run a script";
        if patience > LONGEST {
            let message = format!("it may take {} s, and this cloud has 50 s for one", patience.as_secs());
            return Err(CloudError::new(WHAT, Trouble::Unsupported, Effect::None, message));
        }
        let ended = self.inner.shell(WHAT, Call::Changes, id, script, patience).await?;
        let mut output = ended.stdout.into_bytes();
        output.extend_from_slice(ended.stderr.as_bytes());
        Ok(Ran { exit_code: ended.exit_code, output })
    }

    async fn open(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Box<dyn Channel>, CloudError> {
        ferry::open(&self.inner, &self.tasks, id, program, arguments).await
    }

    async fn keep_awake(&self, id: &str) -> Result<(), CloudError> {
        let fields = [("SessionId", id)];
        let refresh = || self.inner.front.ask("keep a session awake", Call::Changes, "RefreshSessionIdleTime", &fields);
        PATIENT.call(refresh).await.map(drop)
    }

    async fn metrics(&self, id: &str) -> Result<Metrics, CloudError> {
        PATIENT.call(|| self.inner.metrics(id)).await
    }
}
