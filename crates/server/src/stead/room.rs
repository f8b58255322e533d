//! Room for output: all journals together stay within a limit. What has ended goes, the oldest first, whichever lease it
//! belongs to; what runs, and what somebody reads, stays.

use super::{Inner, Stead};
use crate::error::Error;
use crate::store::Page;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use stead_model::ids::LeaseId;
use stead_model::proto::Request;
use stead_steward::past::{self, PastError};

/// Some more than needed is removed at once, so that the next byte doesn't need it again: this part of the limit.
const SPARE: u64 = 10;

/// A stream of a command, as it lies on the disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Output {
    /// When it was last written to, in microseconds since the epoch.
    at: u64,
    bytes: u64,
    lease: LeaseId,
}

impl Stead {
    /// Looks at all journals, and makes room if they hold more than this.
    pub async fn make_room(&self, limit: u64) -> Result<(), Error> {
        make(&self.inner, limit).await
    }
}

pub(super) async fn make(inner: &Arc<Inner>, limit: u64) -> Result<(), Error> {
    let mut places = Vec::new();
    for lease in inner.core.store.leases(None, &Page::all()).await? {
        if let Some(place) = super::afar::journal(&**inner.core.provider(&lease.provider)?, &lease.id) {
            places.push((lease.id, place));
        }
    }
    if places.is_empty() {
        return Ok(());
    }
    // What is older than the first was asked for and is still there: it is in use. What is younger than the second is
    // being written while we look; without that end a writer could keep us here for ever.
    let (mut in_use, begun) = (0, inner.core.now().0 * 1000);
    loop {
        let looked = places.clone();
        let outputs = tokio::task::spawn_blocking(move || look(&looked)).await;
        let outputs = outputs.map_err(|error| Error::Io(format!("the journals can't be looked at: {error}")))?;
        let Some((before, leases)) = choose(outputs, limit, in_use..begun) else { return Ok(()) };
        tracing::info!(leases = leases.len(), "making room for output");
        for (lease, place) in places.iter().filter(|(lease, _)| leases.contains(lease)) {
            if let Err(error) = make_in(inner, lease, place.clone(), before).await {
                tracing::warn!(%error, %lease, "no room made there");
            }
        }
        in_use = before;
    }
}

async fn make_in(inner: &Arc<Inner>, lease: &LeaseId, place: PathBuf, before: u64) -> Result<(), Error> {
    if let Some(steward) = inner.reader(lease).await? {
        let done = steward.request(&Request::MakeRoom(before)).await;
        done.map_err(|error| Error::from(crate::runtime::RuntimeError::from(error)))?;
        if !is_mirror(inner, lease).await? {
            return Ok(());
        }
    }
    match tokio::task::spawn_blocking(move || past::make_room(&place, before)).await {
        // It sleeps; its turn comes when it wakes, or is gone.
        Ok(Ok(()) | Err(PastError::Alive | PastError::Busy)) => Ok(()),
        Ok(Err(error)) => Err(Error::Io(error.to_string())),
        Err(error) => Err(Error::Io(error.to_string())),
    }
}

/// Whether what is here is a copy: the steward has made room where it is, and here we must.
async fn is_mirror(inner: &Inner, lease: &LeaseId) -> Result<bool, Error> {
    let Some(row) = inner.core.store.lease(lease).await? else { return Ok(false) };
    Ok(inner.core.provider(&row.provider)?.mirror(lease).is_some())
}

fn look(places: &[(LeaseId, PathBuf)]) -> Vec<Output> {
    places.iter().flat_map(|(lease, place)| outputs(lease, &place.join("journal"))).collect()
}

/// The streams in the journals of one steward. What goes while we look isn't there.
fn outputs(lease: &LeaseId, journals: &Path) -> Vec<Output> {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let shells = entries(journals).filter(|shell| shell.file_type().is_ok_and(|kind| kind.is_dir()));
    let files = shells.flat_map(|shell| entries(&shell.path()));
    let output = |file: std::fs::DirEntry| {
        let stream = file.path().extension().is_some_and(|end| end == "out" || end == "err");
        let about = file.metadata().ok().filter(|about| stream && about.is_file())?;
        let at = about.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        Some(Output { at, bytes: about.len(), lease: lease.clone() })
    };
    files.filter_map(output).collect()
}

/// Before which moment output has to go, and whose, for all of it to fit; none if it does, or nothing is left that could
/// go: what was last written at another time than `during` can't.
fn choose(mut outputs: Vec<Output>, limit: u64, during: Range<u64>) -> Option<(u64, Vec<LeaseId>)> {
    let total: u64 = outputs.iter().map(|output| output.bytes).sum();
    if total <= limit {
        return None;
    }
    let mut surplus = total - (limit - limit / SPARE);
    outputs.retain(|output| during.contains(&output.at));
    outputs.sort();
    let (mut before, mut leases) = (0, Vec::new());
    for output in outputs {
        if surplus == 0 {
            break;
        }
        surplus = surplus.saturating_sub(output.bytes);
        before = output.at + 1;
        leases.push(output.lease);
    }
    leases.sort();
    leases.dedup();
    (before > 0).then_some((before, leases))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(at: u64, bytes: u64, lease: u8) -> Output {
        Output { at, bytes, lease: LeaseId::made_of([lease; 8]) }
    }

    #[test]
    fn nothing_goes_while_all_of_it_fits() {
        assert_eq!(choose(vec![output(1, 60, 1), output(2, 40, 2)], 100, 0..9), None);
    }

    #[test]
    fn the_oldest_goes_first_and_a_little_more_than_needed() {
        let outputs = vec![output(3, 50, 1), output(1, 5, 2), output(2, 10, 3), output(4, 40, 1)];
        let (before, leases) = choose(outputs.clone(), 100, 0..9).unwrap();
        assert_eq!((before, leases), (3, vec![LeaseId::made_of([2; 8]), LeaseId::made_of([3; 8])]));
        // Those are in use: the next ones go in their place.
        assert_eq!(choose(outputs.clone(), 100, 3..9).unwrap(), (4, vec![LeaseId::made_of([1; 8])]));
        assert_eq!(choose(outputs.clone(), 100, 5..9), None);
        // Nor does what is written to while we look.
        assert_eq!(choose(outputs, 100, 0..1), None);
    }
}
