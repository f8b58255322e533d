//! Standard input and output as a connection: `docker exec -i SANDBOX steward connect`, `ssh HOST steward connect`.
//! Bytes are carried both ways as they are.

use crate::dir::Dir;
use crate::past;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BUFFER: usize = 64 << 10;

/// How long a steward may take to listen that lives already: one that was just started, or started again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until either side closes.
pub fn run(dir: &Dir) -> io::Result<()> {
    let mut socket = connect(dir)?;
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

fn connect(dir: &Dir) -> io::Result<UnixStream> {
    let until = Instant::now() + PATIENCE;
    loop {
        match dir.connect() {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
                    && Instant::now() < until
                    && past::is_alive(dir.root()).unwrap_or(false) =>
            {
                // A socket that comes to be has no event for whoever has nothing but its name.
                let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
                let _ = poll(&mut [], Some(&pause));
            }
            connected => return connected,
        }
    }
}
