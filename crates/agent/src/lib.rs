//! Terminal agents, without the terminals: what they say, what they are told, and what a turn of theirs is made of.
//!
//! ```text
//! bytes of an agent ──► machine ──► events of a turn, the same for every agent
//!                          │
//!                          └──────► bytes for the agent
//! ```
//!
//! Nothing here starts a process, reads a clock or waits: a machine is told what came and says what follows. It can be
//! written down at any line and go on from there, so that a turn outlives whoever follows it. Agents differ in data
//! ([`spec`]) and in which of three transports they speak ([`acp`], [`jsonl`], [`pty`]); nothing above knows more.

pub mod acp;
pub mod event;
pub mod jsonl;
pub mod key;
pub mod machine;
pub mod pty;
pub mod spec;
mod wire;

pub use event::{Decision, Event, Failure, Permission, PermissionOption, Policy, Tool, ToolStatus, Usage};
pub use key::SessionKey;
pub use machine::{Effects, Machine, Setup, Told};
pub use spec::{Spec, Specs, Transport};
