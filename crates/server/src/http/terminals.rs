//! Terminals: their state, its history, and more of them.

use super::App;
use super::access::{OfTerminal, OfThread};
use super::body::{Json, Query};
use super::lists::Page;
use super::problem::{Answer, ErrorBody};
use super::view::{List, TerminalShown};
use crate::stead::Stead;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use std::collections::BTreeMap;
use stead_model::terminal::DEFAULT_NAME;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(of_thread, create))
        .routes(routes!(restore))
        .routes(routes!(delete))
}

/// Which terminal of a thread.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Its name; `default` if absent.
    terminal: Option<String>,
}

pub(super) fn default_name() -> String {
    DEFAULT_NAME.to_owned()
}

/// A terminal of a thread, with its state.
#[utoipa::path(
    get, path = "/api/threads/{id}/terminal", tag = "terminals", params(("id" = String, Path), Which),
    responses((status = 200, body = TerminalShown), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn show(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Query(which): Query<Which>,
) -> Answer<axum::Json<TerminalShown>> {
    let thread = stead.thread(&id).await?;
    let name = which.terminal.unwrap_or_else(default_name);
    Ok(axum::Json(stead.terminal(&thread.id, &name).await?.into()))
}

/// All terminals of a thread.
#[utoipa::path(
    get, path = "/api/threads/{id}/terminals", tag = "terminals", params(("id" = String, Path)),
    responses((status = 200, body = List<TerminalShown>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn of_thread(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<TerminalShown>>> {
    Ok(axum::Json(stead.list_terminals(Some(&id), &page.list()).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateTerminal {
    /// 1-64 of `A-Z a-z 0-9 . _ -`, starting with a letter or digit; one of a kind within its thread.
    name: String,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Make another terminal for a thread, on the same lease.
#[utoipa::path(
    post, path = "/api/threads/{id}/terminals", tag = "terminals", params(("id" = String, Path)), request_body = CreateTerminal,
    responses((status = 201, body = TerminalShown), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn create(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Json(body): Json<CreateTerminal>,
) -> Answer<(StatusCode, axum::Json<TerminalShown>)> {
    let env: Vec<_> = body.env.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    let terminal = stead.create_terminal(&id, &body.name, body.cwd.map(String::into_bytes), &env).await?;
    Ok((StatusCode::CREATED, axum::Json(terminal.into())))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Restore {
    version: u64,
}

/// Go back to the content of an earlier version, as a new one, in the live shell too.
#[utoipa::path(
    post, path = "/api/terminals/{id}/restore", tag = "terminals", params(("id" = String, Path)), request_body = Restore,
    responses((status = 200, body = TerminalShown), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn restore(
    State(stead): State<Stead>,
    OfTerminal(id): OfTerminal,
    Json(body): Json<Restore>,
) -> Answer<axum::Json<TerminalShown>> {
    Ok(axum::Json(stead.restore(&id, body.version).await?.into()))
}

/// Remove a terminal; what runs in it ends. The default one goes only with its thread.
#[utoipa::path(
    delete, path = "/api/terminals/{id}", tag = "terminals", params(("id" = String, Path)),
    responses((status = 204), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn delete(State(stead): State<Stead>, OfTerminal(id): OfTerminal) -> Answer<StatusCode> {
    stead.delete_terminal(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
