//! Leases, providers, and instances that nobody knows.

use super::App;
use super::access::{Admin, All};
use super::body::Named;
use super::problem::{Answer, ErrorBody};
use super::view::{LeaseView, List, OrphanView};
use crate::lease::Ready;
use crate::stead::Stead;
use axum::extract::State;
use axum::http::StatusCode;
use stead_model::ids::InstanceId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(orphans)).routes(routes!(adopt)).routes(routes!(remove))
}

/// Instances that a provider has and no lease knows.
#[utoipa::path(
    get, path = "/api/orphans", tag = "leases",
    responses((status = 200, body = List<OrphanView>), (status = "default", body = ErrorBody))
)]
async fn orphans(State(stead): State<Stead>, _: All) -> Answer<axum::Json<List<OrphanView>>> {
    let orphans = stead.orphans().await?;
    Ok(axum::Json(List { items: orphans.into_iter().map(Into::into).collect(), next_cursor: None }))
}

/// Put a lease around an orphan.
#[utoipa::path(
    post, path = "/api/orphans/{instance}/adopt", tag = "leases", params(("instance" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn adopt(
    State(stead): State<Stead>,
    _: Admin,
    Named(instance): Named<InstanceId>,
) -> Answer<axum::Json<LeaseView>> {
    let lease = stead.adopt(&instance).await?;
    let Ready { lease, instance } = stead.lease(&lease.id).await?;
    Ok(axum::Json(LeaseView::new(Ready { lease, instance }, Vec::new())))
}

/// Destroy an orphan.
#[utoipa::path(
    post, path = "/api/orphans/{instance}/remove", tag = "leases", params(("instance" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = "default", body = ErrorBody))
)]
async fn remove(State(stead): State<Stead>, _: Admin, Named(instance): Named<InstanceId>) -> Answer<StatusCode> {
    stead.remove_orphan(&instance).await?;
    Ok(StatusCode::NO_CONTENT)
}
