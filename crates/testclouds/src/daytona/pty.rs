//! Terminals: a login shell in each, whose output goes to everyone who is connected, as it comes, and to nobody else.

mod attend;

use super::World;
use super::ask::{Ask, No, json};
use super::execute::{SHELL, kill_tree};
use super::sandbox::Sandbox;
use super::toolbox::{HOME, environment};
use crate::faults::Fault;
use crate::machine::Machine;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::Method;
use axum::response::Response;
use base64::Engine;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde::Deserialize;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc, watch};

/// Messages that a client may be behind.
const QUEUE: usize = 256;

/// Messages that wait for the terminal to take them.
const INPUT: usize = 1024;

const EXIT_CONTROL: &str = "X-Daytona-Pty-Exit-Control";

#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Exit(i32),
    /// The sandbox went away under it.
    Cut,
}

#[derive(Debug)]
pub(super) struct Pty {
    told: Mutex<Value>,
    master: File,
    pid: u32,
    clients: Mutex<Vec<Client>>,
    input: mpsc::Sender<Bytes>,
    end: watch::Sender<Option<End>>,
}

#[derive(Debug)]
struct Client {
    queue: mpsc::Sender<Bytes>,
    slow: Arc<Notify>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    id: String,
    cwd: Option<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    #[serde(default = "eighty")]
    cols: u16,
    #[serde(default = "twenty_four")]
    rows: u16,
}

fn eighty() -> u16 {
    80
}

fn twenty_four() -> u16 {
    24
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    cols: u16,
    rows: u16,
}

pub(super) fn route(
    world: &Arc<World>,
    ask: &Ask,
    sandbox: &Arc<Sandbox>,
    machine: &Machine,
    path: &[&str],
    upgrade: Option<WebSocketUpgrade>,
) -> Result<Response, No> {
    let pty = |id: &str| {
        let found = sandbox.ptys.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| No::refuses(404, "PTY session not found"))
    };
    match (ask.method.clone(), path) {
        (Method::POST, []) => {
            let order: Order = ask.knows(&[])?.json()?;
            let id = order.id.clone();
            Pty::start(sandbox, machine, order)?;
            Ok(json(201, &value!({"sessionId": id})))
        }
        (Method::GET, []) => {
            ask.plain()?;
            let all: Vec<_> =
                sandbox.ptys.lock().unwrap().values().map(|pty| pty.told.lock().unwrap().clone()).collect();
            Ok(json(200, &value!({"sessions": all})))
        }
        (Method::GET, ["create-connect"]) => {
            ask.knows(&["id", "cols", "rows", "cwd"])?;
            let number = |name| ask.needs(name)?.parse::<u16>().map_err(|_| No::violates("no number"));
            let order = Order {
                id: ask.needs("id")?.to_owned(),
                cwd: ask.query("cwd").map(str::to_owned),
                envs: offered_envs(ask)?,
                cols: number("cols")?,
                rows: number("rows")?,
            };
            let upgrade = upgrade.ok_or_else(|| No::violates("no WebSocket"))?;
            let pty = Pty::start(sandbox, machine, order)?;
            Ok(connect(world, ask, Some(pty), upgrade))
        }
        (Method::GET, [id, "connect"]) => {
            ask.knows(&[])?;
            let upgrade = upgrade.ok_or_else(|| No::violates("no WebSocket"))?;
            Ok(connect(world, ask, pty(id).ok(), upgrade))
        }
        (Method::GET, [id]) => {
            ask.plain()?;
            Ok(json(200, &*pty(id)?.told.lock().unwrap()))
        }
        (Method::DELETE, [id]) => {
            ask.plain()?;
            let pty = pty(id)?;
            kill_tree(pty.pid);
            pty.end(End::Exit(137));
            sandbox.ptys.lock().unwrap().remove(*id);
            Ok(json(200, &value!({"message": "PTY session deleted"})))
        }
        (Method::POST, [id, "resize"]) => {
            let size: Size = ask.knows(&[])?.json()?;
            let pty = pty(id)?;
            pty.resize(size.cols, size.rows)?;
            Ok(json(200, &*pty.told.lock().unwrap()))
        }
        _ => Err(No::violates("terminals have no such call")),
    }
}

fn connect(world: &Arc<World>, ask: &Ask, pty: Option<Arc<Pty>>, upgrade: WebSocketUpgrade) -> Response {
    let says_exits = ask.header("sec-websocket-protocol").is_some_and(|offered| offered.contains(EXIT_CONTROL));
    let cut = match ask.fault {
        Some(Fault::Cut(after)) => Some(after),
        _ => None,
    };
    let world = Arc::clone(world);
    let upgrade = upgrade.protocols([EXIT_CONTROL]);
    upgrade.on_upgrade(move |socket| attend::attend(world, pty, socket, says_exits, cut))
}

