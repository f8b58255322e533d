//! What an instance uses, as the engine counts it.

use super::super::{Effect, Handle, Metrics, ProviderError, Trouble};
use super::{Docker, engine, recipe};
use bollard::models::{ContainerMemoryStats, ContainerNetworkStats, ContainerStatsResponse};
use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_model::ids::InstanceId;

/// The last reading of each instance's processor time.
#[derive(Debug, Default)]
pub(super) struct Readings(Mutex<HashMap<InstanceId, (Instant, u64)>>);

impl Readings {
    /// Since the last time it was asked for; unknown the first time.
    fn percent(&self, instance: &InstanceId, nanos: u64) -> Option<f64> {
        let mut readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (at, before) = readings.insert(instance.clone(), (now, nanos))?;
        let span = now.duration_since(at).as_secs_f64();
        let used = Duration::from_nanos(nanos.checked_sub(before)?).as_secs_f64();
        (span > 0.0).then(|| used / span * 100.0)
    }

    pub(super) fn forget(&self, instance: &InstanceId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(instance);
    }
}

impl Docker {
    pub(super) async fn measure(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        const WHAT: &str = "measure";
        let container = self.require(handle, WHAT).await?;
        let docker = self.engine.docker(WHAT).await?;
        // Without the second reading, for which the engine would wait a second.
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let name = recipe::container_name(&handle.instance);
        let said = docker.stats(&name, Some(options)).next().await;
        let stats = match said {
            Some(Err(error)) if engine::is_absent(&error) || engine::is_conflict(&error) => {
                return Err(self.engine.error(WHAT, Trouble::NotFound, Effect::None, "there is no such instance"));
            }
            Some(stats) => stats.map_err(self.engine.failed(WHAT))?,
            None => ContainerStatsResponse::default(),
        };
        let usage = stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage);
        let networks = stats.networks.filter(|networks| !networks.is_empty());
        let sum = |of: fn(&ContainerNetworkStats) -> Option<u64>| {
            networks.as_ref().map(|networks| networks.values().filter_map(of).sum())
        };
        Ok(Metrics {
            cpu_percent: usage.and_then(|nanos| self.readings.percent(&handle.instance, nanos)),
            memory_used_bytes: stats.memory_stats.and_then(used),
            memory_limit_bytes: container.memory_limit,
            disk_used_bytes: None,
            processes: stats.pids_stats.and_then(|pids| pids.current),
            network_rx_bytes: sum(|network| network.rx_bytes),
            network_tx_bytes: sum(|network| network.tx_bytes),
        })
    }
}

/// Without what the kernel would give back at once: files that it has read.
fn used(memory: ContainerMemoryStats) -> Option<u64> {
    let detail = memory.stats.unwrap_or_default();
    let spare = ["inactive_file", "total_inactive_file", "cache"].iter().find_map(|name| detail.get(*name));
    let usage = memory.usage?;
    Some(usage.saturating_sub(spare.copied().unwrap_or(0)))
}
