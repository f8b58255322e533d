//! What is going to be done in one round, from its seed alone: commands, and faults with their moments.

use super::chance::Chance;
use super::script::Body;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Local,
    Namespace,
}

impl Provider {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Namespace => "namespace",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Local => Self::Namespace,
            Self::Namespace => Self::Local,
        }
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) clients: Vec<Client>,
    pub(super) faults: Vec<PlannedFault>,
}

/// One thread and whoever works in it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) thread: String,
    pub(super) provider: Provider,
    pub(super) steps: Vec<Step>,
    /// Deleted while the last command runs, not when all is quiet.
    pub(super) deleted_busy: bool,
}

#[derive(Debug)]
pub(super) enum Step {
    Run(Batch),
    Fork,
    Move,
}

/// Commands of one terminal, sent one after the other without waiting for their ends.
#[derive(Debug)]
pub(super) struct Batch {
    /// `None`: the default one.
    pub(super) terminal: Option<&'static str>,
    pub(super) commands: Vec<Planned>,
    /// Paused by force so long after the last was sent, for so long.
    pub(super) pause: Option<(Duration, Duration)>,
}

#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// Its name in the plan and in what it writes; also its id, unless the server makes that.
    pub(super) id: String,
    pub(super) id_by: IdBy,
    pub(super) body: Body,
    pub(super) way: Way,
    pub(super) timeout_ms: Option<u64>,
    /// Cancelled so long after it was sent.
    pub(super) cancel: Option<Duration>,
}

/// Who chooses the id of a command. One with an id of ours can be sent again until it is taken; one without is sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdBy {
    Client,
    Server,
}

/// How its end is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Answer,
    Events,
    Background,
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Server,
    Steward,
    Keeper,
    Shell,
    /// Keeper and steward of an instance.
    Instance,
    /// The server, and every process of every instance.
    All,
}

impl Fault {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "server" => Self::Server,
            "steward" => Self::Steward,
            "keeper" => Self::Keeper,
            "shell" => Self::Shell,
            "instance" => Self::Instance,
            "all" => Self::All,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedFault {
    pub(super) fault: Fault,
    /// Whose instance; the server and everything are nobody's.
    pub(super) client: usize,
    /// After the one before.
    pub(super) after: Duration,
}

const CLIENTS: usize = 2;
const STEPS: u64 = 5;

impl Plan {
    pub(super) fn new(seed: u64, round: u32, provider: Provider, can_move: bool) -> Self {
        let mut chance = Chance::new(seed, u64::from(round) * 2 + u64::from(provider == Provider::Namespace));
        let clients = (0..CLIENTS)
            .map(|number| {
                Client::new(
                    &mut chance,
                    format!("{}{round}{}", provider.name(), ["a", "b", "c"].get(number).unwrap_or(&"z")),
                    provider,
                    can_move,
                )
            })
            .collect();
        let count = chance.between(4, 8);
        let faults = (0..count).map(|_| PlannedFault::new(&mut chance)).collect();
        Self { clients, faults }
    }

