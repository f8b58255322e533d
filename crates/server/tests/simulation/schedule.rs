//! One schedule: servers one after the other over one store, steps of a few requests at once, and all that is checked
//! after each.

use crate::dice::Dice;
use crate::law::{Done, Law};
use crate::memory::{Memory, Told, Values, values};
use crate::op::{Answer, Op, Place, Text};
use crate::plan::Plan;
use crate::world::{Trace, World};
use std::collections::BTreeSet;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::lease::Desired;
use stead_model::proto::Status;
use stead_server::stead::Stead;
use stead_server::store::{Page, Store};
use tokio::task::JoinHandle;

/// By then everybody has an answer: a few calls that hang for their two minutes, one after the other.
const DEADLINE: Duration = Duration::from_hours(3);

/// What is not over by then has been forgotten.
const SETTLED: Duration = Duration::from_mins(30);

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trace: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

pub(crate) fn run(seed: u64, trace: Trace) -> Outcome {
    let mut schedule = Schedule::new(seed, trace);
    while !schedule.is_over() {
        in_a_runtime(&mut schedule, async |schedule| schedule.live().await);
    }
    if schedule.wrong.is_empty() {
        in_a_runtime(&mut schedule, async |schedule| schedule.rest().await);
    }
    Outcome { trace: schedule.world.trace().lines(), wrong: schedule.wrong }
}

/// A process: all that runs in it ends with it, wherever it is.
fn in_a_runtime(schedule: &mut Schedule, live: impl AsyncFnOnce(&mut Schedule)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        schedule.world.clock.start();
        live(schedule).await;
        schedule.world.clock.halt();
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Usual,
    /// The server dies in the middle of it.
    Crash,
    /// The server is stopped in the middle of it.
    Stop,
    /// Another server begins over the same store before this one has ended.
    Overlap,
}

#[derive(Debug)]
struct Schedule {
    plan: Plan,
    world: World,
    memory: Memory,
    law: Law,
    left: u64,
    /// Threads that somebody has tried to delete.
    deleted: BTreeSet<String>,
    wrong: Vec<String>,
}

/// What was asked, and whoever waits for the answer.
struct Asked {
    op: Op,
    content: Option<Values>,
    answer: JoinHandle<Answer>,
    leaves: bool,
}

impl Schedule {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut dice = Dice::new(seed, 0);
        let world = World::new(seed, &mut dice, trace);
        // Most are short, for there are more of them; a few are long.
        let left = if dice.in_(5) { 20 + dice.below(41) } else { 6 + dice.below(9) };
        Self {
            plan: Plan::new(dice),
            world,
            memory: Memory::default(),
            law: Law::default(),
            left,
            deleted: BTreeSet::new(),
            wrong: Vec::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0 || !self.wrong.is_empty()
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        self.world.trace().tell(line);
    }

    async fn start(&mut self) -> Option<Stead> {
        self.tell(|| "a server starts".to_owned());
        self.law.forget(&self.world);
        let started = tokio::time::timeout(DEADLINE, Stead::start(self.world.parts())).await;
        match started {
            Ok(Ok((stead, recovered))) => {
                self.tell(|| format!("       {recovered:?}"));
                // Starting may take minutes, and what it found in its future counts from when it was found.
                self.law.forget(&self.world);
                return Some(stead);
            }
            Ok(Err(error)) => self.wrong.push(format!("the server did not start: {error}")),
            Err(_) => self.wrong.push("the server starts for ever".to_owned()),
        }
        None
    }

    /// The life of one server.
    async fn live(&mut self) {
        let Some(stead) = self.start().await else { return };
        if self.world.store.threads(None, &Page::all()).await.unwrap().is_empty() {
            self.people(&stead).await;
        }
        while !self.is_over() {
            self.left -= 1;
            let kind = match self.plan.dice.below(100) {
                0..=6 => Kind::Crash,
                7..=9 => Kind::Stop,
                10..=12 => Kind::Overlap,
                _ => Kind::Usual,
            };
            self.step(&stead, kind).await;
            if kind != Kind::Usual {
                return;
            }
        }
    }

    /// The first threads: the second on the lease of the first, the first and the third with two terminals.
    async fn people(&mut self, stead: &Stead) {
        let threads = self.world.threads.clone();
        for (n, thread) in threads.iter().enumerate() {
            let share = if n == 1 || (n == 3 && self.plan.dice.in_(50)) { threads.get(n - 1).cloned() } else { None };
            let mut ops = vec![Op::Create(thread.clone(), share)];
            if n % 2 == 0 {
                ops.push(Op::CreateTerminal(thread.clone()));
            }
            for op in ops {
                op.perform(stead, &self.world.fake).await;
            }
        }
    }

