//! The clouds as far as we use them, on this machine. Written from what their references say, not from our clients; they
//! really run processes and hold files, accept nothing they don't know, and fail on demand ([`faults`]). The clouds' own
//! SDKs are made to work against them too, so that our idea of the wire is theirs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::format_push_string,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    reason = "part of the tests: what goes wrong here is to be seen"
)]

pub mod agentbay;
pub mod daytona;
pub mod e2b;
pub mod faults;
pub mod machine;
