//! What the machine uses, as this machine tells of itself: its sandboxes share it.

use super::Outcome;
use crate::machine::Machine;
use serde_json::json;
use std::fs;

#[expect(clippy::cast_precision_loss, reason = "counts of bytes, for people")]
pub(super) fn read(machine: &Machine) -> Outcome {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes = |name: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    };
    let (total, free) = (kilobytes("MemTotal") * 1024, kilobytes("MemAvailable") * 1024);
    let disk = rustix::fs::statvfs(machine.root()).unwrap();
    let (mut received, mut sent) = (0, 0);
    for line in fs::read_to_string("/proc/net/dev").unwrap().lines().skip(2) {
        let numbers: Vec<u64> =
            line.split_once(':').unwrap().1.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (received, sent) = (received + numbers[0], sent + numbers[8]);
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let load: f64 = fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap();
    let text = json!({
        "cpu_count": cpus, "cpu_used_pct": (load / cpus as f64 * 100.0).min(100.0),
        "mem_total": total, "mem_used": total.saturating_sub(free),
        "disk_total": disk.f_blocks * disk.f_frsize, "disk_used": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        "rx_rate_kbyte_per_s": 0.0, "tx_rate_kbyte_per_s": 0.0,
        "rx_used_kbyte": received as f64 / 1024.0, "tx_used_kbyte": sent as f64 / 1024.0,
        "timestamp": jiff::Timestamp::now().to_string(),
    });
    Outcome::fine(text.to_string())
}
