//! How long one `true` takes in a container that runs.

use super::engine::Engine;
use super::{IMAGE, Kind, Timed};
use crate::bench::Effort;
use crate::bench::http::client::Client;
use crate::bench::http::crowd::Member;
use crate::bench::http::ours::Ours;
use crate::bench::http::server::Server;
use crate::cargo;
use crate::failed::{Result, While};
use std::time::Instant;

/// In a round: as many as take about as long as one another.
const OURS: usize = 200;
const THEIRS: usize = 5;

const THREAD: &str = "warm";

pub(super) fn measure(server: &Server, engine: &Engine, effort: Effort) -> Result<Vec<Timed>> {
    server.make_thread(THREAD, "docker")?;
    let plain = Plain::start(engine)?;
    let mut ways: Vec<(Timed, usize, Box<dyn Member + '_>)> = vec![
        (Timed::new(Kind::Program, "`docker exec CONTAINER true`"), THEIRS, Box::new(Program(&plain))),
        (
            Timed::new(Kind::Api, "Engine API over its socket: exec create, start, inspect"),
            THEIRS,
            Box::new(Api { plain: &plain, client: engine.client()? }),
        ),
    ];
    // The shell's own starts no process, which `docker exec` has to; the last two do.
    for (door, command, name) in [
        (&server.tcp, "true", "**ours**, `POST exec` of `true`, TCP"),
        (&server.socket, "true", "**ours**, `POST exec` of `true`, unix socket"),
        (&server.tcp, "/bin/true", "**ours**, `POST exec` of `/bin/true`, TCP"),
        (&server.socket, "/bin/true", "**ours**, `POST exec` of `/bin/true`, unix socket"),
    ] {
        ways.push((Timed::new(Kind::Ours, name), OURS, Box::new(Ours::new(server, door, THREAD, command)?)));
    }
    let rounds = effort.choose(20, 5);
    for round in 1..=rounds {
        eprintln!("a warm container: round {round} of {rounds}");
        for (timed, times, way) in &mut ways {
            let taken = turn(way.as_mut(), *times).or_failed(format!("{} failed", timed.name))?;
            timed.samples.extend(taken);
        }
    }
    let measured = ways.into_iter().map(|(timed, ..)| timed).collect();
    server.remove_thread(THREAD)?;
    drop(plain);
    engine.settle()?;
    Ok(measured)
}

/// One round of one way. The first finds what others have left cold, and isn't counted.
fn turn(way: &mut dyn Member, times: usize) -> Result<Vec<std::time::Duration>> {
    way.begin()?;
    way.once()?;
    let mut samples = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        way.once()?;
        samples.push(begun.elapsed());
    }
    Ok(samples)
}

/// A container of the same image as anybody would start it, for the engine's own ways.
struct Plain<'a> {
    engine: &'a Engine,
    id: String,
}

impl<'a> Plain<'a> {
    fn start(engine: &'a Engine) -> Result<Self> {
        let words = ["run", "--detach", "--network", "none", IMAGE, "sleep", "infinity"];
        let id = cargo::output(&mut engine.docker(&words))?.trim().to_owned();
        Ok(Self { engine, id })
    }
}

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.engine.remove(&self.id) {
            eprintln!("container `{}` is left: {error}", self.id);
        }
    }
}

struct Program<'a>(&'a Plain<'a>);

impl Member for Program<'_> {
    fn once(&mut self) -> Result {
        cargo::output(&mut self.0.engine.docker(&["exec", &self.0.id, "true"])).map(drop)
    }
}

struct Api<'a> {
    plain: &'a Plain<'a>,
    client: Client,
}

impl Member for Api<'_> {
    fn begin(&mut self) -> Result {
        self.client = self.plain.engine.client()?;
        Ok(())
    }

    fn once(&mut self) -> Result {
        self.plain.engine.exec(&mut self.client, &self.plain.id, &["true"])
    }
}
