//! What our way costs: from a token of a model to whoever listens to the agent, through the server and directly; and what a
//! session that is idle costs the server.

use crate::model::{Model, TICKS, micros};
use crate::polly::Polly;
use crate::scene::{CODEX, Scene, last};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Nobody reads a clock twice within it.
const LEAST: u64 = 1;

/// How long ago each of these was, in microseconds.
fn since(stamps: &str) -> Vec<u64> {
    let now = micros();
    let ago = |stamp: &str| u64::try_from(now.saturating_sub(stamp.parse::<u128>().unwrap())).unwrap();
    stamps.split_whitespace().map(|stamp| ago(stamp).max(LEAST)).collect()
}

fn shares(samples: &[u64]) -> (u64, u64) {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    let at = |share: usize| samples[(samples.len() - 1) * share / 100];
    (at(50), at(99))
}

/// Codex as it is without us: its app server, spoken with over its own pipes.
struct Direct {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    thread: String,
    home: tempfile::TempDir,
}

impl Direct {
    fn start(model: &Model) -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (program, variables, files) = crate::scene::direct(CODEX, model);
        for (path, content) in files {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let mut command = Command::new(program);
        command.arg("app-server").current_dir(home.path()).env("HOME", home.path()).envs(variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let output = BufReader::new(output).lines();
        let mut direct = Self { process, input, output, thread: String::new(), home };
        direct.call(1, "initialize", json!({"clientInfo": {"name": "bench", "title": "bench", "version": "0"}}));
        writeln!(direct.input, "{}", json!({"method": "initialized"})).unwrap();
        let params = json!({"cwd": direct.home.path(), "approvalPolicy": "never", "sandbox": "danger-full-access"});
        let opened = direct.call(2, "thread/start", params);
        opened["result"]["thread"]["id"].as_str().unwrap().clone_into(&mut direct.thread);
        direct
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap_or_default()
    }

    fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        writeln!(self.input, "{}", json!({"id": id, "method": method, "params": params})).unwrap();
        loop {
            let message = self.next();
            if message["id"] == json!(id) {
                return message;
            }
        }
    }

    fn round(&mut self, number: u64) -> Vec<u64> {
        let input = json!([{"type": "text", "text": "CLOCK"}]);
        let start =
            json!({"id": 10 + number, "method": "turn/start", "params": {"threadId": self.thread, "input": input}});
        writeln!(self.input, "{start}").unwrap();
        let mut samples = Vec::new();
        loop {
            let message = self.next();
            match message["method"].as_str() {
                Some("item/agentMessage/delta") => samples.extend(since(message["params"]["delta"].as_str().unwrap())),
                Some("turn/completed") => return samples,
                _ => {}
            }
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn through_us(scene: &Scene) -> Vec<u64> {
    let stream = scene.chat(json!({"message": "CLOCK"}));
    let mut samples = Vec::new();
    loop {
        let event = stream.next();
        match event.name.as_str() {
            "delta" => samples.extend(since(event.data["text"].as_str().unwrap())),
            "done" => return samples,
            "error" | "aborted" => panic!("{event:#?}"),
            _ => {}
        }
    }
}

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn for_each_idle_session(sessions: u64) -> u64 {
    let polly = Polly::new("", "model_args = ['{model}']");
    let scene = &polly.scene;
    for number in 0..5 {
        last(&scene.chat(json!({"message": "warm up", "model": format!("w{number}")})).rest(), "done");
    }
    let server = scene.rig.server.as_ref().unwrap().id();
    let before = memory(server);
    for number in 0..sessions {
        last(&scene.chat(json!({"message": "hello", "model": format!("m{number}")})).rest(), "done");
    }
    memory(server).saturating_sub(before) / sessions
}

#[test]
#[ignore = "a measurement: `cargo xtask bench agents`"]
fn overhead() {
    let quick = std::env::var_os("STEAD_BENCH_QUICK").is_some();
    let (rounds, sessions) = if quick { (3, 20) } else { (12, 50) };
    let scene = Scene::new(CODEX);
    let mut direct = Direct::start(&scene.model);
    last(&scene.say("warm up"), "done");
    direct.round(0);
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for number in 1..=rounds {
        theirs.extend(direct.round(number));
        ours.extend(through_us(&scene));
    }
    drop(direct);
    let ((direct50, direct99), (ours50, ours99)) = (shares(&theirs), shares(&ours));
    let each = for_each_idle_session(sessions);
    let ratio = |ours: u64, theirs: u64| format!("{}.{:02}x", ours / theirs, ours * 100 / theirs % 100);
    let mut text = String::new();
    let samples = (theirs.len(), ours.len());
    let met = if each <= 1024 { "yes" } else { "no" };
    writeln!(text, "## From a token of the model to whoever listens\n").unwrap();
    writeln!(text, "{rounds} interleaved rounds of {TICKS} tokens, 10 ms apart.\n").unwrap();
    writeln!(text, "| who listens                   | p50 | p99 | to the first | samples |\n|---|---|---|---|---|")
        .unwrap();
    writeln!(text, "| reads the pipe of `codex app-server` | {direct50} µs | {direct99} µs | 1.00x | {} |", samples.0)
        .unwrap();
    let (p50, p99) = (ratio(ours50, direct50), ratio(ours99, direct99));
    writeln!(
        text,
        "| **ours**, events of `POST /api/chat` | {ours50} µs | {ours99} µs | {p50} (p99 {p99}) | {} |\n",
        samples.1
    )
    .unwrap();
    writeln!(text, "## Memory\n\n| goal | measured | met in this run |\n|---|---|---|").unwrap();
    writeln!(text, "| server, for each idle session, at most 1024 KiB | {each} KiB | {met} |").unwrap();
    println!("{text}");
    if let Some(file) = std::env::var_os("STEAD_BENCH_FILE") {
        let build = if cfg!(debug_assertions) { "a debug build, `--quick`" } else { "a release build" };
        let about = format!(
            "# Benchmarks of terminal agents\n\nWritten by `cargo xtask bench agents` ({build}); run it again rather than \
             compare with other machines.\n\nCodex and a model on the loopback interface that says the time. The same \
             model is listened to directly, over the agent's own pipe, and through the server.\n\n"
        );
        std::fs::write(file, about + &text).unwrap();
    }
}
