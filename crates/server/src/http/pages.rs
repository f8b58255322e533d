//! Pages for people: where they land, and the description of the interface, readable without a network.

use super::App;
use super::access::COOKIE;
use super::body::Query;
use super::problem::{Answer, Problem};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/", get(home)).route("/docs", get(docs))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrival {
    token: Option<String>,
}

/// With a token: it goes into a cookie, and out of the address bar and the history.
async fn home(State(app): State<App>, Query(arrival): Query<Arrival>) -> Answer<Response> {
    let Some(token) = arrival.token else {
        let page = include_str!("pages/home.html").replace("{version}", env!("CARGO_PKG_VERSION"));
        return Ok(page_of(page));
    };
    let known = app.guard.tokens.check(&token).await.map_err(|error| Problem::from(crate::Error::from(error)))?;
    if known.is_none() {
        return Err(Problem::new("unauthorized", "the token in this address is not valid"));
    }
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Problem::invalid("the token has odd characters"))?;
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn docs() -> Response {
    page_of(include_str!("pages/docs.html").to_owned())
}

/// Our pages load nothing from elsewhere and may not be framed.
fn page_of(text: String) -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                          frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, Html(text)).into_response()
}
