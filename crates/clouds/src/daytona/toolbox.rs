//! The toolbox of a sandbox: commands, files and measures. Whatever is asked of it counts as traffic, which keeps the
//! sandbox from being stopped.

use super::{Daytona, part};
use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Metrics, Ran, Trouble};
use bytes::Bytes;
use reqwest::{Client, Method, RequestBuilder, Url};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// A link slower than this is not worth waiting for, in bytes a second.
const SLOWEST_LINK: u64 = 64 << 10;

/// More than this many are not remembered; they are asked for again.
const MOST_REMEMBERED: usize = 10_000;

#[derive(Debug, Deserialize)]
struct Place {
    url: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Executed {
    exit_code: i32,
    #[serde(default)]
    result: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    cpu_used_pct: Option<f64>,
    mem_used: Option<u64>,
    mem_total: Option<u64>,
    disk_used: Option<u64>,
}

impl Daytona {
    /// A call of the toolbox. `path` is what follows the sandbox's id.
    pub(super) async fn toolbox(
        &self,
        what: &'static str,
        client: &Client,
        id: &str,
        method: Method,
        path: &str,
    ) -> Result<RequestBuilder, CloudError> {
        let base = self.place(what, id).await?;
        Ok(self.request(client, method, &format!("{base}/{}{path}", part(id))))
    }

    async fn place(&self, what: &'static str, id: &str) -> Result<String, CloudError> {
        if let Some(place) = self.toolboxes().get(id) {
            return Ok(place.clone());
        }
        let told = self.get(what, id).await?.toolbox_proxy_url.filter(|url| !url.is_empty());
        let place = if let Some(url) = told {
            url
        } else {
            let path = format!("/sandbox/{}/toolbox-proxy-url", part(id));
            let ask = || wire::ask_json::<Place>(what, Call::Reads, self.patience(), self.control(Method::GET, &path));
            PATIENT.call(ask).await?.url
        };
        let is_secret = |url: &str| Url::parse(url).is_ok_and(|url| url.scheme() == "https");
        if is_secret(&self.0.config.api_url) && !is_secret(&place) {
            let message = "its toolbox is at an address without TLS, and would be sent the key";
            return Err(CloudError::new(what, Trouble::Broken, Effect::None, message));
        }
        let place = place.trim_end_matches('/').to_owned();
        let mut known = self.toolboxes();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(id.to_owned(), place.clone());
        Ok(place)
    }

    /// Waits until the toolbox is there. The control plane may say `started` of a sandbox that isn't.
    pub(super) async fn answers(&self, id: &str) -> Result<(), CloudError> {
        let what = "reach the sandbox";
        let deadline = Instant::now() + self.patience();
        loop {
            let request = self.toolbox(what, &self.0.client, id, Method::GET, "/version").await?;
            let Err(error) = wire::ask(what, Call::Reads, self.patience(), request).await else { return Ok(()) };
            self.forget_toolbox(id);
            if error.trouble == Trouble::Denied || Instant::now() >= deadline {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    pub(super) async fn execute(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
        let what = "run a script in the sandbox";
        let seconds = patience.as_secs() + u64::from(patience.subsec_nanos() > 0);
        let order = json!({"command": format!("sh -c {}", quoted(script)), "timeout": seconds.max(1)});
        let request = self.toolbox(what, &self.0.client, id, Method::POST, "/process/execute").await?.json(&order);
        let ran: Executed = wire::ask_json(what, Call::Changes, patience + self.patience(), request).await?;
        if ran.exit_code < 0 {
            // The same number stands for one that was not started and one that was killed.
            let message = format!("it could not be started, or was killed: {}", ran.result.trim());
            return Err(CloudError::new(what, Trouble::Broken, Effect::Unknown, message));
        }
        Ok(Ran { exit_code: ran.exit_code, output: ran.result.into_bytes() })
    }

    /// Beside its place first: the toolbox writes a file as it comes, and moves none over another.
    pub(super) async fn put(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
        let what = "put a file into the sandbox";
        let beside = format!("{path}.{:08x}", getrandom::u32().unwrap_or_default());
        let patience = self.patience() + Duration::from_secs(bytes.len() as u64 / SLOWEST_LINK);
        PATIENT.call(|| self.put_at(what, id, &beside, bytes.clone(), patience)).await?;
        let (from, to) = (quoted(&beside), quoted(path));
        let script = format!("mv -f {from} {to} || {{ rm -f {from}; exit 1; }}");
        let moved = self.execute(id, &script, self.patience()).await.map_err(|error| CloudError { what, ..error })?;
        if moved.exit_code == 0 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&moved.output).trim().to_owned();
        Err(CloudError::new(what, Trouble::Broken, Effect::Unknown, format!("can't move it to its place: {said}")))
    }

    async fn put_at(
        &self,
        what: &'static str,
        id: &str,
        path: &str,
        bytes: Bytes,
        patience: Duration,
    ) -> Result<(), CloudError> {
        let at = |route: &str| format!("/files/{route}?path={}", part(path));
        let request = self.toolbox(what, &self.0.client, id, Method::POST, &at("upload-v2")).await?;
        let request = request.header("Content-Type", "application/octet-stream").body(bytes.clone());
        match wire::ask(what, Call::Changes, patience, request).await {
            // An older toolbox takes forms alone, at another place. Where the sandbox is what is missing, it is there too.
            Err(error) if error.trouble == Trouble::NotFound => {}
            done => return done.map(drop),
        }
        let length = bytes.len() as u64;
        let file = reqwest::multipart::Part::stream_with_length(bytes, length).file_name("file");
        let form = reqwest::multipart::Form::new().part("file", file);
        let request = self.toolbox(what, &self.0.client, id, Method::POST, &at("upload")).await?.multipart(form);
        wire::ask(what, Call::Changes, patience, request).await.map(drop)
    }

    pub(super) async fn measure(&self, id: &str) -> Result<Metrics, CloudError> {
        let what = "measure the sandbox";
        let ask = || async {
            let request = self.toolbox(what, &self.0.client, id, Method::GET, "/system/metrics").await?;
            // Who measures doesn't use it: a sandbox is not kept awake by being looked at.
            let request = request.header("X-Daytona-Skip-Last-Activity-Update", "true");
            wire::ask_json::<Measured>(what, Call::Reads, self.patience(), request).await
        };
        let measured = PATIENT.call(ask).await?;
        Ok(Metrics {
            cpu_percent: measured.cpu_used_pct,
            memory_used_bytes: measured.mem_used,
            memory_limit_bytes: measured.mem_total,
            disk_used_bytes: measured.disk_used,
            network_rx_bytes: None,
            network_tx_bytes: None,
        })
    }
}

/// As one word of a shell's.
pub(super) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&stead_model::word::quote(text.as_bytes())).into_owned()
}
