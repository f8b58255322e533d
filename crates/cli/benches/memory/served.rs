//! The same by way of the real server, over its socket, one request at a time.

use crate::rounds::{Rounds, Subject};
use crate::{FILES, Result, VALUE, name};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn call(&mut self, line: &str, body: &[u8]) -> Result<Vec<u8>> {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let (mut length, mut first, mut text) = (0, String::new(), String::new());
        self.0.read_line(&mut first)?;
        loop {
            text.clear();
            self.0.read_line(&mut text)?;
            if text == "\r\n" || text.is_empty() {
                break;
            }
            if let Some(value) = text.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        if first.contains(" 20") { Ok(answer) } else { Err(format!("{line}: {first}").into()) }
    }
}

pub(crate) fn measure(scratch: &Path, rounds: usize) -> Result {
    let data = scratch.join("data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).current_dir(scratch);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let said = child.stdout.take().ok_or("no output")?;
    let _server = Server(child);
    BufReader::new(said).read_line(&mut String::new())?;
    let mut client = Client(BufReader::new(UnixStream::connect(data.join("stead.sock"))?));
    let made: serde_json::Value =
        serde_json::from_slice(&client.call("POST /api/projects", b"{\"prefix\":\"bench\"}")?)?;
    let id = made.get("id").and_then(|id| id.as_str()).ok_or("a project without an id")?.to_owned();
    let opened: serde_json::Value =
        serde_json::from_slice(&client.call(&format!("POST /api/projects/{id}/sessions"), b"{}")?)?;
    let session = opened.get("id").and_then(|id| id.as_str()).ok_or("a session without an id")?;
    // What is kept for a session is asked for in its name.
    let (hot, persistent, state) = (
        ("memories/hot", String::new()),
        ("memories/persistent", String::new()),
        ("tmp", format!("?session_id={session}")),
    );
    let value = vec![b'x'; VALUE];
    for number in 0..FILES {
        for (base, query) in [&hot, &persistent, &state] {
            client.call(&format!("PUT /api/projects/{id}/fs/{base}/{}{query}", name(number)), &value)?;
        }
    }
    let client = RefCell::new(client);
    let ask = |method: &'static str, (base, query): &(&'static str, String), body: &[u8]| {
        let (client, start, query, body) =
            (&client, format!("{method} /api/projects/{id}/fs/{base}"), query.clone(), body.to_vec());
        move |n: usize| {
            let line = format!("{start}/{}{query}", name(n));
            client.borrow_mut().call(&line, &body).map(|body| Some(body.len()))
        }
    };
    let version = |_: usize| client.borrow_mut().call("GET /api/version", b"").map(|body| Some(body.len()));
    let subjects = vec![
        Subject::new("`GET /api/version`: a request that does nothing", 200, version),
        Subject::new("**ours**, `GET` hot", 200, ask("GET", &hot, b"")),
        Subject::new("**ours**, `GET` state", 200, ask("GET", &state, b"")),
        Subject::new("**ours**, `GET` persistent", 200, ask("GET", &persistent, b"")),
        Subject::new("**ours**, `PUT` hot", 200, ask("PUT", &hot, &value)),
        Subject::new("**ours**, `PUT` state", 200, ask("PUT", &state, &value)),
        Subject::new("**ours**, `PUT` persistent", 50, ask("PUT", &persistent, &value)),
    ];
    Rounds { table: "http", rounds }.run(subjects)
}
