//! Who may ask: the token a request carries, and what is allowed with it.

use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

/// The name of the cookie that pages and what they open carry.
pub(super) const COOKIE: &str = "stead_token";

/// The tokens that open the door.
pub struct Keys {
    bootstrap: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(***)")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("can't use the token file `{}`", path.display())]
pub struct KeysError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Keys {
    /// Reads the token that lies in the data directory, or makes it.
    pub fn open(data: &Path) -> Result<Self, KeysError> {
        let path = data.join("token");
        let failed = |source| KeysError { path: path.clone(), source };
        crate::secret_file::read_or_make(&path, || format!("stead_{}", crate::secret_file::random_hex(32)))
            .map(|bootstrap| Self { bootstrap })
            .map_err(failed)
    }

    /// The token itself, for whoever may read the data directory anyway.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Who carries this token, if anybody may.
    pub(super) fn check(&self, token: &str) -> Option<Caller> {
        let same: bool = token.as_bytes().ct_eq(self.bootstrap.as_bytes()).into();
        same.then(|| Caller { token: "bootstrap".to_owned() })
    }
}

/// Whoever makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of the token, for logs and limits.
    pub(crate) token: String,
}

impl Caller {
    /// Whoever may open the socket in the data directory.
    pub(super) fn local() -> Self {
        Self { token: "socket".to_owned() }
    }
}

/// The two ways to show a token, for the description.
#[derive(Debug)]
pub(super) struct Schemes;

impl Modify for Schemes {
    fn modify(&self, api: &mut OpenApi) {
        let components = api.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let cookie = ApiKey::Cookie(ApiKeyValue::new(COOKIE));
        components.add_security_scheme("cookie", SecurityScheme::ApiKey(cookie));
    }
}
