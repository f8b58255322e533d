//! A sandbox: its disk, which stays, and the machine over it, which comes and goes with its state.

use super::ask::No;
use super::pty::{End, Pty};
use super::sessions::Session;
use super::{SNAPSHOT, World};
use crate::machine::{self, Machine};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How often the idle are looked for.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// How long what is between two states lasts, at least: to be seen by whoever polls.
const BETWEEN: Duration = Duration::from_millis(30);

/// An order for a sandbox, as the reference and the SDK have it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Order {
    name: Option<String>,
    snapshot: Option<String>,
    user: Option<String>,
    pub(super) env: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    public: Option<bool>,
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    domain_allow_list: Option<String>,
    target: Option<String>,
    cpu: Option<u64>,
    gpu: Option<u64>,
    memory: Option<u64>,
    disk: Option<u64>,
    spot: Option<bool>,
    auto_stop_interval: Option<u64>,
    auto_pause_interval: Option<u64>,
    auto_archive_interval: Option<u64>,
    auto_delete_interval: Option<i64>,
    ttl_minutes: Option<u64>,
    volumes: Vec<Value>,
    secrets: Option<Vec<Value>>,
}

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) order: Order,
    pub(super) labels: Mutex<BTreeMap<String, String>>,
    created_at: String,
    disk: tempfile::TempDir,
    machine: Mutex<Option<Arc<Machine>>>,
    pub(super) ptys: Mutex<BTreeMap<String, Arc<Pty>>>,
    pub(super) sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    state: watch::Sender<&'static str>,
    desired: Mutex<&'static str>,
    error: Mutex<Option<String>>,
    auto_stop: AtomicU64,
    active_at: Mutex<(Duration, jiff::Timestamp)>,
    /// How often it was told of after it was destroyed: once it is still known.
    pub(super) seen_destroyed: AtomicU64,
    world: Weak<World>,
}

impl Sandbox {
    pub(super) fn make(world: &Arc<World>, order: Order) -> Result<Arc<Self>, No> {
        if order.cpu.or(order.gpu).or(order.memory).or(order.disk).is_some() {
            return Err(No::refuses(400, "Cannot specify Sandbox resources when using a snapshot"));
        }
        if order.auto_stop_interval.unwrap_or(0) != 0 && order.auto_pause_interval.unwrap_or(0) != 0 {
            return Err(No::refuses(400, "autoStopInterval and autoPauseInterval are mutually exclusive"));
        }
        if order.snapshot.as_deref().is_some_and(|name| name != SNAPSHOT) {
            return Err(No::refuses(404, "Snapshot not found"));
        }
        let bits = getrandom::u64().unwrap();
        let id = format!("{:08x}-{:04x}-4000-8000-{:012x}", bits >> 32, (bits >> 16) & 0xffff, bits & 0xffff);
        let name = order.name.clone().unwrap_or_else(|| id.clone());
        if world.sandboxes().iter().any(|other| other.name == name) {
            return Err(No::refuses(409, format!("Sandbox with name {name} already exists")));
        }
        let now = jiff::Timestamp::now();
        let sandbox = Arc::new(Self {
            disk: tempfile::Builder::new().prefix("testdaytona-").tempdir().unwrap(),
            id,
            name,
            labels: Mutex::new(order.labels.clone()),
            created_at: now.to_string(),
            machine: Mutex::default(),
            ptys: Mutex::default(),
            sessions: Mutex::default(),
            state: watch::Sender::new("creating"),
            desired: Mutex::new("started"),
            error: Mutex::default(),
            auto_stop: AtomicU64::new(order.auto_stop_interval.unwrap_or(15)),
            active_at: Mutex::new((world.now(), now)),
            seen_destroyed: AtomicU64::new(0),
            world: Arc::downgrade(world),
            order,
        });
        world.sandboxes.lock().unwrap().push(Arc::clone(&sandbox));
        match world.next_failure.lock().unwrap().take() {
            None => sandbox.change("creating", "started"),
            Some(reason) => sandbox.fail(&reason),
        }
        Ok(sandbox)
    }

