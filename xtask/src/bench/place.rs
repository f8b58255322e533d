//! On which CPUs the two sides of a conversation run.
//!
//! A pipe round trip within one CPU is a context switch; between two it is a wake-up of an idle CPU, which on a virtual
//! machine costs ten times that. Which one a run gets is the scheduler's whim, so each is measured by itself.

use crate::failed::{Result, While};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    client: CpuSet,
    other_side: CpuSet,
}

impl Place {
    /// Every placement that this machine has room for, the last being [`Place::unpinned`].
    pub(super) fn all() -> Result<Vec<Self>> {
        let free = Self::unpinned()?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| free.client.is_set(*cpu));
        let first = only(cpus.next().or_failed("no CPU to run on")?);
        let together = Self { name: "one CPU", about: "everything on the same", client: first, other_side: first };
        let mut places = Vec::new();
        match cpus.next() {
            Some(second) => places.push(Self {
                name: "two CPUs",
                about: "client on one, the other side on another",
                client: first,
                other_side: only(second),
            }),
            None => eprintln!("only one CPU here: nothing is measured between two"),
        }
        places.extend([together, free]);
        Ok(places)
    }

    /// Wherever we may run now; so to be called before any other place has been taken.
    pub(super) fn unpinned() -> Result<Self> {
        let free = sched_getaffinity(None).or_failed("can't see which CPUs there are")?;
        Ok(Self { name: "unpinned", about: "as the scheduler likes", client: free, other_side: free })
    }

    /// Makes this thread the client's side.
    pub(super) fn take(&self) -> Result {
        pin(&self.client)
    }

    /// Does something on the other side's CPU. Processes that it starts stay there: they inherit it, and what detaches
    /// itself does too.
    pub(super) fn beside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.client == self.other_side {
            return work();
        }
        pin(&self.other_side)?;
        let result = work();
        pin(&self.client)?;
        result
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn pin(cpus: &CpuSet) -> Result {
    sched_setaffinity(None, cpus).or_failed("can't choose the CPU to run on")
}
