//! Tokens: what lets people and programs in.
//!
//! A token is `stead_` and 64 hexadecimal digits of 32 random bytes, shown once; what is kept is its SHA-256. So much
//! chance needs no slow hash. The first one is made by the first start, in the file `DATA/token`, and may do everything;
//! whoever can read that file owns the data anyway.
//!
//! ```text
//! text ─► SHA-256 ─► the one of DATA/token? ─► admin
//!                └─► cache ─► store, by hash ─► good now? ─► Access
//! ```

mod first;

use crate::clock::Clock;
use crate::store::{Page, Store, StoreError, TokenHash};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_model::access::{Access, Scope, Token};
use stead_model::clock::Timestamp;
use stead_model::ids::TokenId;
use subtle::ConstantTimeEq;

/// What every token begins with, so that people and scanners know one when they see it.
const PREFIX: &str = "stead_";
const BYTES: usize = 32;

/// How long what was read of a token counts. A revocation here counts at once; one by another process after this.
const REMEMBERED: Duration = Duration::from_secs(5);

/// How old the note of a token's last use may be.
const TO_THE: Duration = Duration::from_mins(1);

/// Tokens that are remembered; more are in use at once nowhere.
const MOST_REMEMBERED: usize = 1024;

/// The longest name of a token.
const MOST_NAME: usize = 100;

