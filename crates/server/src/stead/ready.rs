//! Whether the server can do its work now: its disk has room, and its database takes what is written.

use super::{Inner, Stead};
use crate::error::Error;
use crate::room::{self, Reserve};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer counts: anybody may ask, and each time something is written.
const FRESH: Duration = Duration::from_secs(1);

/// How often it is seen to that there is a reserve.
const KEPT_EVERY: Duration = Duration::from_secs(10);

/// Why it can't.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("the disk of the data directory has room for {left} bytes, and {} are needed", room::ENOUGH)]
    NoRoom { left: u64 },
    #[error("the room on the disk of the data directory is not known: {0}")]
    Unknown(String),
    #[error("the database can't be written: {0}")]
    NotWritable(String),
}

impl Unready {
    /// For programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoRoom { .. } => "no_room",
            Self::Unknown(_) => "room_unknown",
            Self::NotWritable(_) => "database_not_writable",
        }
    }
}

/// The last answer.
pub(crate) type Known = tokio::sync::Mutex<Option<(Instant, Result<(), Unready>)>>;

impl Stead {
    /// Whether it can do its work, as of a moment ago.
    pub async fn readiness(&self) -> Result<(), Unready> {
        let mut known = self.inner.readiness.lock().await;
        if let Some((at, ready)) = &*known
            && at.elapsed() < FRESH
        {
            return ready.clone();
        }
        let ready = look(&self.inner).await;
        *known = Some((Instant::now(), ready.clone()));
        ready
    }
}

async fn look(inner: &Inner) -> Result<(), Unready> {
    if let Some(data) = &inner.data {
        match room::left(data) {
            Ok(left) if left < room::ENOUGH => return Err(Unready::NoRoom { left }),
            Ok(_) => {}
            Err(error) => return Err(Unready::Unknown(error.to_string())),
        }
    }
    inner.core.store.check_writable().await.map_err(|error| Unready::NotWritable(Error::from(error).to_string()))
}

/// Makes the reserve anew, now and whenever it was given up and there is room again.
pub(super) async fn keep_reserve(inner: Arc<Inner>) {
    let Some(data) = inner.data.clone() else { return };
    loop {
        let reserve = Reserve::of(&data);
        match tokio::task::spawn_blocking(move || reserve.keep()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "there is no reserve for a full disk"),
            Err(error) => tracing::error!(%error, "the reserve was not looked at"),
        }
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => return,
            () = tokio::time::sleep(KEPT_EVERY) => {}
        }
    }
}

/// Gives up the reserve for something that makes room; whether there was one.
pub(super) fn give_up_reserve(data: Option<&Path>) -> bool {
    let given_up = data.is_some_and(|data| Reserve::of(data).give_up());
    if given_up {
        tracing::warn!("the disk is full; what was kept in reserve is given up, so that something can be removed");
    }
    given_up
}

/// What a start can do without where there is no room to do it: it is left for the next one.
pub(super) fn unless_full<T: Default>(what: &'static str, done: Result<T, Error>) -> Result<T, Error> {
    match done {
        Err(error) if error.code() == "no_space" => {
            tracing::error!(%error, what, "not done, because the disk is full; make room, and start the server again");
            Ok(T::default())
        }
        done => done,
    }
}
