//! Version 2: one hierarchy, files that tell when they change, and a kill that no fork escapes.

use super::files::{self, at};
use super::{Interface, Memory, Swap};
use crate::poll;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) struct V2;

impl Interface for V2 {
    fn limit_memory(&self, group: &Path, bytes: Option<u64>) -> io::Result<Swap> {
        files::write(&group.join("memory.max"), &bytes.map_or("max".to_owned(), |bytes| bytes.to_string()))?;
        // The limit is for both together, and `memory.swap.max` counts swap alone.
        let swap = if bytes.is_some() { "0" } else { "max" };
        Ok(files::write(&group.join("memory.swap.max"), swap)
            .map_or_else(|e| Swap::Free(e.to_string()), |()| Swap::Bound))
    }

    fn limit_cpu(&self, group: &Path, millis: Option<u32>) -> io::Result<()> {
        let value = match millis.map(super::quota) {
            Some((quota, period)) => format!("{quota} {period}"),
            None => "max".to_owned(),
        };
        files::write(&group.join("cpu.max"), &value)
    }

    fn freeze(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        files::write(&group.join("cgroup.freeze"), "1")?;
        wait(group, "frozen", 1, deadline)
    }

    fn thaw(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        files::write(&group.join("cgroup.freeze"), "0")?;
        wait(group, "frozen", 0, deadline)
    }

    fn is_frozen(&self, group: &Path) -> io::Result<bool> {
        Ok(files::value_of(&files::read(&group.join("cgroup.events"))?, "frozen") == Some(1))
    }

    fn kill(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        let kill = group.join("cgroup.kill");
        if !kill.exists() {
            return super::kill_by_signals(self, group, deadline);
        }
        files::write(&kill, "1")?;
        self.wait_empty(group, deadline)
    }

    fn wait_empty(&self, group: &Path, deadline: Instant) -> io::Result<bool> {
        wait(group, "populated", 0, deadline)
    }

    fn memory(&self, group: &Path) -> Memory {
        Memory {
            bytes: files::number(&group.join("memory.current")),
            limit: files::number(&group.join("memory.max")),
            oom_kills: files::keyed(&group.join("memory.events"), "oom_kill"),
        }
    }

    fn cpu_micros(&self, group: &Path) -> Option<u64> {
        files::keyed(&group.join("cpu.stat"), "usage_usec")
    }

    fn cpu_limit(&self, group: &Path) -> Option<u32> {
        let text = files::read(&group.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        super::millis(quota.parse().ok()?, period.parse().ok()?)
    }
}

/// After this time notifications come without delay.
const NOTIFICATION: Duration = Duration::from_millis(10);

/// Waits for a line of `cgroup.events`; whether it came to be. A group that was removed has neither processes nor
/// anything frozen.
fn wait(group: &Path, key: &str, value: u64, deadline: Instant) -> io::Result<bool> {
    let path = group.join("cgroup.events");
    let gone_is = |error: &io::Error| files::gone(error).then_some(value == 0);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => return gone_is(&error).ok_or_else(|| at(&path, &error)),
    };
    // The kernel holds a notification back for up to 10 ms after the one before; a look of our own is earlier at first.
    let mut patience = Duration::from_micros(100);
    loop {
        let mut text = String::new();
        if let Err(error) = file.rewind().and_then(|()| file.read_to_string(&mut text)) {
            return gone_is(&error).ok_or_else(|| at(&path, &error));
        }
        if files::value_of(&text, key) == Some(value) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // Tells of every change since the read above: none is missed.
        poll::changed(&file, left.min(patience))?;
        patience = if patience < NOTIFICATION { patience * 2 } else { left };
    }
}
