//! Standard input and output as a connection: `docker exec -i SANDBOX steward connect`, `ssh HOST steward connect`.
//! Bytes are carried both ways as they are.

use crate::dir::Dir;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};

const BUFFER: usize = 64 << 10;

/// Runs until either side closes.
pub fn run(dir: &Dir) -> io::Result<()> {
    let mut socket = dir.connect()?;
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut buffer = vec![0; BUFFER];
    loop {
        let raw_in = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&raw_in, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [from_socket, from_stdin] = fds.map(|fd| !fd.revents().is_empty());
        if from_stdin {
            let read = stdin.read(&mut buffer)?;
            if read == 0 {
                // Whoever spoke to us has gone.
                return Ok(());
            }
            socket.write_all(buffer.get(..read).unwrap_or_default())?;
        }
        if from_socket {
            let read = socket.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            stdout.write_all(buffer.get(..read).unwrap_or_default())?;
            stdout.flush()?;
        }
    }
}
