//! One client at work: it does what its plan says, asks again whenever the server was killed under it, and writes down
//! what it was told.

use super::events::{self, Event};
use super::plan::{Batch, Client, Planned, Provider, Step, Way};
use super::script::Place;
use super::wire::{Answer, Wire};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may take before it is said to hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(10);

/// A command as it was told when it was over.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) planned: Planned,
    pub(super) text: String,
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    pub(super) record: Value,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) events: Vec<Event>,
    /// What the first call was answered with, if it waited.
    pub(super) answer: Option<Value>,
    /// What it heard while the command ran.
    pub(super) heard: Option<Vec<Event>>,
}

/// A thread, and what happened in it.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) thread: String,
    /// All that it ever had, the present one last.
    pub(super) leases: Vec<String>,
    /// The file that its commands count their runs in, by a name that outlives the thread.
    pub(super) runs: PathBuf,
    /// By the name of the terminal, in the order in which they were sent.
    pub(super) terminals: BTreeMap<String, Vec<Observation>>,
    pub(super) forks: Vec<Fork>,
    pub(super) deleted: bool,
    pub(super) violations: Vec<String>,
}

/// A thread made of another when that had run so many commands.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) after: usize,
    pub(super) work: Work,
}

/// Where a client's instance is to be found by whoever kills it.
pub(super) type Target = Mutex<Option<(String, Provider)>>;

#[derive(Debug)]
pub(super) struct Driver<'a> {
    pub(super) wire: &'a Wire,
    pub(super) data: &'a Path,
    pub(super) scratch: &'a Path,
    pub(super) target: &'a Target,
    pub(super) provider: Provider,
    pub(super) place: Place,
    pub(super) host_workspace: String,
    pub(super) work: Work,
}

/// Something that should have happened and didn't.
pub(super) struct Hung(pub(super) String);

pub(super) fn rest(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        let left = rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        let _ = rustix::event::poll(&mut [], Some(&left));
    }
}

/// Asks until there is an answer that counts.
pub(super) fn insist(what: &str, mut ask: impl FnMut() -> Option<Answer>) -> Result<Answer, Hung> {
    let begun = Instant::now();
    let mut last = "nothing".to_owned();
    while begun.elapsed() < PATIENCE {
        match ask() {
            Some(answer) if answer.whole && !answer.is_retryable() => return Ok(answer),
            Some(answer) => last = answer.text(),
            None => {}
        }
        rest(AGAIN);
    }
    Err(Hung(format!("{what}: no answer in {PATIENCE:?}, the last was {last}")))
}

impl<'a> Driver<'a> {
    /// Makes the thread of a client, and the file that its runs are counted in.
    pub(super) fn create(
        wire: &'a Wire,
        data: &'a Path,
        scratch: &'a Path,
        target: &'a Target,
        thread: &str,
        provider: Provider,
    ) -> Result<Self, Hung> {
        let body = json!({ "id": thread, "provider": provider.name() });
        let made = insist("create a thread", || wire.post("/api/threads", &body))?;
        if made.status != 201 && made.status != 409 {
            return Err(Hung(format!("thread {thread} can't be made: {}", made.text())));
        }
        Self::over(wire, data, scratch, target, thread, provider)
    }

    /// Takes up a thread that is there.
    fn over(
        wire: &'a Wire,
        data: &'a Path,
        scratch: &'a Path,
        target: &'a Target,
        thread: &str,
        provider: Provider,
    ) -> Result<Self, Hung> {
        let name = format!("runs.{thread}");
        let put = format!("/api/threads/{thread}/files?path={name}");
        let put = insist("put a file", || wire.call("PUT", &put, "application/json", None))?;
        let found = find_file(&data.join("workspaces"), &name, 3);
        let found = found.ok_or_else(|| Hung(format!("`{name}` was put, {}, and is nowhere", put.text())))?;
        let runs = scratch.join("runs").join(&name);
        fs::create_dir_all(scratch.join("runs"))
            .and_then(|()| fs::hard_link(&found, &runs))
            .map_err(|error| Hung(format!("can't keep `{}`: {error}", found.display())))?;
        let host_workspace = found.parent().unwrap_or(data).to_string_lossy().into_owned();
        let place = place(provider, &host_workspace, &name);
        let work = Work {
            thread: thread.to_owned(),
            leases: Vec::new(),
            runs,
            terminals: BTreeMap::new(),
            forks: Vec::new(),
            deleted: false,
            violations: Vec::new(),
        };
        let mut driver = Self { wire, data, scratch, target, provider, place, host_workspace, work };
        driver.learn_lease()?;
        let terminals = format!("/api/threads/{thread}/terminals");
        insist("make a terminal", || wire.post(&terminals, &json!({ "name": "two" })))?;
        Ok(driver)
    }

