//! Who may ask for what. A handler names the right it needs by the type it takes: [`OfThread`], [`OfCommand`],
//! [`OfTerminal`] for what belongs to somebody's project, [`All`] for what belongs to everybody, [`Admin`] for the rest.
//! Without one of them it gets no id to work with.

use super::App;
use super::body::named;
use super::problem::{Answer, Problem};
use crate::error::Error;
use crate::token::Tokens;
use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use stead_model::access::{Access, Scope};
use stead_model::ids::{CommandId, ProjectId, TerminalId, ThreadId};
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

/// The name of the cookie that pages and what they open carry.
pub(super) const COOKIE: &str = "stead_token";

/// Whoever makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) Access);

impl Caller {
    /// Whoever may open the socket in the data directory owns it.
    pub(super) fn local() -> Self {
        Self(Access { token: Tokens::first_id(), scope: Scope::Admin })
    }

    /// Whether a request of this kind may touch what belongs to a project, or to none.
    pub(super) fn allow(&self, method: &Method, project: Option<&ProjectId>) -> Answer<()> {
        let allowed = if is_reading(method) { self.0.may_see(project) } else { self.0.may_change(project) };
        if allowed { Ok(()) } else { Err(forbidden("this token is not for that project")) }
    }

    /// The project that a list is bound to: what was asked for, if it may be; a token of one project needs no asking.
    pub(super) fn project(&self, asked: Option<ProjectId>) -> Answer<Option<ProjectId>> {
        let Some(projects) = self.0.projects() else { return Ok(asked) };
        match asked {
            Some(asked) if projects.contains(&asked) => Ok(Some(asked)),
            None if projects.len() == 1 => Ok(projects.first().cloned()),
            Some(_) => Err(forbidden("this token is not for that project")),
            None => Err(forbidden("this token is bound to projects").hint("name one of them with `project_id`")),
        }
    }
}

pub(super) fn forbidden(message: &str) -> Problem {
    Problem::new("forbidden", message)
}

/// Plain reads; everything else needs the right to write.
pub(super) fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        // The guard puts it there; what it let through without one is open to all, and takes none.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Problem::new("unauthorized", "this needs a token"))
    }
}

/// The thread in the path, which the caller may use so.
#[derive(Debug)]
pub(crate) struct OfThread(pub(crate) ThreadId);

impl FromRequestParts<App> for OfThread {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ThreadId = named(parts, app).await?;
        caller.check_thread(app, &parts.method, &id).await?;
        Ok(Self(id))
    }
}

/// The same for what only reads, however it is asked.
#[derive(Debug)]
pub(crate) struct ReadsThread(pub(crate) ThreadId);

impl FromRequestParts<App> for ReadsThread {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ThreadId = named(parts, app).await?;
        caller.check_thread(app, &Method::GET, &id).await?;
        Ok(Self(id))
    }
}

impl Caller {
    async fn check_thread(&self, app: &App, method: &Method, id: &ThreadId) -> Answer<()> {
        if self.0.may_see_all() {
            return if is_reading(method) || self.0.may_write() { Ok(()) } else { Err(only_reads()) };
        }
        match app.stead.thread(id).await {
            Ok(thread) => self.allow(method, thread.project.as_ref()),
            // It would be made without a project.
            Err(Error::NotFound { .. }) if !is_reading(method) => self.allow(method, None),
            Err(error) => Err(error.into()),
        }
    }
}

fn only_reads() -> Problem {
    forbidden("this token may only read").hint("`stead token create` makes another")
}

/// The command in the path.
#[derive(Debug)]
pub(crate) struct OfCommand(pub(crate) CommandId);

impl FromRequestParts<App> for OfCommand {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: CommandId = named(parts, app).await?;
        if !caller.0.may_see_all() {
            let command = app.stead.command(&id).await?;
            caller.check_thread(app, &parts.method, &command.thread).await?;
        } else if !is_reading(&parts.method) && !caller.0.may_write() {
            return Err(only_reads());
        }
        Ok(Self(id))
    }
}

/// The terminal in the path.
#[derive(Debug)]
pub(crate) struct OfTerminal(pub(crate) TerminalId);

impl FromRequestParts<App> for OfTerminal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: TerminalId = named(parts, app).await?;
        if !caller.0.may_see_all() {
            let thread = app.stead.thread_of_terminal(&id).await?;
            caller.check_thread(app, &parts.method, &thread).await?;
        } else if !is_reading(&parts.method) && !caller.0.may_write() {
            return Err(only_reads());
        }
        Ok(Self(id))
    }
}

/// Whoever may look at what belongs to everybody.
#[derive(Debug)]
pub(crate) struct All;

impl FromRequestParts<App> for All {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.0.may_see_all() { Ok(Self) } else { Err(forbidden("this token is bound to projects")) }
    }
}

/// Whoever may do everything.
#[derive(Debug)]
pub(crate) struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.0.may_administer() { Ok(Self) } else { Err(forbidden("this needs a token with scope `admin`")) }
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
