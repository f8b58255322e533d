//! Daytona as far as it is used here: the control plane at `/api`, and the toolbox of each sandbox at `/toolbox/{id}`.
//!
//! Orders are taken at once and carried out later, with the state in between to be seen; a test can hold them there. A
//! stop ends every process and keeps the disk. Time passes as it does, and faster when a test says so.

mod ask;
mod control;
mod execute;
mod files;
mod multipart;
mod pty;
mod sandbox;
mod sessions;
mod toolbox;

use crate::faults::{Fault, Faults};
use ask::{Ask, No};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::Response;
use sandbox::Sandbox;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The only key that is taken.
pub const API_KEY: &str = "dtn_0123456789abcdef";

/// What sandboxes are made of. The only one there is.
pub const SNAPSHOT: &str = "daytonaio/sandbox:0.6.0";

/// Most that is taken in one request.
const MOST: usize = 512 << 20;

/// Ends when it is dropped, with all its sandboxes.
#[derive(Debug)]
pub struct Daytona {
    /// Of the control plane, as `DAYTONA_API_URL` has it.
    pub url: String,
    pub faults: Faults,
    world: Arc<World>,
    tasks: Vec<AbortHandle>,
}

#[derive(Debug)]
struct World {
    base: String,
    faults: Faults,
    violations: Mutex<Vec<String>>,
    sandboxes: Mutex<Vec<Arc<Sandbox>>>,
    began: Instant,
    /// Minutes that a test let pass.
    passed: AtomicU64,
    held: watch::Sender<bool>,
    next_failure: Mutex<Option<String>>,
    is_old: AtomicBool,
}

impl Daytona {
    pub async fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port of this machine's is free")
    }

    pub async fn start_on(listen: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let base = format!("http://{}", listener.local_addr()?);
        let faults = Faults::default();
        let world = Arc::new(World {
            base: base.clone(),
            faults: faults.clone(),
            violations: Mutex::default(),
            sandboxes: Mutex::default(),
            began: Instant::now(),
            passed: AtomicU64::new(0),
            held: watch::Sender::new(false),
            next_failure: Mutex::default(),
            is_old: AtomicBool::new(false),
        });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&world));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let stopping = tokio::spawn(sandbox::stop_the_idle(Arc::clone(&world)));
        let tasks = vec![serving.abort_handle(), stopping.abort_handle()];
        Ok(Self { url: format!("{base}/api"), faults, world, tasks })
    }

    /// What was asked that the reference doesn't know.
    pub fn violations(&self) -> Vec<String> {
        self.world.violations.lock().unwrap().clone()
    }

    /// The ids of all sandboxes that aren't destroyed, the oldest first.
    pub fn ids(&self) -> Vec<String> {
        self.world.sandboxes().iter().map(|sandbox| sandbox.id.clone()).collect()
    }

    pub fn state(&self, id: &str) -> Option<&'static str> {
        Some(self.world.sandbox(id)?.state())
    }

    /// What begins to change while it is held stays in between.
    pub fn hold(&self, held: bool) {
        self.world.held.send_replace(held);
    }

    /// Lets so many minutes pass for the rules that count them. Who is idle then begins to stop.
    pub fn pass(&self, minutes: u64) {
        self.world.passed.fetch_add(minutes, Ordering::SeqCst);
        sandbox::stop_idle(&self.world);
    }

    /// Archives a sandbox that is stopped.
    pub async fn archive(&self, id: &str) {
        let sandbox = self.world.sandbox(id).expect("there is such a sandbox");
        sandbox.archive().expect("it is stopped");
        sandbox.settled().await;
    }

    /// The sandbox is gone, and the control plane doesn't know.
    pub fn lose(&self, id: &str) {
        self.world.sandbox(id).expect("there is such a sandbox").end_processes();
    }

    /// The sandbox fails as it is.
    pub fn fail(&self, id: &str, reason: &str) {
        self.world.sandbox(id).expect("there is such a sandbox").fail(reason);
    }

    /// The next sandbox that is made fails.
    pub fn fail_next(&self, reason: &str) {
        *self.world.next_failure.lock().unwrap() = Some(reason.to_owned());
    }

    /// The toolbox is an older one, that takes files as forms alone, and whose place is to be asked for.
    pub fn be_old(&self) {
        self.world.is_old.store(true, Ordering::SeqCst);
    }

    /// Terminals that are open in a sandbox.
    pub fn terminals(&self, id: &str) -> usize {
        self.world.sandbox(id).map_or(0, |sandbox| sandbox.ptys.lock().unwrap().len())
    }

    /// Connections to terminals of a sandbox that get what is said there.
    pub fn listeners(&self, id: &str) -> usize {
        let sandbox = self.world.sandbox(id);
        sandbox.map_or(0, |sandbox| sandbox.ptys.lock().unwrap().values().map(|pty| pty.listeners()).sum())
    }

    /// Processes in a sandbox; none when it isn't there.
    pub fn processes(&self, id: &str) -> usize {
        let machine = self.world.sandbox(id).and_then(|sandbox| sandbox.machine());
        machine.map_or(0, |machine| machine.pids().len())
    }

    /// Every process of every sandbox, as this machine numbers them.
    pub fn pids(&self) -> Vec<i32> {
        let machines = self.world.sandboxes().into_iter().filter_map(|sandbox| sandbox.machine());
        machines.flat_map(|machine| machine.pids()).collect()
    }

    /// Where a file of a sandbox is on this machine, whether or not it runs.
    pub fn outside(&self, id: &str, path: &str) -> Option<PathBuf> {
        Some(self.world.sandbox(id)?.outside(path))
    }

    /// A sandbox that somebody else made, with these labels.
    pub async fn make(&self, labels: &BTreeMap<String, String>) -> String {
        let order = serde_json::from_value(serde_json::json!({"labels": labels})).expect("an order");
        let sandbox = Sandbox::make(&self.world, order).expect("it is made");
        sandbox.settled().await;
        sandbox.id.clone()
    }
}

