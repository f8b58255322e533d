//! The tool that runs a command: for a short time, with what it wrote told at its end.

use super::front::nonsense;
use super::tool::Tool;
use super::{Inner, LONGEST};
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Effect, Trouble};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// For what takes no time.
pub(super) const SHORT: Duration = Duration::from_secs(30);

/// What came of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Inner {
    /// Runs a script with `sh -c`, once.
    pub(super) async fn shell(
        &self,
        what: &'static str,
        call: Call,
        id: &str,
        script: &str,
        time: Duration,
    ) -> Result<Ended, CloudError> {
        let time = time.clamp(Duration::from_millis(1), LONGEST);
        let command = format!("sh -c {}", quoted(script));
        let arguments = json!({ "command": command, "timeout_ms": u64::try_from(time.as_millis()).unwrap_or(50_000) });
        let most = self.most(id, "shell");
        if command.len() > most {
            let message = format!("a script of {} bytes; {most} are the most", script.len());
            return Err(CloudError::new(what, Trouble::Exhausted, Effect::None, message));
        }
        let started = Instant::now();
        let said = self.tool(what, call, id, &Tool { name: "shell", arguments, time }).await?;
        // How it tells that it has killed a command is nowhere said; that it took all its time says enough.
        if said.is_error && started.elapsed() >= time {
            let message = format!("it was not over in {} s", time.as_secs_f64());
            return Err(CloudError::new(what, Trouble::TimedOut, Effect::Unknown, message));
        }
        match parse(&said.text) {
            Some(ended) => Ok(ended),
            None if said.is_error => {
                let message = format!("its shell says: {}", said.text.chars().take(500).collect::<String>());
                Err(CloudError::new(what, Trouble::Broken, Effect::Unknown, message))
            }
            None => Err(nonsense(what, call, "its shell tells no exit code; another image may")),
        }
    }

    /// Whether a session's machine is there.
    pub(super) async fn answers(&self, what: &'static str, id: &str) -> Result<(), CloudError> {
        PATIENT.call(|| self.shell(what, Call::Reads, id, "true", SHORT)).await.map(drop)
    }
}

/// `{stdout, stderr, exit_code}`.
fn parse(text: &str) -> Option<Ended> {
    let value: Value = serde_json::from_str(text).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let code = ["exit_code", "errorCode"].into_iter().find_map(|name| value.get(name)?.as_i64());
    // Both streams say that it is no output of a program that happens to be such a thing.
    let (stdout, stderr) = (text("stdout"), text("stderr"));
    if stdout.is_none() && stderr.is_none() {
        return None;
    }
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Some(Ended { exit_code: i32::try_from(code?).ok()?, stdout: text(stdout), stderr: text(stderr) })
}

/// One word of a shell, whatever is in it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_came_to_is_read_in_each_of_its_forms() {
        let ended = |exit_code, stdout: &str, stderr: &str| {
            Some(Ended { exit_code, stdout: stdout.to_owned(), stderr: stderr.to_owned() })
        };
        for (text, wanted) in [
            (r#"{"stdout":"a","stderr":"b","exit_code":3,"traceId":"x"}"#, ended(3, "a", "b")),
            (r#"{"stdout":"a","exit_code":0}"#, ended(0, "a", "")),
            (r#"{"stdout":"","stderr":"b","errorCode":1}"#, ended(1, "", "b")),
            (r#"{"stdout":"a","stderr":"b"}"#, None),
            (r#"{"exit_code":1}"#, None),
            ("plain text", None),
            ("17", None),
        ] {
            assert_eq!(parse(text), wanted, "{text}");
        }
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
