//! Where the hot memory of a project is in RAM, from its reading to its end.
//!
//! ```text
//! unread ─► read ─► closed          a slot that is closed stays so; the next to ask gets another
//! ```

use super::kept::Bounds;
use super::{Hot, lock};
use crate::error::Error;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use stead_model::ids::ProjectId;
use stead_model::route::Routes;
use tokio::sync::OnceCell;

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) hot: OnceCell<Arc<Hot>>,
    pub(super) used_at: AtomicU64,
    /// Held while files are read: who closes waits for it, also when nobody waits for the reading any more.
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
enum Gate {
    #[default]
    Unread,
    Read(Weak<Hot>),
    Closed,
}

impl Slot {
    pub(super) fn read(&self, dir: &Path, bounds: Bounds, routes: &Routes) -> Result<Arc<Hot>, Error> {
        let mut gate = lock(&self.gate);
        match &*gate {
            Gate::Closed => return Err(Error::Moving),
            Gate::Read(hot) => {
                if let Some(hot) = hot.upgrade() {
                    return Ok(hot);
                }
            }
            Gate::Unread => {}
        }
        let hot = Arc::new(Hot::open(dir, bounds, routes)?);
        *gate = Gate::Read(Arc::downgrade(&hot));
        Ok(hot)
    }

    /// From here on nothing is written through it, nor read into it.
    pub(super) fn close(&self) {
        let mut gate = lock(&self.gate);
        if let Gate::Read(hot) = std::mem::replace(&mut *gate, Gate::Closed)
            && let Some(hot) = hot.upgrade()
        {
            hot.close();
        }
    }
}

type Open = Mutex<HashMap<ProjectId, Arc<Slot>>>;

/// The hot memory of a project can't be opened until this is dropped.
#[derive(Debug)]
pub(crate) struct Shut {
    open: Arc<Open>,
    project: ProjectId,
    slot: Arc<Slot>,
}

impl Shut {
    /// With what was open.
    pub(super) fn new(open: &Arc<Open>, project: &ProjectId) -> (Self, Option<Arc<Slot>>) {
        let slot = Arc::new(Slot { gate: Mutex::new(Gate::Closed), ..Slot::default() });
        let before = lock(open).insert(project.clone(), Arc::clone(&slot));
        (Self { open: Arc::clone(open), project: project.clone(), slot }, before)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if open.get(&self.project).is_some_and(|slot| Arc::ptr_eq(slot, &self.slot)) {
            open.remove(&self.project);
        }
    }
}
