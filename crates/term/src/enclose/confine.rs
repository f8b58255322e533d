//! The last steps of the first process before it becomes the program: limits, no rights, nothing inherited.

use super::Failed;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stead_model::enclosure::Enclosure;

pub(super) fn limit(spec: &Enclosure) -> Result<(), Failed> {
    let limits = [
        (Resource::Nproc, spec.max_processes, "processes"),
        (Resource::As, spec.max_memory, "memory"),
        (Resource::Nofile, spec.max_files, "open files"),
        // A core would be written by, or piped to, a program of the host.
        (Resource::Core, Some(0), "core dumps"),
    ];
    for (resource, wanted, what) in limits {
        let Some(wanted) = wanted else { continue };
        // What we are not allowed ourselves we can't give.
        let most = rustix::process::getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).map_err(Failed::at(format!("limit {what} to {wanted}")))?;
    }
    Ok(())
}

/// A server may be spared when memory runs out; what it encloses is not to be.
pub(super) fn be_no_favourite() {
    const SETTING: &str = "/proc/self/oom_score_adj";
    let score = fs::read_to_string(SETTING).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if score.is_some_and(|score| score < 0) {
        let _ = fs::write(SETTING, "0");
    }
}

/// Gives up every capability for good: not even the user 0 of the inside gets one by executing something.
pub(super) fn give_up_rights() -> Result<(), Failed> {
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked).map_err(Failed::at("lock the secure bits"))?;
    for capability in 0..64 {
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == -1 {
            match io::Error::last_os_error() {
                // The kernel has no more than these.
                error if error.raw_os_error() == Some(libc::EINVAL) => break,
                error => return Err(Failed::at(format!("drop capability {capability}"))(error)),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(Failed::at("drop ambient capabilities"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(Failed::at("drop capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(Failed::at("renounce new privileges"))?;
    stay_among_ourselves();
    Ok(())
}

/// Abstract sockets belong to the network, so with the host's network the host's services would be in reach, and some
/// trust whoever has the right user id. Landlock (since Linux 6.12) ends that; an older kernel leaves it.
fn stay_among_ourselves() {
    #[repr(C)]
    struct Ruleset {
        files: u64,
        network: u64,
        scoped: u64,
    }
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    let ruleset = Ruleset { files: 0, network: 0, scoped: ABSTRACT_SOCKETS | SIGNALS };
    // SAFETY: the kernel reads one struct of the size that is given; the descriptor it returns is used only here.
    unsafe {
        let made =
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(&ruleset), size_of::<Ruleset>(), 0);
        if made >= 0 {
            libc::syscall(libc::SYS_landlock_restrict_self, made, 0);
            libc::close(libc::c_int::try_from(made).unwrap_or(-1));
        }
    }
}

/// A request of `keyctl(2)`.
const JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Nothing of whoever started us: session, signals, file mode mask, keys, descriptors.
pub(super) fn clean() -> Result<(), Failed> {
    rustix::process::setsid().map_err(Failed::at("make a session"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    for signal in 1..=64 {
        // SAFETY: sets dispositions to what they are in a new process; those that can't be set are left.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills in the set, which is then read.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
    // Keys of whoever started us; a kernel without key rings has none to leave.
    // SAFETY: a null pointer asks for a new key ring without a name.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    // The host's would let its owner change the host's device itself.
    let null = File::options().read(true).write(true).open("/dev/null").map_err(Failed::at("open `/dev/null`"))?;
    rustix::stdio::dup2_stdin(&null).map_err(Failed::at("replace standard input"))?;
    rustix::stdio::dup2_stdout(&null).map_err(Failed::at("replace standard output"))?;
    drop(null);
    crate::spawn::close_inherited_on_exec(4).map_err(Failed::at("close what was inherited"))
}

/// Returns only if it fails.
pub(super) fn execute(program: &Path, arguments: &[CString], environment: &[CString]) -> Result<(), Failed> {
    let failed = || format!("execute `{}`", program.display());
    let path = CString::new(program.as_os_str().as_bytes()).map_err(io::Error::other).map_err(Failed::at(failed()))?;
    let list = |strings: &[CString]| {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: both lists end in a null pointer and point to strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Err(Failed::at(failed())(io::Error::last_os_error()))
}

pub(super) fn c_strings(strings: &[String]) -> Result<Vec<CString>, Failed> {
    let convert = |string: &String| {
        CString::new(string.as_str()).map_err(io::Error::other).map_err(Failed::at(format!("pass `{string:?}` on")))
    };
    strings.iter().map(convert).collect()
}