/// The text that opens. It is printed only where somebody asks for it by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A new one, that nobody can guess.
    fn make() -> Result<Self, TokenError> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::NoChance(error.to_string()))?;
        Ok(Self(bytes.iter().fold(PREFIX.to_owned(), |text, byte| text + &format!("{byte:02x}"))))
    }

    /// The one that a text is, if it can be one.
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
        (digits.len() == 2 * BYTES && plain).then(|| Self(text.to_owned()))
    }

    fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{0}")]
    Invalid(String),
    #[error("the file of the first token, `{path}`, can't be used: {what}")]
    File { path: String, what: String },
    #[error("the system gives no random bytes: {0}")]
    NoChance(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TokenError> for crate::Error {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(message) => Self::Invalid(message),
            TokenError::Store(error) => error.into(),
            TokenError::File { .. } | TokenError::NoChance(_) => Self::Io(error.to_string()),
        }
    }
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scope: Scope,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Remembered {
    token: Token,
    read_at: Timestamp,
    /// When its use was last noted in the store.
    noted_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Cache {
    by_hash: HashMap<TokenHash, Remembered>,
    /// Grows with each revocation: what was read before one is not remembered after it.
    revocations: u64,
}

#[derive(Debug)]
pub struct Tokens {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    first: Secret,
    first_hash: TokenHash,
    cache: Mutex<Cache>,
}

impl Tokens {
    /// Reads `DATA/token`, or makes it.
    pub fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>, data: &Path) -> Result<Self, TokenError> {
        let first = first::read_or_make(&data.join("token"))?;
        Ok(Self { store, clock, first_hash: first.hash(), first, cache: Mutex::default() })
    }

    /// The token of `DATA/token`, for whoever may have it: a line that a person opens.
    pub fn first(&self) -> &Secret {
        &self.first
    }

    /// The name under which the token of `DATA/token` acts.
    pub fn first_id() -> TokenId {
        TokenId::made_of([0; 8])
    }

    /// Makes a token. Its secret is given here and never again.
    pub async fn create(&self, new: NewToken) -> Result<(Token, Secret), TokenError> {
        let name = new.name.trim();
        if name.is_empty() || name.chars().count() > MOST_NAME || name.chars().any(char::is_control) {
            return Err(TokenError::Invalid(format!("a token's name has 1-{MOST_NAME} plain characters")));
        }
        let now = self.clock.now();
        if new.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(TokenError::Invalid("a token that has expired already is of no use".to_owned()));
        }
        if let Scope::Projects { projects, .. } = &new.scope {
            if projects.is_empty() {
                return Err(TokenError::Invalid("a token that is bound to projects names at least one".to_owned()));
            }
            for project in projects {
                if self.store.project(project).await?.is_none() {
                    return Err(StoreError::NotFound { kind: "project", id: project.to_string() }.into());
                }
            }
        }
        let secret = Secret::make()?;
        let mut entropy = [0; 8];
        getrandom::fill(&mut entropy).map_err(|error| TokenError::NoChance(error.to_string()))?;
        let token = Token {
            id: TokenId::made_of(entropy),
            name: name.to_owned(),
            scope: new.scope,
            created_at: now,
            last_used_at: None,
            expires_at: new.expires_at,
            revoked_at: None,
        };
        self.store.put_token(&token, &secret.hash()).await?;
        Ok((token, secret))
    }

    /// Newest first, with those that are over.
    pub async fn list(&self, page: &Page) -> Result<Vec<Token>, TokenError> {
        Ok(self.store.tokens(page).await?)
    }

    /// From when this returns it opens nothing. Doing it twice does it once.
    pub async fn revoke(&self, id: &TokenId) -> Result<Token, TokenError> {
        self.store.revoke_token(id, self.clock.now()).await?;
        {
            let mut cache = self.cache();
            cache.revocations += 1;
            cache.by_hash.retain(|_, remembered| remembered.token.id != *id);
        }
        let token = self.store.token(id).await?;
        token.ok_or_else(|| StoreError::NotFound { kind: "token", id: id.to_string() }.into())
    }

    /// What a text opens: nothing if it is no token, or one that is over. An error is no answer: nobody could look.
    pub async fn check(&self, text: &str) -> Result<Option<Access>, TokenError> {
        let Some(secret) = Secret::parse(text) else { return Ok(None) };
        let hash = secret.hash();
        if same(&hash, &self.first_hash) {
            return Ok(Some(Access { token: Self::first_id(), scope: Scope::Admin }));
        }
        let now = self.clock.now();
        let (known, revocations) = self.remembered(&hash, now);
        let token = if let Some(token) = known {
            token
        } else {
            let Some((token, stored)) = self.store.token_by_hash(&hash).await? else { return Ok(None) };
            if !same(&hash, &stored) {
                return Ok(None);
            }
            self.remember(hash, &token, now, revocations);
            token
        };
        if !token.is_good(now) {
            return Ok(None);
        }
        self.note_use(&hash, &token, now).await;
        Ok(Some(Access { token: token.id, scope: token.scope }))
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, hash: &TokenHash, now: Timestamp) -> (Option<Token>, u64) {
        let cache = self.cache();
        let fresh = |remembered: &&Remembered| now.since(remembered.read_at) < REMEMBERED && now >= remembered.read_at;
        (cache.by_hash.get(hash).filter(fresh).map(|remembered| remembered.token.clone()), cache.revocations)
    }

    /// Only if nothing has been revoked since it was asked for.
    fn remember(&self, hash: TokenHash, token: &Token, now: Timestamp, revocations: u64) {
        let mut cache = self.cache();
        if cache.revocations != revocations {
            return;
        }
        if cache.by_hash.len() >= MOST_REMEMBERED {
            cache.by_hash.clear();
        }
        let noted_at = cache.by_hash.get(&hash).and_then(|known| known.noted_at).max(token.last_used_at);
        cache.by_hash.insert(hash, Remembered { token: token.clone(), read_at: now, noted_at });
    }

    /// Notes that a token was used, unless that has been noted within the last minute.
    async fn note_use(&self, hash: &TokenHash, token: &Token, now: Timestamp) {
        {
            let mut cache = self.cache();
            let Some(remembered) = cache.by_hash.get_mut(hash) else { return };
            if remembered.noted_at.is_some_and(|noted_at| now.since(noted_at) < TO_THE) {
                return;
            }
            // Also if the write fails: a full disk is not asked again with every request.
            remembered.noted_at = Some(now);
        }
        if let Err(error) = self.store.touch_token(&token.id, now).await {
            tracing::warn!(%error, token = %token.id, "the use of a token could not be noted");
        }
    }
}

/// Whether two hashes are the same, in a time that doesn't tell how much of them is.
fn same(one: &TokenHash, other: &TokenHash) -> bool {
    one.0.ct_eq(&other.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_never_the_same_and_never_printed() {
        let (one, other) = (Secret::make().unwrap(), Secret::make().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), PREFIX.len() + 64);
        assert_eq!(Secret::parse(one.reveal()), Some(one.clone()));
        assert_eq!(format!("{one:?} {:?}", one.hash()), "Secret(***) TokenHash(***)");
    }

    #[test]
    fn what_is_no_token_is_not_even_looked_for() {
        let good = Secret::make().unwrap();
        let good = good.reveal();
        let upper = good.to_uppercase();
        let (short, long, spaced) = (&good[..good.len() - 1], format!("{good}0"), format!("{good}\n"));
        for bad in ["", "stead_", &good[6..], &upper, short, &long, &spaced, "stead_\u{e9}"] {
            assert_eq!(Secret::parse(bad), None, "{bad:?}");
        }
    }
}
