//! What stead is made of, as data: identifiers, the messages between a client and a steward, the records of the
//! journal, the state of a shell. Everything here is pure: no file, process, clock or random number is touched, so
//! every law can be checked by a test that takes microseconds.

pub mod access;
pub mod carry;
pub mod clock;
pub mod command;
pub mod cursor;
pub mod effect;
pub mod enclosure;
pub mod env;
pub mod epilogue;
pub mod escalate;
pub mod ferry;
pub mod frame;
pub mod ids;
pub mod lease;
pub mod lines;
pub mod memory;
pub mod notice;
pub mod place;
pub mod plain;
pub mod project;
pub mod prompt;
pub mod proto;
pub mod record;
pub mod recovery;
pub mod retention;
pub mod route;
pub mod screen_log;
pub mod session;
pub mod shell;
pub mod snapshot;
pub mod state;
pub mod terminal;
pub mod thread;
pub mod trouble;
pub mod utf8;
pub mod whole;
pub mod word;