    /// Which lease it has now, and where.
    fn learn_lease(&mut self) -> Result<(), Hung> {
        let path = format!("/api/threads/{}", self.work.thread);
        let thread = insist("look at a thread", || self.wire.get(&path))?;
        let lease = thread.json()["lease_id"].as_str().map(str::to_owned);
        let lease = lease.ok_or_else(|| Hung(format!("{path} has no lease: {}", thread.text())))?;
        if self.work.leases.last() != Some(&lease) {
            self.work.leases.push(lease.clone());
        }
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some((lease, self.provider));
        Ok(())
    }

    /// Does all of a plan. What hangs ends it.
    pub(super) fn run(mut self, client: &Client) -> Work {
        for step in &client.steps {
            let done = match step {
                Step::Run(batch) => self.run_batch(batch, client.deleted_busy),
                Step::Fork => self.fork(),
                Step::Move => self.move_over(),
            };
            if let Err(Hung(why)) = done {
                self.work.violations.push(why);
                return self.work;
            }
        }
        if client.deleted_busy
            && let Err(Hung(why)) = self.delete()
        {
            self.work.violations.push(why);
        }
        self.work
    }

    fn run_batch(&mut self, batch: &Batch, deleted_busy: bool) -> Result<(), Hung> {
        let mut sent = Vec::new();
        let mut refused = Vec::new();
        let observed = std::thread::scope(|scope| {
            let mut cancels = Vec::new();
            for planned in &batch.commands {
                let text = planned.body.text(&planned.id, &self.place);
                let begun = Instant::now();
                if let Some(delay) = planned.cancel {
                    let id = planned.id.clone();
                    let wire = self.wire;
                    cancels.push(scope.spawn(move || cancel(wire, &id, begun + delay)));
                }
                let told = self.send(planned, batch.terminal, &text)?;
                sent.push((planned, text, begun, told));
            }
            if let Some((delay, hold)) = batch.pause {
                rest(delay);
                self.pause(hold)?;
            }
            refused.extend(cancels.into_iter().filter_map(|cancel| cancel.join().ok()?));
            Ok(())
        });
        observed?;
        self.work.violations.extend(refused);
        for (planned, text, begun, (answer, heard)) in sent {
            if deleted_busy && planned.id.ends_with("-last") {
                continue;
            }
            let terminal = batch.terminal.unwrap_or("default").to_owned();
            let mut observation = self.observe(planned, text, begun)?;
            (observation.answer, observation.heard) = (answer, heard);
            self.work.terminals.entry(terminal).or_default().push(observation);
        }
        Ok(())
    }

    /// Sends a command, as often as it takes until the server has it, and waits for its end if its way is to wait.
    fn send(
        &self,
        planned: &Planned,
        terminal: Option<&str>,
        text: &str,
    ) -> Result<(Option<Value>, Option<Vec<Event>>), Hung> {
        let path = format!("/api/threads/{}/exec", self.work.thread);
        let mut body = json!({ "command": text, "id": planned.id, "create": false });
        if let Some(terminal) = terminal {
            body["terminal"] = json!(terminal);
        }
        if let Some(timeout) = planned.timeout_ms {
            body["timeout_ms"] = json!(timeout);
        }
        match planned.way {
            Way::Answer => {
                let answer = insist(&planned.id, || self.wire.post(&path, &body))?;
                (answer.status == 200)
                    .then(|| (Some(answer.json()), None))
                    .ok_or_else(|| Hung(format!("{} was refused: {}", planned.id, answer.text())))
            }
            Way::Background => {
                body["background"] = json!(true);
                let answer = insist(&planned.id, || self.wire.post(&path, &body))?;
                (answer.status == 202 || answer.status == 200)
                    .then_some((None, None))
                    .ok_or_else(|| Hung(format!("{} was refused: {}", planned.id, answer.text())))
            }
            Way::Events => self.listen(planned, &path, &body).map(|heard| (None, Some(heard))),
        }
    }

