//! What can go wrong with compute, in the few ways that matter to whoever asked for it.

/// Whether a call that failed can have done what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    NotFound,
    Conflict,
    Denied,
    /// A quota, a limit.
    Exhausted,
    /// A disk is full: asking again helps when somebody has made room.
    NoSpace,
    /// Processes, namespaces, open files: the machine has none to spare at the moment, and will when others end.
    UsedUp,
    /// Worth trying again.
    Unavailable,
    TimedOut,
    /// This provider can't.
    Unsupported,
    /// It broke its contract, or we ours.
    Broken,
}
