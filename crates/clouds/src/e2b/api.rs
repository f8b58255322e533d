//! The REST interface. Each call that may be made twice is tried again here.

use super::{Times, again_if_nothing_was_done, understood};
use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{CloudError, Condition, Effect, Listed, Trouble};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most that the cloud gives at once.
const PAGE: usize = 100;

/// Far more sandboxes than an account may have; a list that never ends ends here.
const MOST_PAGES: usize = 1000;

/// The longest extension that the cloud takes.
const LONGEST_REFRESH: Duration = Duration::from_hours(1);

const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

#[derive(Debug, Clone)]
pub(super) struct Api {
    pub client: Client,
    pub url: String,
    /// Marked as sensitive: not shown.
    pub key: HeaderValue,
    pub times: Times,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSandbox<'a> {
    #[serde(rename = "templateID")]
    pub template_id: &'a str,
    pub timeout: u64,
    /// Sleeps when its time is over; it would be killed otherwise.
    pub auto_pause: bool,
    /// Wants a token from whoever speaks to the daemon.
    pub secure: bool,
    #[serde(rename = "allow_internet_access", skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    pub metadata: &'a BTreeMap<String, String>,
}

/// What the cloud says of a sandbox; how much of it depends on the call. Has its token, so it isn't `Debug`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    #[serde(rename = "sandboxID")]
    pub id: String,
    pub envd_access_token: Option<String>,
    pub domain: Option<String>,
    state: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
}

