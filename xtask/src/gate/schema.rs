//! Does the server keep to its own description? Schemathesis asks it everything that can be asked, sensible and absurd,
//! and compares the answers. What it makes up is run in sandboxes without a network, in a data directory that is thrown
//! away.

use super::python;
use crate::cargo::{self, Workspace, line};
use crate::failed::{Failed, Result, While};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const VERSION: &str = "schemathesis==4.32.5";

/// How long it may ask.
const SECONDS: &str = "100";

const CHECKS: [&str; 6] = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
];

/// Bodies that are bytes.
const HOOKS: &str = include_str!("schemathesis.py");

const SETTINGS: &str = "\
[provider.namespace]
kind = \"namespace\"
network = \"none\"
on_exit = \"destroy\"

[provider.local]
kind = \"local\"
on_exit = \"destroy\"
";

pub(super) fn check(workspace: &Workspace) -> Result<String> {
    let program = python::provide(&workspace.target.join("schemathesis"), &[VERSION])?.join("bin/schemathesis");
    cargo::run(&mut workspace.cargo(&["build", "--quiet", "--package", "stead"]))?;
    let dir = tempfile::tempdir().or_failed("can't make a directory for the server")?;
    let server = Server::start(&workspace.target.join("debug/stead"), dir.path())?;
    let hooks = dir.path().join("hooks.py");
    std::fs::write(&hooks, HOOKS).or_failed("can't write the hooks")?;
    let mut ask = Command::new(program);
    ask.current_dir(dir.path()).env("SCHEMATHESIS_HOOKS", &hooks);
    ask.arg("run").arg(format!("{}/api/openapi.json", server.url));
    ask.args(["--header", &format!("Authorization: Bearer {}", server.token)]);
    ask.args(["--checks", &CHECKS.join(",")]);
    // A WebSocket is no matter of requests and answers.
    ask.args(["--exclude-path", "/api/threads/{id}/pty"]);
    ask.args(["--max-examples", "15", "--max-time", SECONDS, "--request-timeout", "30", "--workers", "1"]);
    // The same questions each time, as long as the description is the same.
    ask.args(["--seed", "1", "--continue-on-failure", "--warnings", "off", "--no-color"]);
    let said = ask.output().or_failed(format!("can't run `{}`", line(&ask)))?;
    let said_text = String::from_utf8_lossy(&said.stdout);
    if !said.status.success() {
        println!("{said_text}");
        return Err(Failed::new("the server doesn't keep to its description; what it was asked is above"));
    }
    let cases = said_text.lines().find(|line| line.contains(" generated")).unwrap_or("").trim();
    Ok(format!("the server keeps to its description: {cases}"))
}

struct Server {
    process: Child,
    url: String,
    token: String,
}

impl Server {
    fn start(program: &Path, dir: &Path) -> Result<Self> {
        std::fs::write(dir.join("stead.toml"), SETTINGS).or_failed("can't write the settings")?;
        let log = std::fs::File::create(dir.join("log")).or_failed("can't make the log")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.join("data")).current_dir(dir);
        let started = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut process = started.or_failed(format!("can't run `{}`", line(&command)))?;
        let mut said = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).or_failed("can't hear the server")?;
        }
        let place = said.trim().rsplit(' ').next().and_then(|place| place.split_once("/?token="));
        let (url, token) = place.map(|(url, token)| (url.to_owned(), token.to_owned())).unwrap_or_default();
        let server = Self { process, url, token };
        if server.token.is_empty() {
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            return Err(Failed::new(format!("the server didn't start: {said}{log}")));
        }
        Ok(server)
    }
}

impl Drop for Server {
    /// Asked to end, so that it takes its sandboxes with it.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}