    /// Hears a command to its end, over as many connections as it takes.
    fn listen(&self, planned: &Planned, exec: &str, body: &Value) -> Result<Vec<Event>, Hung> {
        let begun = Instant::now();
        let mut heard: Vec<Event> = Vec::new();
        let mut refused = String::new();
        while begun.elapsed() < PATIENCE {
            let after = heard.last().map_or(0, |event| event.seq);
            let answer = if after == 0 {
                self.wire.call("POST", exec, "text/event-stream", Some(body))
            } else {
                let path = format!("/api/commands/{}/events?after={after}", planned.id);
                self.wire.call("GET", &path, "text/event-stream", None)
            };
            if let Some(answer) = answer {
                if answer.status == 200 {
                    heard.extend(events::parse(&answer.body));
                } else if answer.is_retryable() {
                    refused = answer.text();
                } else {
                    return Err(Hung(format!("{} was refused: {}", planned.id, answer.text())));
                }
            }
            if heard.last().is_some_and(events::is_last) {
                return Ok(heard);
            }
            rest(AGAIN);
        }
        Err(Hung(format!("{}: its events don't end; {} were heard; {refused}", planned.id, heard.len())))
    }

    /// Waits for the end of a command, then asks for everything that can be asked of it.
    fn observe(&self, planned: &Planned, text: String, sent: Instant) -> Result<Observation, Hung> {
        let begun = Instant::now();
        loop {
            let record = self.record(&planned.id)?;
            if is_final(&record) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Hung(format!("{} doesn't end: {planned:?}, {record}", planned.id)));
            }
            rest(AGAIN);
        }
        let ended = Instant::now();
        look_closely(self.wire, planned, text, sent, ended)
    }

    fn record(&self, id: &str) -> Result<Value, Hung> {
        let answer = insist(id, || self.wire.get(&format!("/api/commands/{id}")))?;
        if answer.status == 200 {
            Ok(answer.json())
        } else {
            Err(Hung(format!("{id} has no record: {}", answer.text())))
        }
    }

    fn pause(&mut self, hold: Duration) -> Result<(), Hung> {
        let path = format!("/api/threads/{}", self.work.thread);
        for (verb, body) in [("pause", json!({ "force": true })), ("resume", json!({}))] {
            let answer = insist(verb, || self.wire.post(&format!("{path}/{verb}"), &body))?;
            if answer.status != 200 {
                self.work.violations.push(format!("{verb} was refused: {}", answer.text()));
            }
            if verb == "pause" {
                rest(hold);
            }
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<(), Hung> {
        let child = format!("{}-f{}", self.work.thread, self.work.forks.len());
        let path = format!("/api/threads/{}/fork", self.work.thread);
        let answer = insist("fork", || self.wire.post(&path, &json!({ "id": child, "workspace": "copy" })))?;
        if answer.status != 201 && answer.status != 409 {
            self.work.violations.push(format!("fork was refused: {}", answer.text()));
            return Ok(());
        }
        let target = Target::default();
        let mut driver = Driver::over(self.wire, self.data, self.scratch, &target, &child, self.provider)?;
        let planned = Planned {
            id: format!("{child}-1"),
            body: super::script::Body::Lines { count: 3, code: 5 },
            way: Way::Answer,
            timeout_ms: None,
            cancel: None,
        };
        let done = driver.run_batch(&Batch { terminal: None, commands: vec![planned], pause: None }, false);
        if let Err(Hung(why)) = done {
            driver.work.violations.push(why);
        }
        let after = self.work.terminals.get("default").map_or(0, Vec::len);
        self.work.forks.push(Fork { after, work: driver.work });
        Ok(())
    }

    fn move_over(&mut self) -> Result<(), Hung> {
        let path = format!("/api/threads/{}/move", self.work.thread);
        let to = self.provider.other();
        let answer = insist("move", || self.wire.post(&path, &json!({ "provider": to.name() })))?;
        if answer.status != 200 {
            self.work.violations.push(format!("a move to {} was refused: {}", to.name(), answer.text()));
        }
        // Wherever it is now: there it goes on.
        let thread = insist("look at a thread", || self.wire.get(&format!("/api/threads/{}", self.work.thread)))?;
        if thread.json()["provider"] == to.name() {
            self.provider = to;
        }
        self.place = place(self.provider, &self.host_workspace, &format!("runs.{}", self.work.thread));
        self.learn_lease()
    }

    pub(super) fn delete(&mut self) -> Result<(), Hung> {
        delete(self.wire, &self.work.thread)?;
        self.work.deleted = true;
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}

/// Deletes a thread, and says so if it can't be done.
pub(super) fn delete(wire: &Wire, thread: &str) -> Result<(), Hung> {
    let path = format!("/api/threads/{thread}");
    let answer = insist("delete", || wire.call("DELETE", &path, "application/json", None))?;
    if answer.status == 204 {
        Ok(())
    } else {
        Err(Hung(format!("thread {thread} can't be deleted: {}", answer.text())))
    }
}

/// Everything that the server tells of a command. Read again until record and output are of one moment: children that
/// outlived a killed shell may still write.
pub(super) fn look_closely(
    wire: &Wire,
    planned: &Planned,
    text: String,
    sent: Instant,
    ended: Instant,
) -> Result<Observation, Hung> {
    let path = format!("/api/commands/{}", planned.id);
    let read = |what: &str, accept: &str| {
        let answer = insist(what, || wire.call("GET", &format!("{path}{what}"), accept, None))?;
        if answer.status == 200 { Ok(answer) } else { Err(Hung(format!("{path}{what}: {}", answer.text()))) }
    };
    loop {
        let record = read("", "application/json")?.json();
        let with_record = |Hung(why): Hung| Hung(format!("{why}; the record is {record}"));
        let stdout = read("/output/stdout", "*/*").map_err(with_record)?.body;
        let stderr = read("/output/stderr", "*/*").map_err(with_record)?.body;
        let events = read("/events", "text/event-stream").map_err(with_record)?;
        let again = read("", "application/json")?.json();
        let told = events::parse(&events.body);
        if again == record && told.last().is_some_and(events::is_last) {
            return Ok(Observation {
                planned: planned.clone(),
                text,
                sent,
                ended,
                record,
                stdout,
                stderr,
                events: told,
                answer: None,
                heard: None,
            });
        }
        if sent.elapsed() > PATIENCE * 2 {
            return Err(Hung(format!("{path}: what is told of it doesn't come to rest: {record}, then {again}")));
        }
        rest(AGAIN);
    }
}

pub(super) fn is_final(record: &Value) -> bool {
    !matches!(record["status"].as_str(), Some("queued" | "running") | None)
}

/// Asks for a cancellation until the server has heard it. Gives what it said if that is no record.
fn cancel(wire: &Wire, id: &str, at: Instant) -> Option<String> {
    rest(at.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let answer = wire.post(&format!("/api/commands/{id}/cancel"), &json!({}));
        // Before the server knows the command it is 404.
        // Its instance may be paused, or just be replaced by another: then that is what it is told.
        let is_later = |answer: &Answer| answer.status == 404 || answer.json()["error"]["code"] == "paused";
        if let Some(answer) = answer.filter(|answer| answer.whole && !is_later(answer) && !answer.is_retryable()) {
            return (answer.status != 200).then(|| format!("{id}: its cancellation was refused: {}", answer.text()));
        }
        rest(AGAIN);
    }
    Some(format!("{id}: its cancellation was not heard in {PATIENCE:?}"))
}

fn place(provider: Provider, host_workspace: &str, runs: &str) -> Place {
    let workspace = match provider {
        Provider::Local => host_workspace.to_owned(),
        Provider::Namespace => "/workspace".to_owned(),
    };
    Place { runs: format!("{workspace}/{runs}"), workspace }
}

fn find_file(dir: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let direct = dir.join(name);
    if direct.is_file() {
        return Some(direct);
    }
    let below = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    below.filter(|_| depth > 0).filter(|path| path.is_dir()).find_map(|path| find_file(&path, name, depth - 1))
}
