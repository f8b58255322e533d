//! Around every request: a name for it, a line in the log, our version in the answer.

use super::App;
use crate::clock::fresh_digits;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;
use tracing::Instrument;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("stead-version");

/// The name that a client gave its request, if it is fit for a log.
fn given(request: &Request) -> Option<String> {
    let text = request.headers().get(&REQUEST_ID)?.to_str().ok()?;
    let fit = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fit.then(|| text.to_owned())
}

/// A method as it is counted. Anybody can make up methods, and each would be a series that is kept for ever.
fn counted(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

pub(super) async fn request(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = given(&request).unwrap_or_else(fresh_digits);
    // The route, not the path: names in it belong to whoever chose them, and its query may hold a token.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().clone();
    let span = tracing::info_span!("request", id, %method, route = route.as_deref().unwrap_or("none"));
    let begun = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let _inside = span.enter();
    tracing::debug!(
        status = response.status().as_u16(),
        micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
        "answered"
    );
    app.stead.count_request(counted(&method), route.as_deref().unwrap_or("none"), response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_somebody_made_up_is_not_a_series_of_its_own() {
        assert_eq!(counted(&Method::PUT), "PUT");
        for made_up in [&b"BREW"[..], b"GETT", b"get"] {
            assert_eq!(counted(&Method::from_bytes(made_up).unwrap()), "other");
        }
    }
}
