//! Who may ask for what. A handler names the right it needs by the type it takes: [`OfProject`], [`OfThread`],
//! [`OfCommand`], [`OfTerminal`] for what belongs to somebody's project, [`All`] for what belongs to everybody, [`Admin`] for the rest.
//! Without one of them it gets no id to work with.

use super::App;
use super::body::{named, named_as};
use super::problem::{Answer, Problem};
use crate::error::Error;
use crate::stead::Stead;
use crate::store::{AgentRun, AgentSession};
use crate::token::Tokens;
use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use stead_model::access::{Access, Scope};
use stead_model::ids::{CommandId, ProjectId, ProviderName, RunId, TerminalId, ThreadId};
use stead_model::thread::Thread;
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
        // Whoever reads a thread's files reads what its provider shows them.
        if is_reading(&parts.method) && of_files(parts.uri.path()) {
            caller.check_work(&app.stead, &id).await?;
        }
        Ok(Self(id))
    }
}

/// Whether a path is `/api/threads/{id}/files..`.
fn of_files(path: &str) -> bool {
    path.split('/').nth(4) == Some("files")
}

/// The same for what only reads files, however it is asked.
#[derive(Debug)]
pub(crate) struct ReadsThread(pub(crate) ThreadId);

impl FromRequestParts<App> for ReadsThread {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ThreadId = named(parts, app).await?;
        caller.check_thread(app, &Method::GET, &id).await?;
        caller.check_work(&app.stead, &id).await?;
        Ok(Self(id))
    }
}

impl Caller {
    async fn check_thread(&self, app: &App, method: &Method, id: &ThreadId) -> Answer<()> {
        if self.0.may_see_all() {
            return if is_reading(method) || self.0.may_write() { Ok(()) } else { Err(only_reads()) };
        }
        match app.stead.thread(id).await {
            Ok(thread) => {
                self.allow(method, thread.project.as_ref())?;
                // To be rid of it is no work in it.
                if is_reading(method) || *method == Method::DELETE {
                    return Ok(());
                }
                self.check_walls(&app.stead, &thread.provider, thread.project.as_ref()).await
            }
            // It would be made without a project.
            Err(Error::NotFound { .. }) if !is_reading(method) => self.allow(method, None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Caller {
    /// Whether somebody may have a thread on a provider. Who is bound to projects gets no further than they reach: not to
    /// where commands see the whole machine.
    pub(super) async fn check_walls(
        &self,
        stead: &Stead,
        provider: &ProviderName,
        project: Option<&ProjectId>,
    ) -> Answer<()> {
        if self.0.may_see_all() || stead.is_fit_for(provider, project).await? {
            return Ok(());
        }
        let message = format!("provider `{provider}` doesn't isolate, and this token is bound to projects");
        let hint = "use one that does; or somebody with scope `admin` makes it the provider of the project (`config.provider`)";
        Err(forbidden(&message).hint(hint))
    }

    /// Whether somebody may work in a thread that is theirs; one that isn't there is nobody's.
    pub(super) async fn check_work(&self, stead: &Stead, id: &ThreadId) -> Answer<()> {
        if self.0.may_see_all() {
            return Ok(());
        }
        match stead.thread(id).await {
            Ok(Thread { provider, project, .. }) => self.check_walls(stead, &provider, project.as_ref()).await,
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The project in the path, which the caller may use so.
#[derive(Debug)]
pub(crate) struct OfProject(pub(crate) ProjectId);

impl FromRequestParts<App> for OfProject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ProjectId = match project_in(parts.uri.path()) {
            Some(id) => id?,
            None => named(parts, app).await?,
        };
        caller.allow(&parts.method, Some(&id))?;
        Ok(Self(id))
    }
}

/// The id in `/api/projects/{id}/..`. What follows may be a file whose name isn't UTF-8, and then the router tells nothing
/// of either.
fn project_in(path: &str) -> Option<Answer<ProjectId>> {
    let (id, _) = path.strip_prefix("/api/projects/")?.split_once('/')?;
    let id = percent_encoding::percent_decode_str(id).decode_utf8();
    Some(id.map_err(|_| Problem::invalid("the path: its id isn't UTF-8")).and_then(|id| named_as(&id)))
}

/// The same for what only reads, however it is asked.
#[derive(Debug)]
pub(crate) struct ReadsProject(pub(crate) ProjectId);

impl FromRequestParts<App> for ReadsProject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ProjectId = named(parts, app).await?;
        caller.allow(&Method::GET, Some(&id))?;
        Ok(Self(id))
    }
}

/// The same for what changes something, however it is asked: a WebSocket begins with a GET.
#[derive(Debug)]
pub(crate) struct WritesProject(pub(crate) ProjectId);

impl FromRequestParts<App> for WritesProject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: ProjectId = named(parts, app).await?;
        caller.allow(&Method::POST, Some(&id))?;
        Ok(Self(id))
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

/// The agent session in the path, by its id or its whole key.
#[derive(Debug)]
pub(crate) struct OfAgent(pub(crate) AgentSession);

impl FromRequestParts<App> for OfAgent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let name: String = named(parts, app).await?;
        let session = app.agents.find(&name).await?;
        caller.allow(&parts.method, session.project.as_ref())?;
        Ok(Self(session))
    }
}

/// The run of an agent in the path.
#[derive(Debug)]
pub(crate) struct OfRun(pub(crate) AgentRun);

impl OfRun {
    pub(super) async fn check(caller: &Caller, app: &App, method: &Method, id: &RunId) -> Answer<Self> {
        let run = app.agents.run(id).await?;
        let session = app.agents.session(&run.session).await?;
        caller.allow(method, session.project.as_ref())?;
        Ok(Self(run))
    }
}

impl FromRequestParts<App> for OfRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id: RunId = named(parts, app).await?;
        Self::check(&caller, app, &parts.method, &id).await
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
