//! Packets with descriptors: how keeper and steward hand things to each other.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The largest packet; they hold a name or a pair of numbers.
const MAX: usize = 512;

/// Two connected ends that keep packets whole and in order. A packet that was sent is in the kernel's hands, with its
/// descriptor: the death of the sender can't take it back.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Block,
    /// `WouldBlock` instead.
    Never,
}

pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>, wait: Wait) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = if wait == Wait::Never { SendFlags::DONTWAIT } else { SendFlags::empty() } | SendFlags::NOSIGNAL;
    loop {
        return match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// The next packet and the descriptor that came with it; `None` when the other end is gone.
pub fn receive(socket: impl AsFd, wait: Wait) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = [0; MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = if wait == Wait::Never { RecvFlags::DONTWAIT } else { RecvFlags::empty() } | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(message) => break message,
            // A peer that died with packets of ours unread is told as a reset, once, and before what it had still sent.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
    };
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            fd = fds.next();
        }
    }
    Ok(Some((bytes.get(..message.bytes).unwrap_or_default().to_vec(), fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_dies_without_reading_takes_back_nothing_that_it_sent() {
        let (ours, theirs) = pair().unwrap();
        send(&ours, b"unread", None, Wait::Block).unwrap();
        send(&theirs, b"last words", None, Wait::Block).unwrap();
        drop(theirs);
        let (bytes, _) = receive(&ours, Wait::Block).unwrap().unwrap();
        assert_eq!(bytes, b"last words");
        assert!(receive(&ours, Wait::Block).unwrap().is_none());
    }

    #[test]
    fn a_packet_and_its_descriptor_outlive_the_sender() {
        let (ours, theirs) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&ours, b"Sname", Some(file.as_fd()), Wait::Block).unwrap();
        drop((ours, file));
        let (bytes, fd) = receive(&theirs, Wait::Block).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), fd.is_some()), (&b"Sname"[..], true));
        assert!(receive(&theirs, Wait::Block).unwrap().is_none());
    }
}
