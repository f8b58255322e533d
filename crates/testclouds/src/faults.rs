//! What is to go wrong, said beforehand by a test: the next call that fits fails in that way, once.

use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Refused before anything is done, with this status; 429 with `Retry-After: 0`.
    Refuse(u16),
    /// Done, and then answered with this status.
    AfterSuccess(u16),
    /// Done, and then never answered.
    NoAnswer,
    /// The connection is closed in the middle of the answer, after so many bytes of its body.
    Cut(usize),
    /// Answered with something that is not what it should be.
    Nonsense,
}

#[derive(Debug, Clone)]
struct Planned {
    /// `METHOD /path` begins with it, or has it in it.
    call: String,
    fault: Fault,
}

/// Shared by a test and the server it is against.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    planned: Arc<Mutex<Vec<Planned>>>,
    /// Every call that came, as `METHOD /path`.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Faults {
    /// The next call whose `METHOD /path` has `call` in it fails so.
    pub fn plan(&self, call: &str, fault: Fault) {
        self.planned.lock().unwrap().push(Planned { call: call.to_owned(), fault });
    }

    /// Asked by the server for each call.
    pub fn take(&self, call: &str) -> Option<Fault> {
        self.calls.lock().unwrap().push(call.to_owned());
        let mut planned = self.planned.lock().unwrap();
        let at = planned.iter().position(|planned| call.contains(&planned.call))?;
        Some(planned.remove(at).fault)
    }

    /// How many calls came with this in their `METHOD /path`.
    pub fn count(&self, call: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|seen| seen.contains(call)).count()
    }

    /// Whether all that was planned has happened.
    pub fn are_over(&self) -> bool {
        self.planned.lock().unwrap().is_empty()
    }
}
