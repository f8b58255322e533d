//! What was asked for beyond the scenarios that had names.

mod archives;
mod commands;
mod env;
mod escapes;
mod files;
mod forks;
mod leases;
mod lists;
mod moves;
mod once;
mod restart;
mod secrets;
mod sessions;
mod terminals;
mod together;
mod upkeep;
