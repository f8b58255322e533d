//! What the numbers were measured on.

use crate::cargo::output;
use crate::failed::{Result, While};
use std::fs;
use std::process::Command;

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) memory_gib: u64,
    pub(super) bash: String,
    pub(super) date: String,
    /// How busy it was with other things when we began.
    pub(super) load: String,
}

impl Machine {
    pub(super) fn look() -> Result<Self> {
        let cpuinfo = read("/proc/cpuinfo")?;
        let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let memory = read("/proc/meminfo")?;
        let kib =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cpu: value_of(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus,
            memory_gib: (kib.unwrap_or(0_u64) + (1 << 19)) >> 20,
            bash: output(Command::new("bash").args(["-c", "echo $BASH_VERSION"]))?.trim().to_owned(),
            date: output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?.trim().to_owned(),
            load: read("/proc/loadavg")?.split(' ').next().unwrap_or("unknown").to_owned(),
        })
    }
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).or_failed(format!("can't read `{path}`"))
}
