//! System calls that nobody inside needs and that have let programs out of places like this, or that reach past the
//! namespaces. Everything else is allowed: this is the second wall, not the first.

use super::Failed;
use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// The C library for some targets has no name for it.
const KEXEC_FILE_LOAD: c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// Refused whatever the arguments, as not permitted.
const REFUSED: &[(&str, &[c_long])] = &[
    (
        "mounting: the root directory stays as it was built",
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_fsmount,
            libc::SYS_fsconfig,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
        ],
    ),
    ("entering namespaces; making them is refused below", &[libc::SYS_setns]),
    ("key rings: they aren't divided by namespace", &[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key]),
    (
        "interfaces with a long record of holes, and none that a shell needs",
        &[
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
        ],
    ),
    ("files by number, past all directories", &[libc::SYS_open_by_handle_at]),
    (
        "the kernel itself, and its log",
        &[
            libc::SYS_kexec_load,
            KEXEC_FILE_LOAD,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_reboot,
            libc::SYS_syslog,
        ],
    ),
    (
        "the machine's memory, disks, accounts and clock",
        &[
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_clock_adjtime,
            libc::SYS_adjtimex,
            libc::SYS_vhangup,
        ],
    ),
    #[cfg(target_arch = "x86_64")]
    ("the machine's ports", &[libc::SYS_iopl, libc::SYS_ioperm]),
];

/// Flags of clone and unshare that make a namespace: a user namespace of its own would give back every right to use the
/// kernel's less tested parts.
const NAMESPACES: [c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// In clone this bit is part of the signal number.
const NEW_TIME: u64 = 0x80;

/// Typing into a terminal, and into the console, as if somebody did.
const TERMINAL_TRICKS: [u64; 2] = [0x5412, 0x541c];

/// Execution domains that change no more than names and addresses: Linux, 32 bits, old version numbers, no random
/// addresses (debuggers), and the question which one it is.
const PERSONALITIES: [u64; 6] = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/// Frames of the network, other machines on this one, and the kernel's ciphers.
const FAMILIES: [c_int; 3] = [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG];

pub(super) fn install() -> Result<(), Failed> {
    let failed = || "install the filter of system calls";
    for program in programs().map_err(Failed::at(failed()))? {
        seccompiler::apply_filter(&program).map_err(io::Error::other).map_err(Failed::at(failed()))?;
    }
    Ok(())
}

fn programs() -> io::Result<[BpfProgram; 2]> {
    // Its flags are in memory, where no filter can see them; libraries go back to clone if there is none.
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(refused()?, libc::EPERM)?, compile(absent, libc::ENOSYS)?])
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn refused() -> io::Result<Rules> {
    let mut rules: Rules = REFUSED.iter().flat_map(|(_, calls)| *calls).map(|call| (*call, Vec::new())).collect();
    let flags = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    let has = |flag: u64| rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)]);
    rules.insert(libc::SYS_clone, flags.iter().map(|flag| has(*flag)).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_unshare, flags.iter().chain([&NEW_TIME]).map(|flag| has(*flag)).collect::<Result<_, _>>()?);
    let request = |number: &u64| rule(&[(1, SeccompCmpOp::Eq, *number)]);
    rules.insert(libc::SYS_ioctl, TERMINAL_TRICKS.iter().map(request).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_personality, vec![rule(&PERSONALITIES.map(|known| (0, SeccompCmpOp::Ne, known)))?]);
    let mut sockets = Vec::new();
    for family in FAMILIES {
        sockets.push(rule(&[(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()))])?);
    }
    // Netlink sockets call themselves raw; they only speak with the kernel, which checks rights by itself.
    let (netlink, raw) = (libc::AF_NETLINK.unsigned_abs(), libc::SOCK_RAW.unsigned_abs());
    sockets.push(rule(&[(0, SeccompCmpOp::Ne, u64::from(netlink)), (1, SeccompCmpOp::MaskedEq(0xf), u64::from(raw))])?);
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// One set of arguments, all of which must be so.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> io::Result<SeccompRule> {
    let condition = |(argument, op, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value)
    };
    let conditions: Result<Vec<_>, _> = conditions.iter().map(condition).collect();
    SeccompRule::new(conditions.map_err(io::Error::other)?).map_err(io::Error::other)
}

fn compile(mut rules: Rules, errno: c_int) -> io::Result<BpfProgram> {
    if cfg!(target_arch = "x86_64") {
        also_x32(&mut rules);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map_err(io::Error::other)
}

/// The x32 calls of a 64-bit kernel are the same ones under numbers with one more bit, and a few under others.
fn also_x32(rules: &mut Rules) {
    const BIT: c_long = 0x4000_0000;
    const OTHERS: [(c_long, c_long); 2] = [(libc::SYS_ioctl, 514), (libc::SYS_kexec_load, 528)];
    let mut more = Rules::new();
    for (call, of_call) in rules.iter() {
        more.insert(call | BIT, of_call.clone());
        if let Some((_, other)) = OTHERS.iter().find(|(usual, _)| usual == call) {
            more.insert(other | BIT, of_call.clone());
        }
    }
    rules.extend(more);
}
