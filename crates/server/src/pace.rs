//! Where a fake lets others go first. Whoever tests chooses how often, so that one seed gives one interleaving and
//! another seed another.

use std::sync::Arc;

/// Asked before and after each thing that is done; it says how many times everybody else gets a turn. By default never.
#[derive(Clone, Default)]
pub struct Pace(Option<Arc<dyn Fn() -> u32 + Send + Sync>>);

impl Pace {
    pub fn new(turns: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(turns)))
    }

    pub(crate) async fn wait(&self) {
        if let Some(turns) = &self.0 {
            for _ in 0..turns() {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Pace" } else { "Pace(none)" })
    }
}
