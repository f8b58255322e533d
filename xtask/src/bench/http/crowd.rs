//! How long one `true` takes when so many ask at once, each as fast as it is answered.

use super::client::Door;
use super::ours::{Health, Ours};
use super::polled::{self, Polled};
use super::server::Server;
use crate::bench::Effort;
use crate::bench::latency::Mechanism;
use crate::bench::place::Place;
use crate::bench::sample::{median, percentile};
use crate::bench::spawn::Spawn;
use crate::failed::{Failed, Result, While};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Somebody who asks, waits for the answer and asks again.
pub(in crate::bench) trait Member: Send {
    /// Gets ready for a round.
    fn begin(&mut self) -> Result {
        Ok(())
    }

    fn once(&mut self) -> Result;
}

impl Member for Spawn {
    fn once(&mut self) -> Result {
        Mechanism::once(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Spawn,
    Polled,
    Health,
    Ours,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Answers in a second, all together.
    pub(super) rate: f64,
    pub(super) samples: usize,
}

/// Everything that was measured with so many at once.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) clients: usize,
    pub(super) rows: Vec<Row>,
}

impl Crowd {
    pub(super) fn p50(&self, kind: Kind) -> Option<Duration> {
        self.rows.iter().find(|row| row.kind == kind).map(|row| row.p50)
    }
}

const CLIENTS: [usize; 3] = [1, 32, 200];

/// Several times what the slowest takes with the most at once.
const ROUND: Duration = Duration::from_secs(2);

struct Group<'a> {
    kind: Kind,
    name: String,
    members: Vec<Box<dyn Member + 'a>>,
    rounds: Vec<(Vec<Duration>, Duration)>,
}

impl<'a> Group<'a> {
    fn new<M: Member + 'a>(
        kind: Kind,
        name: impl Into<String>,
        clients: usize,
        make: impl Fn(usize) -> Result<M>,
    ) -> Result<Self> {
        let members =
            (0..clients).map(|number| Ok(Box::new(make(number)?) as Box<dyn Member + 'a>)).collect::<Result<_>>()?;
        Ok(Self { kind, name: name.into(), members, rounds: Vec::new() })
    }

    /// All begin together, and each asks until the time is over: what is measured is a crowd that lasts, not its coming
    /// and going.
    fn round(&mut self, effort: Effort) -> Result {
        let length = effort.choose(ROUND, ROUND / 4);
        let gate = Barrier::new(self.members.len() + 1);
        let (samples, taken) = std::thread::scope(|scope| {
            let ask = |member: &mut Box<dyn Member + 'a>| {
                // The first finds what others have left cold.
                let first = member.begin().and_then(|()| member.once());
                gate.wait();
                first?;
                let mut samples = Vec::new();
                let until = Instant::now() + length;
                while Instant::now() < until {
                    let asked = Instant::now();
                    member.once()?;
                    samples.push(asked.elapsed());
                }
                Ok(samples)
            };
            let asking: Vec<_> = self.members.iter_mut().map(|member| scope.spawn(move || ask(member))).collect();
            gate.wait();
            let begun = Instant::now();
            let mut samples = Vec::new();
            for asked in asking {
                let asked: Result<Vec<Duration>> =
                    asked.join().unwrap_or_else(|_| Err(Failed::new("a client panicked")));
                samples.extend(asked?);
            }
            Ok::<_, Failed>((samples, begun.elapsed()))
        })
        .or_failed(format!("`{}` failed", self.name))?;
        self.rounds.push((samples, taken));
        Ok(())
    }

    fn row(self) -> Row {
        let of = |percent| median(self.rounds.iter().map(|(each, _)| percentile(each.clone(), percent)).collect());
        let samples = self.rounds.iter().map(|(samples, _)| samples.len()).sum();
        let mut rates: Vec<f64> = self.rounds.iter().map(|(samples, taken)| rate(samples.len(), *taken)).collect();
        rates.sort_by(f64::total_cmp);
        let rate = rates.get(rates.len() / 2).copied().unwrap_or_default();
        Row { kind: self.kind, name: self.name.clone(), p50: of(50), p99: of(99), rate, samples }
    }
}

fn rate(answers: usize, taken: Duration) -> f64 {
    f64::from(u32::try_from(answers).unwrap_or(u32::MAX)) / taken.as_secs_f64()
}

pub(super) fn measure(server: &Server, default: &str, scratch: &Path, effort: Effort) -> Result<Vec<Crowd>> {
    let polled = polled::serve(scratch)?;
    let most = CLIENTS.into_iter().max().unwrap_or(0);
    let mut providers = vec![default, "local"];
    providers.dedup();
    for provider in &providers {
        eprintln!("{most} warm threads on `{provider}`");
        for number in 0..most {
            server.make_thread(&thread(provider, number), provider)?;
        }
    }
    let mut crowds = Vec::new();
    for clients in CLIENTS {
        crowds.push(crowd(server, &providers, &polled, clients, effort)?);
    }
    for provider in &providers {
        for number in 0..most {
            server.remove_thread(&thread(provider, number))?;
        }
    }
    Ok(crowds)
}

fn thread(provider: &str, number: usize) -> String {
    format!("{provider}-{number}")
}

fn crowd(server: &Server, providers: &[&str], polled: &Door, clients: usize, effort: Effort) -> Result<Crowd> {
    let place = Place::unpinned()?;
    let mut groups = vec![
        Group::new(Kind::Spawn, "`bash -c true`, fork, exec and wait", clients, |_| Ok(Spawn::new(&place)))?,
        Group::new(Kind::Health, "`GET /healthz`, TCP", clients, |_| Health::new(server))?,
    ];
    for provider in providers {
        for (door, name) in [(&server.tcp, "TCP"), (&server.socket, "unix socket")] {
            let name = format!("**ours**, `true` on `{provider}`, {name}");
            let ours = |number| Ours::new(server, door, &thread(provider, number), "true");
            groups.push(Group::new(Kind::Ours, name, clients, ours)?);
        }
    }
    let name = "polled FIFOs behind a minimal HTTP server, TCP";
    groups.push(Group::new(Kind::Polled, name, clients, |_| Polled::new(polled))?);
    let rounds = effort.choose(5, 3);
    // The first wakes every shell; it isn't counted.
    for round in 0..=rounds {
        eprintln!("{clients} at once: round {round} of {rounds}");
        for group in &mut groups {
            group.round(effort)?;
            if round == 0 {
                group.rounds.clear();
            }
        }
    }
    Ok(Crowd { clients, rows: groups.into_iter().map(Group::row).collect() })
}
