//! Telling somebody outside what happened, so that they can know it came from here.
//!
//! ```text
//! POST url
//! content-type: application/json
//! stead-event-id: evt-0123456789abcdef          the same however often it is sent
//! stead-timestamp: 1763251200                   seconds since the epoch, when it was sent
//! stead-signature: v1=<hex of HMAC-SHA256(secret, timestamp "." body)>
//! ```
//!
//! Whoever answers with 2xx has it; anything else is tried again, later and later, until [`ATTEMPTS`] are over. So it is
//! told at least once, and twice if an answer was lost: `stead-event-id` tells.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write;
use std::time::Duration;
use stead_model::env::Secret;

/// After which nobody is told any more: about half a day of trying.
pub(crate) const ATTEMPTS: u32 = 18;
/// The first wait; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// For one attempt, from the name of the host to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where to, and by whose word.
#[derive(Debug, Clone)]
pub struct Webhook {
    pub url: String,
    pub secret: Secret,
}

impl Webhook {
    /// An address that can be used. What it says about a wrong one doesn't repeat it: addresses have passwords in them.
    pub fn new(url: &str, secret: Secret) -> Result<Self, String> {
        let uri: ureq::http::Uri = url.parse().map_err(|_| "it is not an address".to_owned())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err("write it as `https://host/path`".to_owned());
        }
        Ok(Self { url: url.to_owned(), secret })
    }

    /// One attempt. Blocks for as long as [`PATIENCE`].
    pub(crate) fn send(&self, id: &str, body: &str, seconds: u64) -> Result<(), String> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
            .tls_config(ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build())
            .build()
            .into();
        let answer = agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("stead-event-id", id)
            .header("stead-timestamp", seconds.to_string())
            .header("stead-signature", sign(self.secret.reveal(), seconds, body))
            .send(body);
        match answer {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("it answered {}", answer.status().as_u16())),
            Err(error) => Err(error.to_string().replace(&self.url, "it")),
        }
    }
}

/// What goes into `stead-signature`.
pub(crate) fn sign(secret: &[u8], seconds: u64, body: &str) -> String {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let mut text = "v1=".to_owned();
    for byte in mac.finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// How long after a failed attempt the next one is made; none after the last. `chance` spreads those who failed together:
/// half of the wait is fixed, half is chance.
pub(crate) fn wait_after(attempts: u32, chance: u64) -> Option<Duration> {
    if attempts >= ATTEMPTS {
        return None;
    }
    let longest = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(LONGEST_WAIT);
    let half = longest / 2;
    let spread = u64::try_from(half.as_millis()).unwrap_or(u64::MAX).max(1);
    Some(half + Duration::from_millis(chance % spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_rfc_4231_over_time_and_body() {
        // `printf 1763251200.'{"a":1}' | openssl dgst -sha256 -hmac key`
        let signed = sign(b"key", 1_763_251_200, r#"{"a":1}"#);
        assert_eq!(signed, "v1=83af542c779a111f7e6c144ebe819e2efbee7b99f042497568dcf19cb1d5e150");
        assert_ne!(signed, sign(b"key", 1_763_251_201, r#"{"a":1}"#));
        assert_ne!(signed, sign(b"kez", 1_763_251_200, r#"{"a":1}"#));
    }

    #[test]
    fn waits_grow_to_an_hour_and_end() {
        let waits: Vec<_> = (1..=ATTEMPTS).map(|attempts| wait_after(attempts, u64::MAX)).collect();
        assert!(waits.iter().flatten().all(|wait| *wait >= FIRST_WAIT / 2 && *wait <= LONGEST_WAIT), "{waits:?}");
        assert_eq!(waits.last(), Some(&None));
        let shortest: Duration = (1..ATTEMPTS).filter_map(|attempts| wait_after(attempts, 0)).sum();
        assert!(shortest > Duration::from_hours(2) && shortest < Duration::from_hours(12), "{shortest:?}");
        assert_ne!(wait_after(5, 1), wait_after(5, 2), "not all at once");
    }

    #[test]
    fn a_wrong_address_is_refused_and_not_repeated() {
        for bad in ["", "ftp://u:hunter2@h/x", "hunter2", "https://", "http:///x"] {
            let error = Webhook::new(bad, Secret::new("s")).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let webhook = Webhook::new("https://h.example/x", Secret::new("hunter2")).unwrap();
        assert!(!format!("{webhook:?}").contains("hunter2"));
    }
}
