//! What must last: a shell's state over the death of everything, shells that are not bash, the smallest system that a
//! steward can live in, and the journal. Each test has a directory and a steward of its own.

mod bare_root;
mod journal;
mod posix;
#[path = "../it/rig.rs"]
mod rig;
mod state;
