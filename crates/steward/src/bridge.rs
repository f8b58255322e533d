//! Standard input and output as a connection: `docker exec -i SANDBOX steward connect`, `ssh HOST steward connect`.
//! Bytes are carried both ways as they are.

use crate::dir::Dir;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::Shutdown;

const BUFFER: usize = 64 << 10;

/// Runs until either side closes.
pub fn run(dir: &Dir) -> io::Result<()> {
    let mut socket = dir.connect()?;
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut buffer = vec![0; BUFFER];
    let mut input_open = true;
    loop {
        let raw_in = rustix::stdio::stdin();
        let mut fds = vec![PollFd::new(&socket, PollFlags::IN)];
        if input_open {
            fds.push(PollFd::new(&raw_in, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(1) == Some(&true) {
            let read = stdin.read(&mut buffer)?;
            if read == 0 {
                // The other side may still want to hear the answers to what it has asked.
                input_open = false;
                socket.shutdown(Shutdown::Write)?;
            } else {
                socket.write_all(buffer.get(..read).unwrap_or_default())?;
            }
        }
        if ready.first() == Some(&true) {
            let read = socket.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            stdout.write_all(buffer.get(..read).unwrap_or_default())?;
            stdout.flush()?;
        }
    }
}
