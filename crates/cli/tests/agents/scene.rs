//! A server with an agent, a model for the agent to speak with, and somebody who speaks with the agent.

use crate::model::Model;
use crate::rig::{PATIENCE, Rig};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// A function of a scene as a test for each agent. Those of two agents are quick enough for every day.
macro_rules! with_each_agent {
    ($($test:ident),* $(,)?) => {
        $crate::scene::with_each_agent!(codex = crate::scene::CODEX: $($test),*);
        $crate::scene::with_each_agent!(claude = crate::scene::CLAUDE: $($test),*);
        $crate::scene::with_each_agent!(gemini = crate::scene::GEMINI: $($test),*);
        $crate::scene::with_each_agent!(auggie = crate::scene::AUGGIE: $($test),*);
        $crate::scene::with_each_agent!(opencode = crate::scene::OPENCODE: $($test),*);
    };
    ($agent:ident = $package:path: $($test:ident),*) => {
        mod $agent {
            $(#[test]
            #[ignore = "needs the agents: `cargo xtask test --agents`"]
            fn $test() {
                super::$test($package);
            })*
        }
    };
}
pub(crate) use with_each_agent;

/// What is tested against, exactly.
pub(crate) const CODEX: &str = "codex-0.166.0";
pub(crate) const CLAUDE: &str = "claude-2.1.325";
pub(crate) const GEMINI: &str = "gemini-0.61.0";
pub(crate) const AUGGIE: &str = "auggie-0.36.0";
pub(crate) const OPENCODE: &str = "opencode-1.18.33";

pub(crate) struct Scene {
    pub(crate) rig: Rig,
    pub(crate) model: Model,
    pub(crate) agent: String,
}

/// Where `cargo xtask agents` puts them.
pub(crate) fn installed(package: &str) -> PathBuf {
    let cache = std::env::var_os("STEAD_AGENTS_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/stead/agents"))).unwrap();
    let name = package.split('-').next().unwrap();
    let program = cache.join(package).join("node_modules/.bin").join(name);
    assert!(program.exists(), "`{}` is not there; install it with `cargo xtask agents`", program.display());
    program
}

impl Scene {
    pub(crate) fn new(package: &str) -> Self {
        Self::with(package, "")
    }

    /// With more settings.
    pub(crate) fn with(package: &str, settings: &str) -> Self {
        let model = Model::start();
        Self::on(model, &[package], settings)
    }

    /// With two agents; the first is the one that is spoken to.
    pub(crate) fn both(package: &str, other: &str) -> Self {
        Self::on(Model::start(), &[package, other], "")
    }

    /// With an agent that is described in the settings and needs no model.
    pub(crate) fn plain(agent: &str, settings: &str) -> Self {
        let rig = Rig::with_all(settings, &[], &[]);
        Self { rig, model: Model::start(), agent: agent.to_owned() }
    }

    /// The same for a server that looks for programs elsewhere.
    pub(crate) fn with_path(agent: &str, settings: &str, path: &str) -> Self {
        let rig = Rig::with_all(settings, &[], &[("PATH", path)]);
        Self { rig, model: Model::start(), agent: agent.to_owned() }
    }

