//! Errors that say "not now" rather than "not here".

use std::fs;
use std::io;

/// Whether something is used up that others give back: processes, open files, memory, terminals. Who asks again when some of
/// it is free gets it.
pub fn is_passing(error: &io::Error) -> bool {
    const USED_UP: [i32; 7] =
        [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::EUSERS, libc::EBUSY];
    let by_number = error.raw_os_error().is_some_and(|number| USED_UP.contains(&number));
    by_number || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy)
}

/// What an error of making namespaces means. The kernel says "no space" where as many are in use as it allows, which passes
/// (`ENOSPC` in `clone(2)`). The error of a full disk has the same number, so this one becomes another. Where none are
/// allowed that is final.
pub fn of_namespaces(error: io::Error) -> io::Error {
    const KINDS: [&str; 7] = ["user", "mnt", "pid", "ipc", "uts", "net", "cgroup"];
    let is_forbidden = |kind: &str| {
        let most = fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces"));
        most.is_ok_and(|most| most.trim() == "0")
    };
    if error.raw_os_error() == Some(libc::ENOSPC) && !KINDS.into_iter().any(is_forbidden) {
        let message = "as many namespaces are in use as /proc/sys/user allows";
        return io::Error::new(io::ErrorKind::ResourceBusy, message);
    }
    error
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
        // Of a disk it doesn't pass, of namespaces it does.
        assert!(!is_passing(&io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(is_passing(&of_namespaces(io::Error::from_raw_os_error(libc::ENOSPC))));
        assert!(!is_passing(&of_namespaces(io::Error::from_raw_os_error(libc::EPERM))));
        assert!(is_passing(&io::Error::new(io::ErrorKind::ResourceBusy, "all terminals are in use")));
    }
}