    pub(super) fn state(&self) -> &'static str {
        *self.state.borrow()
    }

    /// None while it isn't there, whatever its state says. Not to be kept: the processes end with the last of them.
    pub(super) fn machine(&self) -> Option<Arc<Machine>> {
        self.machine.lock().unwrap().clone()
    }

    pub(super) fn outside(&self, path: &str) -> PathBuf {
        machine::outside(self.disk.path(), path)
    }

    /// Waits until nothing changes.
    pub(super) async fn settled(&self) {
        let is_settled = |state: &&str| matches!(*state, "started" | "stopped" | "archived" | "destroyed" | "error");
        self.state.subscribe().wait_for(is_settled).await.expect("it is there");
    }

    pub(super) fn start(self: &Arc<Self>) -> Result<(), No> {
        match self.state() {
            "started" => {}
            "stopped" => self.change("starting", "started"),
            "archived" => self.change("restoring", "started"),
            state => return Err(No::refuses(400, format!("Sandbox is not in valid state: {state}"))),
        }
        Ok(())
    }

    pub(super) fn stop(self: &Arc<Self>) -> Result<(), No> {
        if self.state() != "started" {
            return Err(No::refuses(400, format!("Sandbox is not started: {}", self.state())));
        }
        self.change("stopping", "stopped");
        Ok(())
    }

    pub(super) fn archive(self: &Arc<Self>) -> Result<(), No> {
        if self.state() != "stopped" {
            return Err(No::refuses(400, format!("Sandbox is not stopped: {}", self.state())));
        }
        self.change("archiving", "archived");
        Ok(())
    }

    pub(super) fn destroy(self: &Arc<Self>) {
        if !matches!(self.state(), "destroying" | "destroyed") {
            self.change("destroying", "destroyed");
        }
    }

    pub(super) fn fail(&self, reason: &str) {
        *self.error.lock().unwrap() = Some(reason.to_owned());
        self.state.send_replace("error");
        self.end_processes();
    }

    /// From now on in between, and later there; unless something else was ordered meanwhile.
    fn change(self: &Arc<Self>, between: &'static str, to: &'static str) {
        *self.desired.lock().unwrap() = to;
        self.state.send_replace(between);
        self.touch();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let Some(mut held) = this.world.upgrade().map(|world| world.held.subscribe()) else { return };
            tokio::time::sleep(BETWEEN).await;
            if held.wait_for(|held| !held).await.is_err() || this.state() != between {
                return;
            }
            let carried_out = tokio::task::spawn_blocking({
                let this = Arc::clone(&this);
                move || match to {
                    "started" => {
                        let machine = Machine::start_at(this.disk.path()).expect("the machine starts");
                        *this.machine.lock().unwrap() = Some(Arc::new(machine));
                    }
                    _ => this.end_processes(),
                }
            });
            carried_out.await.expect("it is carried out");
            this.touch();
            this.state.send_if_modified(|state| std::mem::replace(state, to) == between);
        });
    }

    /// As when the power goes: connections break, and nobody says why.
    pub(super) fn end_processes(&self) {
        for pty in std::mem::take(&mut *self.ptys.lock().unwrap()).into_values() {
            pty.end(End::Cut);
        }
        self.sessions.lock().unwrap().clear();
        let machine = self.machine.lock().unwrap().take();
        // Whoever still has it has one in which nothing runs.
        machine.inspect(|machine| machine.end());
    }

    /// One whose first process has ended is stopped, as a container is then; whoever runs them sees that.
    pub(super) fn notice_end(&self) {
        let has_ended = self.state() == "started" && self.machine().is_some_and(|machine| !machine.is_alive());
        if has_ended && self.state.send_if_modified(|state| std::mem::replace(state, "stopped") == "started") {
            *self.desired.lock().unwrap() = "stopped";
            self.end_processes();
        }
    }

    /// Somebody uses it.
    pub(super) fn touch(&self) {
        if let Some(world) = self.world.upgrade() {
            *self.active_at.lock().unwrap() = (world.now(), jiff::Timestamp::now());
        }
    }

    pub(super) fn set_auto_stop(&self, minutes: u64) {
        self.auto_stop.store(minutes, Ordering::SeqCst);
    }

    fn is_idle(&self, now: Duration) -> bool {
        let minutes = self.auto_stop.load(Ordering::SeqCst);
        let idle = now.saturating_sub(self.active_at.lock().unwrap().0);
        minutes > 0 && self.state() == "started" && idle >= Duration::from_secs(60 * minutes)
    }

    /// As the control plane tells of it; in a list it says less.
    pub(super) fn told(&self, world: &World) -> Value {
        let order = &self.order;
        let proxy = if world.is_old.load(Ordering::SeqCst) { String::new() } else { format!("{}/toolbox", world.base) };
        let active_at = self.active_at.lock().unwrap().1.to_string();
        let mut told = json!({
            "id": self.id, "organizationId": "b2f2e8f0-0000-4000-8000-000000000001", "name": self.name,
            "snapshot": order.snapshot.as_deref().unwrap_or(SNAPSHOT),
            "user": order.user.as_deref().unwrap_or("daytona"), "env": order.env,
            "labels": *self.labels.lock().unwrap(), "public": order.public.unwrap_or(false),
            "networkBlockAll": order.network_block_all.unwrap_or(false), "kvm": false,
            "target": order.target.as_deref().unwrap_or("us"), "cpu": 1, "gpu": 0, "memory": 1, "disk": 3,
            "state": self.state(), "desiredState": *self.desired.lock().unwrap(),
            "autoStopInterval": self.auto_stop.load(Ordering::SeqCst),
            "autoArchiveInterval": order.auto_archive_interval.unwrap_or(10080),
            "autoDeleteInterval": order.auto_delete_interval.unwrap_or(-1),
            "createdAt": self.created_at, "updatedAt": self.created_at, "lastActivityAt": active_at,
            "sandboxClass": "container", "daemonVersion": "0.205.1", "runnerId": "runner-1", "toolboxProxyUrl": proxy,
        });
        if let Some(reason) = &*self.error.lock().unwrap() {
            told["errorReason"] = reason.as_str().into();
            told["recoverable"] = false.into();
        }
        told
    }
}

/// What runs inside doesn't count: only traffic does.
pub(super) async fn stop_the_idle(world: Arc<World>) {
    let mut looks = tokio::time::interval(IDLE_LOOK);
    loop {
        looks.tick().await;
        stop_idle(&world);
    }
}

pub(super) fn stop_idle(world: &World) {
    let now = world.now();
    for sandbox in world.sandboxes().iter().filter(|sandbox| sandbox.is_idle(now)) {
        let _ = sandbox.stop();
    }
}
