//! Finding what nobody owns: processes that carry our mark and belong to no session any more, sandboxes that no agent
//! needs, sessions that nobody can reach. Nothing else is touched.

use super::process::MARK;
use super::{Agents, Shared};
use std::collections::HashSet;
use std::time::Duration;
use stead_term::proc;

pub(super) async fn every(agents: Agents, interval: Duration) {
    let stop = agents.shared.stead.stopping();
    loop {
        round(&agents.shared).await;
        if let Err(error) = agents.tidy().await {
            tracing::warn!(%error, "what agents left can't be tidied up yet");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// Ends processes of sessions that are ours and whose process is another by now, or none.
async fn round(shared: &Shared) {
    let Ok(sessions) = shared.store.agent_sessions(&crate::store::Page::all()).await else { return };
    let live: HashSet<_> =
        sessions.iter().filter_map(|session| session.process.as_ref().map(|process| process.command.clone())).collect();
    let ours: HashSet<_> = sessions.iter().map(|session| session.id.to_string()).collect();
    let stray = move |mark: &str| {
        let session = mark.split_once('.').map_or(mark, |(session, _)| session);
        ours.contains(session) && !live.contains(mark)
    };
    let _ = tokio::task::spawn_blocking(move || end_where(&stray)).await;
}

/// Ends what is left of one process: children that left its group.
pub(super) async fn end_marked(mark: &str) {
    let mark = mark.to_owned();
    let _ = tokio::task::spawn_blocking(move || end_where(&|found| found == mark)).await;
}

fn end_where(which: &dyn Fn(&str) -> bool) {
    for pid in proc::with_variable(MARK, which) {
        tracing::info!(pid, "ending a process that an agent left");
        proc::signal(pid, rustix::process::Signal::KILL);
    }
}
