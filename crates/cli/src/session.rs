//! One call of a verb that speaks to a server.

use crate::args::Reach;
use crate::client::Client;
use crate::failure::Failure;
use crate::settings;
use std::time::{Duration, Instant};

/// Runs a verb on a runtime of its own. Threads that still wait, for input that never comes, are left behind.
pub(crate) fn run<T>(reach: &Reach, verb: impl AsyncFnOnce(Client) -> Result<T, Failure>) -> Result<T, Failure> {
    let server = settings::server(reach)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let result = runtime.block_on(verb(Client::new(server)));
    runtime.shutdown_background();
    result
}

/// Sixteen digits that nobody has used before.
pub(crate) fn fresh_digits() -> Result<String, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Runtime(std::io::Error::other(error.to_string())))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

/// How often and how long a broken connection is made anew.
#[derive(Debug)]
pub(crate) struct Patience {
    until: Option<Instant>,
    pause: Duration,
}

/// Long enough for a server to be started again, short enough for a person.
const GIVE_UP_AFTER: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl Patience {
    pub(crate) fn new() -> Self {
        Self { until: None, pause: FIRST_PAUSE }
    }

    /// All is well again.
    pub(crate) fn restore(&mut self) {
        *self = Self::new();
    }

    /// Waits before the next attempt; `false` when it is enough.
    pub(crate) async fn wait(&mut self) -> bool {
        let until = *self.until.get_or_insert_with(|| Instant::now() + GIVE_UP_AFTER);
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
