//! The examples of `docs/protocol.md` are what this code says: each `hex` block there is a frame that is encoded here.
//!
//! A block names its frame (```` ```hex hello ````); what stands behind `;` on a line is a remark.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use stead_model::frame::{self, Chunk, Kind, Stream};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    At, CommandInfo, Credit, Ending, Event, Exec, Fault, FaultCode, Follow, Hello, OpenShell, Program, Reply, Request,
    ShellInfo, Status, Welcome,
};
use stead_model::shell::Dialect;
use stead_model::state::Bytes;

/// The moment of the examples.
const NOW: u64 = 1_700_000_000_000_000;

#[test]
fn every_hex_block_of_the_protocol_page_is_what_the_code_encodes() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md")).unwrap();
    let (written, encoded) = (blocks(&page), frames());
    let names = |map: &BTreeMap<&str, Vec<u8>>| map.keys().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&written), names(&encoded), "the page and this test name different frames");
    for (name, bytes) in &encoded {
        assert_eq!(hex(&written[name]), hex(bytes), "`{name}`");
    }
}

fn frames() -> BTreeMap<&'static str, Vec<u8>> {
    let exec = Exec { follow: Some(1 << 20), ..Exec::new(shell(), command(), "echo hi") };
    let follow = Follow { command: command(), after: 2, credit: 1 << 20, late: true, state: None, index: None };
    let chunk =
        Chunk { seq: 2, stream: Stream::Stdout, late: false, offset: 0, at: NOW + 900, bytes: b"hi\n".to_vec() };
    BTreeMap::from([
        ("hello", request(1, &Request::Hello(Hello { oldest: 1, newest: 1, client: "demo".to_owned() }))),
        ("welcome", reply(1, &Reply::Welcome(welcome()))),
        ("open", request(2, &Request::OpenShell(Box::new(open_shell())))),
        ("shell", reply(2, &Reply::Shell(Box::new(shell_info())))),
        ("exec", request(3, &Request::Exec(Box::new(exec)))),
        ("started", event(3, &Event::Started(At { seq: 1, at: NOW }))),
        ("data", framed(Kind::Data, 3, &chunk.encode())),
        ("ended", event(3, &Event::Ended(At { seq: 3, at: NOW + 1000 }))),
        ("command", reply(3, &Reply::Command(Box::new(command_info())))),
        ("credit", request(4, &Request::Credit(Credit { request: 3, bytes: 1 << 20 }))),
        ("follow", request(5, &Request::Follow(follow))),
        ("stalled", event(5, &Event::Stalled(true))),
        ("shells", request(6, &Request::Shells)),
        ("fault", framed(Kind::Fault, 7, &cbor(&Fault::new(FaultCode::NotFound, "no shell `x`")))),
        ("done", reply(8, &Reply::Done)),
    ])
}

fn shell() -> ShellId {
    ShellId::parse("main").unwrap()
}

fn command() -> CommandId {
    CommandId::parse("c1").unwrap()
}

fn welcome() -> Welcome {
    Welcome { version: 1, build: "0.1.0".to_owned(), epoch: 1, pid: 4242, keeper_pid: 4241 }
}

fn open_shell() -> OpenShell {
    OpenShell {
        shell: shell(),
        program: Program::Best,
        env: vec![(Bytes::from("PATH"), Bytes::from("/bin"))],
        cwd: Bytes::from("/tmp"),
        state: None,
        version: None,
    }
}

fn shell_info() -> ShellInfo {
    ShellInfo {
        shell: shell(),
        dialect: Dialect::Bash,
        program: Bytes::from("/bin/bash"),
        pid: Some(4243),
        incarnation: 1,
        cwd: Bytes::from("/tmp"),
        state_version: 0,
        running: None,
        queued: 0,
        captures_functions: true,
        journal_bytes: 256,
        jobs: None,
        env: None,
    }
}

fn command_info() -> CommandInfo {
    CommandInfo {
        command: command(),
        shell: shell(),
        number: 1,
        status: Status::Exited,
        ending: Some(Ending::new(Status::Exited, Some(0))),
        stdout_bytes: 3,
        stderr_bytes: 0,
        last_seq: 3,
        cwd: Bytes::from("/tmp"),
        state_version: 1,
        accepted_at: NOW - 100,
        started_at: Some(NOW),
        ended_at: Some(NOW + 1000),
        stalled: false,
        evicted: false,
        state: None,
        sums: None,
    }
}

fn cbor<T: minicbor::Encode<()>>(message: &T) -> Vec<u8> {
    minicbor::to_vec(message).unwrap()
}

fn framed(kind: Kind, request: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, request, payload);
    out
}

fn request(id: u32, request: &Request) -> Vec<u8> {
    framed(Kind::Request, id, &cbor(request))
}

fn reply(id: u32, reply: &Reply) -> Vec<u8> {
    framed(Kind::Reply, id, &cbor(reply))
}

fn event(id: u32, event: &Event) -> Vec<u8> {
    framed(Kind::Event, id, &cbor(event))
}

/// The `hex` blocks of a page by name.
fn blocks(page: &str) -> BTreeMap<&str, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let digits = block.flat_map(|line| line.split(';').next().unwrap_or_default().split_whitespace());
        let bytes = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        assert_eq!(found.insert(name, bytes), None, "`{name}` stands there twice");
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        write!(out, "{byte:02x} ").unwrap();
    }
    out
}
