//! Projects.

mod fs;
mod import;
mod sessions;
mod snapshots;
mod upkeep;
mod view;
mod ws;

use super::App;
use super::access::{Admin, Caller, OfProject};
use super::body::{Json, Query};
use super::problem::{Answer, DAMAGED, ErrorBody, Problem};
use super::view::List;
use crate::error::Error;
use crate::lease::Force;
use crate::project::ConfigText;
use crate::stead::{self, Stead};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use stead_model::project::{Change, Config, Draft, Filter, Project, Status};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use view::ProjectView;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(show, change, delete))
        .merge(upkeep::routes())
        .merge(snapshots::routes())
        .merge(fs::routes())
        .merge(import::routes())
        .merge(sessions::routes())
        .merge(ws::routes())
}

async fn shown(stead: &Stead, project: Project) -> Answer<ProjectView> {
    let sessions = stead.recent_sessions(&project.id).await?;
    let progress = stead.clone_progress(&project.id);
    Ok(ProjectView::new(project, sessions, progress))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateProject {
    /// What its id begins with: lower-case letters, digits and hyphens, beginning with a letter, at most 32.
    prefix: String,
    #[serde(default)]
    description: String,
    /// The same one twice counts once.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    tags: BTreeSet<String>,
    #[serde(default, deserialize_with = "super::body::object")]
    config: Option<ConfigText>,
    /// A snapshot, of any project, whose files it begins with.
    from_snapshot: Option<String>,
}

/// Make a project. A repository in its configuration is cloned behind the answer; `clone` tells how that goes.
#[utoipa::path(
    post, path = "/api/projects", tag = "projects", request_body = CreateProject,
    responses((status = 201, body = ProjectView), (status = 429, body = ErrorBody), (status = 500, body = ErrorBody, description = DAMAGED), (status = "default", body = ErrorBody))
)]
async fn create(
    State(stead): State<Stead>,
    _: Admin,
    Json(body): Json<CreateProject>,
) -> Answer<(StatusCode, axum::Json<ProjectView>)> {
    let schemes = stead.project_settings().schemes;
    let asked = body.config.unwrap_or_default().asked(schemes);
    let (config, credentials) = asked.map_err(|error| Problem::invalid(error.to_string()))?;
    let draft = Draft { prefix: body.prefix, description: body.description, tags: body.tags, config };
    let project = match body.from_snapshot {
        Some(snapshot) => stead.create_project_from(draft, &super::body::named_as(&snapshot)?).await?,
        None => stead.create_project(draft, credentials).await?,
    };
    Ok((StatusCode::CREATED, axum::Json(shown(&stead, project).await?)))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct ProjectsPage {
    /// What their prefixes begin with.
    prefix: Option<String>,
    /// Those that have it; given several times, those that have all.
    #[param(explode, required = false, value_type = Vec<String>)]
    tag: BTreeSet<String>,
    /// `active`, `warned`, `marked` or `trashed`; all but the last if absent.
    status: Option<String>,
    /// 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl ProjectsPage {
    /// By hand: of what comes more than once only `tag` may.
    fn read(pairs: Vec<(String, String)>) -> Answer<Self> {
        let mut page = Self::default();
        let mut seen = BTreeSet::new();
        for (name, value) in pairs {
            if name != "tag" && !seen.insert(name.clone()) {
                return Err(Problem::invalid(format!("the query: `{name}` is there twice")));
            }
            match name.as_str() {
                "prefix" => page.prefix = Some(value),
                "tag" => drop(page.tag.insert(value)),
                "status" => page.status = Some(value),
                "limit" => {
                    let limit = value.parse().map_err(|_| Problem::invalid("the query: `limit` is no number"))?;
                    page.limit = Some(limit);
                }
                "cursor" => page.cursor = Some(value),
                _ => {
                    return Err(Problem::invalid(
                        "the query: unknown field; `prefix`, `tag`, `status`, `limit`, `cursor` are known",
                    ));
                }
            }
        }
        Ok(page)
    }
}

/// Projects, newest first. A token that is bound to some sees those.
#[utoipa::path(
    get, path = "/api/projects", tag = "projects", params(ProjectsPage),
    responses((status = 200, body = List<ProjectView>), (status = "default", body = ErrorBody))
)]
async fn list(
    State(stead): State<Stead>,
    caller: Caller,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Answer<axum::Json<List<ProjectView>>> {
    let page = ProjectsPage::read(pairs)?;
    let status = match page.status.as_deref() {
        None => None,
        Some(text) => Some(Status::parse(text).ok_or_else(|| {
            Problem::invalid("`status` is none of `active`, `warned`, `marked`, `trashed`".to_owned())
        })?),
    };
    let filter = Filter { prefix: page.prefix, tags: page.tag, status, among: caller.0.projects().cloned() };
    let listed = stead.list_projects(&filter, &stead::List { limit: page.limit, cursor: page.cursor }).await?;
    let mut items = Vec::new();
    for project in listed.items {
        items.push(shown(&stead, project).await?);
    }
    Ok(axum::Json(List { items, next_cursor: listed.next_cursor }))
}

/// A project. Looking at it is no use of it.
#[utoipa::path(
    get, path = "/api/projects/{id}", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn show(State(stead): State<Stead>, OfProject(id): OfProject) -> Answer<axum::Json<ProjectView>> {
    let project = stead.present_project(&id).await?;
    Ok(axum::Json(shown(&stead, project).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangeProject {
    description: Option<String>,
    #[schema(value_type = Option<Vec<String>>)]
    tags: Option<BTreeSet<String>>,
    /// Settings that are named change, null ones are absent from then on; the others stay. Needs scope `admin`.
    #[schema(value_type = Option<ConfigText>)]
    config: Option<Map<String, Value>>,
}

/// Describe or configure a project otherwise. What runs goes on as it began.
#[utoipa::path(
    patch, path = "/api/projects/{id}", tag = "projects", params(("id" = String, Path)), request_body = ChangeProject,
    responses((status = 200, body = ProjectView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn change(
    State(stead): State<Stead>,
    caller: Caller,
    OfProject(id): OfProject,
    Json(body): Json<ChangeProject>,
) -> Answer<axum::Json<ProjectView>> {
    if body.config.is_some() && !caller.0.may_administer() {
        return Err(super::access::forbidden("`config` needs a token with scope `admin`"));
    }
    let mut change = Change { description: body.description, tags: body.tags, config: None };
    let Some(settings) = body.config else {
        return Ok(axum::Json(shown(&stead, stead.change_project(&id, None, change).await?).await?));
    };
    for _ in 0..TRIES {
        let now = stead.project(&id).await?.config;
        change.config = Some(merged(&now, settings.clone())?);
        match stead.change_project(&id, Some(&now), change.clone()).await {
            // Somebody else changed it meanwhile: theirs is kept, ours is made of it.
            Err(Error::Conflict(_)) => {}
            changed => return Ok(axum::Json(shown(&stead, changed?).await?)),
        }
    }
    Err(Problem::new("conflict", format!("project `{id}` is being changed by others; try again")))
}

/// How often a change is made of what is there by then.
const TRIES: u32 = 16;

/// What is configured, with some settings changed; null takes one away.
fn merged(now: &Config, settings: Map<String, Value>) -> Answer<Config> {
    let wrong = |error: serde_json::Error| Problem::invalid(format!("`config`: {error}"));
    let Value::Object(mut merged) = serde_json::to_value(ConfigText::of(now)).map_err(wrong)? else {
        return Err(Problem::invalid("`config` is not an object"));
    };
    for (setting, value) in settings {
        match (merged.get_mut(&setting), value) {
            (_, Value::Null) => drop(merged.remove(&setting)),
            // Each of them is a setting; a null takes it away.
            (Some(Value::Object(limits)), Value::Object(named)) if setting == "limits" => limits.extend(named),
            (_, value) => drop(merged.insert(setting, value)),
        }
    }
    let text: ConfigText = serde_json::from_value(Value::Object(merged)).map_err(wrong)?;
    let schemes = stead_model::project::Schemes { files: true };
    let (config, _) = text.asked(schemes).map_err(|error| Problem::invalid(error.to_string()))?;
    Ok(config)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HowDelete {
    /// Also while a session is active, which is closed then.
    #[serde(default)]
    force: bool,
}

/// Put a project into the trash, from where it can be restored for a day.
#[utoipa::path(
    delete, path = "/api/projects/{id}", tag = "projects", params(("id" = String, Path), HowDelete),
    responses((status = 204), (status = 409, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn delete(
    State(stead): State<Stead>,
    _: Admin,
    OfProject(id): OfProject,
    Query(how): Query<HowDelete>,
) -> Answer<StatusCode> {
    let force = if how.force { Force::Yes } else { Force::No };
    stead.delete_project(&id, force).await?;
    Ok(StatusCode::NO_CONTENT)
}
