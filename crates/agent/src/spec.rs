//! Agents as data: how one is started, spoken to, resumed, and what of the user's own it needs. Five are built in
//! (`spec/builtin.toml`); a configuration may add others and change these, and no code knows any by name.

use crate::event::KINDS;
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;

/// How an agent is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Acp,
    /// Lines of JSON as the app server of Codex has them.
    Codex,
    /// Lines of JSON as Claude Code streams them.
    Claude,
    Pty,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::Codex | Self::Claude => "jsonl",
            Self::Pty => "pty",
        }
    }
}

/// How a conversation is gone on with in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    No,
    /// By a message of the protocol.
    Message,
    /// By arguments, in which `{id}` stands for its name.
    Arguments(Vec<String>),
}

impl Resume {
    pub fn by_message(&self) -> bool {
        matches!(self, Self::Message)
    }
}

#[derive(Debug, Clone)]
pub struct Spec {
    pub name: String,
    pub title: String,
    /// The program and its arguments; the first is looked for in `PATH`. `{workspace}` stands for the workspace as the
    /// agent sees it, quoted as JSON.
    pub command: Vec<String>,
    /// Added where a model is asked for; `{model}` stands for it.
    pub model_args: Vec<String>,
    /// The model is asked for by a message of the protocol.
    pub set_model: bool,
    pub transport: Transport,
    pub resume: Resume,
    pub env: BTreeMap<String, String>,
    /// Variables that must not be inherited.
    pub unset: Vec<String>,
    /// Variables of the server's environment that it gets, where they are set; kept as secrets.
    pub credential_vars: Vec<String>,
    /// Files below the user's home that it gets a copy of, at the same place of its own home.
    pub credential_files: Vec<String>,
    /// Those of them that it renews by itself, and that the user gets back when it has: nothing but tokens, because what
    /// is in them was written in a sandbox.
    pub renews: Vec<String>,
    /// Whether it asks before it uses a tool. Who doesn't can't be denied anything.
    pub asks: bool,
    /// Files below its home that keep it from asking people things at its first start; written where there are none.
    pub files: Vec<OnboardingFile>,
    /// How to get it.
    pub install: String,
    pub version_args: Vec<String>,
    pub models: Vec<String>,
    pub screen: Option<Screen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnboardingFile {
    pub path: String,
    /// `{workspace}` stands for the workspace as the agent sees it, quoted as JSON; `{tail:NAME}` for the last 20 letters
    /// of a credential, by which an agent knows one that was agreed to.
    pub content: String,
}

/// How much of a credential `{tail:NAME}` is.
const TAIL: usize = 20;

impl OnboardingFile {
    /// What is written, for a workspace and somebody's credentials.
    pub fn text(&self, cwd: &str, credential: impl Fn(&str) -> Option<String>) -> String {
        let quoted = serde_json::Value::from(cwd).to_string();
        let mut text = self.content.replace("{workspace}", &quoted);
        while let Some((before, rest)) = text.split_once("{tail:") {
            let Some((name, after)) = rest.split_once('}') else { break };
            let value = credential(name).unwrap_or_default();
            let begin = value.char_indices().rev().nth(TAIL - 1).map_or(0, |(at, _)| at);
            let tail = serde_json::Value::from(value.get(begin..).unwrap_or_default()).to_string();
            text = format!("{before}{}{after}", tail.trim_matches('"'));
        }
        text
    }
}

/// What the screen of an agent without a protocol looks like.
#[derive(Debug, Clone)]
pub struct Screen {
    /// It takes a message now.
    pub prompt: Regex,
    pub busy: Option<Regex>,
    /// The window's title while it works, and while it doesn't.
    pub busy_title: Option<Regex>,
    pub idle_title: Option<Regex>,
    /// The answer is over.
    pub end: Option<Regex>,
    /// What may stand before the echo of what was typed.
    pub echo: Vec<String>,
    /// Stands before an answer.
    pub answer: String,
    /// Lines that are no part of an answer.
    pub noise: Vec<Regex>,
    /// The first that matches is what is asked.
    pub permissions: Vec<ScreenPermission>,
    /// Where a hook of its own leaves what its model wrote.
    pub hook: Option<Hook>,
    /// The keys that end a turn early.
    pub interrupt: String,
    pub columns: u16,
    pub rows: u16,
    /// Whether a message is given as a bracketed paste.
    pub paste: bool,
}

/// A file to which an agent's own hook adds a line of JSON at the end of each turn: the screen shows what was rendered,
/// this is what was written. Places are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Below its home.
    pub file: String,
    /// Where the answer is.
    pub text: String,
    /// Where the message is that it answers, as a text or as the last of a list; without it any line is of this turn.
    pub message: Option<String>,
    /// Where its own name for the conversation is.
    pub id: Option<String>,
}

#[derive(Debug, Clone)]
pub struct ScreenPermission {
    pub pattern: Regex,
    pub kind: String,
    pub allow: String,
    pub deny: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0}")]
    Syntax(String),
    #[error("agent `{name}`: {what}")]
    Invalid { name: String, what: String },
}

