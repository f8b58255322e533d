//! `kill -9` of everything at once.

use crate::rig::{Rig, TestShell, kill, wait_for};
use rustix::fs::FlockOperation;

/// Kills the steward, its keeper and the shell, so that what they stored lies there alone.
pub(crate) fn everything(rig: &Rig, shell: &mut TestShell) {
    let (keeper, steward, pid) = (rig.keeper_pid(), rig.steward_pid(), shell.pid());
    // Stopped first, so that neither can replace the other.
    for pid in [keeper, steward] {
        stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    }
    [pid, steward, keeper].into_iter().for_each(kill);
    // A process of several threads looks dead before the last of them has let go of its files; the lock tells.
    let lock = std::fs::File::open(rig.path().join("lock")).unwrap();
    wait_for("all of them to be gone", || {
        let free = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        (free && !crate::rig::is_alive(pid)).then_some(())
    });
}
