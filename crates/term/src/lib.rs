//! The operating system as stead needs it: terminals, processes, pipes, descriptors. Linux only, on rustix.
//!
//! The only crate that may use `unsafe`, and it does in two places: between fork and exec ([`spawn`]), and for calls
//! that make namespaces and give up rights ([`enclose`]). Everything made here is close-on-exec from its first instant,
//! because a terminal that leaks into an unrelated child is a hole.

pub mod cgroup;
pub mod enclose;
pub mod fifo;
pub mod oom;
pub mod packet;
pub mod poll;
pub mod proc;
pub mod pty;
pub mod scarce;
pub mod screen;
pub mod spawn;
pub mod tree;
