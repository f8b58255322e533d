//! A Redis of our own, if there is one on this machine, spoken to over its socket.

use crate::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Redis {
    server: Child,
    wire: BufReader<UnixStream>,
}

impl Redis {
    /// As durable as our journal: an append-only file, written before the answer, never synced.
    pub(crate) fn start(dir: &Path) -> std::result::Result<Self, String> {
        let start = || -> Result<Self> {
            std::fs::create_dir_all(dir)?;
            let socket = dir.join("redis.sock");
            let mut command = Command::new("redis-server");
            command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--unixsocket"]);
            command.arg(&socket).arg("--dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
            let mut server = command.spawn()?;
            let until = Instant::now() + Duration::from_secs(10);
            loop {
                match UnixStream::connect(&socket) {
                    Ok(wire) => return Ok(Self { server, wire: BufReader::new(wire) }),
                    Err(_) if Instant::now() < until && server.try_wait()?.is_none() => std::thread::yield_now(),
                    Err(error) => {
                        let _ = server.kill();
                        return Err(error.into());
                    }
                }
            }
        };
        start().map_err(|error| format!("`redis-server`: {error}"))
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Result {
        let mut request = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.wire.get_mut().write_all(&request)?;
        let mut line = String::new();
        self.wire.read_line(&mut line)?;
        if line == "+OK\r\n" { Ok(()) } else { Err(line.into()) }
    }

    pub(crate) fn get(&mut self, key: &str) -> Result<usize> {
        let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        self.wire.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.wire.read_line(&mut line)?;
        let length: usize = line.trim_start_matches('$').trim().parse()?;
        let mut value = vec![0; length + 2];
        self.wire.read_exact(&mut value)?;
        Ok(length)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
