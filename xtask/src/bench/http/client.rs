//! As much of an HTTP/1.1 client as measuring takes: one connection that stays open, one request at a time.

use crate::failed::{Failed, Result, While};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Where a server is to be found.
#[derive(Debug, Clone)]
pub(in crate::bench) enum Door {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

pub(in crate::bench) struct Client {
    wire: Box<dyn Wire>,
    /// Lines that every request has.
    headers: String,
    buffer: Vec<u8>,
    /// What of the buffer has been read and not used.
    from: usize,
    to: usize,
}

/// The same for whoever reads from a socket here, so that nobody is faster for that alone.
pub(in crate::bench) const BUFFER: usize = 256 << 10;

/// How long the body of an answer is.
#[derive(Clone, Copy)]
enum Length {
    Known(usize),
    Chunked,
}

impl Client {
    pub(in crate::bench) fn connect(door: &Door, token: Option<&str>) -> Result<Self> {
        let wire: Box<dyn Wire> = match door {
            Door::Tcp(address) => {
                let stream = TcpStream::connect(address).or_failed("can't connect")?;
                stream.set_nodelay(true).or_failed("can't set up the connection")?;
                Box::new(stream)
            }
            Door::Socket(path) => Box::new(UnixStream::connect(path).or_failed("can't connect")?),
        };
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let headers = format!("Host: localhost\r\n{token}");
        Ok(Self { wire, headers, buffer: vec![0; BUFFER], from: 0, to: 0 })
    }

    /// A request, ready to be sent any number of times.
    pub(in crate::bench) fn prepare(&self, line: &str, more: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("{line} HTTP/1.1\r\n{}{more}Content-Length: {}\r\n\r\n", self.headers, body.len());
        [head.as_bytes(), body].concat()
    }

    pub(in crate::bench) fn send_json(&mut self, line: &str, body: &serde_json::Value) -> Result<serde_json::Value> {
        let request = self.prepare(line, "Content-Type: application/json\r\n", body.to_string().as_bytes());
        let mut answer = Vec::new();
        self.call(&request, &mut |bytes| answer.extend_from_slice(bytes))?;
        if answer.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_slice(&answer).or_failed(format!("the answer to `{line}` is not JSON"))
    }

    /// Sends a request and hands on the body of its answer as it comes. Any status but a good one is a failure.
    pub(in crate::bench) fn call(&mut self, request: &[u8], body: &mut dyn FnMut(&[u8])) -> Result {
        self.wire.write_all(request).or_failed("the server is gone")?;
        let (status, length) = self.head()?;
        if !(200..300).contains(&status) {
            let mut said = Vec::new();
            self.body(length, &mut |bytes| said.extend_from_slice(bytes))?;
            return Err(Failed::new(format!("the server said {status}: {}", String::from_utf8_lossy(&said))));
        }
        self.body(length, body)
    }

    fn body(&mut self, length: Length, body: &mut dyn FnMut(&[u8])) -> Result {
        match length {
            Length::Known(bytes) => self.take(bytes, body),
            Length::Chunked => loop {
                let line = self.line()?;
                let bytes = usize::from_str_radix(line.trim(), 16).or_failed(format!("`{line}` is no length"))?;
                self.take(bytes, body)?;
                self.line()?;
                if bytes == 0 {
                    return Ok(());
                }
            },
        }
    }

    fn head(&mut self) -> Result<(u16, Length)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.or_failed(format!("`{first}` is no answer"))?;
        let mut length = Length::Known(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Length::Known(value.trim().parse().or_failed("no length")?);
            } else if line.starts_with("transfer-encoding:") {
                length = Length::Chunked;
            }
        }
    }

    /// One line, without its end.
    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        loop {
            let present = self.present();
            let end = present.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(present.len(), |end| end + 1);
            line.extend_from_slice(present.get(..used).unwrap_or_default());
            self.from += used;
            if end.is_some() {
                let line = String::from_utf8(line).or_failed("the server says what is no text")?;
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            self.fill()?;
        }
    }

    fn take(&mut self, mut bytes: usize, body: &mut dyn FnMut(&[u8])) -> Result {
        while bytes > 0 {
            if self.from == self.to {
                self.fill()?;
            }
            let present = self.present();
            let used = present.len().min(bytes);
            body(present.get(..used).unwrap_or_default());
            self.from += used;
            bytes -= used;
        }
        Ok(())
    }

    fn present(&self) -> &[u8] {
        self.buffer.get(self.from..self.to).unwrap_or_default()
    }

    fn fill(&mut self) -> Result {
        let read = self.wire.read(&mut self.buffer).or_failed("can't read from the server")?;
        if read == 0 {
            return Err(Failed::new("the server hung up"));
        }
        (self.from, self.to) = (0, read);
        Ok(())
    }
}
