//! Work in a thread without a project: it gives the thread its days again. Written once a minute at most, and at once
//! after something was said of it. Work in a project is in `projects/usage`.

use super::Inner;
use std::sync::PoisonError;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::ThreadId;
use stead_model::thread::Thread;

const OFTEN: Duration = Duration::from_mins(1);

/// Of those that were longer ago than [`OFTEN`] nobody needs to know.
const MANY: usize = 10_000;

impl Inner {
    /// What can't be written is only told: the work goes on.
    pub(crate) async fn touched(&self, thread: &Thread) {
        if thread.project.is_some() {
            return;
        }
        let now = self.core.now();
        {
            let touches = self.touches.lock().unwrap_or_else(PoisonError::into_inner);
            if touches.get(&thread.id).is_some_and(|at| *at <= now && now.since(*at) < OFTEN) {
                return;
            }
        }
        if let Err(error) = self.core.store.touch_thread(&thread.id, now).await {
            tracing::warn!(%error, thread = %thread.id, "its use could not be written down");
            return;
        }
        let mut touches = self.touches.lock().unwrap_or_else(PoisonError::into_inner);
        if touches.len() >= MANY {
            touches.retain(|_, at| now.since(*at) < OFTEN);
        }
        touches.insert(thread.id.clone(), now);
    }

    /// When a thread was last worked in, as far as anybody here knows: what is written down follows later.
    pub(super) fn last_used(&self, thread: &Thread) -> Timestamp {
        let seats = self.seats();
        let uses = seats.of_thread(&thread.id).map(|seat| seat.session().last_active_at);
        uses.fold(thread.last_active_at, Timestamp::max)
    }

    /// The next one is written whenever it is.
    pub(super) fn forget_touch(&self, thread: &ThreadId) {
        self.touches.lock().unwrap_or_else(PoisonError::into_inner).remove(thread);
    }
}
