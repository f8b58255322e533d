//! The events of a run, from any place on, to its end. They are read from the store, whoever writes them.

use super::{Agents, Shared};
use crate::error::Error;
use crate::store::{AgentEvent, AgentRun};
use std::collections::VecDeque;
use std::sync::Arc;
use stead_model::ids::RunId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Events read at once.
const AT_ONCE: u32 = 256;

/// A run being followed. Dropping it stops nothing but the following.
#[derive(Debug)]
pub struct RunEvents {
    shared: Arc<Shared>,
    run: AgentRun,
    after: u64,
    read: VecDeque<AgentEvent>,
    news: watch::Receiver<u64>,
    hang_up: CancellationToken,
    over: bool,
}

impl Agents {
    pub async fn events(&self, run: &RunId, after: u64) -> Result<RunEvents, Error> {
        let run = self.run(run).await?;
        let news = self.shared.news(&run.session);
        let shared = Arc::clone(&self.shared);
        let hang_up = self.shared.stead.hanging_up();
        Ok(RunEvents { shared, run, after, read: VecDeque::new(), news, hang_up, over: false })
    }
}

impl RunEvents {
    /// The next event; none behind the last.
    pub async fn next(&mut self) -> Option<Result<AgentEvent, Error>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = event.seq;
                self.over |= event.event.is_last();
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            // Before it is read, so that nothing is missed that comes meanwhile.
            self.news.borrow_and_update();
            let ended = match self.shared.store.agent_run(&self.run.id).await {
                Ok(Some(run)) => run.status.is_final(),
                Ok(None) => return None,
                Err(error) => return Some(Err(error.into())),
            };
            match self.shared.store.agent_events(&self.run.id, self.after, AT_ONCE).await {
                Ok(events) => self.read = events.into(),
                Err(error) => return Some(Err(error.into())),
            }
            if !self.read.is_empty() {
                continue;
            }
            if ended {
                return None;
            }
            tokio::select! {
                biased;
                () = self.hang_up.cancelled() => return None,
                changed = self.news.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
            }
        }
    }
}
