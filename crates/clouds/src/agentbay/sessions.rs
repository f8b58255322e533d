//! What is known of sessions: their state when it was last asked for, and how their tools are reached. Only a help: what
//! isn't known is asked for, and what is wrong is found out by being refused.

use super::Inner;
use super::link::Link;
use crate::retry::PATIENT;
use crate::wire::Call;
use crate::{CloudError, Condition, Listed, Trouble};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of a list; the cloud's own is 10.
const PAGE: u32 = 50;

/// Ten thousand sessions with the same labels are somebody's mistake.
const MOST_PAGES: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    ways: HashMap<String, Arc<Way>>,
    /// Those whose tools were gone when they were last called.
    doubted: HashSet<String>,
}

/// How the tools of a session are reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) link: Option<Link>,
    /// The server of each tool; a link needs it.
    pub(super) servers: HashMap<String, String>,
}

impl Way {
    /// By the link, if it can be.
    pub(super) fn direct(&self, tool: &str) -> Option<(&Link, &str)> {
        Some((self.link.as_ref()?, self.servers.get(tool).filter(|server| !server.is_empty())?))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    Pausing,
    Paused,
    Resuming,
    Deleting,
    Gone,
    /// A word that we don't know.
    Other,
}

impl Status {
    fn parse(text: &str) -> Self {
        match text {
            "RUNNING" => Self::Running,
            "PAUSING" => Self::Pausing,
            "PAUSED" => Self::Paused,
            "RESUMING" => Self::Resuming,
            "DELETING" => Self::Deleting,
            "DELETED" | "FINISH" => Self::Gone,
            _ => Self::Other,
        }
    }

    pub(super) fn condition(self) -> Condition {
        match self {
            Self::Running => Condition::Running,
            Self::Paused => Condition::Paused,
            Self::Gone => Condition::Gone,
            Self::Pausing | Self::Resuming | Self::Deleting | Self::Other => Condition::Unclear,
        }
    }
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn way(&self, id: &str) -> Option<Arc<Way>> {
        self.known().ways.get(id).cloned()
    }

    /// Remembers how to reach a session, as an answer about it tells.
    pub(super) fn learn(&self, id: &str, data: &Value) -> Arc<Way> {
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let way =
            Arc::new(Way { link: Link::new(text("LinkUrl"), text("Token")), servers: servers(&data["ToolList"]) });
        self.known().ways.insert(id.to_owned(), way.clone());
        way
    }

    pub(super) fn forget(&self, id: &str) {
        let mut known = self.known();
        known.ways.remove(id);
        known.doubted.remove(id);
    }

    pub(super) fn doubt(&self, id: &str) {
        self.known().doubted.insert(id.to_owned());
    }

    pub(super) fn trust(&self, id: &str) {
        self.known().doubted.remove(id);
    }