fn offered_envs(ask: &Ask) -> Result<BTreeMap<String, String>, No> {
    let offered = ask.header("sec-websocket-protocol").unwrap_or("");
    let Some(token) = offered.split(',').find_map(|token| token.trim().strip_prefix("X-Daytona-Pty-Envs~")) else {
        return Ok(BTreeMap::new());
    };
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token);
    let decoded = decoded.map_err(|error| No::violates(error.to_string()))?;
    serde_json::from_slice(&decoded).map_err(|error| No::violates(error.to_string()))
}

impl Pty {
    fn start(sandbox: &Arc<Sandbox>, machine: &Machine, order: Order) -> Result<Arc<Self>, No> {
        let mut ptys = sandbox.ptys.lock().unwrap();
        if ptys.contains_key(&order.id) {
            return Err(No::refuses(409, format!("PTY session with ID '{}' already exists", order.id)).with("CONFLICT"));
        }
        let cwd = order.cwd.clone().unwrap_or_else(|| HOME.to_owned());
        let mut envs = order.envs.clone();
        envs.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        let (master, peer) = open();
        // The session and the terminal that controls it are made inside.
        let words = ["--ctty", SHELL, "-i", "-l"].map(str::to_owned);
        let mut command = machine.command("/usr/bin/setsid", &words, &environment(sandbox, &envs), &cwd);
        command.stdin(peer.try_clone().unwrap()).stdout(peer.try_clone().unwrap()).stderr(peer);
        let mut command = tokio::process::Command::from(command);
        let mut child = command.spawn().unwrap();
        drop(command);
        let (input, mut taken) = mpsc::channel::<Bytes>(INPUT);
        let told = value!({
            "id": order.id, "cwd": cwd, "envs": envs, "cols": order.cols, "rows": order.rows, "active": true,
            "lazyStart": false, "createdAt": jiff::Timestamp::now().to_string(),
        });
        let pty = Arc::new(Self {
            told: Mutex::new(told),
            master: master.try_clone().unwrap(),
            pid: child.id().unwrap(),
            clients: Mutex::default(),
            input,
            end: watch::Sender::new(None),
        });
        if let Err(no) = pty.resize(order.cols, order.rows) {
            kill_tree(pty.pid);
            return Err(no);
        }
        let mut writer = master.try_clone().unwrap();
        std::thread::spawn(
            move || while taken.blocking_recv().is_some_and(|piece| writer.write_all(&piece).is_ok()) {},
        );
        let reading = Arc::downgrade(&pty);
        let mut reader = master;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 32 << 10];
            // At the end of a terminal's last user there is an error, not an end.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                let Some(pty) = reading.upgrade() else { return };
                pty.broadcast(&Bytes::copy_from_slice(&buffer[..length]));
            }
        });
        let (ended, whose) = (Arc::downgrade(&pty), Arc::downgrade(sandbox));
        let id = order.id.clone();
        tokio::spawn(async move {
            let code = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(-1);
            if let Some(pty) = ended.upgrade() {
                pty.end(End::Exit(code));
            }
            if let Some(sandbox) = whose.upgrade() {
                sandbox.ptys.lock().unwrap().remove(&id);
            }
        });
        ptys.insert(order.id, Arc::clone(&pty));
        Ok(pty)
    }

    /// To everyone who keeps up.
    fn broadcast(&self, piece: &Bytes) {
        self.clients.lock().unwrap().retain(|client| {
            let keeps_up = client.queue.try_send(piece.clone()).is_ok();
            if !keeps_up {
                client.slow.notify_one();
            }
            keeps_up
        });
    }

    pub(super) fn listeners(&self) -> usize {
        self.clients.lock().unwrap().len()
    }

    /// The first end counts.
    pub(super) fn end(&self, end: End) {
        self.end.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(end);
            is_first
        });
    }

    fn resize(&self, cols: u16, rows: u16) -> Result<(), No> {
        if !(1..=1000).contains(&cols) || !(1..=1000).contains(&rows) {
            return Err(No::violates("a size that no terminal has"));
        }
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.master, size).map_err(|error| No::refuses(500, error.to_string()))?;
        let mut told = self.told.lock().unwrap();
        told["cols"] = cols.into();
        told["rows"] = rows.into();
        Ok(())
    }
}

/// A terminal of this machine's: what is read and written here, and what the shell has.
fn open() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let peer = File::options().read(true).write(true).custom_flags(flags).open(path).unwrap();
    (File::from(master), peer)
}
