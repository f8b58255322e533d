//! Giving a command to the shell in such a way that a steward after us can tell whether it was given.
//!
//! The line that runs a command passes through a file in memory, which the keeper holds too. The kernel moves the line
//! from the file into the control FIFO and the position of the file in one call. So the position is 0 as long as the
//! shell can't have the line, and not 0 from the moment it can, whoever is killed in between. A mere `write` leaves no
//! such trace, and a shell that is interrupted forgets the line with the report in it: it then looks like a shell that
//! never got the command.

use super::Shell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use stead_model::recovery::Handover;
use stead_term::fifo::{self, Moved};

/// The name under which the keeper has the file of a shell.
pub(super) const PARKED: &str = "trig";

/// Where in the file the processes are that a cancellation leaves alone: behind any line.
const BYSTANDERS: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct TriggerFile {
    pub(super) file: File,
    /// Bytes of the line that are not yet in the control FIFO.
    unsent: u64,
}

impl TriggerFile {
    pub(super) fn create() -> io::Result<OwnedFd> {
        fifo::unnamed("trigger")
    }

    pub(super) fn new(file: OwnedFd) -> Self {
        Self { file: File::from(file), unsent: 0 }
    }

    /// Keeps the processes that a cancellation leaves alone, for a steward after us.
    pub(super) fn keep_bystanders(&self, bystanders: &BTreeSet<i32>) -> io::Result<()> {
        let count = u32::try_from(bystanders.len()).unwrap_or(u32::MAX).to_be_bytes();
        let pids = bystanders.iter().flat_map(|pid| pid.to_be_bytes());
        self.file.write_all_at(&count.into_iter().chain(pids).collect::<Vec<_>>(), BYSTANDERS)
    }

    /// Those that the last steward kept; none if it never kept any.
    pub(super) fn bystanders(&self) -> BTreeSet<i32> {
        let mut count = [0; 4];
        if self.file.read_exact_at(&mut count, BYSTANDERS).is_err() {
            return BTreeSet::new();
        }
        let mut pids = vec![0; u32::from_be_bytes(count) as usize * 4];
        if self.file.read_exact_at(&mut pids, BYSTANDERS + 4).is_err() {
            return BTreeSet::new();
        }
        pids.as_chunks().0.iter().map(|pid| i32::from_be_bytes(*pid)).collect()
    }

    /// Before the start is noted: from here on the position speaks of this line. The line before it was read by the
    /// shell, so its bytes may be overwritten.
    fn prepare(&mut self, line: &str) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all_at(line.as_bytes(), 0)?;
        self.unsent = line.len() as u64;
        Ok(())
    }
}

/// Whether the line was given to the shell, as the file of a dead steward tells.
pub(super) fn handover(file: Option<&OwnedFd>) -> Handover {
    match file.map(rustix::fs::tell) {
        Some(Ok(0)) => Handover::NotGiven,
        Some(Ok(_)) => Handover::Given,
        Some(Err(_)) | None => Handover::Unknown,
    }
}

impl Shell {
    pub(super) fn prepare_trigger(&mut self, line: &str) -> io::Result<()> {
        self.live.as_mut().map_or(Ok(()), |live| live.trigger.prepare(line))
    }

    /// The one place where a command is given to the shell. The FIFO takes 64 KiB, and we never have more than a few
    /// lines in it; if it is full all the same, the shell doesn't read, and the watch or the cancellation replaces it.
    pub(super) fn send_trigger(&mut self) {
        let Some(live) = &mut self.live else { return };
        while live.trigger.unsent > 0 {
            match fifo::push(&live.trigger.file, &live.control, live.trigger.unsent) {
                Ok(Moved::Bytes(bytes)) => {
                    live.trigger.unsent = live.trigger.unsent.saturating_sub(bytes);
                    live.said += bytes;
                }
                Ok(Moved::Empty | Moved::Closed | Moved::NoSpace) => {
                    note!("steward: shell {}: the control FIFO is full", self.open.shell);
                    return;
                }
                Err(error) => {
                    note!("steward: shell {}: control FIFO: {error}", self.open.shell);
                    return;
                }
            }
        }
    }
}
