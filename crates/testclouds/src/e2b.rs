//! E2B on this machine: the REST interface and the daemons of all sandboxes on one port, told apart by the headers
//! `E2b-Sandbox-Id` and `E2b-Sandbox-Port` as behind `E2B_SANDBOX_URL`.
//!
//! ```text
//! world      the sandboxes: made, paused, woken, expired, lost
//! rest       the life of sandboxes                    X-API-Key
//! envd       the daemon: who may ask, and for what    X-Access-Token
//! process    programs
//! listen     who hears them
//! file       files, directories, forms
//! wire       envelopes, errors, faults
//! ```
//!
//! What it doesn't know it refuses with 400 and remembers ([`E2b::violations`]); a test ends by asserting that there are
//! none. Connections to a sandbox are cut when it is paused or killed, tokens change when it wakes, and what a program
//! says while nobody hears is lost.

mod envd;
mod file;
mod listen;
mod process;
mod rest;
mod wire;
mod world;

use crate::faults::Faults;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use world::World;

/// The one key that it accepts.
pub const KEY: &str = "e2b_00112233445566778899aabbccddeeff00112233";

/// How often it looks whose time is over.
const TICK: Duration = Duration::from_millis(100);

/// Ends when it is dropped, with every sandbox.
#[derive(Debug)]
pub struct E2b {
    pub url: String,
    pub faults: Faults,
    world: Arc<World>,
    _stop: DropGuard,
}

impl E2b {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// On a socket that listens already.
    pub fn on(listener: TcpListener) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (world, stop) = (Arc::new(World::default()), CancellationToken::new());
        let serving = serve(listener, Arc::clone(&world), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        tokio::spawn(stop.clone().run_until_cancelled_owned(expire(Arc::clone(&world))));
        Self { url, faults: world.faults.clone(), world, _stop: stop.drop_guard() }
    }

    /// What was asked for that is not as the reference says.
    pub fn violations(&self) -> Vec<String> {
        self.world.violations()
    }

    /// Lets time pass for the sandboxes; returns when those whose time is over sleep or are gone.
    pub async fn advance(&self, by: Duration) {
        self.world.clock.advance(by);
        self.world.expire().await;
    }

    /// The time that a sandbox has left.
    pub fn time_left(&self, id: &str) -> Option<Duration> {
        self.world.sandbox(id).map(|sandbox| sandbox.ends().saturating_sub(self.world.clock.now()))
    }

    /// Its machine is lost; the REST interface doesn't know yet.
    pub fn lose(&self, id: &str) {
        self.world.sandbox(id).unwrap().lose();
    }

    /// The daemon says nothing from now on, not even that it lives; nothing is closed either.
    pub fn mute(&self, id: &str) {
        self.world.sandbox(id).unwrap().mute();
    }

    /// Lists are given in pages of no more than so many, whatever is asked for.
    pub fn set_page(&self, most: usize) {
        self.world.page.store(most, Ordering::Relaxed);
    }

    /// The programs that run in a sandbox, as started through the daemon.
    pub fn programs(&self, id: &str) -> Vec<u32> {
        self.world.sandbox(id).map(|sandbox| sandbox.processes.running()).unwrap_or_default()
    }

    /// Every process of every sandbox, as this machine numbers them.
    pub fn pids(&self) -> Vec<i32> {
        self.world.all().iter().filter_map(|sandbox| sandbox.machine()).flat_map(|machine| machine.pids()).collect()
    }

    /// Where a file of a sandbox is on this machine.
    pub fn outside(&self, id: &str, path: &str) -> Option<PathBuf> {
        Some(self.world.sandbox(id)?.machine()?.outside(path))
    }

    /// Every sandbox that there is.
    pub fn sandboxes(&self) -> Vec<String> {
        self.world.all().into_iter().map(|sandbox| sandbox.id.clone()).collect()
    }
}

impl Drop for E2b {
    fn drop(&mut self) {
        self.world.clear();
    }
}

async fn serve(listener: TcpListener, world: Arc<World>, stop: CancellationToken) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let world = Arc::clone(&world);
        let service = hyper::service::service_fn(move |request| wire::answer(Arc::clone(&world), request));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    }
}

async fn expire(world: Arc<World>) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        world.expire().await;
    }
}
