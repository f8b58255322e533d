//! What every request passes first: is it for us, from a page of ours, by somebody we know, and not too often?

use super::App;
use super::access::{COOKIE, Caller};
use super::listen::Via;
use super::problem::Problem;
use crate::token::Tokens;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::num::NonZeroU32;
use stead_model::ids::TokenId;

/// The rules.
#[derive(Debug)]
pub struct Guard {
    pub tokens: Tokens,
    /// The name, without a port, of where we listen.
    own: String,
    /// More that we answer to, and whose pages may use us.
    allowed: Vec<String>,
    pace: Option<DefaultKeyedRateLimiter<TokenId>>,
}

impl Guard {
    /// `per_second` requests a token; absent: any number.
    pub fn new(tokens: Tokens, own: &str, allowed: Vec<String>, per_second: Option<NonZeroU32>) -> Self {
        let allowed = allowed.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        let pace = per_second.map(|per_second| RateLimiter::keyed(Quota::per_second(per_second)));
        Self { tokens, own: own.to_ascii_lowercase(), allowed, pace }
    }

    fn is_our_host(&self, host: &str) -> bool {
        let name = host_name(host).to_ascii_lowercase();
        matches!(name.as_str(), "localhost" | "127.0.0.1" | "[::1]") || name == self.own || self.allowed.contains(&name)
    }

    fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        if headers.get_all(header::HOST).iter().count() > 1 {
            return Err(Problem::invalid("a request is for one host"));
        }
        let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
        // An address in the line itself counts beside it.
        let written = uri.authority().map(axum::http::uri::Authority::as_str);
        let named: Vec<&str> = [host, written].into_iter().flatten().collect();
        let foreign = if named.is_empty() { Some("") } else { named.into_iter().find(|host| !self.is_our_host(host)) };
        let Some(host) = foreign else { return Ok(()) };
        let shown: String = host.chars().take(100).collect();
        Err(Problem::new("forbidden", format!("this server doesn't answer to the host `{shown}`"))
            .hint("name it in `server.allowed_hosts`"))
    }

    /// A page of somebody else's may not use the cookie of a person who visits it. Cookies know no ports: what another
    /// server on the same machine shows is somebody else's, too.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or("?");
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
        let same = host.eq_ignore_ascii_case(asked);
        if same || self.allowed.contains(&host_name(host).to_ascii_lowercase()) {
            return Ok(());
        }
        let shown: String = origin.chars().take(100).collect();
        Err(Problem::new("forbidden", format!("a page of `{shown}` may not use this server"))
            .hint("name its host in `server.allowed_hosts`"))
    }

    async fn check_token(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(token) = token_of(headers) else {
            return Err(Problem::new("unauthorized", "this needs a token").hint(
                "send `Authorization: Bearer TOKEN`; the first token is in the file `token` of the data directory",
            ));
        };
        let access = self.tokens.check(token).await.map_err(|error| Problem::from(crate::Error::from(error)))?;
        access.map(Caller).ok_or_else(|| {
            Problem::new("unauthorized", "the token is not valid").hint("`stead token ls` shows which there are")
        })
    }

    fn check_pace(&self, caller: &Caller) -> Result<(), Problem> {
        let Some(pace) = &self.pace else { return Ok(()) };
        pace.check_key(&caller.0.token).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            Problem::new("limit_reached", "too many requests with this token").retry_after(wait.as_secs().max(1))
        })
    }
}

/// A host without its port; an address in brackets keeps them.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => host.get(..end + 2).unwrap_or(host),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// The token of a request: its own, else the cookie's.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let own = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(own) = own {
        let (scheme, token) = own.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim());
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

/// Whether a place may be asked by anybody: whether we live, the page that takes a token, and links that are signed.
fn is_open(uri: &Uri) -> bool {
    let path = uri.path();
    matches!(path, "/healthz" | "/readyz")
        || path.starts_with("/api/download/")
        || (path == "/" && uri.query().is_some_and(|query| query.starts_with("token=")))
}

impl Guard {
    /// Lets a request in, and says by whom it is; none where anybody may ask.
    async fn admit(&self, head: &Parts) -> Result<Option<Caller>, Problem> {
        let via = head.extensions.get::<Via>().copied().unwrap_or(Via::Network);
        if via == Via::Socket {
            return Ok(Some(Caller::local()));
        }
        self.check_host(&head.headers, &head.uri)?;
        self.check_origin(&head.headers)?;
        if is_open(&head.uri) {
            return Ok(None);
        }
        let caller = self.check_token(&head.headers).await?;
        self.check_pace(&caller)?;
        Ok(Some(caller))
    }
}

pub(super) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match app.guard.admit(&head).await {
        Ok(caller) => {
            if let Some(caller) = caller {
                head.extensions.insert(caller);
            }
            next.run(Request::from_parts(head, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_from_its_port() {
        let names = [("a:80", "a"), ("a", "a"), ("[::1]:7878", "[::1]"), ("[::1]", "[::1]"), ("", ""), (":80", "")];
        for (host, name) in names {
            assert_eq!(host_name(host), name, "{host}");
        }
    }

    #[test]
    fn a_token_is_read_from_the_header_before_the_cookie() {
        let headers = |pairs: &[(header::HeaderName, &'static str)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value)))
                .collect::<HeaderMap>()
        };
        let cookie = (header::COOKIE, "a=b; stead_token=c");
        assert_eq!(token_of(&headers(std::slice::from_ref(&cookie))), Some("c"));
        assert_eq!(token_of(&headers(&[cookie.clone(), (header::AUTHORIZATION, "bearer  t")])), Some("t"));
        assert_eq!(token_of(&headers(&[cookie, (header::AUTHORIZATION, "Basic t")])), None);
        assert_eq!(token_of(&headers(&[])), None);
    }
}
