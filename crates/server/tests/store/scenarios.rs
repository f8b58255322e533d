//! The scenarios by which the layers were first described, each under its name.

mod chat_session;
mod lease;
mod terminal;
