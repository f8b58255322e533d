//! The polled FIFOs behind a minimal HTTP server: a thread and a shell for each connection, nothing more.

use super::client::{Client, Door};
use super::crowd::Member;
use crate::bench::fifo::Fifo;
use crate::bench::latency::Mechanism;
use crate::bench::place::Place;
use crate::failed::{Result, While};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// Serves for as long as this program lives; each connection as long as its client does.
pub(super) fn serve(scratch: &Path) -> Result<Door> {
    let listener = TcpListener::bind("127.0.0.1:0").or_failed("can't listen")?;
    let address = listener.local_addr().or_failed("no address")?;
    let scratch = scratch.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), scratch) = (stream, scratch.clone()) else { continue };
            std::thread::spawn(move || {
                if let Err(error) = converse(&stream, &scratch) {
                    eprintln!("the polled server: {error}");
                }
            });
        }
    });
    Ok(Door::Tcp(address))
}

fn converse(stream: &TcpStream, scratch: &Path) -> Result {
    stream.set_nodelay(true).or_failed("can't set up the connection")?;
    let mut fifo = Fifo::start(&Place::unpinned()?, scratch)?;
    let (mut read, mut write) = (BufReader::new(stream), stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).or_failed("can't read a request")? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().or_failed("no length")?;
            }
        }
        let mut body = vec![0; length];
        read.read_exact(&mut body).or_failed("can't read a request")?;
        fifo.once()?;
        let answer =
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"exit_code\":0}";
        write.write_all(answer).or_failed("can't answer")?;
    }
}

pub(super) struct Polled {
    client: Client,
    request: Vec<u8>,
}

impl Polled {
    pub(super) fn new(door: &Door) -> Result<Self> {
        let client = Client::connect(door, None)?;
        let request = client.prepare("POST /exec", "Content-Type: application/json\r\n", b"{\"command\":\"true\"}");
        Ok(Self { client, request })
    }
}

impl Member for Polled {
    fn once(&mut self) -> Result {
        self.client.call(&self.request, &mut |_| {})
    }
}