    /// With an agent as it is built in, found where its package has it; and the same one on its other route.
    pub(crate) fn tui(agent: &str, package: &str, settings: &str) -> Self {
        let model = Model::start();
        let other = package.split('-').next().unwrap();
        let own = recipe(other, &model);
        let names: Vec<_> = own.variables.iter().map(|(name, _)| *name).collect();
        let mut config = settings.to_owned();
        for name in [agent, other] {
            write!(config, "\n[agent.{name}]\ncredential_vars = {}\n", json!(names)).unwrap();
        }
        let bin = installed(package).parent().unwrap().display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        let mut variables: Vec<_> = own.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        variables.push(("PATH", &path));
        let rig = Rig::with_all(&config, &[], &variables);
        for (path, content) in &own.files {
            let path = rig.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self { rig, model, agent: agent.to_owned() }
    }

    fn on(model: Model, packages: &[&str], settings: &str) -> Self {
        let (mut config, mut variables, mut files) = (settings.to_owned(), Vec::new(), Vec::new());
        for package in packages {
            let agent = package.split('-').next().unwrap();
            let own = recipe(agent, &model);
            let mut command: Vec<String> = vec![installed(package).display().to_string()];
            command.extend(own.arguments.iter().map(|word| (*word).to_owned()));
            let names: Vec<_> = own.variables.iter().map(|(name, _)| *name).collect();
            let (command, names) = (json!(command), json!(names));
            write!(config, "\n[agent.{agent}]\ncommand = {command}\ncredential_vars = {names}\n").unwrap();
            variables.extend(own.variables);
            files.extend(own.files);
        }
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let rig = Rig::with_all(&config, &[], &variables);
        for (path, content) in &files {
            let path = rig.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self { rig, model, agent: packages[0].split('-').next().unwrap().to_owned() }
    }

    /// With a server that waits for its agents only for a short time. Not from the beginning: some take longer to start.
    pub(crate) fn impatiently<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        let file = self.rig.dir.path().join("stead.toml");
        let patient = std::fs::read_to_string(&file).unwrap();
        self.rig.kill();
        std::fs::write(&file, format!("[agents]\nactivity_timeout_s = 4\n{patient}")).unwrap();
        self.rig.start();
        let done = work(self);
        self.rig.kill();
        std::fs::write(&file, patient).unwrap();
        self.rig.start();
        done
    }

    pub(crate) fn chat(&self, body: Value) -> Stream {
        let mut whole = json!({"provider": self.agent});
        if body.get("thread_id").is_none() && body.get("workspace").is_none() && body.get("project_id").is_none() {
            self.thread("t");
            whole["thread_id"] = json!("t");
        }
        for (name, value) in body.as_object().unwrap() {
            whole[name] = value.clone();
        }
        self.stream("POST", "/api/chat", &whole)
    }

    /// One message from its beginning to its end.
    pub(crate) fn say(&self, message: &str) -> Vec<Told> {
        self.chat(json!({"message": message})).rest()
    }

    pub(crate) fn thread(&self, id: &str) {
        let made = self.rig.post("/api/threads", &json!({"id": id}));
        assert!(made.status == 201 || made.code() == "already_exists", "{}", made.json());
    }

    pub(crate) fn replay(&self, run: &str, after: u64) -> Stream {
        self.stream("GET", &format!("/api/chat/runs/{run}/events?after={after}"), &Value::Null)
    }

    fn stream(&self, method: &str, path: &str, body: &Value) -> Stream {
        let bearer = format!("Bearer {}", self.rig.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.open(method, path, &headers, &body);
        let status = response.status().as_u16();
        let run = response.headers().get("stead-run").map(|run| run.to_str().unwrap().to_owned());
        let (tell, told) = channel();
        let reader = BufReader::new(response.into_body().into_reader());
        if status != 200 {
            let text: String = reader.lines().map_while(Result::ok).collect();
            return Stream { status, run, told, error: serde_json::from_str(&text).unwrap_or_default() };
        }
        std::thread::spawn(move || {
            let mut event = Told::default();
            for line in reader.lines().map_while(Result::ok) {
                if let Some(id) = line.strip_prefix("id: ") {
                    event.seq = id.parse().unwrap();
                } else if let Some(name) = line.strip_prefix("event: ") {
                    name.clone_into(&mut event.name);
                } else if let Some(data) = line.strip_prefix("data: ") {
                    event.data = serde_json::from_str(data).unwrap();
                } else if line.is_empty() && !event.name.is_empty() && tell.send(std::mem::take(&mut event)).is_err() {
                    return;
                }
            }
        });
        Stream { status, run, told, error: Value::Null }
    }

    /// An answer that may take any time.
    fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> ureq::http::Response<ureq::Body> {
        let endless: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.rig.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        endless.run(request.body(body.to_vec()).unwrap()).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn sessions(&self) -> Vec<Value> {
        self.rig.get("/api/chat/sessions").is(200)["items"].as_array().unwrap().clone()
    }

    /// Processes that carry the mark of a session of this server.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let ours: Vec<String> =
            self.sessions().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
        marked(&ours)
    }
}

pub(crate) fn marked(sessions: &[String]) -> Vec<i32> {
    stead_term::proc::with_variable("STEAD_AGENT_PROCESS", &|mark| {
        sessions.iter().any(|session| mark.starts_with(session.as_str()))
    })
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) seq: u64,
    pub(crate) name: String,
    pub(crate) data: Value,
}

pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) run: Option<String>,
    told: Receiver<Told>,
    pub(crate) error: Value,
}

impl Stream {
    #[track_caller]
    pub(crate) fn next(&self) -> Told {
        assert_eq!(self.status, 200, "{}", self.error);
        self.told.recv_timeout(PATIENCE).expect("another event")
    }

    /// Events up to the first of this name.
    #[track_caller]
    pub(crate) fn until(&self, name: &str) -> Vec<Told> {
        let mut all = Vec::new();
        loop {
            let event = self.next();
            let last = ["done", "error", "aborted"].contains(&event.name.as_str());
            let found = event.name == name;
            all.push(event);
            assert!(found || !last, "no `{name}` in {all:#?}");
            if found {
                return all;
            }
        }
    }