    async fn step(&mut self, stead: &Stead, kind: Kind) {
        self.tell(|| format!("{kind:?} {} at {}", self.left, self.world.now().0));
        let disturbed = self.plan.fate(&mut self.world);
        let pranks = self.world.fake.pranks();
        let began = self.world.passed();
        self.law.begin(&self.world).await;
        let existed = self.threads().await;
        self.plan.gather(&self.world);
        let mut ops = Vec::new();
        for _ in 0..=self.plan.dice.below(4) {
            ops.push(self.plan.op(&self.world).await);
        }
        let mut servers = vec![stead.clone()];
        if kind == Kind::Overlap {
            servers.extend(self.start().await);
        }
        let mut asked = Vec::new();
        for op in ops {
            let Some(server) = self.plan.dice.pick(&servers) else { break };
            asked.push(self.ask(&server, op, kind).await);
        }
        let left = asked.iter().any(|asked| asked.leaves);
        self.leave(&mut asked).await;
        match kind {
            Kind::Usual | Kind::Overlap => {}
            Kind::Crash => self.some_turns().await,
            Kind::Stop => {
                self.some_turns().await;
                let failed = tokio::time::timeout(DEADLINE, stead.stop()).await;
                match failed {
                    Ok(failed) => self.tell(|| format!("       stopped, {} failed", failed.len())),
                    Err(_) => self.wrong.push("the server stops for ever".to_owned()),
                }
            }
        }
        let done = self.answers(asked, kind, stead).await;
        if left {
            tokio::time::sleep(SETTLED).await;
        }
        let quiet = kind == Kind::Usual
            && !disturbed
            && !left
            && pranks == self.world.fake.pranks()
            && !done.iter().any(|(op, ..)| op.disturbs());
        self.judge(&done, quiet, kind, &existed);
        if kind == Kind::Overlap {
            self.law.overlap();
            self.world.excuse_orphans().await;
        }
        self.check(began, &done).await;
    }

    async fn threads(&self) -> BTreeSet<String> {
        let threads = self.world.store.threads(None, &Page::all()).await.unwrap();
        threads.into_iter().map(|thread| thread.id.to_string()).collect()
    }

    async fn some_turns(&mut self) {
        for _ in 0..self.plan.dice.below(120) {
            tokio::task::yield_now().await;
        }
        if self.plan.dice.in_(20) {
            tokio::time::sleep(Duration::from_millis(self.plan.dice.below(150_000))).await;
        }
    }

    async fn ask(&mut self, stead: &Stead, op: Op, kind: Kind) -> Asked {
        let mut content = None;
        if let Op::Restore(_, terminal, version) = &op {
            // Versions that followed each other fast have no content of their own.
            if let Some(kept) = self.world.store.state_at(terminal, *version).await.unwrap() {
                let found = values(&kept.state);
                self.wrong.extend(self.memory.past(terminal, kept.version, &found));
                content = Some(found);
            }
        }
        if let Op::Repeat(_, _, id) = &op
            && self.world.fake.executions(id) > 0
            && let Some(row) = self.world.store.command(id).await.unwrap()
        {
            self.memory.ran_earlier(id, &row.terminal);
        }
        if let Op::Delete(thread) = &op {
            self.deleted.insert(thread.to_string());
            let gone = self.plan.delete(thread);
            self.law.excuse(gone);
        }
        let (trace, stead, fake) = (self.world.trace().clone(), stead.clone(), self.world.fake.clone());
        let begun = tokio::time::Instant::now();
        let doing = op.clone();
        trace.tell(|| format!("    {op:?}"));
        let answer = tokio::spawn(async move {
            let answer = doing.perform(&stead, &fake).await;
            trace.tell(|| format!("    {doing:?} after {:?}: {answer:?}", begun.elapsed()));
            answer
        });
        let may_leave = kind == Kind::Usual && matches!(op, Op::Run(..) | Op::Get(..) | Op::Touch(_));
        Asked { op, content, answer, leaves: may_leave && self.plan.dice.in_(4) }
    }

