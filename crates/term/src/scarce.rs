//! Errors that say "not now" rather than "not here".

use std::io;

/// Whether something is used up that others give back: processes, open files, memory, terminals. Who asks again when some of
/// it is free gets it.
pub fn is_passing(error: &io::Error) -> bool {
    const USED_UP: [i32; 7] =
        [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::EUSERS, libc::EBUSY];
    let by_number = error.raw_os_error().is_some_and(|number| USED_UP.contains(&number));
    by_number || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_passes_and_what_is_not_there_does_not() {
        for number in [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
            assert!(is_passing(&io::Error::from_raw_os_error(number)), "{number}");
        }
        for number in [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::ENOSYS, libc::EINVAL] {
            assert!(!is_passing(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(is_passing(&io::Error::new(io::ErrorKind::ResourceBusy, "all terminals are in use")));
    }
}
