//! Pseudo-terminals.
//!
//! The usual crates set close-on-exec after opening, and a child started by another thread in between inherits a live
//! terminal. Here the kernel sets it in the same call, and the other end is opened through the controller's own
//! descriptor, which also works where /dev/pts is another mount.

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
pub struct Pty {
    /// Non-blocking.
    pub controller: OwnedFd,
    /// What a child has as its terminal. Drop it once the child is started, or the hang-up is never seen.
    pub user: OwnedFd,
}

pub fn open(columns: u16, rows: u16) -> io::Result<Pty> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let user = rustix::pty::ioctl_tiocgptpeer(&controller, flags)?;
    rustix::termios::tcsetwinsize(&user, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let status = rustix::fs::fcntl_getfl(&controller)?;
    rustix::fs::fcntl_setfl(&controller, status | rustix::fs::OFlags::NONBLOCK)?;
    Ok(Pty { controller, user })
}

/// The process group in the foreground of the terminal; `None` if there is none.
pub fn foreground(controller: impl AsFd) -> Option<i32> {
    rustix::termios::tcgetpgrp(controller).ok().map(|group| group.as_raw_nonzero().get())
}
