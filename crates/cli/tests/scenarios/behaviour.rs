//! What was asked for beyond the scenarios that had names.

mod archives;
mod commands;
mod escapes;
mod files;
mod leases;
mod once;
mod restart;
mod sessions;
mod terminals;
mod together;
mod upkeep;
