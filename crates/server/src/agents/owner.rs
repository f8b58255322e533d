//! The owner of one session: the only task that changes its row, and the only one that speaks with its agent.
//!
//! ```text
//!            message                  ready, or it runs already
//! resting ───────────► starting ─────────────────────────► turn ──last event──► idle ──message──► turn
//!    ▲                    │ can't                            │ agent dies          │
//!    │                    ▼                                  ▼                     │ nobody used it for a while
//!    └───────────── run has an error ◄───────────────────────┘                     │
//!    └────────────────────────────── process ended ◄───────────────────────────────┘
//! ```

use super::driver::{Driver, Lines};
use super::ledger::Step;
use super::screen::Emulator;
use super::{IfBusy, Shared};
use crate::error::Error;
use crate::stead::{CommandEvent, Follow};
use crate::store::{AgentRun, AgentSession, Ending, RunStatus, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;
use stead_agent::{Decision, Event, Permission, Policy, Spec};
use stead_model::clock::Timestamp;
use stead_model::frame::Stream;
use stead_model::ids::RunId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Messages that may wait for one session.
const MOST_QUEUED: usize = 64;

/// Of what an agent says to people who run it; shown when it dies.
const MOST_STDERR: usize = 4096;

/// What is read at once before it is written down.
const MOST_READ: usize = 256 << 10;

type Reply<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
pub(crate) enum Ask {
    Prompt {
        run: Box<AgentRun>,
        if_busy: IfBusy,
        reply: Reply<AgentRun>,
    },
    Abort {
        run: RunId,
        reply: Reply<()>,
    },
    Answer {
        run: RunId,
        permission: String,
        option: String,
        reply: Reply<()>,
    },
    Hold {
        reply: Reply<Held>,
    },
    /// What becomes of questions from now on.
    Policy {
        policy: Policy,
        reply: Reply<AgentSession>,
    },
    /// Everything ends, whoever is in the middle of it.
    End {
        reply: Reply<()>,
    },
}

/// A session whose owner waits. Dropped, it goes on as if nothing had been.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) session: AgentSession,
    verdict: oneshot::Sender<(Verdict, oneshot::Sender<()>)>,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    /// Its row is this one now; its process, if it had one, is to end.
    Changed(Box<AgentSession>),
    Removed,
}

impl Held {
    /// Lets the owner go on with this; what is returned resolves when it has done what follows.
    pub(crate) fn become_(self, verdict: Verdict) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        let _ = self.verdict.send((verdict, done));
        ended
    }
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) session: AgentSession,
    inbox: mpsc::Receiver<Ask>,
    /// The message that the agent works on.
    pub(super) run: Option<AgentRun>,
    pub(super) queue: VecDeque<AgentRun>,
    pub(super) driver: Option<Driver>,
    pub(super) output: Option<Follow>,
    pub(super) lines: Lines,
    pub(super) stderr: Vec<u8>,
    pub(super) screen: Option<Emulator>,
    /// When something last happened in the turn.
    pub(super) active: Instant,
    /// When the oldest question was asked.
    pub(super) asked: Option<Instant>,
    pub(super) ending: Option<(Ending, Instant)>,
    /// What is to be said of this turn when its start has been told.
    pub(super) before_start: Vec<Event>,
    /// How often the process of this turn was started once more, because it ended before it listened.
    pub(super) tries: u32,
    /// A turn has ended in which the agent may have renewed its login.
    pub(super) renewed: bool,
    /// Its thread may have a shell, and an instance around it.
    pub(super) sits: bool,
    /// What could not be sent is tried again then.
    pub(super) send_again: Option<Instant>,
    pub(super) over: bool,
}

impl Owner {
    pub(super) fn new(shared: Arc<Shared>, session: AgentSession, inbox: mpsc::Receiver<Ask>) -> Self {
        Self {
            shared,
            session,
            inbox,
            run: None,
            queue: VecDeque::new(),
            driver: None,
            output: None,
            lines: Lines::default(),
            stderr: Vec::new(),
            screen: None,
            active: Instant::now(),
            asked: None,
            ending: None,
            before_start: Vec::new(),
            tries: 0,
            renewed: false,
            sits: false,
            send_again: None,
            over: false,
        }
    }

