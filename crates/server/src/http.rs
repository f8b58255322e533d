//! The way in over HTTP: requests become calls on [`Stead`], answers become JSON, SSE or bytes. Nothing is decided here
//! and nothing lasts longer than its request: what a handler begins is finished by the layers, whoever hangs up.

mod access;
mod agents;
mod body;
mod commands;
mod describe;
mod exec;
mod files;
mod gate;
mod guard;
mod held;
mod leases;
mod leftover;
mod listen;
mod lists;
mod pages;
mod problem;
mod projects;
mod pty;
mod sse;
mod status;
mod terminals;
mod threads;
mod tokens;
mod trace;
mod view;

use access::Schemes;
pub use gate::Gate;
pub use guard::Guard;
pub use listen::{Doors, Limits, serve};
pub use problem::Problem;
pub(crate) use view::status_name;

use crate::agents::Agents;
use crate::files::LinkKey;
use crate::stead::Stead;
use axum::Router;
use axum::extract::FromRef;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// What every handler may use.
#[derive(Debug, Clone)]
pub struct App {
    /// Where it listens.
    pub address: std::net::SocketAddr,
    pub stead: Stead,
    pub agents: Agents,
    pub guard: Arc<Guard>,
    /// Signs links to files.
    pub links: Arc<LinkKey>,
}

impl FromRef<App> for Stead {
    fn from_ref(app: &App) -> Self {
        app.stead.clone()
    }
}

impl FromRef<App> for Agents {
    fn from_ref(app: &App) -> Self {
        app.agents.clone()
    }
}

#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "stead",
        description = "Durable terminals, workspaces and sessions on compute that comes and goes. Every error has the \
                       same shape; every list has `limit` and `cursor`; reading never wakes anything.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&Schemes),
    security(("bearer" = []), ("cookie" = [])),
    tags(
        (name = "projects", description = "Named workspaces that threads share, and how long they are kept"),
        (name = "threads", description = "Conversations and what belongs to them"),
        (name = "terminals", description = "Durable shell state"),
        (name = "commands", description = "Running things, and what became of them"),
        (name = "files", description = "Files of a sandbox, also while its instance sleeps or is gone"),
        (name = "leases", description = "Compute: leases, instances, providers"),
        (name = "agents", description = "Terminal agents as durable sessions"),
        (name = "server", description = "The server itself"),
    )
)]
struct Description;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(projects::routes())
        .merge(threads::routes())
        .merge(terminals::routes())
        .merge(exec::routes())
        .merge(commands::routes())
        .merge(files::routes())
        .merge(leases::routes())
        .merge(lists::routes())
        .merge(pty::routes())
        .merge(tokens::routes())
        .merge(agents::routes())
        .merge(status::routes())
}

/// The description of everything that can be asked, as JSON.
pub fn description() -> String {
    let (_, mut api) = routes().split_for_parts();
    describe::finish(&mut api);
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Everything, behind its guard.
pub fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = router.merge(pages::routes()).fallback(problem::no_such_place);
    let router = router.method_not_allowed_fallback(problem::no_such_method);
    let guard = axum::middleware::from_fn_with_state(app.clone(), guard::check);
    let trace = axum::middleware::from_fn_with_state(app.clone(), trace::request);
    let most = axum::extract::DefaultBodyLimit::max(body::MOST_BODY);
    router.layer(most).layer(guard).layer(trace).with_state(app)
}
