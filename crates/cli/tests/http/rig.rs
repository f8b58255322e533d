//! A real server in a directory of its own, and a client that sees everything it says.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For whatever a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Rig {
    /// Dropped last: everything lies in it.
    pub(crate) dir: TempDir,
    pub(crate) server: Option<Child>,
    pub(crate) url: String,
    pub(crate) token: String,
    agent: ureq::Agent,
    flags: Vec<String>,
    /// Variables for the server.
    pub(crate) variables: Vec<(String, String)>,
    listen: String,
    pub(crate) program: PathBuf,
    /// Whom the server runs as, and with which group; absent: whoever runs the tests.
    pub(crate) user: Option<(u32, u32)>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The code of an error that must be one, in the one shape that errors have.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        let error = &body["error"];
        assert!(error["message"].is_string() && error["retryable"].is_boolean(), "{} {body}", self.status);
        error["code"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    /// An error of this status and code.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.json());
        self.json()["error"].clone()
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.status, status, "{text}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With more flags for `stead serve`.
    pub(crate) fn with(flags: &[&str]) -> Self {
        Self::with_config("", flags)
    }

    pub(crate) fn with_config(config: &str, flags: &[&str]) -> Self {
        Self::with_all(config, flags, &[])
    }

    /// With settings, flags and variables.
    pub(crate) fn with_all(config: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut rig = Self::prepare(config, flags, variables);
        rig.start();
        rig
    }

    /// Everything but the server.
    pub(crate) fn prepare(config: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("stead-http-").tempdir().unwrap();
        std::fs::write(dir.path().join("stead.toml"), config).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (url, token, listen) = (String::new(), String::new(), "127.0.0.1:0".to_owned());
        let program = PathBuf::from(env!("CARGO_BIN_EXE_stead"));
        Self { dir, server: None, url, token, agent, flags, variables, listen, program, user: None }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn stead(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.dir.path()).env_clear();
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.env("HOME", self.dir.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("STEAD_DATA", self.data());
        command
    }

    /// Starts a server and waits until it says where it is.
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = self.stead();
        command.args(["serve", "--listen", &self.listen]).args(&self.flags);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut server = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.server = Some(server);
        let address = line.trim().split(' ').next_back().unwrap_or_default();
        let Some((url, token)) = address.split_once("/?token=") else {
            panic!("it said `{line}`, and in its log:\n{}", self.log());
        };
        (self.url, self.token) = (url.to_owned(), token.to_owned());
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// From now on each start listens where the last one did.
    pub(crate) fn stay(&mut self) {
        self.listen = self.address().to_owned();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// SIGTERM, and its end.
    pub(crate) fn terminate(&mut self) -> std::process::ExitStatus {
        let mut server = self.server.take().unwrap();
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        server.wait().unwrap()
    }

    /// An empty database in the place of its own, as if no server had ever known anything.
    pub(crate) fn forget_everything(&self) {
        let mut fresh = Self::new();
        assert!(fresh.terminate().success());
        for suffix in ["-wal", "-shm", "-sums"] {
            let _ = std::fs::remove_file(self.data().join(format!("stead.db{suffix}")));
        }
        std::fs::copy(fresh.data().join("stead.db"), self.data().join("stead.db")).unwrap();
    }

    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        self.call_as(method, path, &all, body)
    }

    /// Without a token of our own.
    pub(crate) fn call_as(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let response = self.open(method, path, headers, body);
        let (parts, mut reader) = response.into_parts();
        let mut bytes = Vec::new();
        reader.as_reader().read_to_end(&mut bytes).unwrap();
        let header = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Answer { status: parts.status.as_u16(), headers: parts.headers.iter().map(header).collect(), body: bytes }
    }

    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> ureq::http::Response<ureq::Body> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.agent.run(request.body(body.to_vec()).unwrap()).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &[], b"")
    }

    /// The server's own memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.as_ref().unwrap().id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Runs a command in a thread and waits for it.
    #[track_caller]
    pub(crate) fn exec(&self, thread: &str, command: &str) -> Value {
        self.post(&format!("/api/threads/{thread}/exec"), &json!({ "command": command })).is(200)
    }

    /// The events of a stream, as they come.
    pub(crate) fn events(&self, method: &str, path: &str, body: &Value) -> Events {
        let bearer = format!("Bearer {}", self.token);
        let headers =
            [("authorization", bearer.as_str()), ("accept", "text/event-stream"), ("content-type", "application/json")];
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.open(method, path, &headers, &body);
        assert_eq!(response.status(), 200);
        Events { lines: BufReader::new(Box::new(response.into_body().into_reader())) }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- the server's log:\n{}", self.log());
        }
        if self.server.is_none() {
            self.start();
        }
        // Shells outlive their server: they end with their threads.
        let threads = self.get("/api/threads?limit=1000").json();
        for thread in threads["items"].as_array().into_iter().flatten() {
            let id = thread["id"].as_str().unwrap_or_default();
            self.call("DELETE", &format!("/api/threads/{id}"), &[], b"");
        }
        self.terminate();
    }
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sse {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

pub(crate) struct Events {
    lines: BufReader<Box<dyn Read + Send>>,
}

impl Iterator for Events {
    type Item = Sse;

    fn next(&mut self) -> Option<Sse> {
        let mut event = Sse { id: None, event: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(": ") {
                _ if line.is_empty() && event.event.is_empty() => {}
                _ if line.is_empty() => return Some(event),
                Some(("id", id)) => event.id = id.parse().ok(),
                Some(("event", name)) => name.clone_into(&mut event.event),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ => assert!(line.starts_with(':'), "{line}"),
            }
        }
    }
}

/// How much of something: fewer with `STEAD_STRESS=quick`, more with a factor there.
pub(crate) fn rounds(usual: u32) -> u32 {
    match std::env::var("STEAD_STRESS").as_deref() {
        Ok("quick") => usual.div_ceil(8),
        Ok(factor) => usual * factor.parse().unwrap_or(1),
        Err(_) => usual,
    }
}

/// The names of an object's fields, in order.
#[track_caller]
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// `2026-01-02T03:04:05.678Z`.
#[track_caller]
pub(crate) fn is_time(value: &Value) {
    let shape: String = value.as_str().unwrap_or_else(|| panic!("{value}")).replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{value}");
}

/// Looks until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "no {what} in {PATIENCE:?}");
        let _ = rustix::event::poll(&mut [], Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
    }
}
