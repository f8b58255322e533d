//! Putting a file into a sandbox. The daemon writes in place, so it gets the file under another name first and renames it.

use super::envd::Envd;
use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Trouble};
use bytes::Bytes;
use reqwest::multipart::{Form, Part};
use serde_json::json;
use std::time::Duration;

const WHAT: &str = "upload a file";

/// A slow line; the time that an upload gets grows with it.
const BYTES_PER_SECOND: u64 = 128 << 10;

/// All of it may be done twice, and is.
pub(super) async fn upload(envd: &Envd, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
    let random = getrandom::u64()
        .map_err(|error| CloudError::new(WHAT, Trouble::Broken, Effect::None, format!("no random numbers: {error}")))?;
    let beside = format!("{path}.{random:016x}.part");
    let times = envd.api.times;
    let patience = times.change + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
    let outcome = PATIENT.call(async || {
        let answer = envd.send(WHAT, patience, id, |client, base| {
            // In a form: that is how every version of the daemon takes files.
            let part = Part::stream(bytes.clone()).file_name(beside.clone());
            let request = client.post(format!("{base}/files")).query(&[("path", &beside)]).timeout(patience);
            request.multipart(Form::new().part("file", part))
        });
        wire::read(WHAT, Call::Changes, answer.await?).await?;
        let message = json!({ "source": beside, "destination": path });
        envd.ask(WHAT, times.change, id, "filesystem.Filesystem/Move", &message).await
    });
    let Err(error) = outcome.await else { return Ok(()) };
    // What is left of it, if anything and if it can be reached at all.
    let message = json!({ "path": beside });
    if let Err(error) = envd.ask(WHAT, times.read, id, "filesystem.Filesystem/Remove", &message).await {
        tracing::debug!(%error, sandbox = id, path = beside, "a part of a file may stay behind");
    }
    Err(error)
}
