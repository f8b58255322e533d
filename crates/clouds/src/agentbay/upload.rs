//! Putting a file into a session. The tool that writes files knows text alone and little of it at once, so a file goes in
//! pieces of base64, each a file of its own: one whose answer was lost is written again, and nothing is there twice. Then
//! the machine puts them together, compares, and moves the whole to its place.

use super::Inner;
use super::front::nonce;
use super::shell::{SHORT, quoted};
use super::tool::Tool;
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Effect, Trouble};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const WHAT: &str = "upload a file";

/// Around a piece there are its path and the rest of a message.
const AROUND: usize = 1 << 10;

/// More than this is no steward, and would take hours.
const MOST: usize = 256 << 20;

impl Inner {
    pub(super) async fn upload(&self, id: &str, path: &str, bytes: &[u8]) -> Result<(), CloudError> {
        if bytes.len() > MOST {
            let message = format!("`{path}` has {} bytes; {MOST} are the most", bytes.len());
            return Err(CloudError::new(WHAT, Trouble::Exhausted, Effect::None, message));
        }
        let nonce = nonce(WHAT)?;
        let pieces = format!("/tmp/.stead-upload-{nonce}");
        self.must(id, path, &format!("umask 077 && mkdir -p {pieces}")).await?;
        // Whole groups of base64, so that the pieces in a row are one text.
        let most = (self.most(id, "write_file") - AROUND) / 4 * 3;
        let written = self.write_pieces(id, path, &pieces, bytes, most).await;
        let placed = match written {
            Ok(()) => self.must(id, path, &place(path, &pieces, &nonce, bytes)).await,
            Err(error) => Err(error),
        };
        if placed.is_err() {
            // As well as it can be; the session's end does the rest.
            let _ = self.shell(WHAT, Call::Changes, id, &format!("rm -rf {pieces}"), SHORT).await;
        }
        placed
    }

    async fn write_pieces(
        &self,
        id: &str,
        path: &str,
        pieces: &str,
        bytes: &[u8],
        most: usize,
    ) -> Result<(), CloudError> {
        for (number, piece) in bytes.chunks(most).enumerate() {
            let arguments = json!({
                "path": format!("{pieces}/{number:08}"), "content": STANDARD.encode(piece), "mode": "overwrite",
            });
            let tool = Tool { name: "write_file", arguments, time: self.config.patience };
            let said = PATIENT.call(|| self.tool(WHAT, Call::Changes, id, &tool)).await?;
            if said.is_error {
                return Err(failed(path, &said.text));
            }
        }
        Ok(())
    }

    /// Runs a step that may be run twice, and must succeed.
    async fn must(&self, id: &str, path: &str, script: &str) -> Result<(), CloudError> {
        let ended = PATIENT.call(|| self.shell(WHAT, Call::Changes, id, script, SHORT)).await?;
        if ended.exit_code == 0 { Ok(()) } else { Err(failed(path, &ended.stderr)) }
    }
}

fn failed(path: &str, said: &str) -> CloudError {
    let trouble = if said.contains("No space left") { Trouble::NoSpace } else { Trouble::Broken };
    CloudError::new(WHAT, trouble, Effect::Unknown, format!("`{path}`: {}", said.trim()))
}

/// Puts the pieces together. Run again after it has succeeded, it finds the file and is content.
fn place(path: &str, pieces: &str, nonce: &str, bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let (path, new) = (quoted(path), quoted(&format!("{path}.{nonce}")));
    let size = bytes.len();
    format!(
        "is_whole() {{ [ \"$(wc -c < \"$1\")\" -eq {size} ] && [ \"$(sha256sum < \"$1\" | cut -c1-64)\" = {sum} ]; }}
if ! [ -d {pieces} ] && [ -f {path} ] && is_whole {path}; then exit 0; fi
set -e
mkdir -p -- \"$(dirname -- {path})\"
find {pieces} -type f | sort | xargs -r cat | base64 -d > {new}
if ! is_whole {new}; then rm -f {new}; echo 'it did not arrive whole' >&2; exit 1; fi
chmod 755 {new}
mv -f -- {new} {path}
rm -rf {pieces}"
    )
}
