//! Daytona: sandboxes that are started and stopped by a control plane, and a toolbox inside each that runs commands and
//! holds files.
//!
//! ```text
//! create -> start .. started --stop--> stopped --days--> archived
//!                       ^-------------start--------------/
//! ```
//!
//! Every change of state is accepted first and happens later ([`drive`]). A stop keeps the disk alone: what runs there
//! ends, unless the sandbox is a whole virtual machine, so nobody may count on it. One that gets no traffic is stopped
//! after a while, however much it computes; [`Cloud::keep_awake`] is the traffic. The size of a sandbox comes with what
//! it is made of and can't be asked for.

mod drive;
mod find;
mod pty;
mod state;
mod toolbox;

use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{Channel, Cloud, CloudError, Condition, Effect, Listed, Metrics, Ran, Trouble, Wish};
use async_trait::async_trait;
use bytes::Bytes;
use drive::Aim;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Method, RequestBuilder};
use state::{Sandbox, Stand};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_model::env::Secret;
use tokio_util::task::TaskTracker;

pub const DEFAULT_API_URL: &str = "https://app.daytona.io/api";

/// What Daytona itself does without a word.
pub const DEFAULT_AUTO_STOP: Duration = Duration::from_mins(15);

/// The version of the wire that is spoken here. The toolbox answers clients older than 0.167.0 in another form.
const SDK_VERSION: &str = "0.205.1";

const SOURCE: &str = "stead";

/// The control plane only writes down what it is asked for; the toolbox is near what it does.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// All of what isn't plain in one part of a path.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Debug, Clone)]
pub struct Config {
    pub api_key: Secret,
    pub api_url: String,
    /// The region; the organisation's own without one.
    pub target: Option<String>,
    /// What sandboxes are made of, where the wish doesn't say; Daytona's own without one.
    pub snapshot: Option<String>,
    /// Without traffic for so long, a sandbox is stopped. Whole minutes; none of them: never.
    pub auto_stop: Duration,
    /// For a call to be answered, beside the time that what it asks for takes.
    pub patience: Duration,
}

impl Config {
    pub fn new(api_key: Secret) -> Self {
        Self {
            api_key,
            api_url: DEFAULT_API_URL.to_owned(),
            target: None,
            snapshot: None,
            auto_stop: DEFAULT_AUTO_STOP,
            patience: DEFAULT_PATIENCE,
        }
    }
}

/// Cheap to clone: the clones are one.
#[derive(Debug, Clone)]
pub struct Daytona(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    /// `Bearer KEY`. Never printed: marked so.
    authorization: reqwest::header::HeaderValue,
    client: Client,
    websockets: Client,
    /// Where the toolbox of a sandbox is. Forgotten when the sandbox changes, for it may move.
    toolboxes: Mutex<HashMap<String, String>>,
    /// Those that speak over open channels; each ends with its channel.
    tasks: TaskTracker,
}

