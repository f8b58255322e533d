//! Lists, a page at a time.

use super::App;
use super::access::{All, Caller, OfTerminal, OfThread};
use super::body::{Named, Query, named_as as id};
use super::problem::{Answer, ErrorBody, Problem};
use super::view::{
    CommandView, EventView, KeptView, LeaseView, List, ProviderShown, SessionView, TerminalShown, ThreadView,
};
use crate::lease::Ready;
use crate::stead::{self, Listed, Stead};
use axum::extract::State;
use serde::Deserialize;
use stead_model::ids::{LeaseId, ProviderName};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(threads))
        .routes(routes!(commands))
        .routes(routes!(terminals))
        .routes(routes!(states))
        .routes(routes!(sessions))
        .routes(routes!(leases))
        .routes(routes!(events))
        .routes(routes!(providers))
}

/// Which page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl Page {
    pub(super) fn list(self) -> stead::List {
        stead::List { limit: self.limit, cursor: self.cursor }
    }
}

impl<T, V: From<T> + ToSchema> From<Listed<T>> for List<V> {
    fn from(listed: Listed<T>) -> Self {
        Self { items: listed.items.into_iter().map(V::from).collect(), next_cursor: listed.next_cursor }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ThreadsPage {
    project_id: Option<String>,
    /// 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Threads, newest first.
#[utoipa::path(
    get, path = "/api/threads", tag = "threads", params(ThreadsPage),
    responses((status = 200, body = List<ThreadView>), (status = "default", body = ErrorBody))
)]
async fn threads(
    State(stead): State<Stead>,
    caller: Caller,
    Query(page): Query<ThreadsPage>,
) -> Answer<axum::Json<List<ThreadView>>> {
    let project = caller.project(page.project_id.map(|text| id(&text)).transpose()?)?;
    let list = stead::List { limit: page.limit, cursor: page.cursor };
    let listed = stead.list_threads(project.as_ref(), &list).await?;
    let mut items = Vec::new();
    for thread in listed.items {
        items.push(super::threads::shown(&stead, thread).await?);
    }
    Ok(axum::Json(List { items, next_cursor: listed.next_cursor }))
}

/// The commands of a thread, newest first.
#[utoipa::path(
    get, path = "/api/threads/{id}/commands", tag = "commands", params(("id" = String, Path), Page),
    responses((status = 200, body = List<CommandView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn commands(
    State(stead): State<Stead>,
    OfThread(id): OfThread,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<CommandView>>> {
    Ok(axum::Json(stead.list_commands(&id, &page.list()).await?.into()))
}

/// The versions of a terminal whose content changed, newest first; the last 100.
#[utoipa::path(
    get, path = "/api/terminals/{id}/states", tag = "terminals", params(("id" = String, Path), Page),
    responses((status = 200, body = List<KeptView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn states(
    State(stead): State<Stead>,
    OfTerminal(id): OfTerminal,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<KeptView>>> {
    Ok(axum::Json(stead.list_states(&id, &page.list()).await?.into()))
}

/// All terminals, newest first.
#[utoipa::path(
    get, path = "/api/terminals", tag = "terminals", params(Page),
    responses((status = 200, body = List<TerminalShown>), (status = "default", body = ErrorBody))
)]
async fn terminals(
    State(stead): State<Stead>,
    _: All,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<TerminalShown>>> {
    Ok(axum::Json(stead.list_terminals(None, &page.list()).await?.into()))
}

/// All sessions, newest first.
#[utoipa::path(
    get, path = "/api/sessions", tag = "threads", params(Page),
    responses((status = 200, body = List<SessionView>), (status = "default", body = ErrorBody))
)]
async fn sessions(
    State(stead): State<Stead>,
    _: All,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<SessionView>>> {
    let Listed { items, next_cursor } = stead.list_sessions(&page.list()).await?;
    let now = stead.present_moment();
    let items = items.iter().map(|session| SessionView::new(session, &now)).collect();
    Ok(axum::Json(List { items, next_cursor }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LeasesPage {
    provider: Option<String>,
    /// 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Leases as they were last seen, newest first.
#[utoipa::path(
    get, path = "/api/leases", tag = "leases", params(LeasesPage),
    responses((status = 200, body = List<LeaseView>), (status = "default", body = ErrorBody))
)]
async fn leases(
    State(stead): State<Stead>,
    _: All,
    Query(page): Query<LeasesPage>,
) -> Answer<axum::Json<List<LeaseView>>> {
    let provider: Option<ProviderName> = page.provider.map(|text| id(&text)).transpose()?;
    let list = stead::List { limit: page.limit, cursor: page.cursor };
    let listed = stead.list_leases(provider.as_ref(), &list).await?;
    let mut items = Vec::new();
    for lease in listed.items {
        let instance = stead.instance_of(&lease).await?;
        let terminals = stead.terminals_of_lease(&lease.id).await?;
        let terminals = terminals.into_iter().map(|terminal| terminal.id).collect();
        items.push(LeaseView::new(Ready { lease, instance }, terminals));
    }
    Ok(axum::Json(List { items, next_cursor: listed.next_cursor }))
}

/// What has happened to a lease, oldest first.
#[utoipa::path(
    get, path = "/api/leases/{id}/events", tag = "leases", params(("id" = String, Path), Page),
    responses((status = 200, body = List<EventView>), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn events(
    State(stead): State<Stead>,
    _: All,
    Named(id): Named<LeaseId>,
    Query(page): Query<Page>,
) -> Answer<axum::Json<List<EventView>>> {
    Ok(axum::Json(stead.list_lease_events(&id, &page.list()).await?.into()))
}

/// The providers that are configured, and whether each works here.
#[utoipa::path(
    get, path = "/api/providers", tag = "leases",
    responses((status = 200, body = List<ProviderShown>), (status = "default", body = ErrorBody))
)]
async fn providers(State(stead): State<Stead>, _: All) -> Result<axum::Json<List<ProviderShown>>, Problem> {
    let items = stead.providers().await.into_iter().map(Into::into).collect();
    Ok(axum::Json(List { items, next_cursor: None }))
}
