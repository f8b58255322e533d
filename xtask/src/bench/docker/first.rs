//! How long it takes from no container at all to the first output of a command.

use super::engine::Engine;
use super::{IMAGE, Kind, Timed};
use crate::bench::Effort;
use crate::bench::http::server::Server;
use crate::failed::{Failed, Result, While};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

const WORD: &str = "first";

pub(super) fn measure(server: &Server, engine: &Engine, effort: Effort) -> Result<Vec<Timed>> {
    let mut line = Timed::new(Kind::Program, "`docker run --rm IMAGE echo`, its first line");
    let mut end = Timed::new(Kind::Other, "the same, until `docker` ends");
    let mut api = Timed::new(Kind::Api, "Engine API over its socket: create, attach, start, first line");
    let mut ours = Timed::new(Kind::Ours, "**ours**, `POST exec` of `echo` on a thread that is not there, the answer");
    let rounds = effort.choose(20, 5);
    // The first has the image read for the first time; it isn't counted.
    for round in 0..=rounds {
        eprintln!("create to first output: round {round} of {rounds}");
        let (first, whole) = run(engine).or_failed("`docker run` failed")?;
        let asked = ask(engine).or_failed("the engine failed")?;
        let answered = exec(server, engine, round).or_failed("a new thread failed")?;
        if round > 0 {
            line.samples.push(first);
            end.samples.push(whole);
            api.samples.push(asked);
            ours.samples.push(answered);
        }
    }
    Ok(vec![line, end, api, ours])
}

/// Until the first line, and until the container is removed again.
fn run(engine: &Engine) -> Result<(Duration, Duration)> {
    let mut command = engine.docker(&["run", "--rm", "--network", "none", IMAGE, "echo", WORD]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().or_failed("can't start `docker`")?;
    let mut line = String::new();
    let output = child.stdout.take().or_failed("`docker` has no output")?;
    BufReader::new(output).read_line(&mut line).or_failed("can't read what `docker` says")?;
    let first = begun.elapsed();
    let status = child.wait().or_failed("can't wait for `docker`")?;
    let whole = begun.elapsed();
    if !status.success() || line.trim() != WORD {
        return Err(Failed::new(format!("`docker` ended with {status} and said `{line}`")));
    }
    engine.settle()?;
    Ok((first, whole))
}

fn ask(engine: &Engine) -> Result<Duration> {
    let mut client = engine.client()?;
    let begun = Instant::now();
    let id = engine.run_until(&mut client, IMAGE, WORD)?;
    let taken = begun.elapsed();
    engine.remove(&id)?;
    engine.settle()?;
    Ok(taken)
}

/// The answer comes when the command has ended, so ours is a little more than the first output.
fn exec(server: &Server, engine: &Engine, round: usize) -> Result<Duration> {
    let mut client = server.client(&server.tcp)?;
    let thread = format!("new-{round}");
    let begun = Instant::now();
    let command = json!({ "command": format!("echo {WORD}") });
    let answer = client.send_json(&format!("POST /api/threads/{thread}/exec"), &command)?;
    let taken = begun.elapsed();
    if answer.get("stdout").and_then(Value::as_str).map(str::trim) != Some(WORD) {
        return Err(Failed::new(format!("`echo` ended as {answer}")));
    }
    if engine.count()? == 0 {
        return Err(Failed::new("the command ran in no container"));
    }
    server.remove_thread(&thread)?;
    engine.settle()?;
    Ok(taken)
}
