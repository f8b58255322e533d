//! What was asked for beyond the scenarios that had names.

mod commands;
mod env;
mod files;
mod leases;
mod once;
mod restart;
mod secrets;
mod sessions;
mod terminals;
mod together;
mod upkeep;