    /// The same with every kill at something of this kind.
    pub(super) fn with_faults(mut self, fault: Fault) -> Self {
        for planned in &mut self.faults {
            planned.fault = fault;
        }
        self
    }
}

impl Client {
    fn new(chance: &mut Chance, thread: String, provider: Provider, can_move: bool) -> Self {
        let mut numbers = 0;
        let mut steps = Vec::new();
        for _ in 0..STEPS {
            steps.push(Step::Run(Batch::new(chance, &thread, &mut numbers)));
            match chance.below(12) {
                0 => steps.push(Step::Fork),
                1 if can_move => steps.push(Step::Move),
                _ => {}
            }
        }
        let deleted_busy = chance.one_in(3);
        if deleted_busy {
            let id = format!("{thread}-last");
            let last = Planned::new_background(id, Body::Endless);
            steps.push(Step::Run(Batch { terminal: None, commands: vec![last], pause: None }));
        }
        Self { thread, provider, steps, deleted_busy }
    }
}

impl Batch {
    fn new(chance: &mut Chance, thread: &str, numbers: &mut u32) -> Self {
        let alone = chance.one_in(2);
        let count = if alone { 1 } else { chance.between(2, 4) };
        let commands = (0..count)
            .map(|_| {
                *numbers += 1;
                Planned::new(chance, format!("{thread}-{numbers}"), alone)
            })
            .collect();
        let pause = chance
            .one_in(8)
            .then(|| (Duration::from_millis(chance.below(60)), Duration::from_millis(chance.between(5, 200))));
        Self { terminal: chance.one_in(4).then_some("two"), commands, pause }
    }
}

impl Planned {
    fn new(chance: &mut Chance, id: String, alone: bool) -> Self {
        let body = match chance.below(16) {
            0..=5 => Body::Lines { count: u32::try_from(chance.between(0, 40)).unwrap_or(1), code: chance.code() },
            6..=9 => Body::Slow { ms: chance.between(1, 150), code: chance.code() },
            10 | 11 => Body::Endless,
            12 | 13 => Body::Exit { code: chance.code() },
            14 => Body::Enter { dir: u32::try_from(chance.below(5)).unwrap_or(0) },
            _ => Body::Bulk {
                bytes: u32::try_from(chance.between(1, 600_000)).unwrap_or(1),
                byte: if chance.one_in(2) { b'x' } else { 255 },
            },
        };
        let way = match (alone, chance.below(3)) {
            (true, 0) => Way::Answer,
            (true, 1) => Way::Events,
            _ => Way::Background,
        };
        let endless = body == Body::Endless;
        let by_time = if endless { chance.one_in(2) } else { chance.one_in(10) };
        let timeout_ms = by_time.then(|| chance.between(1, 150));
        let asked = if endless { !by_time } else { chance.one_in(10) };
        let cancel = asked.then(|| Duration::from_millis(chance.below(120)));
        // Without an answer nobody could ask for its end: it must come by itself.
        let may_be_unknown = cancel.is_none() && !endless && way != Way::Events;
        let id_by = if may_be_unknown && chance.one_in(6) { IdBy::Server } else { IdBy::Client };
        Self { id, id_by, body, way, timeout_ms, cancel }
    }

    /// A command that nobody waits for, stops or cancels.
    pub(super) fn new_background(id: String, body: Body) -> Self {
        Self { id, id_by: IdBy::Client, body, way: Way::Background, timeout_ms: None, cancel: None }
    }

    /// A command that is answered when it has ended.
    pub(super) fn new_answered(id: String, body: Body) -> Self {
        Self { way: Way::Answer, ..Self::new_background(id, body) }
    }
}

impl PlannedFault {
    fn new(chance: &mut Chance) -> Self {
        let fault = match chance.below(16) {
            0..=3 => Fault::Server,
            4..=7 => Fault::Steward,
            8 | 9 => Fault::Keeper,
            10 | 11 => Fault::Shell,
            12..=14 => Fault::Instance,
            _ => Fault::All,
        };
        let client = usize::try_from(chance.below(CLIENTS as u64)).unwrap_or(0);
        // Some come while the last one is still being recovered from.
        let after = if chance.one_in(4) { chance.below(10) } else { chance.between(10, 500) };
        Self { fault, client, after: Duration::from_millis(after) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_plan_and_another_seed_another() {
        let text = |seed| format!("{:?}", Plan::new(seed, 3, Provider::Local, true));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn a_command_that_never_ends_by_itself_is_always_ended() {
        for round in 0..200 {
            let plan = Plan::new(1, round, Provider::Namespace, true);
            let steps = plan.clients.iter().flat_map(|client| &client.steps);
            for step in steps {
                let Step::Run(batch) = step else { continue };
                for command in batch.commands.iter().filter(|command| !command.id.ends_with("last")) {
                    let ended = command.timeout_ms.is_some() || command.cancel.is_some();
                    assert!(ended || command.body.code().is_some(), "{command:?}");
                }
            }
        }
    }
}