    pub(super) fn is_doubted(&self, id: &str) -> bool {
        self.known().doubted.contains(id)
    }
}

/// A list of tools, or the text of one.
fn servers(tools: &Value) -> HashMap<String, String> {
    let parsed: Value;
    let tools = match tools.as_str() {
        Some(text) => {
            parsed = serde_json::from_str(text).unwrap_or_default();
            &parsed
        }
        None => tools,
    };
    let word = |tool: &Value, names: [&str; 3]| {
        names.into_iter().find_map(|name| tool.get(name)?.as_str()).unwrap_or_default().to_owned()
    };
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let named =
        tools.iter().map(|tool| (word(tool, ["name", "Name", "Name"]), word(tool, ["server", "serverName", "Server"])));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

impl Inner {
    /// What the front door says of a session; learns how it is reached. One that isn't there is gone.
    pub(super) async fn see(&self, what: &'static str, id: &str) -> Result<Status, CloudError> {
        match self.front.ask(what, Call::Reads, "GetSession", &[("SessionId", id)]).await {
            Ok(answer) => {
                let status = Status::parse(answer.data.get("Status").and_then(Value::as_str).unwrap_or_default());
                self.sessions.learn(id, &answer.data);
                Ok(status)
            }
            Err(error) if error.trouble == Trouble::NotFound => {
                self.sessions.forget(id);
                Ok(Status::Gone)
            }
            Err(error) => Err(error),
        }
    }

    /// One page of sessions, and where the next begins.
    pub(super) async fn page(
        &self,
        what: &'static str,
        labels: &str,
        most: u32,
        next: Option<&str>,
    ) -> Result<(Vec<(String, Status)>, Option<String>), CloudError> {
        let most = most.to_string();
        let mut fields = vec![("Labels", labels), ("MaxResults", most.as_str())];
        fields.extend(next.map(|token| ("NextToken", token)));
        let answer = self.front.ask(what, Call::Reads, "ListSession", &fields).await?;
        let sessions = answer.data.as_array().map(Vec::as_slice).unwrap_or_default();
        let sessions = sessions.iter().filter_map(|session| {
            let text = |name: &str| session.get(name).and_then(Value::as_str);
            Some((text("SessionId")?.to_owned(), Status::parse(text("SessionStatus").unwrap_or_default())))
        });
        Ok((sessions.collect(), answer.next_token))
    }

    /// Every session with these labels that isn't gone.
    pub(super) async fn find(
        &self,
        what: &'static str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, Status)>, CloudError> {
        let labels = text_of(labels);
        let (mut all, mut next) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let (page, after) = PATIENT.call(|| self.page(what, &labels, PAGE, next.as_deref())).await?;
            all.extend(page.into_iter().filter(|(_, status)| *status != Status::Gone));
            if after.is_none() || after == next {
                break;
            }
            next = after;
        }
        Ok(all)
    }

    /// The same with all the labels that they have, which take a call each.
    pub(super) async fn list(
        &self,
        what: &'static str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Listed>, CloudError> {
        let mut listed = Vec::new();
        for (id, status) in self.find(what, labels).await? {
            let fields = [("SessionId", id.as_str())];
            match PATIENT.call(|| self.front.ask(what, Call::Reads, "GetLabel", &fields)).await {
                Ok(answer) => {
                    let text = answer.data.get("Labels").and_then(Value::as_str).unwrap_or_default();
                    // Labels that aren't words are nobody's of ours; those that were asked for it has.
                    let has = serde_json::from_str(text).unwrap_or_else(|_| labels.clone());
                    listed.push(Listed { id, labels: has, condition: status.condition() });
                }
                // It ended meanwhile.
                Err(error) if error.trouble == Trouble::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }
}

/// As a form has labels.
pub(super) fn text_of(labels: &BTreeMap<String, String>) -> String {
    Value::Object(labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_are_listed_as_a_text_or_as_they_are() {
        let list = json!([{ "name": "shell", "server": "a" }, { "Name": "x", "serverName": "b" }, { "server": "c" }]);
        let wanted = HashMap::from([("shell".to_owned(), "a".to_owned()), ("x".to_owned(), "b".to_owned())]);
        assert_eq!(servers(&list), wanted);
        assert_eq!(servers(&list.to_string().into()), wanted);
        assert_eq!(servers(&"{".into()), HashMap::new());
        assert_eq!(servers(&Value::Null), HashMap::new());
    }

    #[test]
    fn a_link_without_a_server_is_no_way() {
        let sessions = Sessions::default();
        let tools = json!([{ "name": "shell", "server": "a" }, { "name": "x", "server": "" }]);
        let way = sessions.learn("s", &json!({ "LinkUrl": "http://h/", "Token": "t", "ToolList": tools }));
        assert_eq!(way.direct("shell").map(|(_, server)| server), Some("a"));
        assert!(way.direct("x").is_none() && way.direct("y").is_none());
        assert!(!format!("{way:?}").contains("\"t\""));
        let way = sessions.learn("s", &json!({ "LinkUrl": "http://h/", "Token": "", "ToolList": tools }));
        assert!(way.direct("shell").is_none());
    }
}