/// Agents by name.
#[derive(Debug, Clone, Default)]
pub struct Specs(BTreeMap<String, Spec>);

impl Specs {
    /// Those that are built in.
    pub fn built_in() -> Self {
        // A test reads it; one that can't be read would have no agents.
        Self::parse(include_str!("spec/builtin.toml")).unwrap_or_default()
    }

    /// Tables `[NAME]`, one for each agent.
    pub fn parse(toml: &str) -> Result<Self, SpecError> {
        let table: toml::Table = toml.parse().map_err(|error| SpecError::Syntax(format!("{error}")))?;
        let mut specs = Self::default();
        specs.extend(&table)?;
        Ok(specs)
    }

    /// Adds agents, or changes what is said of those that are there: what a table doesn't name stays as it was.
    pub fn extend(&mut self, tables: &toml::Table) -> Result<(), SpecError> {
        let built_in: toml::Table = include_str!("spec/builtin.toml").parse().unwrap_or_default();
        for (name, table) in tables {
            let invalid = |what: String| SpecError::Invalid { name: name.clone(), what };
            let mut whole = match built_in.get(name).filter(|_| self.0.contains_key(name)) {
                Some(toml::Value::Table(before)) => before.clone(),
                Some(_) | None => toml::Table::new(),
            };
            let Some(table) = table.as_table() else { return Err(invalid("it is a table".to_owned())) };
            whole.extend(table.clone());
            let raw: Raw = whole.try_into().map_err(|error: toml::de::Error| invalid(error.message().to_owned()))?;
            self.0.insert(name.clone(), raw.check(name).map_err(invalid)?);
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Spec> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Spec> {
        self.0.values()
    }
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: Option<String>,
    command: Vec<String>,
    transport: String,
    dialect: Option<String>,
    #[serde(default)]
    model_args: Vec<String>,
    #[serde(default)]
    set_model: bool,
    #[serde(default)]
    resume: bool,
    #[serde(default)]
    resume_args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    unset: Vec<String>,
    #[serde(default)]
    credential_vars: Vec<String>,
    #[serde(default)]
    credential_files: Vec<String>,
    #[serde(default)]
    renews: Vec<String>,
    asks: Option<bool>,
    #[serde(default)]
    files: Vec<OnboardingFile>,
    #[serde(default)]
    install: String,
    #[serde(default)]
    version_args: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    screen: Option<RawScreen>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScreen {
    prompt: String,
    busy: Option<String>,
    busy_title: Option<String>,
    idle_title: Option<String>,
    end: Option<String>,
    echo: Option<Words>,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    noise: Vec<String>,
    permission: Option<OneOrMore>,
    hook: Option<Hook>,
    interrupt: Option<String>,
    columns: Option<u16>,
    rows: Option<u16>,
    paste: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`screen.echo` is a text, or a list of texts")]
enum Words {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`screen.permission` is `{ pattern, allow, deny, kind }`, or a list of such")]
enum OneOrMore {
    One(RawPermission),
    More(Vec<RawPermission>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPermission {
    pattern: String,
    kind: Option<String>,
    allow: String,
    deny: String,
}

impl Raw {
    fn check(self, name: &str) -> Result<Spec, String> {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(word) {
            return Err("a name is 1 to 64 lower-case letters, digits, `-` and `_`".to_owned());
        }
        if self.command.first().is_none_or(String::is_empty) {
            return Err("`command` names no program".to_owned());
        }
        let transport = match (self.transport.as_str(), self.dialect.as_deref()) {
            ("acp", None) => Transport::Acp,
            ("jsonl", Some("codex")) => Transport::Codex,
            ("jsonl", Some("claude")) => Transport::Claude,
            ("jsonl", _) => return Err("`dialect` of transport `jsonl` is `codex` or `claude`".to_owned()),
            ("pty", None) => Transport::Pty,
            ("acp" | "pty", Some(_)) => return Err("only transport `jsonl` has a `dialect`".to_owned()),
            (other, _) => return Err(format!("`transport` is `acp`, `jsonl` or `pty`, not `{other}`")),
        };
        let resume = match (self.resume, self.resume_args.is_empty()) {
            (false, true) => Resume::No,
            (true, true) if transport == Transport::Pty => {
                return Err("a terminal is resumed by `resume_args`".to_owned());
            }
            (_, false) if transport == Transport::Pty && self.screen.as_ref().is_none_or(RawScreen::has_no_id) => {
                return Err(
                    "`resume_args` of a terminal need `screen.hook.id`: where its own name for the conversation \
                            is found"
                        .to_owned(),
                );
            }
            (true, true) => Resume::Message,
            (_, false) if !self.resume_args.iter().any(|word| word.contains("{id}")) => {
                return Err("`resume_args` say nowhere what is resumed: `{id}`".to_owned());
            }
            (_, false) => Resume::Arguments(self.resume_args),
        };
        if !self.model_args.is_empty() && !self.model_args.iter().any(|word| word.contains("{model}")) {
            return Err("`model_args` say nowhere which model: `{model}`".to_owned());
        }
        if let Some(path) = self.renews.iter().find(|path| !self.credential_files.contains(path)) {
            return Err(format!("`renews` has `{path}`, which is not in `credential_files`"));
        }
        let hook = self.screen.as_ref().and_then(|screen| screen.hook.as_ref()).map(|hook| &hook.file);
        let paths = self.credential_files.iter().chain(self.files.iter().map(|file| &file.path)).chain(hook);
        for path in paths {
            let inside = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
            if !inside || path.contains('\0') {
                return Err(format!("`{path}` is not a path below a home"));
            }
        }
        let variables = self.env.keys().chain(&self.unset).chain(&self.credential_vars);
        for variable in variables {
            let mut letters = variable.chars();
            let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if !first || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("`{variable}` can't be the name of a variable"));
            }
        }
        let screen = match (transport, self.screen) {
            (Transport::Pty, None) => return Err("transport `pty` needs a `screen`: how it looks".to_owned()),
            (Transport::Pty, Some(screen)) => Some(screen.check()?),
            (Transport::Acp | Transport::Codex | Transport::Claude, None) => None,
            (Transport::Acp | Transport::Codex | Transport::Claude, Some(_)) => {
                return Err("only transport `pty` has a `screen`".to_owned());
            }
        };
        Ok(Spec {
            name: name.to_owned(),
            title: self.title.unwrap_or_else(|| name.to_owned()),
            command: self.command,
            model_args: self.model_args,
            set_model: self.set_model,
            transport,
            resume,
            env: self.env,
            unset: self.unset,
            credential_vars: self.credential_vars,
            credential_files: self.credential_files,
            renews: self.renews,
            asks: self.asks.unwrap_or(true),
            files: self.files,
            install: self.install,
            version_args: self.version_args,
            models: self.models,
            screen,
        })
    }
}

impl RawScreen {
    fn has_no_id(&self) -> bool {
        self.hook.as_ref().is_none_or(|hook| hook.id.is_none())
    }

    fn check(self) -> Result<Screen, String> {
        let pattern = |name: &str, text: &str| {
            let built = regex::RegexBuilder::new(text).multi_line(true).size_limit(1 << 20).build();
            built.map_err(|error| format!("`screen.{name}` is no pattern: {error}"))
        };
        let maybe = |name: &str, text: Option<String>| text.map(|text| pattern(name, &text)).transpose();
        let asked = match self.permission {
            Some(OneOrMore::One(raw)) => vec![raw],
            Some(OneOrMore::More(all)) => all,
            None => Vec::new(),
        };
        let mut permissions = Vec::new();
        for raw in asked {
            let kind = raw.kind.unwrap_or_else(|| "other".to_owned());
            if !KINDS.contains(&kind.as_str()) {
                return Err(format!("`screen.permission.kind` is one of {}, not `{kind}`", KINDS.join(", ")));
            }
            let pattern = pattern("permission.pattern", &raw.pattern)?;
            permissions.push(ScreenPermission { pattern, kind, allow: raw.allow, deny: raw.deny });
        }
        if let Some(hook) = &self.hook {
            let places = [Some(&hook.text), hook.message.as_ref(), hook.id.as_ref()];
            if let Some(place) = places.into_iter().flatten().find(|place| !place.starts_with('/')) {
                return Err(format!("`screen.hook`: `{place}` is no JSON pointer, as `/text` is one"));
            }
        }
        Ok(Screen {
            prompt: pattern("prompt", &self.prompt)?,
            busy: maybe("busy", self.busy)?,
            busy_title: maybe("busy_title", self.busy_title)?,
            idle_title: maybe("idle_title", self.idle_title)?,
            end: maybe("end", self.end)?,
            echo: match self.echo {
                Some(Words::One(word)) => vec![word],
                Some(Words::More(words)) => words,
                None => vec![String::new()],
            },
            answer: self.answer,
            noise: self.noise.iter().map(|text| pattern("noise", text)).collect::<Result<_, _>>()?,
            permissions,
            hook: self.hook,
            interrupt: self.interrupt.unwrap_or_else(|| "\u{3}".to_owned()),
            columns: self.columns.unwrap_or(200).clamp(10, 500),
            rows: self.rows.unwrap_or(200).clamp(4, 200),
            paste: self.paste.unwrap_or(true),
        })
    }
}

impl Spec {
    /// The words of the command that starts it in a workspace.
    pub fn words(&self, cwd: &str, model: Option<&str>, resume: Option<&str>) -> Vec<String> {
        let quoted = serde_json::Value::from(cwd).to_string();
        let mut words: Vec<_> = self.command.iter().map(|word| word.replace("{workspace}", &quoted)).collect();
        if let Some(model) = model {
            words.extend(self.model_args.iter().map(|word| word.replace("{model}", model)));
        }
        if let (Resume::Arguments(arguments), Some(id)) = (&self.resume, resume) {
            words.extend(arguments.iter().map(|word| word.replace("{id}", id)));
        }
        words
    }

    /// Whether a model can be asked for at all.
    pub fn takes_model(&self) -> bool {
        self.set_model || !self.model_args.is_empty() || self.transport == Transport::Codex
    }
}

#[cfg(test)]
mod tests;
