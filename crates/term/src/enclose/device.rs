//! `/proc` and `/dev` inside: new ones, with as little in them as programs can do with.

use super::mount::{self, Access, Bind, From, NEW, under};
use super::{Failed, hide};
use rustix::mount::MountFlags;
use std::path::Path;

/// Parts of `/proc` that are about the machine, not about processes: to be seen, not to be written. Their owner is the
/// host's root, and that alone lets it write them, without any capability.
const SETTINGS: [&str; 8] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/driver",
    "/proc/dynamic_debug",
    "/proc/mtrr",
];

/// Parts that tell of the host what is none of our business.
const SECRETS: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

/// Devices that do no harm and that programs expect.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

pub(super) fn processes() -> Result<(), Failed> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // The kernel allows this only while the host's own, uncovered, is still to be seen.
    mount::fresh("proc", &under(NEW, Path::new("/proc")), flags, "")?;
    for path in SETTINGS.map(|path| under(NEW, Path::new(path))).iter().filter(|path| path.exists()) {
        let tree = mount::tree(path)?;
        mount::restrict(&tree, Access::ReadOnly).map_err(Failed::at(format!("restrict `{}`", path.display())))?;
        mount::attach(&tree, path)?;
    }
    for path in SECRETS.map(|path| under(NEW, Path::new(path))).iter().filter(|path| path.exists()) {
        if path.is_dir() { hide::cover_dir(path)? } else { hide::cover_file(path)? }
    }
    Ok(())
}

pub(super) fn devices() -> Result<(), Failed> {
    let dev = under(NEW, Path::new("/dev"));
    mount::memory(&dev, "mode=755,size=64k,nr_inodes=64")?;
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        Bind::new(From::Host(path.clone()), &path, Access::Device).put()?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount::fresh("devpts", &dev.join("pts"), flags, "newinstance,ptmxmode=0666,mode=0620")?;
    for (to, name) in LINKS {
        mount::link(to, &dev.join(name))?;
    }
    mount::make_dir(&dev.join("shm")).map_err(Failed::at("make `/dev/shm`"))
}
