//! What is answered before everything is there. A server listens at once; what an earlier one has left may take long to look
//! at, and whoever watches the server is to know that it lives.

use super::problem::Problem;
use super::trace::VERSION;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a request waits for everything to be there before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Leads to the router that answers now.
#[derive(Debug, Clone)]
pub struct Gate {
    way: Arc<Way>,
    /// Answers until the way is open.
    starting: Router,
}

#[derive(Debug, Default)]
struct Way {
    router: OnceLock<Router>,
    opened: CancellationToken,
}

impl Gate {
    /// One that only says that the server lives, and lets everybody else wait.
    pub fn closed() -> Self {
        let way = Arc::new(Way::default());
        let starting = Router::new()
            .route("/healthz", get(super::status::healthz))
            .route("/readyz", get(not_ready))
            .fallback(wait)
            .layer(axum::middleware::map_response(with_version))
            .with_state(Arc::clone(&way));
        Self { way, starting }
    }

    /// From here on this one answers, also to those who wait.
    pub fn open(&self, router: Router) {
        if self.way.router.set(router).is_ok() {
            self.way.opened.cancel();
        }
    }

    pub(super) fn router(&self) -> Router {
        self.way.router.get().unwrap_or(&self.starting).clone()
    }
}

async fn wait(State(way): State<Arc<Way>>, request: Request) -> Response {
    let _ = tokio::time::timeout(PATIENCE, way.opened.cancelled()).await;
    match way.router.get() {
        Some(router) => router.clone().oneshot(request).await.into_response(),
        None => starting().into_response(),
    }
}

async fn not_ready() -> Problem {
    starting()
}

fn starting() -> Problem {
    Problem::new("unavailable", "the server is starting: it looks at what was left by the one before it")
        .details(json!({ "reason": "recovering" }))
        .retry_after(1)
}

async fn with_version(mut response: Response) -> Response {
    response.headers_mut().insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}
