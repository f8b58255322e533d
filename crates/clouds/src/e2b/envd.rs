//! The daemon in a sandbox: where it is, and the token that it wants. Tokens change when a sandbox wakes, so one that is
//! refused is read again, once.

use super::api::{Api, Told};
use super::connect::{Fault, json};
use crate::wire::{self, Call};
use crate::{CloudError, Condition, Effect, Trouble};
use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::task::TaskTracker;

const PORT: u16 = 49983;

/// Domains that have one address for all sandboxes; below others each has its own.
const SHARED: [&str; 4] = ["e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"];

/// Sandboxes whose whereabouts are remembered; then all are forgotten, and asked for again.
const MOST_KNOWN: usize = 4096;

/// For a sign that a sandbox is there.
const HEALTH: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Envd {
    pub api: Api,
    client: Client,
    domain: String,
    sandbox_url: Option<String>,
    known: Mutex<HashMap<String, Reach>>,
    /// Tags of programs that could not be ended, by sandbox: it slept.
    left: Mutex<HashMap<String, Vec<String>>>,
    /// Of open channels.
    pub tasks: TaskTracker,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reach {
    base: String,
    /// Marked as sensitive: not shown.
    token: Option<HeaderValue>,
}

impl Envd {
    pub(super) fn new(api: Api, client: Client, domain: String, sandbox_url: Option<String>) -> Self {
        Self {
            api,
            client,
            domain,
            sandbox_url,
            known: Mutex::default(),
            left: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Remembers what the cloud says about where a sandbox is. An answer without a token leaves the one that is known.
    pub(super) fn learn(&self, told: &Told) -> Result<(), CloudError> {
        if told.envd_access_token.is_some() {
            let reach = self.reach_of(told)?;
            let mut known = self.known();
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(told.id.clone(), reach);
        }
        Ok(())
    }

    fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    /// It won't be asked for again.
    pub(super) fn forget_all_of(&self, id: &str) {
        self.forget(id);
        self.left_behind().remove(id);
    }

    pub(super) fn left_behind(&self) -> MutexGuard<'_, HashMap<String, Vec<String>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether who stands before the sandboxes says that this one isn't there. No answer says nothing.
    pub(super) async fn is_missing(&self, id: &str) -> bool {
        let Ok(reach) = self.reach("look at a sandbox", id).await else { return false };
        let request = routed(self.client.get(format!("{}/health", reach.base)), id);
        let answer = wire::begin("look at a sandbox", Call::Reads, HEALTH, request.timeout(HEALTH)).await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::BAD_GATEWAY)
    }

    /// One message, one answer.
    pub(super) async fn ask(
        &self,
        what: &'static str,
        patience: Duration,
        id: &str,
        method: &str,
        message: &impl Serialize,
    ) -> Result<Bytes, CloudError> {
        let body = json(message);
        let answer = self.send(what, patience, id, |client, base| {
            let request = client.post(format!("{base}/{method}")).timeout(patience);
            let request = request.header("Content-Type", "application/json").header("Connect-Protocol-Version", "1");
            request.body(body.clone())
        });
        wire::read(what, Call::Changes, answer.await?).await
    }

    /// Sends what `build` makes, and returns the head of an answer that is a success. `patience` is for the head.
    pub(super) async fn send(
        &self,
        what: &'static str,
        patience: Duration,
        id: &str,
        build: impl Fn(&Client, &str) -> RequestBuilder,
    ) -> Result<Response, CloudError> {
        let mut reach = self.reach(what, id).await?;
        loop {
            let mut request = routed(build(&self.client, &reach.base), id);
            if let Some(token) = &reach.token {
                request = request.header("X-Access-Token", token.clone());
            }
            let answer = wire::begin(what, Call::Changes, patience, request).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            if answer.status() == StatusCode::UNAUTHORIZED {
                self.forget(id);
                let fresh = self.reach(what, id).await?;
                if fresh != reach {
                    reach = fresh;
                    continue;
                }
            }
            return Err(self.refused(what, id, answer).await);
        }
    }

    async fn refused(&self, what: &'static str, id: &str, answer: Response) -> CloudError {
        let (status, after) = (answer.status(), wire::retry_after(&answer));
        let body = match tokio::time::timeout(HEALTH, wire::read(what, Call::Changes, answer)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        let error = wire::refused(what, Call::Changes, status, after, &body);
        if status == StatusCode::BAD_GATEWAY {
            return self.not_running(what, id, error).await;
        }
        match Fault::of(&body) {
            Some(fault) => CloudError { after, ..fault.error(what, error.effect) },
            // Not found by the sandbox, not the sandbox.
            None if error.trouble == Trouble::NotFound => CloudError { trouble: Trouble::Conflict, ..error },
            None => error,
        }
    }

    /// Who stands before the sandboxes doesn't find this one. It may sleep, or be gone, or be lost.
    async fn not_running(&self, what: &'static str, id: &str, error: CloudError) -> CloudError {
        let (trouble, why) = match self.api.get(what, id).await {
            Ok(told) => match told.condition() {
                Condition::Paused => (Trouble::Conflict, "it sleeps"),
                Condition::Running | Condition::Gone | Condition::Unclear => {
                    (Trouble::Unavailable, "it is said to run, but it can't be reached")
                }
            },
            Err(error) if error.trouble == Trouble::NotFound => {
                self.forget_all_of(id);
                (Trouble::NotFound, "it is gone")
            }
            Err(_) => return error,
        };
        CloudError { trouble, message: format!("{why} ({})", error.message), ..error }
    }

    async fn reach(&self, what: &'static str, id: &str) -> Result<Reach, CloudError> {
        if let Some(reach) = self.known().get(id) {
            return Ok(reach.clone());
        }
        let told = self.api.get(what, id).await?;
        self.learn(&told)?;
        self.reach_of(&told)
    }

    fn reach_of(&self, told: &Told) -> Result<Reach, CloudError> {
        let broken = |message: &str| CloudError::new("reach a sandbox", Trouble::Broken, Effect::None, message);
        let domain = told.domain.as_deref().unwrap_or(&self.domain);
        let base = address(self.sandbox_url.as_deref(), domain, &told.id)
            .ok_or_else(|| broken("the cloud names it so that no address can be made of it"))?;
        let token = match &told.envd_access_token {
            None => None,
            Some(token) => {
                let token = HeaderValue::from_str(token);
                let mut token = token.map_err(|_| broken("its token has characters that no header can have"))?;
                token.set_sensitive(true);
                Some(token)
            }
        };
        Ok(Reach { base, token })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Reach>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both headers, always: one without the other is an error, and an address of its own doesn't mind them.
fn routed(request: RequestBuilder, id: &str) -> RequestBuilder {
    request.header("E2b-Sandbox-Id", id).header("E2b-Sandbox-Port", PORT)
}

/// None when the names can't be part of an address.
fn address(sandbox_url: Option<&str>, domain: &str, id: &str) -> Option<String> {
    let is_name = |text: &str, also: &[u8]| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || also.contains(&byte))
    };
    if !is_name(id, b"_") || !is_name(domain, b".:") {
        return None;
    }
    Some(match sandbox_url {
        Some(url) => url.to_owned(),
        None if SHARED.contains(&domain) => format!("https://sandbox.{domain}"),
        None => format!("https://{PORT}-{id}.{domain}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_below_its_domain_or_behind_the_one_address_of_all() {
        for (url, domain, id, address_of_it) in [
            (None, "e2b.app", "i1", Some("https://sandbox.e2b.app")),
            (None, "cubes.example", "i1", Some("https://49983-i1.cubes.example")),
            (Some("http://127.0.0.1:3"), "e2b.app", "i1", Some("http://127.0.0.1:3")),
            (None, "e2b.app/evil", "i1", None),
            (None, "cubes.example", "i1.evil.example/", None),
            (None, "cubes.example", "", None),
        ] {
            assert_eq!(address(url, domain, id).as_deref(), address_of_it, "{domain} {id}");
        }
    }
}