impl Drop for Daytona {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        for sandbox in self.world.sandboxes.lock().unwrap().drain(..) {
            sandbox.end_processes();
        }
    }
}

/// Serves until the process ends.
pub async fn main_daytona(listen: SocketAddr) -> std::io::Result<()> {
    let _daytona = Daytona::start_on(listen).await?;
    std::future::pending().await
}

impl World {
    fn now(&self) -> Duration {
        self.began.elapsed() + Duration::from_secs(60 * self.passed.load(Ordering::SeqCst))
    }

    fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.all().into_iter().filter(|sandbox| sandbox.state() != "destroyed").collect()
    }

    fn sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.all().into_iter().find(|sandbox| sandbox.id == id || sandbox.name == id)
    }

    /// Each as it is now.
    fn all(&self) -> Vec<Arc<Sandbox>> {
        let all = self.sandboxes.lock().unwrap().clone();
        for sandbox in &all {
            sandbox.notice_end();
        }
        all
    }

    fn violated(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }
}

async fn serve(State(world): State<Arc<World>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let call = format!("{} {}", parts.method, parts.uri.path());
    let fault = world.faults.take(&call);
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.ok();
    let Ok(body) = axum::body::to_bytes(body, MOST).await else {
        return No::refuses(413, "too much").answer(&parts.method, parts.uri.path());
    };
    if let Some(Fault::Refuse(status)) = fault {
        return refusal(status);
    }
    let ask = Ask::new(parts, body, fault.clone());
    // It is done whether or not somebody still waits for it.
    let done = tokio::spawn(async move {
        let (method, path) = (ask.method.clone(), ask.path.clone());
        let answer = match ask.check() {
            Ok(()) => route(&world, ask, upgrade).await,
            Err(no) => Err(no),
        };
        answer.unwrap_or_else(|no| {
            if no.is_violation {
                world.violated(format!("{method} {path}: {}", no.message));
            }
            no.answer(&method, &path)
        })
    });
    let answer = done.await.expect("no handler panics");
    spoiled(answer, fault).await
}

async fn route(world: &Arc<World>, ask: Ask, upgrade: Option<WebSocketUpgrade>) -> Result<Response, No> {
    let path = ask.path.clone();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["api", rest @ ..] => control::route(world, &ask, rest),
        ["toolbox", id, rest @ ..] => toolbox::route(world, ask, id, rest, upgrade).await,
        _ => Err(No::violates("there is nothing here")),
    }
}

/// As the limits answer: each says for itself when to come again.
fn refusal(status: u16) -> Response {
    let said = serde_json::json!({"statusCode": status, "message": "refused for the test", "source": "DAYTONA_API"});
    let builder = Response::builder().status(status).header("content-type", "application/json");
    let builder = if status == 429 { builder.header("Retry-After-authenticated", "0") } else { builder };
    builder.body(Body::from(said.to_string())).unwrap()
}

async fn spoiled(answer: Response, fault: Option<Fault>) -> Response {
    match fault {
        None | Some(Fault::Refuse(_)) => answer,
        // Of a WebSocket, it is cut later.
        Some(Fault::Cut(_)) if answer.status().as_u16() == 101 => answer,
        Some(Fault::AfterSuccess(status)) => refusal(status),
        Some(Fault::NoAnswer) => std::future::pending().await,
        Some(Fault::Nonsense) => Response::new(Body::from("<html>nothing of the kind</html>")),
        Some(Fault::Cut(after)) => {
            let (mut head, body) = answer.into_parts();
            let body = axum::body::to_bytes(body, MOST).await.unwrap();
            head.headers.insert("content-length", body.len().into());
            let kept = body.slice(..after.min(body.len()));
            let cut = std::io::Error::other("cut for the test");
            let pieces: Vec<std::io::Result<Bytes>> = vec![Ok(kept), Err(cut)];
            Response::from_parts(head, Body::from_stream(futures_util::stream::iter(pieces)))
        }
    }
}
