//! Many terminals and many clients at once. A little of it in every run; with `STEAD_LOAD=full` (`cargo xtask load`) a
//! thousand terminals and two hundred clients for a minute, told in `docs/load.md`.

use crate::rig::{PATIENCE, Rig};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Plan {
    threads: usize,
    terminals: usize,
    clients: usize,
    span: Duration,
    full: bool,
}

const LITTLE: Plan = Plan { threads: 8, terminals: 5, clients: 16, span: Duration::from_secs(4), full: false };
const FULL: Plan = Plan { threads: 100, terminals: 10, clients: 200, span: Duration::from_mins(1), full: true };

/// A client with a connection of its own.
struct Client<'a> {
    rig: &'a Rig,
    agent: ureq::Agent,
}

impl Client<'_> {
    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = ureq::http::Request::builder().method("POST").uri(format!("{}{path}", self.rig.url));
        let request = request.header("authorization", format!("Bearer {}", self.rig.token));
        let request = request.header("content-type", "application/json").body(body.to_string()).unwrap();
        let mut answer = self.agent.run(request).unwrap_or_else(|error| panic!("{path}: {error}"));
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap())
    }
}

/// The command of a round: some say a word, some a page, each different.
fn round(terminal: usize, number: usize) -> (String, String) {
    let word = format!("t{terminal}-{number}");
    if number % 10 == 9 {
        let page = (1..=200).map(|line| format!("{word} {line}\n")).collect::<Vec<_>>().concat();
        (format!("for i in {{1..200}}; do echo \"{word} $i\"; done"), page)
    } else {
        (format!("N={number}; echo {word}"), format!("{word}\n"))
    }
}

#[test]
fn many_clients_at_many_terminals_lose_nothing() {
    let full = std::env::var("STEAD_LOAD").is_ok_and(|load| load == "full");
    let plan = if full { FULL } else { LITTLE };
    let rig = Rig::new();
    let patient = || -> ureq::Agent {
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(3 * PATIENCE)).build().into()
    };
    let begun = Instant::now();
    let (next, all) = (AtomicUsize::new(0), plan.threads * plan.terminals);
    std::thread::scope(|scope| {
        for _ in 0..plan.clients.min(16) {
            scope.spawn(|| {
                let client = Client { rig: &rig, agent: patient() };
                loop {
                    let thread = next.fetch_add(1, Ordering::Relaxed);
                    if thread >= plan.threads {
                        break;
                    }
                    let path = format!("/api/threads/l{thread}");
                    for number in 0..plan.terminals {
                        let name = if number == 0 { "default".to_owned() } else { format!("n{number}") };
                        if number > 0 {
                            assert_eq!(client.post(&format!("{path}/terminals"), &json!({ "name": name })).0, 201);
                        }
                        let (status, answer) =
                            client.post(&format!("{path}/exec"), &json!({ "command": "N=0", "terminal": name }));
                        assert_eq!((status, &answer["exit_code"]), (200, &json!(0)), "{answer}");
                    }
                }
            });
        }
    });
    let made = begun.elapsed();
    let after_making = rig.memory();
    let until = Instant::now() + plan.span;
    let mut spans: Vec<Duration> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|client| {
                let rig = &rig;
                scope.spawn(move || {
                    let (agent, mut spans) = (Client { rig, agent: patient() }, Vec::new());
                    // Each has terminals of its own, and goes round them.
                    let own: Vec<usize> = (0..all).skip(client).step_by(plan.clients).collect();
                    for number in 0.. {
                        if Instant::now() >= until {
                            break;
                        }
                        let terminal = own[number % own.len()];
                        let (command, said) = round(terminal, number);
                        let (thread, name) = (terminal / plan.terminals, terminal % plan.terminals);
                        let name = if name == 0 { "default".to_owned() } else { format!("n{name}") };
                        let begun = Instant::now();
                        let body = json!({ "command": command, "terminal": name });
                        let (status, answer) = agent.post(&format!("/api/threads/l{thread}/exec"), &body);
                        spans.push(begun.elapsed());
                        assert_eq!((status, answer["stdout"].as_str()), (200, Some(said.as_str())), "{answer}");
                    }
                    spans
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    spans.sort_unstable();
    let quantile = |part: usize| spans[(spans.len() - 1) * part / 1000];
    let rate = spans.len() as u64 / plan.span.as_secs();
    let mut page = String::new();
    let profile = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    writeln!(page, "| what | |\n|---|---|").unwrap();
    writeln!(page, "| live terminals | {all}, {} to an instance |", plan.terminals).unwrap();
    writeln!(page, "| made in | {:.1} s |", made.as_secs_f64()).unwrap();
    writeln!(page, "| clients, each with one command at a time | {} for {} s |", plan.clients, plan.span.as_secs())
        .unwrap();
    writeln!(page, "| commands, none of them failed or short of a byte | {} ({rate} a second) |", spans.len()).unwrap();
    for (name, part) in [("p50", 500), ("p90", 900), ("p99", 990), ("slowest", 1000)] {
        writeln!(page, "| {name} | {:.1} ms |", quantile(part).as_secs_f64() * 1000.0).unwrap();
    }
    writeln!(page, "| memory of the server before and after | {} and {} MiB |", after_making >> 10, rig.memory() >> 10)
        .unwrap();
    println!("{page}");
    if plan.full {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let text = format!(
            "# Load over HTTP\n\nWritten by `cargo xtask load`: the real server, {profile}, with its clients on the same \
             machine ({cores} cores).\nEvery answer is compared with what its command must print.\n\n{page}"
        );
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load.md"), text).unwrap();
    }
}