    pub(super) fn spec(&self) -> Option<Spec> {
        self.shared.settings.specs.get(&self.session.key.provider).cloned()
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stead.stopping();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            outcome = self.work() => {
                if let Err(error) = outcome {
                    tracing::error!(%error, session = %self.session.id, "an agent session has lost its owner");
                }
            }
        }
    }

    async fn work(&mut self) -> Result<(), Error> {
        self.restore().await?;
        while !self.over {
            self.next_message().await?;
            self.send().await?;
            self.settle().await;
            let deadline = self.deadline();
            let sleep = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ask = self.inbox.recv() => match ask {
                    Some(ask) => self.asked_for(ask).await?,
                    None => return Ok(()),
                },
                event = next(&mut self.output) => self.heard(event).await?,
                () = sleep => self.time_has_come().await?,
            }
        }
        Ok(())
    }

    /// Goes on where an earlier owner stopped.
    async fn restore(&mut self) -> Result<(), Error> {
        let session = self.shared.store.agent_session(&self.session.id).await?;
        self.session =
            session.ok_or_else(|| Error::NotFound { kind: "agent session", id: self.session.id.to_string() })?;
        let mut open: VecDeque<_> = self.shared.store.open_agent_runs(&self.session.id).await?.into();
        if open.front().is_some_and(|run| run.status == RunStatus::Running) {
            self.run = open.pop_front();
        }
        self.queue = open;
        self.sits = self.session.process.is_some() || self.run.is_some();
        if self.session.process.is_some() {
            let ending = self.session.process.as_ref().and_then(|process| process.ending);
            self.ending = ending.filter(|_| self.run.is_some()).map(|cause| (cause, Instant::now()));
            self.find_process().await?;
        } else if self.run.is_some() {
            // It was taken and not yet begun with.
            self.begin_turn().await?;
        }
        Ok(())
    }

    /// Takes the next message if nobody's turn is on.
    async fn next_message(&mut self) -> Result<(), Error> {
        while self.run.is_none() {
            let Some(run) = self.queue.pop_front() else { return Ok(()) };
            self.tries = 0;
            self.run = Some(AgentRun { status: RunStatus::Running, started_at: Some(self.shared.clock.now()), ..run });
            let step = Step::new(&self.session);
            self.commit(step).await?;
            self.begin_turn().await?;
        }
        Ok(())
    }

    async fn asked_for(&mut self, ask: Ask) -> Result<(), Error> {
        match ask {
            Ask::Prompt { run, if_busy, reply } => {
                let taken = self.take_message(*run, if_busy).await;
                let _ = reply.send(taken);
            }
            Ask::Abort { run, reply } => {
                let aborted = self.abort(&run).await;
                let _ = reply.send(aborted);
            }
            Ask::Answer { run, permission, option, reply } => {
                let answered = self.answer(&run, &permission, &option).await;
                let _ = reply.send(answered);
            }
            Ask::Hold { reply } => self.hold(reply).await?,
            Ask::Policy { policy, reply } => {
                let mut step = Step::promised(&self.session);
                step.session.policy = policy;
                let kept = self.commit(step).await;
                let _ = reply.send(kept.map(|()| self.session.clone()));
            }
            Ask::End { reply } => {
                let ended = self.end().await;
                let _ = reply.send(ended);
            }
        }
        Ok(())
    }

    async fn take_message(&mut self, run: AgentRun, if_busy: IfBusy) -> Result<AgentRun, Error> {
        let busy = self.run.is_some() || !self.queue.is_empty();
        if busy && if_busy == IfBusy::Reject {
            return Err(Error::SessionInUse(self.session.key.to_string()));
        }
        if self.queue.len() >= MOST_QUEUED {
            let message = format!("{MOST_QUEUED} messages wait for this session already");
            let fault = stead_model::proto::Fault::new(stead_model::proto::FaultCode::LimitReached, message);
            return Err(Error::Refused(fault));
        }
        let run = AgentRun { conversation: self.session.conversation, ..run };
        match self.shared.store.put_agent_run(&run).await {
            Ok(()) => {}
            Err(StoreError::AlreadyExists { kind, id }) => return Err(Error::AlreadyExists { kind, id }),
            Err(error) => return Err(error.into()),
        }
        self.queue.push_back(run.clone());
        Ok(run)
    }

    async fn abort(&mut self, id: &RunId) -> Result<(), Error> {
        if let Some(at) = self.queue.iter().position(|run| run.id == *id) {
            if let Some(run) = self.queue.remove(at) {
                self.end_queued(run).await?;
            }
            return Ok(());
        }
        if self.run.as_ref().is_some_and(|run| run.id == *id) {
            self.interrupt(Ending::Asked).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, run: &RunId, permission: &str, option: &str) -> Result<(), Error> {
        let missing = || Error::NotFound { kind: "permission", id: permission.to_owned() };
        if self.run.as_ref().is_none_or(|current| current.id != *run) {
            return Err(missing());
        }
        let screen = self.spec().and_then(|spec| spec.screen);
        let Some(driver) = &mut self.driver else { return Err(missing()) };
        let effects = driver.answer(screen.as_ref(), permission, Some(option)).map_err(|error| match error {
            stead_agent::machine::AnswerError::NoSuchQuestion(_) => missing(),
            stead_agent::machine::AnswerError::NoSuchOption { .. } => Error::Invalid(error.to_string()),
        })?;
        let mut step = Step::promised(&self.session);
        self.take(effects, &mut step);
        self.active = Instant::now();
        self.commit(step).await
    }

    async fn hold(&mut self, reply: Reply<Held>) -> Result<(), Error> {
        if self.run.is_some() || !self.queue.is_empty() {
            let _ = reply.send(Err(Error::SessionInUse(self.session.key.to_string())));
            return Ok(());
        }
        let (verdict, decided) = oneshot::channel();
        if reply.send(Ok(Held { session: self.session.clone(), verdict })).is_err() {
            return Ok(());
        }
        let Ok((verdict, done)) = decided.await else { return Ok(()) };
        self.stop_process().await;
        match verdict {
            Verdict::Changed(session) => {
                self.session = *session;
                self.settle().await;
            }
            Verdict::Removed => self.over = true,
        }
        let _ = done.send(());
        Ok(())
    }

    /// The agent has said something, or its process has ended.
    async fn heard(&mut self, event: Heard) -> Result<(), Error> {
        let mut step = Step::new(&self.session);
        let mut read = 0;
        let mut next = Some(event);
        let mut ended = None;
        while let Some(event) = next.take() {
            match event {
                Heard::Event(CommandEvent::Output(chunk)) => {
                    read += chunk.bytes.len();
                    match chunk.stream {
                        Stream::Stdout if self.screen.is_some() => self.draw(&chunk, &mut step).await,
                        Stream::Stdout => self.read(&chunk, &mut step),
                        Stream::Stderr => self.note_stderr(&chunk.bytes),
                    }
                }
                Heard::Event(CommandEvent::Ended { command, .. }) => ended = Some(Some(command)),
                Heard::Event(CommandEvent::Queued { .. } | CommandEvent::Started { .. }) => {}
                Heard::Failed(error) => {
                    tracing::warn!(%error, session = %self.session.id, "an agent's output can't be read");
                    ended = Some(None);
                }
            }
            if ended.is_none() && read < MOST_READ && !step.is_over() {
                next = self.output.as_mut().and_then(Follow::try_next).map(Heard::from);
            }
        }
        let cannot_resume = step.cannot_resume;
        self.commit(step).await?;
        if cannot_resume {
            return self.start_fresh().await;
        }
        match ended {
            Some(command) => self.process_ended(command.as_deref()).await,
            // It came to no conversation, for a reason that may have passed when it is asked again.
            None if self.run.is_none() && self.driver.as_ref().is_some_and(Driver::has_failed) => self.rest().await,
            None => Ok(()),
        }
    }

    fn note_stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        let surplus = self.stderr.len().saturating_sub(MOST_STDERR);
        self.stderr.drain(..surplus);
        // Cut between lines, where there are some: half of an escape sequence would be taken for text.
        if surplus > 0
            && let Some(line) = self.stderr.iter().position(|byte| *byte == b'\n')
        {
            self.stderr.drain(..=line);
        }
    }

    pub(super) fn questions(&self) -> &[Permission] {
        self.driver.as_ref().map_or(&[], Driver::questions)
    }

    /// When something has to be done although nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let settings = &self.shared.settings;
        let mut soonest = self.send_again;
        let mut at = |moment: Instant| soonest = Some(soonest.map_or(moment, |other| other.min(moment)));
        if let Some((_, since)) = self.ending {
            at(since + settings.grace);
        } else if self.run.is_some() {
            at(match self.asked {
                Some(asked) => asked + settings.permission_timeout,
                None => self.active + settings.activity_timeout,
            });
        } else if self.session.process.is_some() {
            let idle = self.shared.clock.present().since(self.session.last_used_at);
            at(Instant::now() + settings.idle_timeout.saturating_sub(idle));
        }
        if let Some(settles) = self.screen.as_ref().and_then(Emulator::settles_at) {
            at(settles);
        }
        soonest
    }

    async fn time_has_come(&mut self) -> Result<(), Error> {
        let settings = self.shared.settings.clone();
        let now = Instant::now();
        if self.send_again.is_some_and(|at| at <= now) {
            self.send_again = None;
        }
        if self.screen.as_ref().and_then(Emulator::settles_at).is_some_and(|at| at <= now) {
            return self.look_again().await;
        }
        if let Some((_, since)) = self.ending {
            if now >= since + settings.grace {
                return self.give_up().await;
            }
            return Ok(());
        }
        if self.run.is_some() {
            return match self.asked {
                Some(asked) if now >= asked + settings.permission_timeout => self.deny_all().await,
                None if now >= self.active + settings.activity_timeout => self.interrupt(Ending::Silence).await,
                Some(_) | None => Ok(()),
            };
        }
        let now = self.shared.clock.present();
        let idle = |since: Timestamp| now.since(since);
        if self.session.process.is_none() || idle(self.session.last_used_at) < settings.idle_timeout {
            return Ok(());
        }
        let used = self.attended(now.at).await?;
        if idle(used) >= settings.idle_timeout {
            return self.rest().await;
        }
        let mut step = Step::new(&self.session);
        step.session.last_used_at = used;
        self.commit(step).await
    }

    /// When somebody last used it by its terminal, if it has one: who looks at it uses it.
    async fn attended(&self, now: Timestamp) -> Result<Timestamp, Error> {
        if self.screen.is_none() {
            return Ok(self.session.last_used_at);
        }
        let thread = self.shared.stead.thread(&self.session.thread).await?;
        let (looking, typed) = self.shared.stead.attended(&thread.default_terminal);
        // One of those who look is ourselves.
        Ok(if looking > 1 { now } else { typed.unwrap_or_default().max(self.session.last_used_at) })
    }

    /// Nobody has answered in time.
    async fn deny_all(&mut self) -> Result<(), Error> {
        let mut step = Step::new(&self.session);
        let screen = self.spec().and_then(|spec| spec.screen);
        for question in self.questions().to_vec() {
            step.events
                .push(Event::status(format!("nobody answered in time, so it is not allowed: {}", question.title)));
            let option = question.option_for(Decision::Deny).map(|option| option.id.clone());
            let answered =
                self.driver.as_mut().map(|driver| driver.answer(screen.as_ref(), &question.id, option.as_deref()));
            if let Some(Ok(effects)) = answered {
                self.take(effects, &mut step);
            }
        }
        self.active = Instant::now();
        self.commit(step).await
    }
}

/// What came from the process.
pub(super) enum Heard {
    Event(CommandEvent),
    Failed(Error),
}

impl From<Result<CommandEvent, Error>> for Heard {
    fn from(event: Result<CommandEvent, Error>) -> Self {
        event.map_or_else(Self::Failed, Self::Event)
    }
}

async fn next(output: &mut Option<Follow>) -> Heard {
    match output {
        Some(follow) => match follow.next().await {
            Some(event) => event.into(),
            // The server stops; or it was told to the end.
            None => Heard::Failed(Error::Broken("its output is told to its end".to_owned())),
        },
        None => std::future::pending().await,
    }
}
