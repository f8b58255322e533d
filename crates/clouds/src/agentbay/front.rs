//! The front door: one action in a form, and what its answer means. It is always of one shape, whatever its status:
//! `{RequestId, Success, Code, Message, HttpStatusCode, Data}`.

use super::Config;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Trouble};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use stead_model::env::Secret;

const VERSION: &str = "2025-05-06";

#[derive(Debug)]
pub(super) struct Front {
    client: Client,
    address: Url,
    key: Secret,
    patience: Duration,
}

/// What an action came to.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) data: Value,
    pub(super) next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    /// Some actions say nothing about it when it went well.
    success: Option<bool>,
    code: Option<String>,
    message: Option<String>,
    http_status_code: Option<u16>,
    #[serde(default)]
    data: Value,
    next_token: Option<String>,
    request_id: Option<String>,
}

impl Front {
    pub(super) fn new(config: &Config) -> Result<Self, CloudError> {
        const WHAT: &str = "set up AgentBay";
        let broken = |message: &str| CloudError::new(WHAT, Trouble::Broken, Effect::None, message);
        let is_whole = config.endpoint.starts_with("http://") || config.endpoint.starts_with("https://");
        let text = if is_whole { config.endpoint.clone() } else { format!("https://{}", config.endpoint) };
        let address = Url::parse(&text).map_err(|error| broken(&format!("its endpoint is no address: {error}")))?;
        if config.api_key.reveal().is_empty() || std::str::from_utf8(config.api_key.reveal()).is_err() {
            return Err(broken("its key is empty, or no text"));
        }
        let client = wire::client(concat!("stead/", env!("CARGO_PKG_VERSION")))?;
        Ok(Self { client, address, key: config.api_key.clone(), patience: config.patience })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// An action that takes no longer than any.
    pub(super) async fn ask(
        &self,
        what: &'static str,
        call: Call,
        action: &str,
        fields: &[(&str, &str)],
    ) -> Result<Answer, CloudError> {
        self.ask_for(what, call, action, fields, self.patience).await
    }

    /// One that runs something meanwhile.
    pub(super) async fn ask_for(
        &self,
        what: &'static str,
        call: Call,
        action: &str,
        fields: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Answer, CloudError> {
        let stamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let nonce = nonce(what)?;
        let key = format!("Bearer {}", String::from_utf8_lossy(self.key.reveal()));
        let mut form = vec![("Authorization", key.as_str())];
        form.extend_from_slice(fields);
        let request = self
            .client
            .post(self.address.clone())
            .query(&[
                ("Action", action),
                ("Format", "json"),
                ("Version", VERSION),
                ("Timestamp", &stamp),
                ("SignatureNonce", &nonce),
            ])
            .header("x-acs-version", VERSION)
            .header("x-acs-action", action)
            .header("accept", "application/json")
            .form(&form)
            .timeout(patience);
        let answer = wire::begin(what, call, patience, request).await?;
        let (status, after) = (answer.status(), wire::retry_after(&answer));
        let body = wire::read(what, call, answer).await?;
        match serde_json::from_slice::<Envelope>(&body) {
            Ok(envelope) if status.is_success() && envelope.success != Some(false) => {
                Ok(Answer { data: envelope.data, next_token: envelope.next_token.filter(|token| !token.is_empty()) })
            }
            Ok(envelope) => Err(refused(what, call, status, after, &envelope)),
            Err(_) if !status.is_success() => Err(wire::refused(what, call, status, after, &body)),
            Err(error) => Err(nonsense(what, call, &error.to_string())),
        }
    }
}

/// Enough to be nobody else's.
pub(super) fn nonce(what: &'static str) -> Result<String, CloudError> {
    let random = || getrandom::u64().map_err(|_| CloudError::new(what, Trouble::Broken, Effect::None, "no randomness"));
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// An answer that can't be read.
pub(super) fn nonsense(what: &'static str, call: Call, why: &str) -> CloudError {
    let effect = match call {
        Call::Reads => Effect::None,
        Call::Changes => Effect::Unknown,
    };
    CloudError::new(what, Trouble::Broken, effect, format!("its answer makes no sense: {why}"))
}

fn refused(
    what: &'static str,
    call: Call,
    status: StatusCode,
    after: Option<Duration>,
    envelope: &Envelope,
) -> CloudError {
    // The body knows better: a refusal may come with a status of success.
    let told = envelope.http_status_code.and_then(|status| StatusCode::from_u16(status).ok());
    let status = match (status, told) {
        (status, Some(told)) if status.is_success() && !told.is_success() => told,
        (status, _) if status.is_success() => StatusCode::INTERNAL_SERVER_ERROR,
        (status, _) => status,
    };
    let code = envelope.code.as_deref().unwrap_or_default();
    let said = envelope.message.as_deref().unwrap_or_default();
    let error = wire::refused(what, call, status, after, said.as_bytes());
    let trouble = trouble_of(code).unwrap_or(error.trouble);
    let after = error.after.or((trouble == Trouble::Exhausted && code.starts_with("Throttling")).then_some(THROTTLED));
    let request = envelope.request_id.as_deref().unwrap_or("unknown");
    let message = format!("{} (code `{code}`, request `{request}`)", error.message);
    CloudError { trouble, message, after, ..error }
}

/// Where it says that we ask too often, and not when to come again.
const THROTTLED: Duration = Duration::from_secs(1);

/// What a code means. Its parts are of a common vocabulary, but there is no list of them: what isn't here is told by the
/// status.
pub(super) fn trouble_of(code: &str) -> Option<Trouble> {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    Some(match code {
        "" => return None,
        _ if has(&["NotFound", "NotExist"]) => Trouble::NotFound,
        _ if has(&["Throttling", "Quota", "LimitExceeded", "InsufficientBalance", "Arrearage"]) => Trouble::Exhausted,
        _ if has(&["Forbidden", "NoPermission", "Unauthorized", "InvalidApiKey", "AccessDenied", "Whitelist"]) => {
            Trouble::Denied
        }
        _ if has(&["NotSupported", "Unsupported"]) => Trouble::Unsupported,
        _ if has(&["Conflict", "IncorrectStatus", "InvalidStatus", "IncorrectState", "InvalidState"]) => {
            Trouble::Conflict
        }
        _ if has(&["Timeout"]) => Trouble::TimedOut,
        _ if has(&["ServiceUnavailable", "InternalError", "SystemError", "SystemBusy"]) => Trouble::Unavailable,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_who_must_act() {
        for (code, trouble) in [
            ("InvalidMcpSession.NotFound", Some(Trouble::NotFound)),
            ("Throttling.User", Some(Trouble::Exhausted)),
            ("QuotaExceeded.Session", Some(Trouble::Exhausted)),
            ("Forbidden.NotInWhitelist", Some(Trouble::Denied)),
            ("InvalidApiKey", Some(Trouble::Denied)),
            ("InvalidMcpSession.IncorrectStatus", Some(Trouble::Conflict)),
            ("ServiceUnavailable", Some(Trouble::Unavailable)),
            ("InvalidParameter", None),
            ("", None),
        ] {
            assert_eq!(trouble_of(code), trouble, "{code}");
        }
    }

    #[test]
    fn an_endpoint_is_a_host_or_an_address() {
        let made = |endpoint: &str, key: &str| {
            Front::new(&Config { endpoint: endpoint.to_owned(), ..Config::new(Secret::new(key)) })
                .map(|front| front.address.to_string())
                .map_err(|error| error.trouble)
        };
        assert_eq!(made("example.com", "k").unwrap(), "https://example.com/");
        assert_eq!(made("127.0.0.1:8443", "k").unwrap(), "https://127.0.0.1:8443/");
        assert_eq!(made("http://127.0.0.1:80", "k").unwrap(), "http://127.0.0.1/");
        assert_eq!(made("a b", "k"), Err(Trouble::Broken));
        assert_eq!(made("example.com", ""), Err(Trouble::Broken));
        let front = Front::new(&Config::new(Secret::new("very-secret"))).unwrap();
        assert!(!format!("{front:?}").contains("very-secret"));
    }
}
