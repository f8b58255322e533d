//! A thread: one conversation of an agent. It remembers its terminal and its lease by id, so that either comes back
//! under the same id if its row is ever lost.

use crate::clock::Timestamp;
use crate::ids::{LeaseId, ProjectId, ProviderName, TerminalId, ThreadId};
use crate::session::Policy;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub id: ThreadId,
    pub project: Option<ProjectId>,
    pub provider: ProviderName,
    pub default_terminal: TerminalId,
    pub lease: LeaseId,
    /// Which workspace its lease is to have, should the lease have to be made again.
    pub workspace: String,
    pub policy: Policy,
    pub created_at: Timestamp,
    pub last_active_at: Timestamp,
}

/// What a provider runs for a lease, as long as it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: crate::ids::InstanceId,
    pub lease: LeaseId,
    pub provider: ProviderName,
    /// By what the provider knows it, in the provider's own words.
    pub reference: String,
    pub started_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// What the provider says about it, for people.
    pub metadata: Vec<(String, String)>,
}
