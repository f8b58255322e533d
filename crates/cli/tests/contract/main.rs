//! The promises of providers, runtimes and the steward's channel, kept by every one of them. A new provider is a line in
//! `provider.rs`, a new kind of runtime one in `runtime.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "helpers fail the test they are called from, as tests themselves do"
)]

mod bench;
mod containers;
mod plain_cloud;
mod provider;
mod runtime;
mod sky;
mod steward;
