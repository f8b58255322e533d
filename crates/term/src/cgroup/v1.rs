//! Version 1: a hierarchy for each controller, and nothing that tells when it changes.

use super::files;
use super::{Interface, Memory, Swap};
use crate::poll;
use std::io;
use std::path::Path;
use std::time::Instant;

pub(super) struct V1;

impl Interface for V1 {
    fn limit_memory(&self, group: &Path, bytes: Option<u64>) -> io::Result<Swap> {
        let value = bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
        let (memory, both) = (group.join("memory.limit_in_bytes"), group.join("memory.memsw.limit_in_bytes"));
        // The kernel keeps the limit of memory at or below the one of memory and swap together, at every step; so
        // which goes first depends on whether they grow or shrink.
        match files::write(&memory, &value) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                files::write(&both, &value)?;
                files::write(&memory, &value)?;
            }
            other => other?,
        }
        Ok(files::write(&both, &value).map_or_else(|error| Swap::Free(error.to_string()), |()| Swap::Bound))
    }

    fn limit_cpu(&self, group: &Path, millis: Option<u32>) -> io::Result<()> {
        let quota_file = group.join("cpu.cfs_quota_us");
        // Without a quota first: the old one with the new period might be more than the group above allows.
        files::write(&quota_file, "-1")?;
        if let Some((quota, period)) = millis.map(super::quota) {
            files::write(&group.join("cpu.cfs_period_us"), &period.to_string())?;
            files::write(&quota_file, &quota.to_string())?;
        }
        Ok(())
    }

    fn freeze(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        let state = group.join("freezer.state");
        // Written again each time: a process that forked meanwhile can keep it at `FREEZING` for ever.
        poll::until(deadline, || {
            files::write(&state, "FROZEN")?;
            self.is_frozen(group)
        })
    }

    fn thaw(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        let state = group.join("freezer.state");
        files::write(&state, "THAWED")?;
        poll::until(deadline, || Ok(files::read(&state)?.trim() == "THAWED"))
    }

    fn is_frozen(&self, group: &Path) -> io::Result<bool> {
        Ok(files::read(&group.join("freezer.state"))?.trim() == "FROZEN")
    }

    fn kill(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        super::kill_by_signals(self, group, deadline)
    }

    fn wait_empty(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        files::wait_empty(group, deadline)
    }

    fn memory(&self, group: &Path) -> Memory {
        // "No limit" is the largest number of whole pages.
        const NO_LIMIT: u64 = 1 << 62;
        Memory {
            bytes: files::number(&group.join("memory.usage_in_bytes")),
            limit: files::number(&group.join("memory.limit_in_bytes")).filter(|&limit| limit < NO_LIMIT),
            oom_kills: files::keyed(&group.join("memory.oom_control"), "oom_kill"),
        }
    }

    fn cpu_micros(&self, group: &Path) -> Option<u64> {
        Some(files::number(&group.join("cpuacct.usage"))? / 1000)
    }

    fn cpu_limit(&self, group: &Path) -> Option<u32> {
        let quota = files::number(&group.join("cpu.cfs_quota_us"))?;
        super::millis(quota, files::number(&group.join("cpu.cfs_period_us"))?)
    }
}
