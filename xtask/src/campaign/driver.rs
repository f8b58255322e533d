//! One client at work: it does what its plan says, asks again whenever the server was killed under it, and writes down
//! what it was told.

use super::command::{self, MayBePaused, Observation};
use super::plan::{Batch, Client, Planned, Provider, Step};
use super::script::{Body, Place};
use super::wire::{Answer, Wire};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may take before it is said to hang.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Between two tries.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

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
    pub(super) unanswered: Vec<Unanswered>,
    pub(super) forks: Vec<Fork>,
    /// Where its commands find their files now.
    pub(super) place: Place,
    pub(super) deleted: bool,
    pub(super) violations: Vec<String>,
}

/// A thread made of another when that had run so many commands.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) after: usize,
    pub(super) work: Work,
}

/// A command without an id that the server didn't answer: it may have run once, or not at all.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) terminal: String,
    /// How many commands of the terminal were observed before it.
    pub(super) after: usize,
    pub(super) planned: Planned,
    pub(super) sent: Instant,
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
        let work = Work {
            thread: thread.to_owned(),
            leases: Vec::new(),
            runs,
            terminals: BTreeMap::new(),
            unanswered: Vec::new(),
            forks: Vec::new(),
            place: place(provider, &host_workspace, &name),
            deleted: false,
            violations: Vec::new(),
        };
        let mut driver = Self { wire, data, scratch, target, provider, host_workspace, work };
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
        let taken: Vec<AtomicBool> = batch.commands.iter().map(|_| AtomicBool::new(false)).collect();
        let observed = std::thread::scope(|scope| {
            let mut cancels = Vec::new();
            for (planned, taken) in batch.commands.iter().zip(&taken) {
                let text = planned.body.text(&planned.id, &self.work.place);
                let begun = Instant::now();
                if let Some(delay) = planned.cancel {
                    let (id, wire) = (planned.id.clone(), self.wire);
                    let paused = if batch.pause.is_some() { MayBePaused::Yes } else { MayBePaused::No };
                    cancels.push(scope.spawn(move || command::cancel(wire, &id, begun + delay, taken, paused)));
                }
                let told = command::send(self.wire, &self.work.thread, batch.terminal, planned, &text, taken)?;
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
        for (planned, text, begun, told) in sent {
            if deleted_busy && planned.id.ends_with("-last") {
                continue;
            }
            let terminal = batch.terminal.unwrap_or("default").to_owned();
            let observations = self.work.terminals.entry(terminal.clone()).or_default();
            match told {
                Some(told) => observations.push(command::observe(self.wire, planned, text, begun, told)?),
                None => self.work.unanswered.push(Unanswered {
                    terminal,
                    after: observations.len(),
                    planned: planned.clone(),
                    sent: begun,
                }),
            }
        }
        Ok(())
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
        let planned = Planned::new_answered(format!("{child}-1"), Body::Lines { count: 3, code: 5 });
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
        self.work.place = place(self.provider, &self.host_workspace, &format!("runs.{}", self.work.thread));
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
