//! The files of a project as the server has them, as a library.

use crate::Result;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use stead_model::route::Routes;
use stead_server::clock::SystemClock;
use stead_server::files::Condition;
use stead_server::memory::{Bounds, Hot, Kept};
use stead_server::space::{Parts, Space, parse};

pub(crate) struct Ours {
    space: Space,
    hot: Arc<Hot>,
}

impl Ours {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let routes = Arc::new(Routes::default());
        let hot = Arc::new(Hot::open(&dir.join(".memories/hot"), Bounds::default(), &routes)?);
        let state = Some(Arc::new(Kept::passing(Bounds::default(), 0)));
        let clock = Arc::new(SystemClock);
        let parts = Parts { routes, hot: Some(Arc::clone(&hot)), state, clock, memories: None };
        Ok(Self { space: Space::new(dir, parts, tokio_util::task::TaskTracker::new()), hot })
    }

    pub(crate) fn write(&self, path: &str, value: &[u8]) -> Result {
        self.space.write(&parse(path.as_bytes())?, Bytes::copy_from_slice(value), &Condition::Any)?;
        Ok(())
    }

    /// From the path as it comes to the bytes.
    pub(crate) fn read(&self, path: &str) -> Result<usize> {
        Ok(self.space.read(&parse(path.as_bytes())?, 1 << 20)?.0.len())
    }

    pub(crate) fn hot_value(&self, key: &str) -> Option<usize> {
        self.hot.kept.value(key.as_bytes()).map(|value| value.len())
    }
}
