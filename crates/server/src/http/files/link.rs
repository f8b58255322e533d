//! Links with which a browser fetches a file, for a while and without a token.

use super::super::App;
use super::super::access::ReadsThread;
use super::super::body::{Json, Named};
use super::super::problem::{Answer, ErrorBody, Problem};
use super::query::At;
use super::view::encode;
use crate::files::Link;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::ThreadId;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(link)).routes(routes!(download))
}

/// Long enough for a person to click.
const USUAL: u64 = 300;
const LONGEST: u64 = 86_400;

fn usual() -> u64 {
    USUAL
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LinkBody {
    path: String,
    /// From 1 to 86400.
    #[serde(default = "usual")]
    #[schema(default = 300)]
    expires_in_s: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct LinkView {
    /// Below the address of this server. Whoever has it can fetch the file until then.
    url: String,
    #[schema(format = DateTime)]
    expires_at: String,
}

/// A link to a file for a browser: it needs no token, and works for a while.
#[utoipa::path(
    post, path = "/api/threads/{id}/files/link", tag = "files", params(("id" = String, Path)), request_body = LinkBody,
    responses((status = 200, body = LinkView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn link(
    State(app): State<App>,
    ReadsThread(id): ReadsThread,
    Json(body): Json<LinkBody>,
) -> Answer<axum::Json<LinkView>> {
    if !(1..=LONGEST).contains(&body.expires_in_s) {
        return Err(Problem::invalid(format!("`expires_in_s` is from 1 to {LONGEST}")));
    }
    let thread = app.stead.thread(&id).await?;
    // A link to what isn't there, or can't be had, is of no use.
    drop(app.stead.files(&id).await?.open(&body.path).await?);
    let expires_at = app.stead.now().after(Duration::from_secs(body.expires_in_s));
    let path = body.path.as_bytes();
    let signed = app.links.sign(&Link { thread: &id, thread_made_at: thread.created_at, path, expires_at });
    let url = format!("/api/download/{id}?path={}&expires={}&sig={signed}", encode(path), expires_at.0);
    Ok(axum::Json(LinkView { url, expires_at: expires_at.to_string() }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Signed {
    expires: u64,
    sig: String,
}

/// What a link leads to. No token; the signature says who allowed it.
#[utoipa::path(
    get, path = "/api/download/{id}", tag = "files", security(()),
    params(("id" = String, Path), ("path" = String, Query), Signed),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 403, body = ErrorBody, description = "`forbidden`: not a link of ours, or its time is over"),
        (status = 404, body = ErrorBody), (status = "default", body = ErrorBody)
    )
)]
async fn download(
    State(app): State<App>,
    Named(id): Named<ThreadId>,
    at: At<Signed>,
    headers: HeaderMap,
) -> Answer<Response> {
    let refused = || Problem::new("forbidden", "this link is not valid, or its time is over").hint("ask for a new one");
    let path = at.path().map_err(|_| refused())?;
    // Whoever has no link isn't told which threads there are.
    let thread = app.stead.thread(&id).await.map_err(|_| refused())?;
    let expires_at = Timestamp(at.rest.expires);
    let link = Link { thread: &id, thread_made_at: thread.created_at, path, expires_at };
    if !app.links.allows(&link, &at.rest.sig, app.stead.now()) {
        return Err(refused());
    }
    let reading = app.stead.files(&id).await?.open(path).await?;
    let name = as_attachment(path);
    let mut response = super::answer(super::Sent::Disk(Box::new(reading)), &headers)?;
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// To be saved, never shown, under its last name.
fn as_attachment(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(b"file");
    let plain: String = String::from_utf8_lossy(name)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._- ".contains(c) { c } else { '_' })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", encode(name))
}

#[cfg(test)]
mod tests {
    use super::as_attachment;

    #[test]
    fn a_name_in_a_header_can_say_nothing_but_itself() {
        assert_eq!(as_attachment(b"a/b.txt"), "attachment; filename=\"b.txt\"; filename*=UTF-8''b.txt");
        let odd = as_attachment("x/\"ü;\r\n\\".as_bytes());
        assert_eq!(odd, "attachment; filename=\"______\"; filename*=UTF-8''%22%C3%BC%3B%0D%0A%5C");
        assert_eq!(as_attachment(b"\xff"), "attachment; filename=\"_\"; filename*=UTF-8''%FF");
    }
}
