//! What an agent's own hook leaves in a file at the end of a turn: the text as its model wrote it, which a screen doesn't
//! show.

use super::credentials::inside;
use super::ledger::Step;
use super::owner::Owner;
use crate::error::Error;
use crate::files::Files;
use serde_json::Value;
use std::time::Duration;
use stead_agent::Event;
use stead_agent::spec::Hook;
use tokio::time::Instant;

/// How long a hook may take after the screen says that the turn is over.
const WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// More is no answer.
const MOST: u64 = 4 << 20;

#[derive(Debug, PartialEq, Eq)]
struct Said {
    text: String,
    id: Option<String>,
}

impl Owner {
    /// Forgets what was said in turns before this one.
    pub(super) async fn clear_hook(&self) -> Result<(), Error> {
        if let Some((hook, files, path)) = self.hook().await? {
            tracing::debug!(session = %self.session.id, file = hook.file, "its hook is listened to");
            files.write(path, Vec::new()).await?;
        }
        Ok(())
    }

    /// Puts what the model wrote in the place of what the screen shows, in a turn that has just ended well.
    pub(super) async fn hear_hook(&self, step: &mut Step) {
        if !matches!(step.events.last(), Some(Event::Done { .. })) {
            return;
        }
        let message = self.run.as_ref().map(|run| run.message.clone()).unwrap_or_default();
        let heard = match self.hook().await {
            Ok(None) => return,
            Ok(Some((hook, files, path))) => wait(&hook, &files, &path, &message).await,
            Err(error) => {
                tracing::warn!(%error, session = %self.session.id, "an agent's hook can't be heard");
                None
            }
        };
        let last = step.events.len() - 1;
        let Some(said) = heard else {
            step.events.insert(last, Event::status("its hook said nothing: this is what its screen shows"));
            return;
        };
        if let Some(id) = said.id {
            step.session.resume = Some(id);
        }
        match step.events.get_mut(last.wrapping_sub(1)) {
            Some(Event::Message { text }) => *text = said.text,
            Some(_) | None => step.events.insert(last, Event::Message { text: said.text }),
        }
    }

    async fn hook(&self) -> Result<Option<(Hook, Files, Vec<u8>)>, Error> {
        let Some(hook) = self.spec().and_then(|spec| spec.screen).and_then(|screen| screen.hook) else {
            return Ok(None);
        };
        let thread = self.shared.stead.thread(&self.session.thread).await?;
        let around = self.shared.stead.surroundings(&thread)?;
        let Some(path) = around.home().map(|home| inside(home, &hook.file)) else { return Ok(None) };
        Ok(Some((hook, self.shared.stead.files(&self.session.thread).await?, path)))
    }
}

async fn wait(hook: &Hook, files: &Files, path: &[u8], message: &str) -> Option<Said> {
    let until = Instant::now() + WITHIN;
    loop {
        let small = files.stat(path).await.is_ok_and(|there| there.size <= MOST);
        let bytes = if small { files.read(path).await.unwrap_or_default() } else { Vec::new() };
        if let Some(said) = read(hook, &bytes, message) {
            return Some(said);
        }
        if Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The last line that answers this message. A hook may fire for what the agent asks its model besides, as for a title.
fn read(hook: &Hook, bytes: &[u8], message: &str) -> Option<Said> {
    let lines = bytes.split(|byte| *byte == b'\n').rev();
    lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()).find_map(|line| {
        let text_at = |pointer: &str| match line.pointer(pointer) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(all)) => all.last().and_then(Value::as_str).map(str::to_owned),
            Some(_) | None => None,
        };
        let ours = match &hook.message {
            Some(pointer) => text_at(pointer).is_some_and(|heard| same(&heard, message)),
            None => true,
        };
        let id = hook.id.as_deref().and_then(text_at).filter(|id| !id.is_empty());
        text_at(&hook.text).filter(|_| ours).map(|text| Said { text, id })
    })
}

/// What was typed may have been broken into other lines.
fn same(heard: &str, message: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect::<String>();
    letters(heard) == letters(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(message: Option<&str>) -> Hook {
        let own = |text: &str| text.to_owned();
        Hook { file: own("h"), text: own("/last"), message: message.map(own), id: Some(own("/id")) }
    }

    #[test]
    fn the_last_line_that_answers_the_message_counts() {
        let lines =
            b"{\"last\":\"old\",\"in\":[\"a b\"]}\n{\"last\":\"**bold**\",\"in\":[\"x\",\"a\\nb\"],\"id\":\"s1\"}\n\
                      {\"last\":\"A title\",\"in\":[\"find a title\"]}\n{\"las";
        let said = |text: &str, id: Option<&str>| Some(Said { text: text.to_owned(), id: id.map(str::to_owned) });
        assert_eq!(read(&hook(Some("/in")), lines, "a b"), said("**bold**", Some("s1")));
        assert_eq!(read(&hook(None), lines, "a b"), said("A title", None));
        assert_eq!(read(&hook(Some("/in")), lines, "another"), None);
        assert_eq!(read(&hook(None), b"not json\n", "a b"), None);
    }
}
