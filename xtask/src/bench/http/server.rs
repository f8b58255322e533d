//! `stead serve` as anybody would start it, over a directory of its own.

use super::client::{Client, Door};
use crate::failed::{Failed, Result, While};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(in crate::bench) struct Server {
    child: Child,
    pub(in crate::bench) tcp: Door,
    pub(in crate::bench) socket: Door,
    token: String,
}

impl Server {
    /// `variables`: what it finds in its environment beside the least.
    pub(in crate::bench) fn start(
        stead: &Path,
        scratch: &Path,
        text: &str,
        variables: &[(&str, &Path)],
    ) -> Result<Self> {
        let (config, data) = (scratch.join("stead.toml"), scratch.join("data"));
        fs::write(&config, text).or_failed("can't write the configuration")?;
        let log = fs::File::create(scratch.join("log")).or_failed("can't make a log")?;
        let mut command = Command::new(stead);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).arg("--config").arg(&config);
        command.current_dir(scratch).env_clear().env("HOME", scratch).envs(variables.iter().copied());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().or_failed("can't start `stead serve`")?;
        let mut line = String::new();
        let said = child.stdout.take().or_failed("the server has no output")?;
        BufReader::new(said).read_line(&mut line).or_failed("the server says nothing")?;
        let place = line.trim().split_once("http://").and_then(|(_, rest)| rest.split_once("/?token="));
        let (address, token) = place.or_failed(format!("the server said `{line}`, not where it is"))?;
        let tcp = Door::Tcp(address.parse().or_failed(format!("`{address}` is no address"))?);
        Ok(Self { child, tcp, socket: Door::Socket(socket_of(&data)), token: token.to_owned() })
    }

    /// A connection over either door; only one of them asks for the token.
    pub(in crate::bench) fn client(&self, door: &Door) -> Result<Client> {
        Client::connect(door, matches!(door, Door::Tcp(_)).then_some(self.token.as_str()))
    }

    pub(in crate::bench) fn make_thread(&self, id: &str, provider: &str) -> Result {
        let thread = json!({ "id": id, "provider": provider });
        self.client(&self.socket)?.send_json("POST /api/threads", &thread).map(drop)
    }

    pub(in crate::bench) fn remove_thread(&self, id: &str) -> Result {
        let mut client = self.client(&self.socket)?;
        let request = client.prepare(&format!("DELETE /api/threads/{id}"), "", b"");
        client.call(&request, &mut |_| {})
    }

    /// Whom a thread gets that names nobody.
    pub(in crate::bench) fn default_provider(&self) -> Result<String> {
        let made = self.client(&self.socket)?.send_json("POST /api/threads", &json!({ "id": "first" }))?;
        let provider = made.get("provider").and_then(|name| name.as_str()).or_failed("a thread without a provider")?;
        self.remove_thread("first")?;
        Ok(provider.to_owned())
    }

    /// Ends it and all it has started.
    pub(in crate::bench) fn stop(mut self) -> Result {
        self.terminate();
        let status = self.child.wait().or_failed("can't wait for the server")?;
        if status.success() { Ok(()) } else { Err(Failed::new(format!("the server failed ({status})"))) }
    }

    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn socket_of(data: &Path) -> PathBuf {
    data.join("stead.sock")
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
            let _ = self.child.wait();
        }
    }
}
