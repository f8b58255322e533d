//! The engine as somebody else has it: asked over its socket without a word of ours.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// One request, as `METHOD PATH`; it has to be granted.
pub(super) fn ask(socket: &Path, request: &str) {
    let answer = send(socket, request, &[]).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{request}: {answer}");
}

pub(super) fn send(socket: &Path, request: &str, body: &[u8]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    let head = format!(
        "{request} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: application/x-tar\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// An image with nothing in it but a directory.
pub(super) fn import_empty(socket: &Path, name: &str) {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o1777);
    header.set_size(0);
    builder.append_data(&mut header, "tmp/", std::io::empty()).unwrap();
    let archive = builder.into_inner().unwrap();
    let answer = send(socket, &format!("POST /images/create?fromSrc=-&repo={name}&tag=latest"), &archive).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
