//! Ends: of a turn, of a process, and what follows when either comes uncalled.

use super::ledger::Step;
use super::owner::Owner;
use crate::error::Error;
use crate::stead::{CommandEvent, Follow};
use crate::store::{Ending, Worth};
use std::time::Duration;
use stead_agent::Event;
use stead_model::command::Command;
use stead_model::ids::CommandId;
use stead_model::plain::plain;
use stead_model::proto::FirstSignal;
use tokio::time::Instant;

/// How long an agent whose input was closed may take to end by itself.
const BY_ITSELF: Duration = Duration::from_secs(2);

/// The try that begins another conversation: an agent that ended twice before it listened may not survive the old one.
const WITHOUT_IT: u32 = 2;

impl Owner {
    /// The conversation to start a process with.
    pub(super) fn conversation(&self) -> Option<String> {
        self.session.resume.clone().filter(|_| self.tries < WITHOUT_IT)
    }

    /// Asks the agent to let go of the turn.
    pub(super) async fn interrupt(&mut self, cause: Ending) -> Result<(), Error> {
        match self.ending {
            // Whoever asks for it means it more than the clock does.
            Some((_, since)) if cause == Ending::Asked => self.ending = Some((cause, since)),
            Some(_) => {}
            None => self.ending = Some((cause, Instant::now())),
        }
        if cause == Ending::Silence && self.driver.as_ref().is_some_and(|driver| !driver.is_ready()) {
            // It never came to listen: there is nobody to ask.
            return self.give_up().await;
        }
        let screen = self.spec().and_then(|spec| spec.screen);
        let mut step = Step::new(&self.session);
        if cause == Ending::Asked {
            step.worth = Worth::Promised;
        }
        match &mut self.driver {
            Some(driver) => {
                let effects = driver.interrupt(screen.as_ref());
                self.take(effects, &mut step);
            }
            None => step.events.push(Event::Aborted {}),
        }
        self.commit(step).await
    }

    /// It did not let go in time.
    pub(super) async fn give_up(&mut self) -> Result<(), Error> {
        self.stop_process().await;
        let mut step = Step::new(&self.session);
        step.session.process = None;
        // What it says of itself is put right when it is written.
        step.events.push(Event::Aborted {});
        self.commit(step).await
    }

    pub(super) async fn fail_run(&mut self, code: &str, message: &str) -> Result<(), Error> {
        let mut step = Step::new(&self.session);
        step.events.push(Event::error(code, message));
        self.commit(step).await
    }

    /// The conversation that was to be gone on with is not there: once more, without it.
    pub(super) async fn start_fresh(&mut self) -> Result<(), Error> {
        self.stop_process().await;
        let mut step = Step::new(&self.session);
        (step.session.process, step.session.resume) = (None, None);
        step.events.push(Event::status("the earlier conversation can't be resumed; a new one is begun"));
        self.commit(step).await?;
        if self.run.is_some() { self.begin_turn().await } else { Ok(()) }
    }

    /// The process is no more. `None`: nobody knows how it ended.
    pub(super) async fn process_ended(&mut self, command: Option<&Command>) -> Result<(), Error> {
        let process = self.session.process.clone();
        (self.driver, self.output, self.screen) = (None, None, None);
        self.send_again = None;
        let mut step = Step::new(&self.session);
        step.session.process = None;
        let reached = process.as_ref().is_some_and(|process| process.resumed.is_some());
        if self.run.is_none() {
            return self.commit(step).await;
        }
        if self.ending.is_some() {
            step.events.push(Event::Aborted {});
            return self.commit(step).await;
        }
        let tries = if self.session.resume.is_some() { WITHOUT_IT } else { 1 };
        if !reached && self.tries < tries {
            // The message never got to it. What it was to resume may be why; it is forgotten when it is known that
            // the agent starts without it, and not before.
            self.tries += 1;
            if self.tries == WITHOUT_IT {
                step.events.push(Event::status("it does not start with the earlier conversation; now without it"));
            }
            self.commit(step).await?;
            return self.begin_turn().await;
        }
        step.events.push(Event::error("agent_died", self.last_words(command)));
        self.commit(step).await
    }

    fn last_words(&self, command: Option<&Command>) -> String {
        let ending = command.and_then(|command| command.ending.as_ref());
        let how = match ending.and_then(|ending| ending.exit_code) {
            Some(code) => format!("the agent's process ended with status {code}"),
            None => "the agent's process ended, nobody knows how".to_owned(),
        };
        let said = plain(&String::from_utf8_lossy(&self.stderr));
        let said = said.trim();
        let begin = said.char_indices().rev().nth(800).map_or(0, |(at, _)| at);
        match said.get(begin..).filter(|said| !said.is_empty()) {
            Some(said) => format!("{how}: {said}"),
            None => how,
        }
    }

    /// Ends the process with everything it has started. Its row is for the caller to change.
    pub(super) async fn stop_process(&mut self) {
        let Some(process) = self.session.process.clone() else { return };
        let Ok(command) = CommandId::parse(&process.command) else { return };
        let stead = self.shared.stead.clone();
        if self.screen.is_none() {
            let offset = process.sent;
            let close = stead.send_stdin_at(&command, offset, process.unsent.into_bytes(), true);
            let closed = matches!(tokio::time::timeout(BY_ITSELF, close).await, Ok(Ok(())));
            if let Some(output) = self.output.as_mut().filter(|_| closed) {
                let _ = tokio::time::timeout(BY_ITSELF, end_of(output)).await;
            }
        }
        (self.driver, self.output, self.screen) = (None, None, None);
        for signal in [FirstSignal::Terminate, FirstSignal::Kill] {
            match stead.known_command(&command).await {
                Ok(Some(row)) if !row.status.is_final() => {}
                Ok(_) | Err(_) => break,
            }
            if let Err(error) = stead.cancel(&command, signal).await {
                tracing::warn!(%error, %command, "an agent's process could not be ended");
            }
        }
        super::sweep::end_marked(&process.command).await;
    }
}

async fn end_of(output: &mut Follow) {
    while let Some(Ok(event)) = output.next().await {
        if matches!(event, CommandEvent::Ended { .. }) {
            return;
        }
    }
}
