//! Why a command has not begun: whoever waits at a prompt is told what is before it, once.

use super::Stage;
use crate::client::{Client, segment};
use crate::json::Fields;
use crate::table::one_line;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::watch;

/// What a person waits without wondering.
const SOON: Duration = Duration::from_secs(3);

/// As many as a terminal lets wait, and the one that runs.
const LOOKED_AT: usize = 65;

pub(super) struct Waiting {
    pub(super) client: Client,
    pub(super) thread: String,
    pub(super) command: String,
}

impl Waiting {
    /// Says what it waits for, if it still does after a while.
    pub(super) async fn explain(mut self, mut stage: watch::Receiver<Stage>) {
        if stage.wait_for(|stage| *stage >= Stage::Queued).await.is_err() {
            return;
        }
        if tokio::time::timeout(SOON, stage.wait_for(|stage| *stage >= Stage::Started)).await.is_ok() {
            return;
        }
        let path = format!("/api/threads/{}/commands", segment(&self.thread));
        // Who can't be asked explains nothing.
        let Ok(items) = self.client.list(&path, LOOKED_AT).await else { return };
        if *stage.borrow() == Stage::Queued {
            tell!(
                "stead: `{}` waits: {}; a time-out counts from when it starts",
                self.command,
                before(&items, &self.command)
            );
        }
    }
}

/// What runs in the terminal that a command waits for.
fn before(items: &[Value], command: &str) -> String {
    let terminal = items.iter().find(|item| item.at("id") == command).map(|item| item.at("terminal_id"));
    let running =
        |item: &&Value| item.at("status") == "running" && terminal.is_none_or(|of| of == item.at("terminal_id"));
    match items.iter().find(running) {
        Some(item) => format!("`{}` runs (`{}`)", one_line(item.at("id")), one_line(item.at("command"))),
        None => "a program that somebody who is attached has started is in the foreground".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_before_it_in_its_own_terminal_is_named() {
        let item = |id: &str, terminal: &str, status: &str| json!({ "id": id, "terminal_id": terminal, "status": status, "command": "make\nall" });
        let mine = item("c", "t1", "queued");
        let others = [mine.clone(), item("a", "t2", "running"), item("b", "t1", "running")];
        assert!(before(&others, "c").starts_with("`b` runs (`make"));
        assert!(before(&[mine, item("a", "t2", "running")], "c").contains("attached"));
    }
}