    /// Some don't wait for their answer.
    async fn leave(&mut self, asked: &mut [Asked]) {
        if asked.iter().any(|asked| asked.leaves) {
            for _ in 0..self.plan.dice.below(40) {
                tokio::task::yield_now().await;
            }
        }
        for one in asked.iter().filter(|asked| asked.leaves) {
            self.tell(|| format!("    {:?} is waited for no longer", one.op));
            one.answer.abort();
        }
    }

    /// Whether a command waits for its lease, which was paused under it by force. Then that is resumed.
    async fn wakes(&self, op: &Op, stead: &Stead) -> bool {
        let (Op::Run(..) | Op::Repeat(..), Some(thread)) = (op, op.thread()) else { return false };
        let Some(thread) = self.world.store.thread(thread).await.unwrap() else { return false };
        let lease = self.world.store.lease(&thread.lease).await.unwrap();
        if lease.is_none_or(|lease| lease.desired != Desired::Paused) {
            return false;
        }
        self.tell(|| format!("    {op:?} waits for its lease, which is resumed"));
        // A call that fails for once doesn't the next time.
        for _ in 0..10 {
            if stead.resume(&thread.id).await.is_ok() {
                break;
            }
        }
        true
    }

    async fn answers(&mut self, asked: Vec<Asked>, kind: Kind, stead: &Stead) -> Vec<Told> {
        let mut deadline = tokio::time::Instant::now() + DEADLINE;
        let mut done = Vec::new();
        for Asked { op, content, mut answer, leaves } in asked {
            let answered = if kind == Kind::Crash && !answer.is_finished() {
                Answer::None
            } else {
                let mut waited = tokio::time::timeout_at(deadline, &mut answer).await;
                if waited.is_err() && self.wakes(&op, stead).await {
                    // The others may have waited for the same.
                    deadline = tokio::time::Instant::now() + DEADLINE;
                    waited = tokio::time::timeout_at(deadline, &mut answer).await;
                }
                match waited {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) if error.is_cancelled() && leaves => Answer::None,
                    Ok(Err(error)) => {
                        self.wrong.push(format!("{op:?}: {error}"));
                        Answer::None
                    }
                    Err(_) => {
                        self.wrong.push(format!("{op:?} was never answered"));
                        Answer::None
                    }
                }
            };
            done.push((op, answered, content));
        }
        done
    }

    /// Whether the answers are such as may be given.
    fn judge(&mut self, done: &[Told], quiet: bool, kind: Kind, existed: &BTreeSet<String>) {
        for (op, answer, _) in done {
            let deleted = |op: &Op| match op {
                Op::Delete(thread) => Some(thread.as_str().to_owned()),
                _ => None,
            };
            match answer {
                Answer::Refused { code, message } => {
                    let thread = op.thread().map(ToString::to_string).unwrap_or_default();
                    let gone =
                        !existed.contains(&thread) || done.iter().any(|(op, ..)| deleted(op) == Some(thread.clone()));
                    let missing = gone || op.place().is_some_and(|place| place.name == "build");
                    let trouble = ["provider_error", "provider_timeout", "limit_reached", "unavailable"].contains(code);
                    let must_work = matches!(op, Op::Get(..) | Op::Run(..) | Op::Touch(_)) && quiet;
                    let stopping = message.contains("is stopping");
                    let fine = op.may_be_refused(code)
                        || (*code == "not_found" && missing)
                        || (*code == "conflict" && kind == Kind::Overlap)
                        || (trouble && !must_work && (!stopping || kind == Kind::Stop));
                    if !fine || message.contains("can't happen to it") {
                        self.wrong.push(format!("{op:?}{}: {code}: {message}", if quiet { ", in peace" } else { "" }));
                    }
                }
                Answer::Ran(ran) if quiet && matches!(op, Op::Run(..)) => {
                    // A record that is told again says so where nobody keeps output.
                    let told_again = !ran.whole && ran.warnings == ["output_evicted"];
                    if ran.status != Status::Exited || !(ran.warnings.is_empty() || told_again) {
                        self.wrong.push(format!("{op:?}, in peace: {ran:?}"));
                    }
                }
                Answer::Ran(_) | Answer::Done | Answer::Restored(_) | Answer::Set(_) | Answer::None => {}
            }
        }
    }

    async fn check(&mut self, began: Timestamp, done: &[Told]) {
        let rows = self.world.store.terminals(&Page::all()).await.unwrap();
        self.wrong.extend(self.memory.meet(&rows, &self.deleted));
        self.wrong.extend(self.memory.hear(done));
        if !self.world.durable {
            self.wrong.extend(self.memory.behind(&rows));
        }
        let done: Vec<Done> = done.iter().map(|(op, answer, _)| (op.clone(), answer.clone())).collect();
        let wrong = self.law.check(&self.world, began, &done).await;
        self.wrong.extend(wrong);
    }

    /// The provider behaves again: everything comes to rest, and nothing is left behind.
    async fn rest(&mut self) {
        self.tell(|| "all is well again".to_owned());
        self.world.fake.behave();
        let Some(stead) = self.start().await else { return };
        let terminals = self.world.store.terminals(&Page::all()).await.unwrap();
        let named = |name: &str| if name == "build" { "build" } else { "default" };
        let places = terminals.into_iter().map(|row| Place { thread: row.thread, name: named(&row.name) });
        let wrong = self.law.answered(&self.world).await;
        self.wrong.extend(wrong);
        let look = places.map(|place| Op::Run(place, Text::Env, None)).collect();
        self.granted(&stead, look).await;
        if self.wrong.is_empty() {
            self.orphans(&stead).await;
        }
        let delete = self.world.threads.iter().cloned().map(Op::Delete).collect();
        self.granted(&stead, delete).await;
        if self.wrong.is_empty() {
            // What could not be removed while somebody still ran over it is removed now.
            self.granted(&stead, vec![Op::Reap]).await;
            self.nothing_left(&stead).await;
        }
    }

    /// Requests that have to be granted, all at once.
    async fn granted(&mut self, stead: &Stead, ops: Vec<Op>) {
        if !self.wrong.is_empty() {
            return;
        }
        let began = self.world.passed();
        self.law.begin(&self.world).await;
        let mut asked = Vec::new();
        for op in ops {
            asked.push(self.ask(stead, op, Kind::Stop).await);
        }
        let done = self.answers(asked, Kind::Stop, stead).await;
        for (op, answer, _) in &done {
            let granted = match answer {
                Answer::Done | Answer::Restored(_) | Answer::Set(_) => true,
                Answer::Ran(ran) => ran.status == Status::Exited && ran.warnings.is_empty(),
                Answer::Refused { .. } | Answer::None => false,
            };
            if !granted {
                self.wrong.push(format!("{op:?}, at rest: {answer:?}"));
            }
        }
        self.check(began, &done).await;
    }

    /// Instances that no lease has are listed, all of them and no others, and can be removed.
    async fn orphans(&mut self, stead: &Stead) {
        let leases = self.world.store.leases(None, &Page::all()).await.unwrap();
        let owned: BTreeSet<_> = leases.iter().filter_map(|lease| lease.instance.clone()).collect();
        let there = self.world.fake.truth().into_iter().map(|(handle, _)| handle.instance);
        let extra: BTreeSet<_> = there.filter(|instance| !owned.contains(instance)).collect();
        let listed: BTreeSet<_> = match stead.orphans().await {
            Ok(orphans) => orphans.into_iter().map(|orphan| orphan.handle.instance).collect(),
            Err(error) => return self.wrong.push(format!("orphans can't be listed: {error}")),
        };
        if listed != extra {
            self.wrong.push(format!("{extra:?} are orphans, and {listed:?} are listed"));
        }
        self.granted(stead, listed.into_iter().map(Op::Remove).collect()).await;
    }

    async fn nothing_left(&mut self, stead: &Stead) {
        let leases = self.world.store.leases(None, &Page::all()).await.unwrap();
        for lease in &leases {
            let events = self.world.store.lease_events(&lease.id, 0, 1).await.unwrap();
            if events.first().is_none_or(|event| event.source != "adopt") {
                self.wrong.push(format!("{} is left, and nobody's", lease.id));
            }
        }
        let open = self.world.store.open_commands().await.unwrap();
        if !open.is_empty() {
            self.wrong.push(format!("commands without an end: {open:?}"));
        }
        if self.law.ever_overlapped() {
            // A session that one server opened while the other deleted its thread ends with its time.
            self.world.clock.pass(25 * 3_600_000);
            self.granted(stead, vec![Op::Reap]).await;
        }
        let sessions = self.world.store.sessions(&Page::all()).await.unwrap();
        for session in sessions.iter().filter(|session| session.status.is_live() || session.ended.is_none()) {
            self.wrong.push(format!("a session of nobody, or without an end: {session:?}"));
        }
    }
}