pub fn cloud(config: Config) -> Result<Daytona, CloudError> {
    let bad = |message: &str| CloudError::new("use Daytona", Trouble::Denied, Effect::None, message);
    if config.api_key.reveal().is_empty() {
        return Err(bad("there is no key: set `DAYTONA_API_KEY`"));
    }
    let mut bearer = b"Bearer ".to_vec();
    bearer.extend_from_slice(config.api_key.reveal());
    let mut authorization = reqwest::header::HeaderValue::from_bytes(&bearer)
        .map_err(|_| bad("the key has bytes in it that no key has: look at `DAYTONA_API_KEY`"))?;
    authorization.set_sensitive(true);
    let url = reqwest::Url::parse(&config.api_url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    if url.is_none() {
        return Err(bad("its address is no address of HTTP: look at `DAYTONA_API_URL`"));
    }
    let agent = concat!("stead/", env!("CARGO_PKG_VERSION"));
    Ok(Daytona(Arc::new(Inner {
        authorization,
        client: wire::client(agent)?,
        websockets: wire::client_http1(agent)?,
        toolboxes: Mutex::default(),
        tasks: TaskTracker::new(),
        config: Config { api_url: config.api_url.trim_end_matches('/').to_owned(), ..config },
    })))
}

impl Daytona {
    fn request(&self, client: &Client, method: Method, url: &str) -> RequestBuilder {
        client
            .request(method, url)
            .header(reqwest::header::AUTHORIZATION, self.0.authorization.clone())
            .header("X-Daytona-Source", SOURCE)
            .header("X-Daytona-SDK-Version", SDK_VERSION)
    }

    /// A call of the control plane. `path` is `/sandbox` and what follows, its parts encoded.
    fn control(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(&self.0.client, method, &format!("{}{path}", self.0.config.api_url))
    }

    async fn get(&self, what: &'static str, id: &str) -> Result<Sandbox, CloudError> {
        let path = format!("/sandbox/{}", part(id));
        PATIENT.call(|| wire::ask_json(what, Call::Reads, self.patience(), self.control(Method::GET, &path))).await
    }

    fn patience(&self) -> Duration {
        self.0.config.patience
    }

    fn forget_toolbox(&self, id: &str) {
        self.toolboxes().remove(id);
    }

    /// What a toolbox answered. One that isn't where it was may be elsewhere the next time; and a sandbox that isn't
    /// started has none, of which the cloud says that the call makes no sense: its state tells what that means.
    async fn heard<T>(&self, id: &str, answer: Result<T, CloudError>) -> Result<T, CloudError> {
        let error = match answer {
            Ok(heard) => return Ok(heard),
            Err(error) => error,
        };
        let (trouble, why) = match error.trouble {
            Trouble::NotFound | Trouble::Unavailable => {
                self.forget_toolbox(id);
                return Err(error);
            }
            Trouble::Broken => match self.get(error.what, id).await.map(|sandbox| sandbox.stand()) {
                Ok(Stand::Stopped | Stand::Moving) => (Trouble::Conflict, "it sleeps, or is on its way"),
                Ok(Stand::Ending | Stand::Destroyed) => (Trouble::NotFound, "it is gone"),
                Ok(Stand::Failed) => (Trouble::NotFound, "it has failed, and nothing runs there"),
                Ok(Stand::Started) | Err(_) => return Err(error),
            },
            Trouble::Conflict
            | Trouble::Denied
            | Trouble::UsedUp
            | Trouble::Exhausted
            | Trouble::NoSpace
            | Trouble::TimedOut
            | Trouble::Unsupported => return Err(error),
        };
        Err(CloudError { trouble, message: format!("{why} ({})", error.message), ..error })
    }

    fn toolboxes(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.0.toolboxes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

#[async_trait]
impl Cloud for Daytona {
    async fn check(&self) -> Result<Vec<String>, CloudError> {
        let what = "use Daytona";
        PATIENT
            .call(|| wire::ask(what, Call::Reads, self.patience(), self.control(Method::GET, "/sandbox?limit=1")))
            .await?;
        let config = &self.0.config;
        let mut notes = vec![format!("{} takes the key", config.api_url)];
        if let Some(name) = &config.snapshot {
            let path = format!("/snapshots/{}", part(name));
            let ask = || wire::ask(what, Call::Reads, self.patience(), self.control(Method::GET, &path));
            PATIENT.call(ask).await.map_err(|error| {
                let is_missing = error.trouble == Trouble::NotFound;
                if is_missing { CloudError { message: format!("it has no snapshot `{name}`"), ..error } } else { error }
            })?;
            notes.push(format!("sandboxes are made of the snapshot `{name}`"));
        }
        notes.push("a pause is a stop: it keeps the disk, and ends what runs there".to_owned());
        Ok(notes)
    }

    async fn create(&self, wish: &Wish) -> Result<String, CloudError> {
        self.find_or_make(wish).await
    }

    async fn look(&self, id: &str) -> Result<Condition, CloudError> {
        match self.get("look at the sandbox", id).await {
            Ok(sandbox) => sandbox.condition("look at the sandbox"),
            Err(error) if error.trouble == Trouble::NotFound => Ok(Condition::Gone),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, id: &str) -> Result<(), CloudError> {
        self.forget_toolbox(id);
        self.drive(id, Aim::Stopped).await
    }

    async fn resume(&self, id: &str) -> Result<(), CloudError> {
        self.forget_toolbox(id);
        self.drive(id, Aim::Started).await?;
        self.answers(id).await
    }

    async fn destroy(&self, id: &str) -> Result<(), CloudError> {
        self.forget_toolbox(id);
        self.drive(id, Aim::Destroyed).await
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Listed>, CloudError> {
        let found = self.find("list the sandboxes", labels).await?;
        Ok(found.into_iter().map(Sandbox::listed).collect())
    }

    async fn upload(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
        self.heard(id, self.put(id, path, bytes).await).await
    }

    async fn run(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
        self.heard(id, self.execute(id, script, patience).await).await
    }

    async fn open(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Box<dyn Channel>, CloudError> {
        Ok(Box::new(self.heard(id, self.speak(id, program, arguments).await).await?))
    }

    async fn keep_awake(&self, id: &str) -> Result<(), CloudError> {
        let path = format!("/sandbox/{}/last-activity", part(id));
        let what = "keep the sandbox awake";
        PATIENT
            .call(|| wire::ask(what, Call::Changes, self.patience(), self.control(Method::POST, &path)))
            .await
            .map(drop)
    }

    async fn metrics(&self, id: &str) -> Result<Metrics, CloudError> {
        self.heard(id, self.measure(id).await).await
    }
}
