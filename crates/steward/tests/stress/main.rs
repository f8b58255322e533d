//! The steward under random kills and cancellations. Each test has a directory and a steward of its own.

mod cancel;
mod crash;
#[path = "../it/rig.rs"]
mod rig;
