//! What happened to one thread, in the order of time: printed beside its violations, because a plan that failed may not
//! fail again.

use super::driver::{Unanswered, Work};
use super::history::History;
use std::time::Instant;

/// A line for each command and each kill that can have concerned the thread.
pub(super) fn of(work: &Work, history: &History) -> Vec<String> {
    let mut moments: Vec<(Instant, String)> = Vec::new();
    collect_commands(work, &mut moments);
    let Some(begun) = moments.iter().map(|(at, _)| *at).min() else { return Vec::new() };
    for strike in history.strikes() {
        let leases: Vec<&str> = strike.leases.iter().map(|(lease, _)| lease.as_str()).collect();
        if leases.is_empty() || leases.iter().any(|lease| work.leases.iter().any(|ours| ours == lease)) {
            moments.push((strike.begun, format!("kill {:?} {}", strike.fault, leases.join(" "))));
        }
    }
    moments.sort_by_key(|(at, _)| *at);
    let since = |at: Instant| {
        let before = begun.saturating_duration_since(at);
        if before.is_zero() { at.duration_since(begun).as_secs_f64() } else { -before.as_secs_f64() }
    };
    moments.into_iter().map(|(at, what)| format!("{:+.3} s: {what}", since(at))).collect()
}

fn collect_commands(work: &Work, moments: &mut Vec<(Instant, String)>) {
    for (terminal, observations) in &work.terminals {
        for observation in observations {
            let (planned, record) = (&observation.planned, &observation.record);
            let cancel = planned.cancel.map(|after| format!(", cancel after {after:?}")).unwrap_or_default();
            let timeout = planned.timeout_ms.map(|ms| format!(", time-out {ms} ms")).unwrap_or_default();
            let asked = format!("{:?}{cancel}{timeout}", planned.way);
            moments.push((observation.sent, format!("send {} to {terminal}: {asked}", planned.id)));
            if let Some(at) = observation.acknowledged {
                moments.push((at, format!("{} is taken", planned.id)));
            }
            let ended = format!(
                "{} is {}, exit_code {}, state_version {}, cwd {}, ended_at {}",
                planned.id,
                record["status"],
                record["exit_code"],
                record["state_version"],
                record["cwd"],
                record["ended_at"]
            );
            moments.push((observation.ended, ended));
        }
    }
    for unanswered in &work.unanswered {
        let Unanswered { planned, terminal, sent, .. } = unanswered;
        moments.push((*sent, format!("send {} to {terminal} without an id: {:?}, no answer", planned.id, planned.way)));
    }
    for fork in &work.forks {
        collect_commands(&fork.work, moments);
    }
}
