//! What was said, made of the runs of a conversation and their events.

use super::Agents;
use crate::error::Error;
use crate::stead::{List, Listed};
use crate::store::{AgentEvent, AgentRun};
use std::cmp::Ordering;
use std::collections::HashMap;
use stead_agent::{Event, Failure, Tool, Usage};
use stead_model::clock::Timestamp;
use stead_model::ids::{AgentId, RunId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

/// One message of a conversation; text as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub run: RunId,
    pub role: Role,
    pub at: Timestamp,
    pub text: String,
    /// Tools that were used before it, in order, each as it ended.
    pub tools: Vec<Tool>,
    /// Of the whole turn, with its last message.
    pub usage: Option<Usage>,
    /// How the turn failed, with its last message.
    pub error: Option<Failure>,
    /// More may come.
    pub open: bool,
}

const AT_ONCE: u32 = 1000;

const LIST: &str = "agent-messages";

/// A message and its place: when its run was made, and the run with the number of the message in it.
struct Numbered {
    began: Timestamp,
    id: String,
    message: Message,
}

impl Agents {
    /// The conversation that a session is in, oldest first, a page at a time.
    pub async fn messages(&self, id: &AgentId, list: &List) -> Result<Listed<Message>, Error> {
        let session = self.session(id).await?;
        let place = list.place(LIST)?;
        let mut messages = Vec::new();
        for run in self.shared.store.agent_runs(id, session.conversation).await? {
            // Messages of one run are counted from its own.
            let known = match &place.after {
                Some((at, shown)) => {
                    let (of, known) = shown.rsplit_once('.').ok_or_else(|| List::refused(LIST))?;
                    match (run.created_at, run.id.as_str()).cmp(&(*at, of)) {
                        Ordering::Less => continue,
                        Ordering::Equal => known.parse().map_err(|_| List::refused(LIST))?,
                        Ordering::Greater => 0,
                    }
                }
                None => 0,
            };
            if messages.len() > place.limit {
                break;
            }
            let mut events = Vec::new();
            loop {
                let after = events.last().map_or(0, |event: &AgentEvent| event.seq);
                let more = self.shared.store.agent_events(&run.id, after, AT_ONCE).await?;
                if more.is_empty() {
                    break;
                }
                events.extend(more);
            }
            messages.extend(fold(&run, &events).into_iter().enumerate().skip(known).map(|(at, message)| Numbered {
                began: run.created_at,
                id: format!("{}.{}", run.id, at + 1),
                message,
            }));
        }
        let listed = Listed::cut_at(messages, place.limit, LIST, |numbered| (numbered.began, numbered.id.clone()));
        let items = listed.items.into_iter().map(|numbered| numbered.message).collect();
        Ok(Listed { items, next_cursor: listed.next_cursor })
    }
}

fn fold(run: &AgentRun, events: &[AgentEvent]) -> Vec<Message> {
    let message = |role, at, text: String, tools| Message {
        run: run.id.clone(),
        role,
        at,
        text,
        tools,
        usage: None,
        error: None,
        open: false,
    };
    let mut messages = vec![message(Role::User, run.created_at, run.message.clone(), Vec::new())];
    let mut tools: Vec<Tool> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut said = String::new();
    let (mut usage, mut error) = (None, None);
    let mut at = run.created_at;
    for event in events {
        at = event.at;
        match &event.event {
            Event::Delta { text } => said.push_str(text),
            Event::Message { text } => {
                said.clear();
                places.clear();
                messages.push(message(Role::Assistant, at, text.clone(), std::mem::take(&mut tools)));
            }
            Event::Tool(tool) => {
                if let Some(there) = places.get(tool.id.as_str()).and_then(|place| tools.get_mut(*place)) {
                    *there = tool.clone();
                } else {
                    places.insert(&tool.id, tools.len());
                    tools.push(tool.clone());
                }
            }
            Event::Done { usage: used } => usage = *used,
            Event::Error { error: failure } => error = Some(failure.clone()),
            Event::Start { .. } | Event::Status { .. } | Event::Permission(_) | Event::Aborted {} => {}
        }
    }
    let open = !run.status.is_final();
    // What a turn that broke off, or still goes on, has said so far.
    if !said.is_empty() || !tools.is_empty() || error.is_some() && messages.len() == 1 {
        messages.push(message(Role::Assistant, at, said, tools));
    }
    if let Some(last) = messages.last_mut().filter(|last| last.role == Role::Assistant) {
        (last.usage, last.error, last.open) = (usage, error, open);
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RunStatus;
    use serde_json::json;
    use stead_agent::ToolStatus;

    fn run(status: RunStatus) -> AgentRun {
        AgentRun {
            id: RunId::made_of([1; 8]),
            session: AgentId::made_of([2; 8]),
            conversation: 0,
            message: "hi".into(),
            policy: None,
            status,
            last_seq: 0,
            created_at: Timestamp(1),
            started_at: None,
            ended_at: None,
        }
    }

    fn shown(status: RunStatus, events: Vec<Event>) -> Vec<(Role, String, usize, bool)> {
        let run = run(status);
        let rows: Vec<_> = (1..)
            .zip(events)
            .map(|(seq, event)| AgentEvent { run: run.id.clone(), seq, at: Timestamp(seq), event })
            .collect();
        let messages = fold(&run, &rows);
        messages.into_iter().map(|m| (m.role, m.text, m.tools.len(), m.open)).collect()
    }

    fn delta(text: &str) -> Event {
        Event::Delta { text: text.into() }
    }

    fn tool(status: ToolStatus) -> Event {
        Event::Tool(Tool { id: "t".into(), name: "shell".into(), input: json!({}), output: None, status })
    }

    #[test]
    fn messages_stand_for_their_pieces_and_tools_for_their_steps() {
        let events = vec![
            delta("I "),
            delta("look"),
            Event::Message { text: "I look".into() },
            tool(ToolStatus::Running),
            tool(ToolStatus::Completed),
            delta("done"),
            Event::Message { text: "done".into() },
            Event::Done { usage: None },
        ];
        let user = (Role::User, "hi".to_owned(), 0, false);
        let first = (Role::Assistant, "I look".to_owned(), 0, false);
        let second = (Role::Assistant, "done".to_owned(), 1, false);
        assert_eq!(shown(RunStatus::Done, events), [user, first, second]);
    }

    #[test]
    fn what_was_said_before_it_broke_off_is_there() {
        let user = (Role::User, "hi".to_owned(), 0, false);
        let half = vec![delta("ha"), delta("lf"), tool(ToolStatus::Running)];
        let said = (Role::Assistant, "half".to_owned(), 1, true);
        assert_eq!(shown(RunStatus::Running, half), [user.clone(), said]);
        let failed = vec![Event::error("agent_died", "x")];
        assert_eq!(shown(RunStatus::Failed, failed), [user, (Role::Assistant, String::new(), 0, false)]);
    }
}