    /// All that is left, to the end of the stream.
    #[track_caller]
    pub(crate) fn rest(&self) -> Vec<Told> {
        assert_eq!(self.status, 200, "{}", self.error);
        let (begun, mut all) = (Instant::now(), Vec::new());
        while let Ok(event) = self.told.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            all.push(event);
        }
        all
    }

    pub(crate) fn run(&self) -> String {
        self.run.clone().expect("a run")
    }
}

/// What was said, piece by piece.
pub(crate) fn said(events: &[Told]) -> String {
    events.iter().filter(|event| event.name == "delta").map(|event| event.data["text"].as_str().unwrap()).collect()
}

pub(crate) fn names(events: &[Told]) -> Vec<&str> {
    let mut names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    names.dedup();
    names
}

#[track_caller]
pub(crate) fn last<'a>(events: &'a [Told], name: &str) -> &'a Value {
    let last = events.last().expect("some event");
    assert_eq!(last.name, name, "{events:#?}");
    let ends = events.iter().filter(|event| ["done", "error", "aborted"].contains(&event.name.as_str())).count();
    assert_eq!(ends, 1, "{events:#?}");
    let numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>(), "numbers have no holes");
    &last.data
}

pub(crate) fn resumed(events: &[Told]) -> bool {
    let start = events.iter().find(|event| event.name == "start").unwrap_or_else(|| panic!("no start: {events:#?}"));
    start.data["resumed"].as_bool().unwrap()
}

/// Names and what they have.
pub(crate) type Pairs = Vec<(&'static str, String)>;

/// An agent's program, variables and files, for whoever runs it without us.
pub(crate) fn direct(package: &str, model: &Model) -> (PathBuf, Pairs, Pairs) {
    let own = recipe(package.split('-').next().unwrap(), model);
    (installed(package), own.variables, own.files)
}

struct Recipe {
    arguments: Vec<&'static str>,
    variables: Vec<(&'static str, String)>,
    files: Vec<(&'static str, String)>,
}

/// What makes an agent speak with our model, and ask nobody anything.
fn recipe(agent: &str, model: &Model) -> Recipe {
    let port = model.port;
    let base = format!("http://127.0.0.1:{port}");
    match agent {
        "codex" => Recipe {
            arguments: vec!["app-server"],
            variables: vec![("MOCK_API_KEY", "dummy".to_owned())],
            files: vec![(
                ".codex/config.toml",
                format!(
                    "model = \"mock-model\"\nmodel_provider = \"mock\"\ncheck_for_update_on_startup = false\n\
                     [model_providers.mock]\nname = \"mock\"\nbase_url = \"{base}/v1\"\nwire_api = \"responses\"\n\
                     env_key = \"MOCK_API_KEY\"\n[analytics]\nenabled = false\n"
                ),
            )],
        },
        "claude" => Recipe {
            arguments: vec![
                "-p",
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
                "--verbose",
                "--include-partial-messages",
                "--permission-prompt-tool",
                "stdio",
                "--permission-mode",
                "default",
            ],
            variables: vec![
                ("ANTHROPIC_BASE_URL", base),
                ("ANTHROPIC_API_KEY", "sk-ant-dummy-000000000000".to_owned()),
            ],
            files: vec![],
        },
        "gemini" => Recipe {
            arguments: vec!["--acp"],
            variables: vec![("GEMINI_API_KEY", "dummy".to_owned()), ("GOOGLE_GEMINI_BASE_URL", base)],
            files: vec![],
        },
        "auggie" => Recipe {
            arguments: vec!["--acp"],
            variables: vec![(
                "AUGMENT_SESSION_AUTH",
                json!({"accessToken": "dummy", "tenantURL": format!("{base}/"), "scopes": ["read", "write"]})
                    .to_string(),
            )],
            files: vec![],
        },
        "opencode" => Recipe {
            arguments: vec!["acp"],
            variables: vec![],
            files: vec![(
                ".config/opencode/opencode.json",
                json!({"model": "mock/mock-model", "small_model": "mock/mock-model", "autoupdate": false,
                    "share": "disabled", "permission": {"bash": "ask"}, "provider": {"mock": {
                    "npm": "@ai-sdk/openai-compatible", "name": "Mock",
                    "options": {"baseURL": format!("{base}/v1"), "apiKey": "dummy"},
                    "models": {"mock-model": {"name": "Mock model", "tool_call": true,
                        "limit": {"context": 100_000, "output": 4096}}}}}})
                .to_string(),
            )],
        },
        other => panic!("no recipe for {other}"),
    }
}
