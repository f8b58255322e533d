//! Programs, and who hears them. Each piece of output is handed to everybody who hears at that moment, and waits for
//! them; nobody, and it is lost. How a program ended is told for 30 s more.

use super::envd::Asked;
use super::listen::{Listener, failed};
use super::wire::{Answer, Call, Refusal, fault};
use super::world::{Clock, World};
use axum::Json;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;

/// The most that one piece of output has.
const PIECE: usize = 32 << 10;

/// Pieces that wait for one who hears.
const WAITING: usize = 64;

const ENDED_IS_TOLD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Processes {
    all: Mutex<BTreeMap<u32, Arc<Process>>>,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    config: Config,
    tag: Option<String>,
    /// None: it has none, or it is closed.
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    by: Vec<mpsc::Sender<Value>>,
    /// How, and when by the clock.
    ended: Option<(Value, Duration)>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Config {
    cmd: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    process: Config,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum Selector {
    #[serde(rename = "pid")]
    Pid(u32),
    #[serde(rename = "tag")]
    Tag(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Select {
    process: Selector,
}

pub(super) async fn answer(world: &World, call: &Call, asked: &Asked<'_>, method: &str) -> Answer {
    let (processes, now) = (&asked.sandbox.processes, world.clock.now());
    match method {
        "Start" => {
            let start: Start = world.enveloped(call)?;
            let listener = Listener::of(world, call, asked)?;
            match begin(asked, start, listener.deadline, Arc::clone(&world.clock)).await {
                Ok((process, events)) => Ok(listener.stream(process.pid, events)),
                Err(Refusal::With(_, error)) => Ok(failed(&error)),
                Err(Refusal::Cut) => Err(Refusal::Cut),
            }
        }
        "Connect" => {
            let Select { process } = world.enveloped(call)?;
            let listener = Listener::of(world, call, asked)?;
            match processes.find(&process, Ended::Too, now) {
                Ok(process) => Ok(listener.stream(process.pid, process.hear())),
                Err(Refusal::With(_, error)) => Ok(failed(&error)),
                Err(Refusal::Cut) => Err(Refusal::Cut),
            }
        }
        "List" => {
            let _: Nothing = world.json(call)?;
            let all = processes.all.lock().unwrap();
            let live = all.values().filter(|process| process.heard.lock().unwrap().ended.is_none());
            let entries: Vec<_> = live
                .map(|process| match &process.tag {
                    None => json!({ "config": process.config, "pid": process.pid }),
                    Some(tag) => json!({ "config": process.config, "pid": process.pid, "tag": tag }),
                })
                .collect();
            Ok(Json(if entries.is_empty() { json!({}) } else { json!({ "processes": entries }) }).into_response())
        }
        "SendInput" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct SendInput {
                process: Selector,
                input: Input,
            }
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Input {
                stdin: String,
            }
            let SendInput { process, input } = world.json(call)?;
            let bytes = STANDARD.decode(input.stdin).map_err(|error| world.strange(call, error))?;
            let process = processes.find(&process, Ended::Not, now)?;
            let mut stdin = process.stdin.lock().await;
            let Some(stdin) = stdin.as_mut() else { return Err(fault("failed_precondition", "stdin is closed")) };
            stdin.write_all(&bytes).await.map_err(|error| fault("internal", &format!("error writing: {error}")))?;
            Ok(Json(json!({})).into_response())
        }
        "CloseStdin" => {
            let Select { process } = world.json(call)?;
            processes.find(&process, Ended::Not, now)?.stdin.lock().await.take();
            Ok(Json(json!({})).into_response())
        }
        "SendSignal" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct SendSignal {
                process: Selector,
                signal: String,
            }
            let SendSignal { process, signal } = world.json(call)?;
            let signal = match signal.as_str() {
                "SIGNAL_SIGKILL" => Signal::KILL,
                "SIGNAL_SIGTERM" => Signal::TERM,
                _ => return Err(fault("unimplemented", &format!("invalid signal: {signal}"))),
            };
            let process = processes.find(&process, Ended::Not, now)?;
            kill(asked, process.pid, signal);
            Ok(Json(json!({})).into_response())
        }
        _ => Err(world.strange(call, "no such call")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn kill(asked: &Asked<'_>, pid: u32, signal: Signal) {
    let host = asked.awake.machine.host_pid(i32::try_from(pid).unwrap());
    if let Some(host) = host.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(host, signal);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Not,
    Too,
}

impl Processes {
    pub(super) fn running(&self) -> Vec<u32> {
        let all = self.all.lock().unwrap();
        all.values().filter(|process| process.heard.lock().unwrap().ended.is_none()).map(|p| p.pid).collect()
    }

    fn find(&self, selector: &Selector, ended: Ended, now: Duration) -> Result<Arc<Process>, Refusal> {
        let mut all = self.all.lock().unwrap();
        all.retain(|_, process| {
            let heard = process.heard.lock().unwrap();
            heard.ended.as_ref().is_none_or(|(_, when)| now.saturating_sub(*when) < ENDED_IS_TOLD)
        });
        let found = match selector {
            Selector::Pid(pid) => all.get(pid),
            Selector::Tag(tag) => all.values().find(|process| process.tag.as_ref() == Some(tag)),
        };
        let found = found.filter(|process| ended == Ended::Too || process.heard.lock().unwrap().ended.is_none());
        found.cloned().ok_or_else(|| fault("not_found", "process not found"))
    }
}

impl Process {
    /// From now on; or how it ended.
    fn hear(&self) -> mpsc::Receiver<Value> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut heard = self.heard.lock().unwrap();
        match &heard.ended {
            Some((end, _)) => sender.try_send(end.clone()).unwrap(),
            None => heard.by.push(sender),
        }
        receiver
    }

    async fn tell(&self, event: Value) {
        let by = self.heard.lock().unwrap().by.clone();
        for one in by {
            let _ = one.send(event.clone()).await;
        }
        self.heard.lock().unwrap().by.retain(|one| !one.is_closed());
    }

    async fn tell_all_of(&self, name: &str, mut stream: impl AsyncRead + Unpin) {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = stream.read(&mut piece).await {
            self.tell(json!({ "event": { "data": { name: STANDARD.encode(&piece[..length]) } } })).await;
        }
    }
}

async fn begin(
    asked: &Asked<'_>,
    start: Start,
    deadline: Option<Duration>,
    clock: Arc<Clock>,
) -> Result<(Arc<Process>, mpsc::Receiver<Value>), Refusal> {
    let Start { process: config, tag, stdin } = start;
    let cwd = config.cwd.as_deref().map_or_else(|| asked.home().to_owned(), |cwd| asked.path(cwd));
    if !asked.awake.machine.outside(&cwd).is_dir() {
        return Err(fault("invalid_argument", &format!("cwd '{cwd}' does not exist")));
    }
    let env: BTreeMap<_, _> = asked.env().into_iter().chain(config.envs.clone()).collect();
    // It tells its own number first, on what is its output afterwards.
    let words = ["-c", "echo $$; exec \"$@\"", "sh", &config.cmd].map(str::to_owned);
    let words: Vec<_> = words.into_iter().chain(config.args.iter().cloned()).collect();
    let mut command = Command::from(asked.awake.machine.command("/bin/sh", &words, &env, &cwd));
    command.stdin(if stdin == Some(false) { Stdio::null() } else { Stdio::piped() });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut number = String::new();
    while let Ok(byte @ b'0'..=b'9') = stdout.read_u8().await {
        number.push(byte.into());
    }
    let Ok(pid) = number.parse() else { return Err(fault("internal", "it did not start")) };
    let stdin = tokio::sync::Mutex::new(child.stdin.take());
    let process = Arc::new(Process { pid, config, tag, stdin, heard: Mutex::default() });
    let events = process.hear();
    asked.sandbox.processes.all.lock().unwrap().insert(pid, Arc::clone(&process));
    let told = Arc::clone(&process);
    tokio::spawn(async move {
        tokio::join!(told.tell_all_of("stdout", stdout), told.tell_all_of("stderr", stderr));
        let end = json!({ "event": { "end": ended(child.wait().await.unwrap()) } });
        let by = {
            let mut heard = told.heard.lock().unwrap();
            heard.ended = Some((end.clone(), clock.now()));
            std::mem::take(&mut heard.by)
        };
        told.stdin.lock().await.take();
        for one in by {
            let _ = one.send(end.clone()).await;
        }
    });
    if let Some(deadline) = deadline {
        let machine = Arc::downgrade(&asked.awake.machine);
        let watched = Arc::downgrade(&process);
        tokio::spawn(async move {
            tokio::time::sleep(deadline).await;
            let Some((machine, process)) = machine.upgrade().zip(watched.upgrade()) else { return };
            if process.heard.lock().unwrap().ended.is_none() {
                let host = machine.host_pid(i32::try_from(process.pid).unwrap());
                host.and_then(Pid::from_raw).map(|host| rustix::process::kill_process(host, Signal::KILL));
            }
        });
    }
    Ok((process, events))
}

/// What is zero or false is left out.
fn ended(status: std::process::ExitStatus) -> Value {
    match (status.code(), status.signal()) {
        (Some(0), _) => json!({ "exited": true, "status": "exit status 0" }),
        (Some(code), _) => {
            let text = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": text, "error": text })
        }
        (None, signal) => {
            let text = match signal {
                Some(9) => "signal: killed".to_owned(),
                Some(15) => "signal: terminated".to_owned(),
                other => format!("signal: {}", other.unwrap_or(0)),
            };
            json!({ "exitCode": -1, "status": text, "error": text })
        }
    }
}
