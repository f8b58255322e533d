//! Decides and remembers: threads, terminals, leases and sessions in a store, on the compute of providers.

pub mod clock;
pub mod config;
mod copy;
mod core;
mod error;
pub mod files;
pub mod http;
pub mod lease;
mod ledger;
pub mod pace;
pub mod provider;
pub mod runtime;
mod seat;
pub mod stead;
pub mod steward;
pub mod store;
pub mod token;
pub mod vault;

pub use copy::{OnProgress, Progress};
pub use error::Error;
