//! Pseudo-terminals.
//!
//! The usual crates set close-on-exec after opening, and a child started by another thread in between inherits a live
//! terminal. Here the kernel sets it in the same call, and the other end is opened through the controller's own
//! descriptor, which also works where /dev/pts is another mount.

use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Winsize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use stead_model::proto::Size;

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

/// By what name programs open the other side.
pub fn name(controller: impl AsFd) -> Option<String> {
    rustix::pty::ptsname(controller, Vec::new()).ok()?.into_string().ok()
}

/// The process group in the foreground of the terminal; `None` if there is none.
pub fn foreground(controller: impl AsFd) -> Option<i32> {
    rustix::termios::tcgetpgrp(controller).ok().map(|group| group.as_raw_nonzero().get())
}

/// Gives the terminal another size; programs in its foreground are told.
pub fn resize(controller: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(controller, size)?)
}

pub fn size(controller: impl AsFd) -> io::Result<Size> {
    let size = rustix::termios::tcgetwinsize(controller)?;
    Ok(Size { columns: size.ws_col, rows: size.ws_row })
}

/// Takes away the characters that send signals: Ctrl-C is a key like any other.
pub fn without_signals(terminal: impl AsFd) -> io::Result<()> {
    let mut settings = rustix::termios::tcgetattr(&terminal)?;
    for code in [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT, SpecialCodeIndex::VSUSP] {
        settings.special_codes[code] = 0;
    }
    Ok(rustix::termios::tcsetattr(&terminal, OptionalActions::Now, &settings)?)
}

/// Whether what is typed is shown by the terminal itself: nobody edits lines on it at this moment.
pub fn echoes(controller: impl AsFd) -> bool {
    rustix::termios::tcgetattr(controller).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ECHO))
}

/// Takes what was typed and nobody has read, half a line too.
pub fn take_input(controller: impl AsFd) -> io::Result<Vec<u8>> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let user = rustix::pty::ioctl_tiocgptpeer(&controller, flags)?;
    let status = rustix::fs::fcntl_getfl(&user)?;
    rustix::fs::fcntl_setfl(&user, status | rustix::fs::OFlags::NONBLOCK)?;
    let before = rustix::termios::tcgetattr(&user)?;
    let mut bare = before.clone();
    // Without lines, what is there can be read as it is.
    bare.local_modes.remove(LocalModes::ICANON);
    rustix::termios::tcsetattr(&user, OptionalActions::Now, &bare)?;
    let mut input = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = rustix::io::read(&user, &mut buffer) {
        input.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    rustix::termios::tcsetattr(&user, OptionalActions::Now, &before)?;
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_and_not_read_can_be_taken_back() {
        let pty = open(80, 24).unwrap();
        rustix::io::write(&pty.controller, b"a line\nhalf").unwrap();
        assert_eq!(take_input(&pty.controller).unwrap(), b"a line\nhalf");
        assert_eq!(take_input(&pty.controller).unwrap(), b"");
        let settings = rustix::termios::tcgetattr(&pty.user).unwrap();
        assert!(settings.local_modes.contains(LocalModes::ICANON));
    }

    #[test]
    fn a_terminal_has_the_size_it_was_given() {
        let pty = open(80, 24).unwrap();
        resize(&pty.controller, Size { columns: 33, rows: 7 }).unwrap();
        assert_eq!(size(&pty.user).unwrap(), Size { columns: 33, rows: 7 });
        assert!(echoes(&pty.controller));
    }
}
