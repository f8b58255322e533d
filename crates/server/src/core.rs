//! What every layer needs: the store, the providers, the time, names. One struct, shared by all.

use crate::clock::{Names, Steady};
use crate::measure::Measure;
use crate::provider::{Provider, Providers};
use crate::store::Store;
use crate::vault::Vault;
use std::sync::Arc;
use stead_model::clock::{Now, Timestamp};
use stead_model::ids::{Entropy, ProviderName};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) clock: Arc<Steady>,
    pub(crate) names: Arc<dyn Names>,
    pub(crate) vault: Vault,
    /// Every task runs on it, so that a shutdown can wait for them.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Before that, while instances are left, paused or destroyed: from here on no lease is given an instance that runs.
    /// Whoever finds that an instance has gone would take it for lost, and make another.
    pub(crate) closing: CancellationToken,
    /// Before that: whoever only listens is let go, and comes back to the next server.
    pub(crate) hang_up: CancellationToken,
    pub(crate) measure: Measure,
}

#[derive(Debug, thiserror::Error)]
#[error("no provider `{name}` is configured")]
pub struct UnknownProvider {
    pub name: ProviderName,
    /// Those that are.
    pub configured: Vec<ProviderName>,
}

impl Core {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present, of which can be asked how much time has passed since something.
    pub(crate) fn present(&self) -> Now {
        self.clock.present()
    }

    pub(crate) fn entropy(&self) -> Entropy {
        self.names.entropy()
    }

    pub(crate) fn provider(&self, name: &ProviderName) -> Result<&Arc<dyn Provider>, UnknownProvider> {
        self.providers.get(name).ok_or_else(|| {
            let configured = self.providers.iter().map(|provider| provider.name().clone()).collect();
            UnknownProvider { name: name.clone(), configured }
        })
    }

    /// Does work that must be finished even if whoever asked for it goes away in the middle.
    pub(crate) async fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.tasks.spawn(work).await.ok()
    }
}
