//! Forms and queries, and what an action may have in them.

use super::State;
use super::door::Refusal;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) type Fields = BTreeMap<String, String>;

/// `a=b&c=d`; none if a name comes twice or it is no such thing.
pub(super) fn parse(text: &str) -> Option<Fields> {
    let mut fields = Fields::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let decode = |text: &str| Some(percent_decode_str(&text.replace('+', " ")).decode_utf8().ok()?.into_owned());
        if fields.insert(decode(name)?, decode(value)?).is_some() {
            return None;
        }
    }
    Some(fields)
}

/// What an action takes, beside the key: those it needs, and those it may have.
type Takes = (&'static [&'static str], &'static [&'static str]);

pub(super) fn takes(action: &str) -> Option<Takes> {
    Some(match action {
        "CreateMcpSession" => (
            &["ImageId"],
            &[
                "Labels",
                "Timeout",
                "ContextId",
                "PersistenceDataList",
                "SessionId",
                "McpPolicyId",
                "NetworkId",
                "VpcResource",
                "ExtraConfigs",
                "LoadSkill",
                "Skills",
                "SdkStats",
                "LoginRegionId",
                "EnableRecord",
                "ExternalUserId",
            ],
        ),
        "GetSession" | "RefreshSessionIdleTime" | "PauseSessionAsync" | "ResumeSessionAsync" | "DeleteSessionAsync" => {
            (&["SessionId"], &[])
        }
        // Its session is in the query.
        "GetSessionDetail" => (&[], &[]),
        "ListSession" => (&[], &["Labels", "MaxResults", "NextToken", "Status", "ImageId"]),
        "GetLabel" => (&["SessionId"], &["MaxResults", "NextToken"]),
        "ListMcpTools" => (&["ImageId"], &[]),
        "CallMcpTool" => {
            (&["SessionId", "Name", "Args"], &["Server", "AutoGenSession", "ImageId", "ExternalUserId", "Tool"])
        }
        _ => return None,
    })
}

/// Fields of a form that were looked at as what they are.
pub(super) struct Form<'a> {
    pub(super) action: &'a str,
    pub(super) fields: &'a Fields,
    pub(super) state: &'a State,
}

impl Form<'_> {
    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A number within bounds, where there is one.
    pub(super) fn number(&self, name: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.fields.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(self.invalid(name)),
        }
    }

    /// A JSON text of names and words.
    pub(super) fn labels(&self) -> Result<BTreeMap<String, String>, Refusal> {
        let Some(text) = self.fields.get("Labels") else { return Ok(BTreeMap::new()) };
        let labels: BTreeMap<String, String> = serde_json::from_str(text).map_err(|_| self.invalid("Labels"))?;
        let is_empty = |text: &String| text.trim().is_empty();
        if labels.iter().any(|(name, value)| is_empty(name) || is_empty(value)) {
            return Err(self.invalid("Labels"));
        }
        Ok(labels)
    }

    /// A JSON text of an object.
    pub(super) fn object(&self, name: &str) -> Result<serde_json::Map<String, Value>, Refusal> {
        serde_json::from_str(self.text(name)).map_err(|_| self.invalid(name))
    }

    pub(super) fn invalid(&self, name: &str) -> Refusal {
        self.state.violation(format!("{}: bad {name}: `{}`", self.action, self.text(name)));
        Refusal::new(400, "InvalidParameter", format!("The parameter {name} is not valid."))
    }
}
