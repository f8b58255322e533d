//! What is there, counted.

use super::{Inner, Stead};
use crate::measure::{Counts, OneOf};
use crate::store::Page;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a measurement of the disk is good for: it looks at every journal.
const MEASURED: Duration = Duration::from_secs(30);

impl Stead {
    /// Everything that is counted, as Prometheus reads it.
    pub async fn metrics_text(&self) -> String {
        let inner = &self.inner;
        let counts = {
            let seats = inner.seats();
            let queued = seats.iter().map(|seat| seat.commands().saturating_sub(1) as u64).sum();
            Counts { queued, shells: seats.iter().count() as u64, journal_bytes: None }
        };
        let journal_bytes = journal_bytes(inner).await;
        inner.core.measure.write(Counts { journal_bytes, ..counts })
    }

    /// Counts a client of an event stream for as long as it is held.
    pub(crate) fn sse_client(&self) -> Arc<OneOf> {
        Arc::new(OneOf::among(&self.inner.core.measure.sse_clients))
    }

    /// The same for somebody attached to a terminal.
    pub(crate) fn ws_client(&self) -> OneOf {
        OneOf::among(&self.inner.core.measure.ws_clients)
    }

    pub(crate) fn count_request(&self, method: &str, route: &str, status: u16) {
        self.inner.core.measure.answered(method, route, status);
    }
}

/// All journals of all leases, as far as they are on this machine.
async fn journal_bytes(inner: &Arc<Inner>) -> Option<u64> {
    {
        let known = inner.journals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = known.filter(|(at, _)| at.elapsed() < MEASURED) {
            return Some(bytes);
        }
    }
    let leases = inner.core.store.leases(None, &Page::all()).await;
    let leases = leases.inspect_err(|error| tracing::warn!(%error, "the journals could not be measured")).ok()?;
    let journal = |lease: stead_model::lease::Lease| {
        super::afar::journal(&**inner.core.provider(&lease.provider).ok()?, &lease.id)
    };
    let places: Vec<_> = leases.into_iter().filter_map(journal).collect();
    let measured = tokio::task::spawn_blocking(move || places.iter().map(|place| size(&place.join("journal"))).sum());
    let bytes =
        measured.await.inspect_err(|error| tracing::warn!(%error, "the journals could not be measured")).ok()?;
    *inner.journals.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), bytes));
    Some(bytes)
}

/// What plain files below a directory hold; links are not followed, and what goes meanwhile counts as gone.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let one = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => size(&entry.path()),
        Ok(about) if about.is_file() => about.len(),
        Ok(_) | Err(_) => 0,
    };
    entries.flatten().map(one).sum()
}
