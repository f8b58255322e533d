//! One client of the server: a connection that stays open, and a thread with a warm shell.

use super::client::{Client, Door};
use super::crowd::Member;
use super::server::Server;
use crate::failed::{Failed, Result};
use serde_json::json;

/// Connections are made anew for each round: the server hangs up on who is silent for long, and others have their turn.
pub(in crate::bench) struct Ours<'a> {
    server: &'a Server,
    door: &'a Door,
    client: Client,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl<'a> Ours<'a> {
    /// `command` has to end well.
    pub(in crate::bench) fn new(server: &'a Server, door: &'a Door, thread: &str, command: &str) -> Result<Self> {
        let client = server.client(door)?;
        let line = format!("POST /api/threads/{thread}/exec");
        let body = json!({ "command": command }).to_string();
        let request = client.prepare(&line, "Content-Type: application/json\r\n", body.as_bytes());
        Ok(Self { server, door, client, request, answer: Vec::new() })
    }
}

impl Member for Ours<'_> {
    fn begin(&mut self) -> Result {
        self.client = self.server.client(self.door)?;
        Ok(())
    }

    fn once(&mut self) -> Result {
        let Self { client, request, answer, .. } = self;
        answer.clear();
        client.call(request, &mut |bytes| answer.extend_from_slice(bytes))?;
        let well = b"\"status\":\"exited\",\"exit_code\":0";
        if answer.windows(well.len()).any(|window| window == well) {
            return Ok(());
        }
        Err(Failed::new(format!("the command ended as {}", String::from_utf8_lossy(answer))))
    }
}

/// A question that costs nothing to answer: what is left is HTTP.
pub(super) struct Health<'a> {
    server: &'a Server,
    client: Client,
    request: Vec<u8>,
}

impl<'a> Health<'a> {
    pub(super) fn new(server: &'a Server) -> Result<Self> {
        let client = server.client(&server.tcp)?;
        let request = client.prepare("GET /healthz", "", b"");
        Ok(Self { server, client, request })
    }
}

impl Member for Health<'_> {
    fn begin(&mut self) -> Result {
        self.client = self.server.client(&self.server.tcp)?;
        Ok(())
    }

    fn once(&mut self) -> Result {
        self.client.call(&self.request, &mut |_| {})
    }
}
