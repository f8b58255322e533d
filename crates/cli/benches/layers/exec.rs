//! One command in a warm shell: through all layers, over the server's connection alone, and over a plain client of the
//! same steward.

use crate::rig::{Rig, run};
use crate::table::Table;
use crate::{Failed, Result, Task};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::ids::{CommandId, ShellId, ThreadId};
use stead_model::proto::{Exec, OpenShell, Program, Request};
use stead_model::state::{Bytes, ShellState};
use stead_server::provider::{Channel, Surroundings};
use stead_server::runtime::{LiveRuntime, Opening, Run, Runtime};
use stead_server::stead::Sandbox;
use stead_server::steward::{Steward, Told};
use stead_steward::client::Client;
use stead_steward::dir::Dir;

/// What is run, and how often in a full round: nothing can have changed; the state is captured and goes to the store.
const COMMANDS: [(&str, usize); 2] = [("true", 1000), ("x=$RANDOM", 300)];

pub(crate) async fn measure(task: &Task) -> Result {
    let rounds = task.effort.choose(6, 3);
    let mut subjects = Vec::new();
    for provider in &task.providers {
        subjects.push(Subject::new(Rig::start(&task.scratch, provider).await?).await?);
    }
    let tables = COMMANDS.iter().flat_map(|(text, samples)| {
        let samples = task.effort.choose(*samples, samples / 10);
        task.providers.iter().map(move |provider| (*text, samples, Table::new(format!("`{text}` on `{provider}`"))))
    });
    let mut tables: Vec<_> = tables.collect();
    for round in 1..=rounds {
        eprintln!("exec: round {round} of {rounds}");
        for (at, (text, samples, table)) in tables.iter_mut().enumerate() {
            let count = subjects.len();
            let subject = subjects.get_mut(at % count).ok_or("no provider")?;
            table.add_round("at the steward, plain client", subject.plain.round(text, *samples)?);
            table.add_round("over the server's connection alone", subject.live.round(text, *samples).await?);
            table.add_round("**through the layers**", layers(&subject.sandbox, text, *samples).await?);
        }
    }
    for (.., table) in tables {
        table.print();
    }
    Ok(())
}

/// Three ways to one instance, each to a shell of its own.
struct Subject {
    plain: Plain,
    live: Live,
    sandbox: Sandbox,
    _rig: Rig,
}

impl Subject {
    async fn new(rig: Rig) -> Result<Self> {
        let thread = ThreadId::parse("warm")?;
        let sandbox = rig.sandbox(&thread).await?;
        run(&sandbox, "true").await?;
        let place = rig.place_of(&thread).await?;
        Ok(Self { plain: Plain::open(&place, "plain")?, live: Live::open(&place, "live").await?, sandbox, _rig: rig })
    }
}

/// The first few find what the one before left and aren't counted.
pub(crate) fn unmeasured(samples: usize) -> usize {
    samples.div_ceil(20)
}

pub(crate) async fn layers(sandbox: &Sandbox, text: &str, samples: usize) -> Result<Vec<Duration>> {
    let mut taken = Vec::with_capacity(samples);
    for number in 0..samples + unmeasured(samples) {
        let begun = Instant::now();
        run(sandbox, text).await?;
        if number >= unmeasured(samples) {
            taken.push(begun.elapsed());
        }
    }
    Ok(taken)
}

const ENV: [(&str, &str); 4] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/"), ("LANG", "C.UTF-8"), ("TERM", "xterm")];

/// A client that waits.
pub(crate) struct Plain {
    client: Client,
    shell: ShellId,
    number: u64,
}

impl Plain {
    pub(crate) fn open(place: &Path, name: &str) -> Result<Self> {
        let mut client = Client::connect(place, "bench")?;
        let shell = ShellId::parse(name)?;
        let open = OpenShell {
            shell: shell.clone(),
            program: Program::Best,
            env: ENV.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value))).collect(),
            cwd: Bytes::from("/"),
            state: None,
            version: None,
        };
        client.request(&Request::OpenShell(Box::new(open)))?;
        Ok(Self { client, shell, number: 0 })
    }

    pub(crate) fn next(&mut self, text: &str) -> Result<Exec> {
        self.number += 1;
        Ok(Exec::new(self.shell.clone(), command_id(&self.shell, self.number)?, text))
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(crate) fn round(&mut self, text: &str, samples: usize) -> Result<Vec<Duration>> {
        tokio::task::block_in_place(|| self.round_here(text, samples))
    }

    /// The same on a thread that may be blocked.
    pub(crate) fn round_here(&mut self, text: &str, samples: usize) -> Result<Vec<Duration>> {
        let mut taken = Vec::with_capacity(samples);
        for number in 0..samples + unmeasured(samples) {
            let exec = self.next(text)?;
            let begun = Instant::now();
            let outcome = self.client.exec(exec)?;
            if number >= unmeasured(samples) {
                taken.push(begun.elapsed());
            }
            if outcome.info.ending.and_then(|ending| ending.exit_code) != Some(0) {
                return Err(Failed::from(format!("`{text}` failed")));
            }
        }
        Ok(taken)
    }
}

/// The server's own connection and runtime, with nothing above it: no seat, no record, no store.
pub(crate) struct Live {
    runtime: LiveRuntime,
    shell: ShellId,
    number: u64,
}

impl Live {
    pub(crate) async fn open(place: &Path, name: &str) -> Result<Self> {
        let stream = Dir::open(place)?.connect()?;
        stream.set_nonblocking(true)?;
        let channel: Box<dyn Channel> = Box::new(tokio::net::UnixStream::from_std(stream)?);
        let shell = ShellId::parse(name)?;
        let surroundings = Surroundings {
            env: ENV.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect(),
            cwd: b"/".to_vec(),
            scratch: "/tmp".to_owned(),
        };
        let opening = Opening { shell: shell.clone(), state: ShellState::default(), version: 0, surroundings };
        let runtime = LiveRuntime::open(Arc::new(Steward::greet(channel).await?), &opening).await?;
        Ok(Self { runtime, shell, number: 0 })
    }

    pub(crate) async fn run(&mut self, text: &str, hear: &mut (dyn FnMut(Told) + Send)) -> Result<Duration> {
        self.number += 1;
        let run = Run::new(self.shell.clone(), command_id(&self.shell, self.number)?, text);
        let begun = Instant::now();
        let mut hear = |told: Told| hear(told);
        let info = self.runtime.run(&run, 0, &mut hear).await?;
        let taken = begun.elapsed();
        match info.ending.and_then(|ending| ending.exit_code) {
            Some(0) => Ok(taken),
            _ => Err(Failed::from(format!("`{text}` failed"))),
        }
    }

    async fn round(&mut self, text: &str, samples: usize) -> Result<Vec<Duration>> {
        let mut taken = Vec::with_capacity(samples);
        for number in 0..samples + unmeasured(samples) {
            let sample = self.run(text, &mut drop).await?;
            if number >= unmeasured(samples) {
                taken.push(sample);
            }
        }
        Ok(taken)
    }
}

fn command_id(shell: &ShellId, number: u64) -> Result<CommandId> {
    Ok(CommandId::parse(&format!("{shell}-{number}"))?)
}
