//! One round: clients at work while faults strike, then everything is looked at, killed once more, looked at again, and
//! removed without a trace.

use super::chronicle;
use super::driver::{self, Driver, Hung, Target, Work, rest};
use super::examine;
use super::history::{History, Strike};
use super::plan::{Fault, Plan, PlannedFault};
use super::processes::{self, Part};
use super::server::Server;
use super::wire::Wire;
use crate::failed::{Failed, Result};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the processes of a deleted thread may take to be gone.
const GONE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) commands: usize,
    pub(super) kills: usize,
    pub(super) violations: Vec<String>,
    /// What happened in the threads that have some.
    pub(super) chronicles: Vec<String>,
}

pub(super) fn run(server: &mut Server, scratch: &Path, plan: &Plan) -> Result<Outcome> {
    let (wire, data, history) = (server.wire(), server.data(), History::default());
    let targets: Vec<Target> = plan.clients.iter().map(|_| Target::default()).collect();
    let over = AtomicBool::new(false);
    let mut works = Vec::new();
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = plan
            .clients
            .iter()
            .zip(&targets)
            .map(|(client, target)| {
                let (wire, data) = (&wire, &data);
                scope.spawn(move || {
                    let driver = Driver::create(wire, data, scratch, target, &client.thread, client.provider)?;
                    Ok::<Work, Hung>(driver.run(client))
                })
            })
            .collect();
        let (history, targets, over) = (&history, &targets, &over);
        let faults = scope.spawn(move || strike_all(server, &plan.faults, targets, history, over).map(|()| server));
        for client in clients {
            match client.join() {
                Ok(Ok(work)) => works.push(work),
                Ok(Err(Hung(why))) => outcome.violations.push(why),
                Err(_) => return Err(Failed::new("a client panicked")),
            }
        }
        over.store(true, Ordering::Relaxed);
        let server = faults.join().map_err(|_| Failed::new("the one who kills panicked"))??;
        // Once more for what only time could bring about: a start over what is final must change nothing.
        server.kill()?;
        server.start_again()?;
        outcome.kills = history.count() + 1;
        let found = look_again(&wire, &works).unwrap_or_else(|Hung(why)| vec![why]);
        outcome.violations.extend(found);
        for work in &mut works {
            if let Err(Hung(why)) = examine::probe(&wire, work) {
                outcome.violations.push(format!("thread {}: {why}", work.thread));
            }
        }
        outcome.commands = works.iter().map(count).sum();
        outcome.violations.extend(works.iter().flat_map(|work| examine::judge(work, history)));
        for work in &works {
            let concerned = format!("thread {}:", work.thread);
            if outcome.violations.iter().any(|violation| violation.starts_with(&concerned)) {
                outcome.chronicles.extend(chronicle::of(work, history));
            }
        }
        let found = remove(&wire, &works).unwrap_or_else(|Hung(why)| vec![why]);
        outcome.violations.extend(found);
        Ok(())
    })?;
    Ok(outcome)
}

fn count(work: &Work) -> usize {
    let forks: usize = work.forks.iter().map(|fork| count(&fork.work)).sum();
    work.terminals.values().map(Vec::len).sum::<usize>() + work.unanswered.len() + forks
}

fn look_again(wire: &Wire, works: &[Work]) -> std::result::Result<Vec<String>, Hung> {
    let mut violations = Vec::new();
    for work in works {
        let mut found = examine::read_again(wire, work)?;
        found.extend(examine::check_terminals(wire, work)?);
        found.extend(examine::repeat(wire, work)?);
        violations.extend(found.into_iter().map(|what| format!("thread {}: {what}", work.thread)));
    }
    Ok(violations)
}

/// Deletes what is left. Nothing of any thread may stay: no record of it, no process, no control group, no mount.
fn remove(wire: &Wire, works: &[Work]) -> std::result::Result<Vec<String>, Hung> {
    let mut violations = Vec::new();
    let forks = works.iter().flat_map(|work| work.forks.iter().map(|fork| &fork.work));
    for work in works.iter().chain(forks) {
        if !work.deleted {
            driver::delete(wire, &work.thread)?;
        }
        let path = format!("/api/threads/{}", work.thread);
        let answer = driver::insist("look at a deleted thread", || wire.get(&path))?;
        if answer.status != 404 {
            violations.push(format!("thread {}: deleted, and there again: {}", work.thread, answer.text()));
        }
        for lease in &work.leases {
            violations.extend(remains(lease).map(|what| format!("thread {}: deleted, and left {what}", work.thread)));
        }
    }
    Ok(violations)
}

/// What is left of a lease when it has had time to go.
fn remains(lease: &str) -> Option<String> {
    let begun = Instant::now();
    loop {
        let mut left: Vec<String> = processes::of_lease(lease)
            .iter()
            .map(|process| format!("process {} `{}`", process.pid, process.line))
            .collect();
        left.extend(processes::leftovers(&[lease.to_owned()]));
        if left.is_empty() {
            return None;
        }
        if begun.elapsed() > GONE {
            return Some(left.join(", "));
        }
        rest(Duration::from_millis(20));
    }
}

/// Faults one after the other, as long as there is work to disturb.
fn strike_all(
    server: &mut Server,
    faults: &[PlannedFault],
    targets: &[Target],
    history: &History,
    over: &AtomicBool,
) -> Result {
    for planned in faults {
        let until = Instant::now() + planned.after;
        while Instant::now() < until && !over.load(Ordering::Relaxed) {
            rest(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
        }
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        strike(server, *planned, targets, history)?;
    }
    Ok(())
}

fn strike(server: &mut Server, planned: PlannedFault, targets: &[Target], history: &History) -> Result {
    let look = |target: &Target| target.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let begun = Instant::now();
    let (parts, lease): (&[Part], _) = match planned.fault {
        Fault::Server => {
            server.kill()?;
            history.note(Strike { fault: Fault::Server, leases: Vec::new(), begun, over: Instant::now() });
            return server.start_again();
        }
        Fault::All => {
            server.kill()?;
            let leases: Vec<_> = targets.iter().filter_map(look).collect();
            for process in leases.iter().flat_map(|(lease, _)| processes::of_lease(lease)) {
                process.kill();
            }
            history.note(Strike { fault: Fault::All, leases, begun, over: Instant::now() });
            return server.start_again();
        }
        Fault::Steward => (&[Part::Steward], targets.get(planned.client)),
        Fault::Keeper => (&[Part::Keeper], targets.get(planned.client)),
        Fault::Shell => (&[Part::Shell], targets.get(planned.client)),
        // The steward first: it would start another keeper.
        Fault::Instance => (&[Part::Steward, Part::Keeper], targets.get(planned.client)),
    };
    let Some((lease, provider)) = lease.and_then(look) else { return Ok(()) };
    let found = processes::of_lease(&lease);
    let hit = parts.iter().flat_map(|part| found.iter().filter(move |process| process.part == *part));
    // Each is to be killed: `any` would stop at the first.
    if hit.filter(|process| process.kill()).count() > 0 {
        let leases = vec![(lease, provider)];
        history.note(Strike { fault: planned.fault, leases, begun, over: Instant::now() });
    }
    Ok(())
}
