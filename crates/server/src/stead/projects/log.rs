//! One readable log for each session of a project, in its `.logs`: when it was opened and by whom, what ran, how it ended.
//! For people; nothing reads it.

use super::place;
use crate::stead::Inner;
use std::path::PathBuf;
use std::sync::Arc;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{ProjectId, SessionId};
use stead_model::session::Session;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// Lines on their way to a disk; who has one more waits.
const AHEAD: usize = 256;

/// Of a command's text.
const MOST_TEXT: usize = 1000;

/// One task writes all lines, so that those of a session are in order.
#[derive(Debug)]
pub(crate) struct Logs {
    lines: mpsc::Sender<(PathBuf, String)>,
    inbox: std::sync::Mutex<Option<mpsc::Receiver<(PathBuf, String)>>>,
}

impl Default for Logs {
    fn default() -> Self {
        let (lines, inbox) = mpsc::channel(AHEAD);
        Self { lines, inbox: std::sync::Mutex::new(Some(inbox)) }
    }
}

/// Begins to write.
pub(crate) fn start(inner: &Arc<Inner>) {
    let inbox = inner.projects.logs.inbox.lock().ok().and_then(|mut inbox| inbox.take());
    let Some(mut inbox) = inbox else { return };
    let stop = inner.core.stop.clone();
    inner.core.tasks.spawn(async move {
        loop {
            let line = tokio::select! {
                biased;
                line = inbox.recv() => line,
                () = stop.cancelled() => None,
            };
            let Some((path, line)) = line else { return };
            if let Err(error) = append(&path, &line).await {
                tracing::warn!(%error, path = %path.display(), "the log of a session has a hole");
            }
        }
    });
}

async fn append(path: &PathBuf, line: &str) -> std::io::Result<()> {
    let mut file = tokio::fs::File::options().create(true).append(true).mode(0o600).open(path).await?;
    file.write_all(line.as_bytes()).await?;
    file.flush().await
}

async fn write(inner: &Inner, project: &ProjectId, session: &SessionId, at: Timestamp, what: &str) {
    let Some(place) = place(inner, project) else { return };
    let path = place.logs().join(format!("{session}.log"));
    let _ = inner.projects.logs.lines.send((path, format!("{at} {what}\n"))).await;
}

pub(crate) async fn opened(inner: &Inner, session: &Session) {
    let Some(project) = &session.project else { return };
    let by = session.opened_by.as_ref().map(|token| format!(" by `{token}`")).unwrap_or_default();
    let what = format!("opened{by}: thread `{}`, terminal `{}`", session.thread, session.terminal);
    write(inner, project, &session.id, session.started_at, &what).await;
}

pub(crate) async fn ended(inner: &Inner, project: &ProjectId, command: &Command) {
    let Some(session) = &command.session else { return };
    let span = match (command.started_at, command.ended_at) {
        (Some(from), Some(to)) => format!(" after {} ms", to.since(from).as_millis()),
        _ => String::new(),
    };
    let code = command.ending.as_ref().and_then(|ending| ending.exit_code);
    let code = code.map(|code| format!(" {code}")).unwrap_or_default();
    let status = stead_model::command::status_name(command.status);
    let bytes = command.stdout_bytes + command.stderr_bytes;
    let text: String = String::from_utf8_lossy(&command.text).chars().take(MOST_TEXT).collect();
    let what = format!("`{}` {status}{code}{span}, {bytes} bytes: {}", command.id, on_one_line(&text));
    let at = command.ended_at.unwrap_or(command.created_at);
    write(inner, project, session, at, &what).await;
}

pub(crate) async fn closed(inner: &Inner, session: &Session) {
    let (Some(project), Some((at, reason))) = (&session.project, session.ended) else { return };
    let span = at.since(session.started_at).as_secs();
    write(inner, project, &session.id, at, &format!("closed: {} after {span} s", reason.as_str())).await;
}

/// Nothing in a text can look like a line of ours, or move a cursor.
fn on_one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(on_one_line("a\nb\t\u{1b}[2J \u{fc}"), "a\\nb\\t\\u{1b}[2J \u{fc}");
    }
}
