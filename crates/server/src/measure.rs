//! What is counted, for whoever runs this: written where it happens, read at `/metrics`.

use crate::http::status_name;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use stead_model::clock::Timestamp;
use stead_model::ids::ProviderName;
use stead_model::proto::Status;
use stead_model::session::{CloseReason, Session};

type Labels<const N: usize> = [(&'static str, String); N];

#[derive(Debug)]
pub(crate) struct Measure {
    registry: Registry,
    sessions_opened: Counter,
    sessions_closed: Family<Labels<1>, Counter>,
    session_lifetime: Histogram,
    state_updates: Counter,
    stateless: Counter,
    created: Family<Labels<2>, Counter>,
    commands: Family<Labels<1>, Counter>,
    exec: Histogram,
    /// Read when somebody looks.
    now: Present,
    pub(crate) sse_clients: Gauge,
    pub(crate) ws_clients: Gauge,
    requests: Family<Labels<3>, Counter>,
}

/// What is measured when it is asked for.
#[derive(Debug, Clone, Default)]
struct Present {
    queue: Gauge,
    shells: Gauge,
    journal: Gauge<f64, AtomicU64>,
}

/// What is there at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Commands that wait for another to end.
    pub(crate) queued: u64,
    pub(crate) shells: u64,
    /// Absent where it could not be measured.
    pub(crate) journal_bytes: Option<u64>,
}

impl Default for Measure {
    fn default() -> Self {
        // From 50 us to some 100 s; from a second to a week.
        let exec = Histogram::new(exponential_buckets(0.000_05, 2.0, 21));
        let session_lifetime = Histogram::new(exponential_buckets(1.0, 4.0, 11));
        let mut measure = Self {
            registry: Registry::with_prefix("stead"),
            sessions_opened: Counter::default(),
            sessions_closed: Family::default(),
            session_lifetime,
            state_updates: Counter::default(),
            stateless: Counter::default(),
            created: Family::default(),
            commands: Family::default(),
            exec,
            now: Present::default(),
            sse_clients: Gauge::default(),
            ws_clients: Gauge::default(),
            requests: Family::default(),
        };
        measure.register();
        measure
    }
}

impl Measure {
    fn register(&mut self) {
        let Self { registry, .. } = self;
        registry.register("sessions_opened", "Sessions opened", self.sessions_opened.clone());
        registry.register("sessions_closed", "Sessions closed, by reason", self.sessions_closed.clone());
        let lifetime = "How long sessions lived; the mean is sum by count";
        registry.register_with_unit("session_lifetime", lifetime, Unit::Seconds, self.session_lifetime.clone());
        registry.register("state_updates", "States of terminals written to the store", self.state_updates.clone());
        let stateless = "Commands that ended and left no new state";
        registry.register("commands_without_state_update", stateless, self.stateless.clone());
        let created = "Instances asked of a provider, by outcome";
        registry.register("instance_creations", created, self.created.clone());
        registry.register("commands", "Commands that ended, by status", self.commands.clone());
        let exec = "From the arrival of a command to its answer";
        registry.register_with_unit("exec_latency", exec, Unit::Seconds, self.exec.clone());
        registry.register("queue_depth", "Commands that wait for another to end", self.now.queue.clone());
        registry.register("live_shells", "Terminals with a live shell", self.now.shells.clone());
        let journal = "Output and records on disk, as last measured";
        registry.register_with_unit("journal", journal, Unit::Bytes, self.now.journal.clone());
        registry.register("sse_clients", "Event streams that are open", self.sse_clients.clone());
        registry.register("websocket_clients", "People attached to a terminal", self.ws_clients.clone());
        let requests = "HTTP requests, by method, route and status";
        registry.register("http_requests", requests, self.requests.clone());
    }

    pub(crate) fn opened(&self) {
        self.sessions_opened.inc();
    }

    pub(crate) fn closed(&self, session: &Session, reason: CloseReason, now: Timestamp) {
        self.sessions_closed.get_or_create(&[("reason", reason.as_str().to_owned())]).inc();
        self.session_lifetime.observe(now.since(session.started_at).as_secs_f64());
    }

    pub(crate) fn state_written(&self) {
        self.state_updates.inc();
    }

    pub(crate) fn created(&self, provider: &ProviderName, well: bool) {
        let outcome = if well { "created" } else { "failed" };
        self.created.get_or_create(&[("provider", provider.to_string()), ("outcome", outcome.to_owned())]).inc();
    }

    pub(crate) fn ended(&self, status: Status, state_changed: bool, took: Duration) {
        self.commands.get_or_create(&[("status", status_name(status).to_owned())]).inc();
        if !state_changed {
            self.stateless.inc();
        }
        self.exec.observe(took.as_secs_f64());
    }

    pub(crate) fn answered(&self, method: &str, route: &str, status: u16) {
        let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// All of it as text.
    pub(crate) fn write(&self, counts: Counts) -> String {
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.now.queue, counts.queued);
        set(&self.now.shells, counts.shells);
        // What isn't known is no number; 0 would be one.
        #[expect(clippy::cast_precision_loss, reason = "exact to eight petabytes")]
        self.now.journal.set(counts.journal_bytes.map_or(f64::NAN, |bytes| bytes as f64));
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Counts somebody for as long as they are there.
#[derive(Debug)]
pub(crate) struct OneOf(Gauge);

impl OneOf {
    pub(crate) fn among(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for OneOf {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_in_the_text() {
        let measure = Measure::default();
        measure.opened();
        measure.created(&ProviderName::parse("box").unwrap(), false);
        measure.ended(Status::TimedOut, false, Duration::from_millis(3));
        measure.answered("GET", "/api/version", 200);
        let held = OneOf::among(&measure.sse_clients);
        let text = measure.write(Counts { queued: 2, shells: 3, journal_bytes: Some(5) });
        for line in [
            "stead_sessions_opened_total 1",
            "stead_instance_creations_total{provider=\"box\",outcome=\"failed\"} 1",
            "stead_commands_total{status=\"timed_out\"} 1",
            "stead_commands_without_state_update_total 1",
            "stead_exec_latency_seconds_count 1",
            "stead_queue_depth 2",
            "stead_live_shells 3",
            "stead_journal_bytes 5.0",
            "stead_sse_clients 1",
            "stead_http_requests_total{method=\"GET\",route=\"/api/version\",status=\"200\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "no `{line}` in\n{text}");
        }
        drop(held);
        let later = measure.write(Counts::default());
        assert!(later.contains("stead_sse_clients 0\n") && later.contains("stead_journal_bytes NaN\n"), "{later}");
    }
}
