//! The steward as a whole: the real binary, real shells, real kills. Each test has a directory and a steward of its own.

mod basics;
mod hard_cases;
mod hygiene;
mod input;
mod isolation;
mod overlays;
mod queue;
mod rig;
