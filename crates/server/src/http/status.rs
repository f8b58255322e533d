//! The server itself: whether it lives, what it is, what can be asked of it.

use super::App;
use super::access::All;
use super::problem::{Answer, ErrorBody, Problem};
use crate::stead::Unready;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(version))
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(openapi))
        .routes(routes!(metrics))
}

#[derive(Debug, Serialize, ToSchema)]
struct About {
    name: &'static str,
    version: &'static str,
    /// Where it listens.
    #[schema(example = "127.0.0.1:7878")]
    address: String,
    /// Versions of the protocol between server and stewards that this one speaks.
    steward_protocol: Range,
}

#[derive(Debug, Serialize, ToSchema)]
struct Range {
    oldest: u32,
    newest: u32,
}

/// What this is.
#[utoipa::path(get, path = "/api/version", tag = "server", responses((status = 200, body = About)))]
async fn version(State(app): State<App>) -> Json<About> {
    let versions = stead_model::proto::VERSIONS;
    let range = Range { oldest: *versions.start(), newest: *versions.end() };
    Json(About {
        name: "stead",
        version: env!("CARGO_PKG_VERSION"),
        address: app.address.to_string(),
        steward_protocol: range,
    })
}

/// Whether the process lives. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "server", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it can do its work. Needs no token.
///
/// It can when it has looked at what was left by the one before it, its disk has room, and its database can be written;
/// else `details.reason` is `recovering`, `no_room`, `room_unknown` or `database_not_writable`.
#[utoipa::path(
    get, path = "/readyz", tag = "server", security(()),
    responses((status = 200, body = String, content_type = "text/plain"), (status = 503, body = ErrorBody))
)]
async fn readyz(State(app): State<App>) -> Answer<&'static str> {
    app.stead.readiness().await.map_err(|unready| {
        let problem = Problem::new("unavailable", unready.to_string()).details(json!({ "reason": unready.reason() }));
        match unready {
            Unready::NoRoom { .. } => problem.hint(super::problem::MAKE_ROOM),
            Unready::Unknown(_) | Unready::NotWritable(_) => problem,
        }
    })?;
    Ok("ok\n")
}

/// What is counted, as Prometheus reads it.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = "default", body = ErrorBody))
)]
async fn metrics(State(app): State<App>, _: All) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.stead.metrics_text().await)
}

/// This description.
#[utoipa::path(get, path = "/api/openapi.json", tag = "server", responses((status = 200, body = serde_json::Value)))]
async fn openapi() -> impl IntoResponse {
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(super::description);
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}
