//! Decides and remembers: threads, terminals, leases and sessions in a store, on the compute of providers.

pub mod agents;
pub mod clock;
pub mod config;
mod copy;
mod core;
mod error;
mod extents;
pub mod files;
pub mod fsck;
pub mod http;
pub mod lease;
mod ledger;
mod measure;
pub mod memory;
pub mod pace;
pub mod project;
pub mod provider;
pub mod room;
pub mod runtime;
mod seat;
pub mod space;
pub mod stead;
pub mod steward;
pub mod steward_program;
mod stoppable;
pub mod store;
pub mod token;
pub mod vault;
pub mod webhook;

pub use copy::{OnProgress, Progress};
pub use error::Error;
