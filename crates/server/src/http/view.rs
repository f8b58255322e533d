//! Things as they are shown, by the contract's names. One place for each.

use super::problem::{ErrorDetail, Problem};
use crate::error::Error;
use crate::lease::Ready;
use crate::provider::{Availability, Capabilities, Metrics};
use crate::stead::{Orphan, ProviderView, TerminalView};
use crate::store::{KeptState, LeaseEvent};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use stead_model::clock::{Now, Timestamp};
use stead_model::command::Command;
use stead_model::ids::TerminalId;
use stead_model::lease::{Lease, Seen};
use stead_model::plain::plain;
use stead_model::proto::Status;
use stead_model::retention::{Level, Retention};
use stead_model::session::Session;
use stead_model::terminal::Terminal;
use stead_model::thread::Thread;
use utoipa::ToSchema;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T: ToSchema> {
    pub(crate) items: Vec<T>,
    /// Where the next page begins; null on the last.
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadView {
    pub(crate) id: String,
    pub(crate) project_id: Option<String>,
    pub(crate) provider: String,
    pub(crate) default_terminal_id: String,
    pub(crate) lease_id: String,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
    #[schema(format = DateTime)]
    pub(crate) last_active_at: String,
    /// How long it is kept; null for one in a project, with which it is kept.
    pub(crate) retention: Option<RetentionView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetentionView {
    /// `active`, `warned`, `marked` or `trashed`.
    pub(crate) status: &'static str,
    /// `warning`, `reminder` or `final`; null as long as nobody had to be warned.
    pub(crate) warning_level: Option<&'static str>,
    /// When it is marked if nobody uses it until then.
    #[schema(format = DateTime)]
    pub(crate) expires_at: String,
}

impl ThreadView {
    pub(crate) fn new(thread: Thread, retention: Option<Retention>) -> Self {
        let retention = retention.map(|kept| RetentionView {
            status: kept.standing().as_str(),
            warning_level: kept.notified.map(Level::as_str),
            expires_at: kept.expires_at.to_string(),
        });
        Self {
            retention,
            id: thread.id.to_string(),
            project_id: thread.project.map(|project| project.to_string()),
            provider: thread.provider.to_string(),
            default_terminal_id: thread.default_terminal.to_string(),
            lease_id: thread.lease.to_string(),
            created_at: thread.created_at.to_string(),
            last_active_at: thread.last_active_at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyView {
    pub(crate) idle_timeout_s: u64,
    pub(crate) max_duration_s: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    pub(crate) session_id: String,
    pub(crate) thread_id: String,
    pub(crate) terminal_id: String,
    pub(crate) lease_id: String,
    /// `active`, `idle`, `paused`, `closed` or `failed`.
    pub(crate) status: &'static str,
    pub(crate) policy: PolicyView,
    #[schema(format = DateTime)]
    pub(crate) started_at: String,
    #[schema(format = DateTime)]
    pub(crate) last_active_at: String,
    #[schema(format = DateTime)]
    pub(crate) expires_at: String,
    #[schema(format = DateTime)]
    pub(crate) ended_at: Option<String>,
    pub(crate) close_reason: Option<&'static str>,
}

impl SessionView {
    pub(crate) fn new(session: &Session, now: &Now) -> Self {
        Self {
            session_id: session.id.to_string(),
            thread_id: session.thread.to_string(),
            terminal_id: session.terminal.to_string(),
            lease_id: session.lease.to_string(),
            status: session.status.as_str(),
            policy: PolicyView {
                idle_timeout_s: session.policy.idle_timeout.as_secs(),
                max_duration_s: session.policy.max_duration.as_secs(),
            },
            started_at: session.started_at.to_string(),
            last_active_at: session.last_active_at.to_string(),
            expires_at: session.expires_at(now).to_string(),
            ended_at: session.ended.map(|(at, _)| at.to_string()),
            close_reason: session.ended.map(|(_, reason)| reason.as_str()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TerminalShown {
    pub(crate) terminal_id: String,
    pub(crate) thread_id: String,
    pub(crate) lease_id: String,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) state: StateView,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
    #[schema(format = DateTime)]
    pub(crate) updated_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StateView {
    pub(crate) cwd: String,
    /// Name to value; null where a variable of the fresh shell is gone.
    pub(crate) env_delta: BTreeMap<String, Option<String>>,
    pub(crate) functions: Vec<String>,
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) options: BTreeMap<String, bool>,
    pub(crate) umask: Option<String>,
    /// Grows by one with each finished command.
    pub(crate) version: u64,
}

impl From<TerminalView> for StateView {
    fn from(view: TerminalView) -> Self {
        let TerminalView { cwd, env_delta, functions, aliases, options, umask, version } = view;
        let cwd = if cwd.is_empty() { "/workspace".to_owned() } else { cwd };
        Self { cwd, env_delta, functions, aliases, options, umask, version }
    }
}

impl From<Terminal> for TerminalShown {
    fn from(terminal: Terminal) -> Self {
        Self {
            terminal_id: terminal.id.to_string(),
            thread_id: terminal.thread.to_string(),
            lease_id: terminal.lease.to_string(),
            state: TerminalView::new(&terminal.state, terminal.version).into(),
            name: terminal.name,
            created_at: terminal.created_at.to_string(),
            updated_at: terminal.updated_at.to_string(),
        }
    }
}

/// A version of a terminal whose content differed from the one before.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeptView {
    #[serde(flatten)]
    pub(crate) state: StateView,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
}

impl From<KeptState> for KeptView {
    fn from(kept: KeptState) -> Self {
        let state = TerminalView::new(&kept.state, kept.version).into();
        Self { state, created_at: kept.at.to_string() }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WarningView {
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceView {
    pub(crate) instance_id: String,
    pub(crate) status: &'static str,
    #[schema(format = DateTime)]
    pub(crate) started_at: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaseView {
    pub(crate) lease_id: String,
    pub(crate) provider: String,
    /// `running`, `paused` or `destroyed`.
    pub(crate) desired_state: &'static str,
    /// `none`, `creating`, `running`, `paused`, `stopped` or `unknown`.
    pub(crate) observed_state: &'static str,
    #[schema(format = DateTime)]
    pub(crate) observed_at: Option<String>,
    pub(crate) version: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) warnings: Vec<WarningView>,
    pub(crate) instance: Option<InstanceView>,
    /// The terminals that use it.
    pub(crate) terminals: Vec<String>,
}

impl LeaseView {
    pub(crate) fn new(ready: Ready, terminals: Vec<TerminalId>) -> Self {
        let Ready { lease, instance } = ready;
        let status = lease.observed.as_str();
        let instance = instance.filter(|instance| lease.instance.as_ref() == Some(&instance.id));
        let instance = instance.map(|instance| InstanceView {
            instance_id: instance.id.to_string(),
            status,
            started_at: instance.started_at.to_string(),
            metadata: instance.metadata.into_iter().collect(),
        });
        let warning = |caveat: stead_model::lease::Caveat| WarningView { code: caveat.code, message: caveat.message };
        let Lease { id, provider, desired, observed_at, version, last_error, caveats, .. } = lease;
        Self {
            lease_id: id.to_string(),
            provider: provider.to_string(),
            desired_state: desired.as_str(),
            observed_state: status,
            observed_at: observed_at.map(|at| at.to_string()),
            version,
            last_error: last_error.map(|error| plain(&error)),
            warnings: caveats.into_iter().map(warning).collect(),
            instance,
            terminals: terminals.into_iter().map(|terminal| terminal.to_string()).collect(),
        }
    }
}

/// Null where it isn't known.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricsView {
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) memory_used_bytes: Option<u64>,
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) disk_used_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) network_rx_bytes: Option<u64>,
    pub(crate) network_tx_bytes: Option<u64>,
}

impl From<Metrics> for MetricsView {
    fn from(metrics: Metrics) -> Self {
        let Metrics {
            cpu_percent,
            memory_used_bytes,
            memory_limit_bytes,
            disk_used_bytes,
            processes,
            network_rx_bytes,
            network_tx_bytes,
        } = metrics;
        Self {
            cpu_percent,
            memory_used_bytes,
            memory_limit_bytes,
            disk_used_bytes,
            processes,
            network_rx_bytes,
            network_tx_bytes,
        }
    }
}

/// One entry of a lease's event log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    pub(crate) id: String,
    pub(crate) lease_id: String,
    /// The lease's version after it.
    pub(crate) version: u64,
    pub(crate) kind: String,
    /// Who caused it.
    pub(crate) source: String,
    #[schema(value_type = Object)]
    pub(crate) payload: Value,
    pub(crate) error: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
}

impl From<LeaseEvent> for EventView {
    fn from(event: LeaseEvent) -> Self {
        Self {
            id: event.id.to_string(),
            lease_id: event.lease.to_string(),
            version: event.version,
            kind: event.kind,
            source: event.source,
            payload: serde_json::from_str(&event.payload).unwrap_or(Value::Null),
            error: event.error,
            created_at: event.at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CapabilitiesView {
    pub(crate) pause: bool,
    /// A pause keeps processes as they are; else the disk alone, and shells begin again with their state.
    pub(crate) live_pause: bool,
    pub(crate) metrics: bool,
    /// Shells live on and commands can be followed; else each command is one call.
    pub(crate) steward: bool,
    /// Output and state outlive the instance by themselves.
    pub(crate) durable_journal: bool,
    /// Keeps one sandbox from another and from the host.
    pub(crate) isolated: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProviderShown {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) available: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
    pub(crate) hint: Option<String>,
    /// What is worth knowing about it here.
    pub(crate) notes: Vec<String>,
    /// For threads that name none.
    pub(crate) default: bool,
    pub(crate) capabilities: CapabilitiesView,
}

impl From<ProviderView> for ProviderShown {
    fn from(view: ProviderView) -> Self {
        let (available, reason, hint, notes) = match view.availability {
            Availability::Works(notes) => (true, None, None, notes),
            Availability::Missing { why, hint } => (false, Some(why), hint, Vec::new()),
            Availability::NotNow { why } => (false, Some(why), None, Vec::new()),
        };
        let Capabilities { pause, live_pause, metrics, steward, durable_journal, isolated } = view.capabilities;
        Self {
            name: view.name.to_string(),
            kind: view.kind,
            available,
            reason,
            hint,
            notes,
            default: view.is_default,
            capabilities: CapabilitiesView { pause, live_pause, metrics, steward, durable_journal, isolated },
        }
    }
}

/// An instance that a provider has and no lease knows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrphanView {
    pub(crate) instance_id: String,
    pub(crate) provider: String,
    pub(crate) lease_id: String,
    pub(crate) status: &'static str,
}

impl From<Orphan> for OrphanView {
    fn from(orphan: Orphan) -> Self {
        let status = match orphan.seen {
            Seen::Running => "running",
            Seen::Paused => "paused",
            Seen::Gone => "none",
            Seen::Unclear => "unknown",
        };
        Self {
            instance_id: orphan.handle.instance.to_string(),
            provider: orphan.provider.to_string(),
            lease_id: orphan.handle.lease.to_string(),
            status,
        }
    }
}

/// One execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommandView {
    pub(crate) id: String,
    pub(crate) thread_id: String,
    pub(crate) terminal_id: String,
    pub(crate) session_id: Option<String>,
    pub(crate) command: String,
    /// `queued`, `running`, `exited`, `timed_out`, `cancelled`, `failed` or `lost`.
    pub(crate) status: &'static str,
    /// Null where there is none, or none is known; never 0 for that.
    pub(crate) exit_code: Option<i32>,
    /// The signal by which the shell itself died.
    pub(crate) signal: Option<String>,
    pub(crate) timed_out: bool,
    pub(crate) shell_exited: bool,
    pub(crate) shell_replaced: bool,
    /// Whether one of its processes was killed for want of memory; null where nobody can know.
    pub(crate) oom_killed: Option<bool>,
    /// What is worth a word, by `code`: `shell_restarted`, `shell_mute`; of the shell's state `state_not_captured`,
    /// `state_not_stored`, `state_not_restored`, `state_restored` (its file was damaged, and nothing is lost), `state_lost`
    /// (an older version was taken); `stdout_redirected` and `stderr_redirected` (a command has pointed that output of the
    /// shell elsewhere); `cwd_missing`, `secret_not_kept`, `output_evicted`, `output_not_copied`, `journal_damaged`. There may
    /// be others.
    pub(crate) warnings: Vec<WarningView>,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    /// Background children may still write.
    pub(crate) streams_open: bool,
    pub(crate) error: Option<FailureView>,
    pub(crate) cwd: Option<String>,
    pub(crate) state_version: Option<u64>,
    pub(crate) state_changed: bool,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
    #[schema(format = DateTime)]
    pub(crate) started_at: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) ended_at: Option<String>,
    pub(crate) duration_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureView {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

pub(crate) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Queued => "queued",
        Status::Running => "running",
        Status::Exited => "exited",
        Status::TimedOut => "timed_out",
        Status::Cancelled => "cancelled",
        Status::Failed => "failed",
        Status::Lost => "lost",
    }
}

impl From<Command> for CommandView {
    fn from(command: Command) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ended = command.status.is_final();
        let ending = command.ending.unwrap_or_else(|| stead_model::proto::Ending::new(command.status, None)).or_lost();
        // A row from before may say that it exited, without a code: nobody saw how.
        let status = if command.status == Status::Exited { ending.status } else { command.status };
        let span = |from: Timestamp, to: Timestamp| u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX);
        let failure = |fault: stead_model::proto::Fault| {
            let ErrorDetail { code, message, .. } = Problem::from(Error::Refused(fault)).detail().clone();
            FailureView { code, message }
        };
        let warning =
            |warning: stead_model::proto::Warning| WarningView { code: warning.code, message: plain(&warning.message) };
        Self {
            id: command.id.to_string(),
            thread_id: command.thread.to_string(),
            terminal_id: command.terminal.to_string(),
            session_id: command.session.map(|session| session.to_string()),
            command: text(&command.text),
            status: status_name(status),
            exit_code: ending.exit_code,
            signal: ending.signal.map(signal_name),
            timed_out: command.status == Status::TimedOut,
            shell_exited: ending.shell_exited,
            shell_replaced: ending.shell_replaced,
            oom_killed: ending.oom_killed,
            warnings: ending.warnings.into_iter().map(warning).collect(),
            stdout_bytes: command.stdout_bytes,
            stderr_bytes: command.stderr_bytes,
            streams_open: ending.streams_open,
            error: ending.error.map(failure),
            cwd: (!command.cwd.is_empty()).then(|| text(&command.cwd)),
            state_version: ended.then_some(command.state_version).filter(|version| *version > 0),
            state_changed: ending.state_changed,
            created_at: command.created_at.to_string(),
            started_at: command.started_at.map(|at| at.to_string()),
            ended_at: command.ended_at.map(|at| at.to_string()),
            duration_ms: command.started_at.zip(command.ended_at).map(|(from, to)| span(from, to)),
        }
    }
}

/// By number, from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// `KILL` for 9; a number that has no name as it is.
pub(super) fn signal_name(number: i32) -> String {
    let named = usize::try_from(number).ok().and_then(|number| SIGNALS.get(number.checked_sub(1)?));
    named.map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_shown_by_their_names() {
        for (number, name) in [(1, "HUP"), (6, "ABRT"), (9, "KILL"), (15, "TERM"), (31, "SYS"), (34, "34"), (0, "0")] {
            assert_eq!(signal_name(number), name);
        }
    }
}
