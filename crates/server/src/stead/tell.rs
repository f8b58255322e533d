//! Telling somebody outside what was said of projects and threads. What is to be told is a row, written with the change
//! that it tells of: a server that dies tells it when it lives again.

use super::Inner;
use crate::clock::Names;
use crate::error::Error;
use crate::webhook::{self, Webhook};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use stead_model::notice::{Notice, Subject, Told};

/// How many are read at a time.
const AT_ONCE: u32 = 16;
/// How long after a failure of our own, and at the latest, it is looked again.
const AGAIN: Duration = Duration::from_mins(1);

/// As somebody outside, or a reader of events, sees it.
pub(crate) fn as_json(notice: &Notice) -> serde_json::Value {
    let Notice { id, subject, what, at, expires_at, source } = notice;
    let (project, thread) = match subject {
        Subject::Project(id) => (Some(id.as_str()), None),
        Subject::Thread(id) => (None, Some(id.as_str())),
    };
    json!({
        "id": id.as_str(),
        "type": format!("{}.{}", subject.kind(), what.as_str()),
        "at": at.to_string(),
        "project_id": project,
        "thread_id": thread,
        "expires_at": expires_at.to_string(),
        "source": source,
    })
}

/// For as long as the server lives.
pub(super) async fn every(inner: Arc<Inner>) {
    let Some(webhook) = inner.upkeep.webhook.clone().map(Arc::new) else { return };
    loop {
        let wait = match round(&inner, &webhook).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::error!(%error, "what is to be told outside can't be read");
                AGAIN
            }
        };
        tokio::select! {
            biased;
            () = inner.core.stop.cancelled() => return,
            () = inner.untold.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Tells all whose time has come; how long until the next one's.
async fn round(inner: &Arc<Inner>, webhook: &Arc<Webhook>) -> Result<Duration, Error> {
    let store = &inner.core.store;
    loop {
        let due = store.untold(inner.core.now(), AT_ONCE).await?;
        if due.is_empty() {
            break;
        }
        for told in due {
            if inner.core.stop.is_cancelled() {
                return Ok(AGAIN);
            }
            attempt(inner, webhook, told).await?;
        }
    }
    let next = store.next_untold().await?;
    Ok(next.map_or(AGAIN, |next| next.since(inner.core.now()).min(AGAIN)))
}

async fn attempt(inner: &Arc<Inner>, webhook: &Arc<Webhook>, told: Told) -> Result<(), Error> {
    let attempts = told.attempts + 1;
    let id = told.notice.id.clone();
    match send(inner, webhook, &told.notice).await {
        Ok(()) => {
            tracing::debug!(event = %id, "told outside");
            inner.core.store.tried(&id, attempts, None).await?;
        }
        Err(why) => {
            let chance = u64::from_be_bytes(crate::clock::RandomNames.entropy());
            let wait = webhook::wait_after(attempts, chance);
            if let Some(wait) = wait {
                tracing::warn!(event = %id, why, attempts, ?wait, "the webhook failed; later again");
            } else {
                tracing::error!(event = %id, why, attempts, "the webhook failed for the last time");
            }
            let next = wait.map(|wait| inner.core.now().after(wait));
            inner.core.store.tried(&id, attempts, next).await?;
        }
    }
    Ok(())
}

/// On a thread of its own, which nobody waits for when the server ends.
async fn send(inner: &Inner, webhook: &Arc<Webhook>, notice: &Notice) -> Result<(), String> {
    let (webhook, id, body) = (Arc::clone(webhook), notice.id.to_string(), as_json(notice).to_string());
    let seconds = inner.core.now().0 / 1000;
    let (done, answer) = tokio::sync::oneshot::channel();
    let work = move || drop(done.send(webhook.send(&id, &body, seconds)));
    std::thread::Builder::new().name("webhook".to_owned()).spawn(work).map_err(|error| error.to_string())?;
    tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| Err("it broke off".to_owned())),
        () = inner.core.stop.cancelled() => Err("the server ended".to_owned()),
    }
}