impl Told {
    pub(super) fn condition(&self) -> Condition {
        match self.state.as_deref() {
            Some("running") => Condition::Running,
            Some("paused") => Condition::Paused,
            Some(_) | None => Condition::Unclear,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sample {
    #[serde(default)]
    pub timestamp_unix: i64,
    pub cpu_used_pct: Option<f64>,
    pub mem_used: Option<u64>,
    pub mem_total: Option<u64>,
    pub disk_used: Option<u64>,
}

pub(super) struct Page {
    sandboxes: Vec<Told>,
    next: Option<String>,
    /// Of the whole account.
    pub running: Option<String>,
}

impl Api {
    pub(super) async fn get(&self, what: &'static str, id: &str) -> Result<Told, CloudError> {
        PATIENT.call(|| wire::ask_json(what, Call::Reads, self.times.read, self.of_sandbox(Method::GET, id, ""))).await
    }

    /// Tried again only when nothing can have been made.
    pub(super) async fn create(&self, what: &'static str, new: &NewSandbox<'_>) -> Result<Told, CloudError> {
        let request = || self.request(Method::POST, "/sandboxes").json(new);
        again_if_nothing_was_done(|| wire::ask_json(what, Call::Changes, self.times.change, request())).await
    }

    /// Wakes it, and never makes its time shorter.
    pub(super) async fn connect(&self, what: &'static str, id: &str, timeout: Duration) -> Result<Told, CloudError> {
        let body = serde_json::json!({ "timeout": timeout.as_secs() });
        let request = || self.of_sandbox(Method::POST, id, "/connect").json(&body);
        PATIENT.call(|| wire::ask_json(what, Call::Changes, self.times.change, request())).await
    }

    pub(super) async fn pause(&self, what: &'static str, id: &str) -> Result<(), CloudError> {
        let request = || self.of_sandbox(Method::POST, id, "/pause").json(&serde_json::json!({}));
        PATIENT.call(|| wire::ask(what, Call::Changes, self.times.pause, request())).await.map(drop)
    }

    /// What isn't there is deleted.
    pub(super) async fn delete(&self, what: &'static str, id: &str) -> Result<(), CloudError> {
        let request = || self.of_sandbox(Method::DELETE, id, "");
        match PATIENT.call(|| wire::ask(what, Call::Changes, self.times.change, request())).await {
            Err(error) if error.trouble != Trouble::NotFound => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// `/timeout` would set the time that is left; this one only adds to it.
    pub(super) async fn refresh(&self, what: &'static str, id: &str, by: Duration) -> Result<(), CloudError> {
        let body = serde_json::json!({ "duration": by.min(LONGEST_REFRESH).as_secs() });
        let request = || self.of_sandbox(Method::POST, id, "/refreshes").json(&body);
        PATIENT.call(|| wire::ask(what, Call::Changes, self.times.change, request())).await.map(drop)
    }

    pub(super) async fn metrics(&self, what: &'static str, id: &str) -> Result<Vec<Sample>, CloudError> {
        let request = || self.of_sandbox(Method::GET, id, "/metrics");
        PATIENT.call(|| wire::ask_json(what, Call::Reads, self.times.read, request())).await
    }

    pub(super) async fn list(
        &self,
        what: &'static str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Listed>, CloudError> {
        let (mut all, mut token) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let page = self.page(what, labels, token.as_deref(), PAGE).await?;
            all.extend(page.sandboxes.into_iter().map(|told| Listed {
                condition: told.condition(),
                id: told.id,
                labels: told.metadata.unwrap_or_default(),
            }));
            token = page.next;
            if token.is_none() {
                // The cloud's filter is a claim too, and what is listed may be destroyed for it.
                all.retain(|listed| labels.iter().all(|(name, value)| listed.labels.get(name) == Some(value)));
                return Ok(all);
            }
        }
        Err(CloudError::new(what, Trouble::Broken, Effect::None, "its list never ends"))
    }

    pub(super) async fn page(
        &self,
        what: &'static str,
        labels: &BTreeMap<String, String>,
        token: Option<&str>,
        limit: usize,
    ) -> Result<Page, CloudError> {
        let filter = filter(labels);
        let request = || {
            let request = self.request(Method::GET, "/v2/sandboxes");
            let request = request.query(&[("state", "running,paused"), ("order", "asc")]).query(&[("limit", limit)]);
            let request = if labels.is_empty() { request } else { request.query(&[("metadata", &filter)]) };
            request.query(&token.map(|token| ("nextToken", token)).as_slice())
        };
        let (headers, body) = PATIENT.call(|| ask_with_headers(what, self.times.read, request())).await?;
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
        let next = text("x-next-token").filter(|token| !token.is_empty());
        Ok(Page { sandboxes: understood(what, Call::Reads, &body)?, next, running: text("x-total-running") })
    }

    fn of_sandbox(&self, method: Method, id: &str, rest: &str) -> RequestBuilder {
        self.request(method, &format!("/sandboxes/{}{rest}", utf8_percent_encode(id, SEGMENT)))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).header("X-API-Key", self.key.clone())
    }
}

/// Names and values are encoded by themselves and again together, and the whole once more as part of the address: the
/// cloud decodes three times.
fn filter(labels: &BTreeMap<String, String>) -> String {
    let once = |text: &str| utf8_percent_encode(text, SEGMENT).to_string();
    let pairs = labels.iter().map(|(name, value)| format!("{}={}", once(&once(name)), once(&once(value))));
    pairs.collect::<Vec<_>>().join("&")
}

async fn ask_with_headers(
    what: &'static str,
    patience: Duration,
    request: RequestBuilder,
) -> Result<(HeaderMap, Bytes), CloudError> {
    let answer = wire::begin(what, Call::Reads, patience, request.timeout(patience)).await?;
    let (status, headers, after) = (answer.status(), answer.headers().clone(), wire::retry_after(&answer));
    let body = wire::read(what, Call::Reads, answer).await?;
    if status.is_success() { Ok((headers, body)) } else { Err(wire::refused(what, Call::Reads, status, after, &body)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_encoded_so_that_decoding_them_thrice_gives_them_back() {
        let labels = BTreeMap::from([("a b".to_owned(), "1&2=3".to_owned()), ("c".to_owned(), "50%+ü".to_owned())]);
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        // The address itself is decoded by then.
        let whole = decode(&filter(&labels));
        let pairs = whole.split('&').map(|pair| pair.split_once('=').unwrap());
        let back: BTreeMap<_, _> = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
        assert_eq!(back, labels);
        assert!(!whole.contains('+'), "{whole}: a plus would be read as a space");
    }
}
