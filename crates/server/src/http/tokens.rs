//! Access tokens.

use super::App;
use super::access::Admin;
use super::body::{Json, Query, named_as as id};
use super::lists::Page;
use super::problem::{Answer, ErrorBody, Problem};
use super::threads::FOR_EVER;
use super::view::List;
use crate::token::NewToken;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use stead_model::access::{Right, Scope, Token};
use stead_model::clock::Timestamp;
use stead_model::ids::{ProjectId, TokenId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

#[derive(Debug, Serialize, ToSchema)]
struct TokenView {
    id: String,
    name: String,
    /// `admin`, `read`, or `projects` for one that is bound to some.
    scope: &'static str,
    /// The projects it is bound to; null for one that is bound to none.
    projects: Option<Vec<String>>,
    /// Whether it may change things.
    may_write: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    last_used_at: Option<String>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    #[schema(format = DateTime)]
    revoked_at: Option<String>,
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        let moment = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let (scope, projects, may_write) = match &token.scope {
            Scope::Admin => ("admin", None, true),
            Scope::Read => ("read", None, false),
            Scope::Projects { projects, right } => {
                ("projects", Some(projects.iter().map(ToString::to_string).collect()), *right == Right::Write)
            }
        };
        Self {
            id: token.id.to_string(),
            name: token.name,
            scope,
            projects,
            may_write,
            created_at: token.created_at.to_string(),
            last_used_at: moment(token.last_used_at),
            expires_at: moment(token.expires_at),
            revoked_at: moment(token.revoked_at),
        }
    }
}

/// A token with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
struct NewTokenView {
    #[serde(flatten)]
    about: TokenView,
    token: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ScopeName {
    #[default]
    Admin,
    Read,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateToken {
    /// What it is for.
    name: String,
    /// With `projects`: whether it may change them (`admin`) or only look (`read`).
    #[serde(default)]
    scope: ScopeName,
    /// The only projects that it is good for.
    projects: Option<Vec<String>>,
    /// For ever if absent.
    #[schema(minimum = 1, maximum = 3_153_600_000_u64)]
    expires_in_s: Option<u64>,
}

/// All tokens, newest first. Their secrets are not kept.
#[utoipa::path(
    get, path = "/api/tokens", tag = "server", params(Page),
    responses((status = 200, body = List<TokenView>), (status = 403, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn list(State(app): State<App>, _: Admin, Query(page): Query<Page>) -> Answer<axum::Json<List<TokenView>>> {
    Ok(axum::Json(app.guard.tokens.list_tokens(&page.list()).await?.into()))
}

/// Make a token.
#[utoipa::path(
    post, path = "/api/tokens", tag = "server", request_body = CreateToken,
    responses((status = 201, body = NewTokenView), (status = 403, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn create(
    State(app): State<App>,
    _: Admin,
    Json(body): Json<CreateToken>,
) -> Answer<(StatusCode, axum::Json<NewTokenView>)> {
    let scope = match (body.projects, body.scope) {
        (None, ScopeName::Admin) => Scope::Admin,
        (None, ScopeName::Read) => Scope::Read,
        (Some(projects), scope) => {
            let projects: BTreeSet<ProjectId> = projects.iter().map(|text| id(text)).collect::<Answer<_>>()?;
            let right = if scope == ScopeName::Admin { Right::Write } else { Right::Read };
            Scope::Projects { projects, right }
        }
    };
    if body.expires_in_s.is_some_and(|seconds| seconds > FOR_EVER) {
        return Err(Problem::invalid(format!("`expires_in_s`: {FOR_EVER}, a hundred years, are the most")));
    }
    let now = app.stead.now();
    let expires_at = body.expires_in_s.map(|seconds| now.after(Duration::from_secs(seconds)));
    let made = app.guard.tokens.create(NewToken { name: body.name, scope, expires_at }).await;
    let (token, secret) = made.map_err(|error| Problem::from(crate::Error::from(error)))?;
    let view = NewTokenView { about: token.into(), token: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, axum::Json(view)))
}

/// Take a token back. It opens nothing from now on.
#[utoipa::path(
    delete, path = "/api/tokens/{id}", tag = "server", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn revoke(State(app): State<App>, _: Admin, Path(text): Path<String>) -> Answer<StatusCode> {
    let token: TokenId = id(&text)?;
    app.guard.tokens.revoke(&token).await.map_err(|error| Problem::from(crate::Error::from(error)))?;
    Ok(StatusCode::NO_CONTENT)
}
