//! The process of a session: prepared, started once, found again, spoken to.

use super::driver::{Driver, Lines};
use super::ledger::Step;
use super::owner::Owner;
use super::screen::Emulator;
use super::{Found, Shared, credentials};
use crate::error::Error;
use crate::files::Condition;
use crate::stead::{EnvChange, Execute, Where};
use crate::store::{AgentProcess, AgentSession};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use stead_agent::event::Rule;
use stead_agent::{Event, Setup, Spec, Transport};
use stead_model::command::Command;
use stead_model::env::Secret;
use stead_model::ids::CommandId;
use stead_model::proto::{IfBusy, Stdin};
use stead_model::state::Bytes;
use stead_model::terminal::DEFAULT_NAME;
use stead_model::word::quote;
use tokio::time::Instant;

/// The variable by which a process of ours is known, whatever becomes of its parents.
pub(super) const MARK: &str = "STEAD_AGENT_PROCESS";

/// How long bytes may be on their way into a pipe before we look at something else.
const SENT_WITHIN: Duration = Duration::from_secs(5);
const SEND_AGAIN: Duration = Duration::from_millis(200);

impl Owner {
    /// Gives the run its turn: in the process that is there, or in a new one.
    pub(super) async fn begin_turn(&mut self) -> Result<(), Error> {
        self.active = Instant::now();
        if (self.session.process.is_none() || self.driver.is_none())
            && let Err(error) = self.start_process().await
        {
            if matches!(error, Error::Stopping) {
                return Err(error);
            }
            return self.fail_run(error.code(), &error.to_string()).await;
        }
        let Some(message) = self.run.as_ref().map(|run| run.message.clone()) else { return Ok(()) };
        if let Err(error) = self.clear_hook().await {
            return self.fail_run(error.code(), &error.to_string()).await;
        }
        let screen = self.spec().and_then(|spec| spec.screen);
        let mut step = Step::new(&self.session);
        let Some(driver) = &mut self.driver else { return Ok(()) };
        let ready = driver.is_ready();
        let effects = driver.prompt(screen.as_ref(), &message);
        if ready {
            let knows = self.session.process.as_ref();
            let knows = knows.is_some_and(|process| process.turns > 0 || process.resumed == Some(true));
            self.tell_start(knows, &mut step);
        }
        if let Some(process) = &mut step.session.process {
            process.turns += 1;
        }
        self.take(effects, &mut step);
        self.commit(step).await
    }

    async fn start_process(&mut self) -> Result<(), Error> {
        let spec =
            self.spec().ok_or_else(|| Error::NotFound { kind: "agent", id: self.session.key.provider.clone() })?;
        let Found::At(program) = self.shared.settings.find(&spec) else {
            return Err(Error::AgentCannot(format!("agent `{}` is not on this machine any more", spec.name)));
        };
        let mut step = Step::new(&self.session);
        step.events.push(Event::status(format!("starting {}", spec.title)));
        if !spec.asks && self.run.as_ref().is_some_and(|run| self.policy_of(run).has(Rule::Ask)) {
            let what = "it asks nothing before it uses a tool: what it may do is what its sandbox lets it do";
            step.events.push(Event::status(what));
        }
        self.commit(step).await?;
        self.sits = true;

        let id = format!("{}.{:016x}", self.session.id, u64::from_be_bytes(self.shared.stead.entropy()));
        let command = CommandId::parse(&id).map_err(|error| Error::Invalid(error.to_string()))?;
        let cwd = prepare(&self.shared, &self.session, &spec).await?;
        let model = self.session.key.asked_model().map(str::to_owned);
        let resume = self.conversation();
        let words = spec.words(&cwd, model.as_deref(), resume.as_deref());
        let setup = Setup { cwd, model: model.clone(), resume: resume.clone() };
        let (driver, effects) = Driver::begin(&spec, setup);
        self.driver = Some(driver);
        (self.lines, self.screen) = (Lines::default(), None);
        self.stderr.clear();
        // The intent, before the deed: whoever comes after us runs this command and no other.
        let mut step = Step::new(&self.session);
        step.session.process = Some(AgentProcess {
            command: id,
            machine: serde_json::Value::Null,
            seen: 0,
            read: 0,
            sent: 0,
            unsent: String::new(),
            resumed: None,
            turns: 0,
            ending: None,
        });
        self.take(effects, &mut step);
        self.commit(step).await?;
        if let Err(error) = self.submit(&spec, &command, &program, &words).await {
            let mut step = Step::new(&self.session);
            step.session.process = None;
            self.driver = None;
            self.commit(step).await?;
            return Err(error);
        }
        self.follow(&spec, &command).await
    }

    async fn submit(&self, spec: &Spec, id: &CommandId, program: &Path, words: &[String]) -> Result<Command, Error> {
        let mut text = quote(program.as_os_str().as_encoded_bytes()).clone();
        for word in words.iter().skip(1) {
            text.push(b' ');
            text.extend_from_slice(&quote(word.as_bytes()));
        }
        let stdin = if spec.transport == Transport::Pty { Stdin::Terminal } else { Stdin::Open };
        let execute = Execute {
            id: Some(id.clone()),
            cwd: Some(b"/workspace".to_vec()),
            env: vec![(MARK.to_owned(), id.as_str().as_bytes().to_vec())],
            stdin,
            if_busy: IfBusy::Reject,
            ..Execute::new(text)
        };
        self.shared.stead.submit(Where::thread(self.session.thread.clone()), execute).await
    }

    /// Reads what it writes, from where it was read last.
    async fn follow(&mut self, spec: &Spec, command: &CommandId) -> Result<(), Error> {
        let seen = self.session.process.as_ref().map_or(0, |process| process.seen);
        if let Some(screen) = &spec.screen {
            let at = Where::thread(self.session.thread.clone());
            let read = self.session.process.as_ref().map_or(0, |process| process.read);
            self.screen = Some(Emulator::attach(&self.shared.stead, at, screen, read).await?);
            // A screen is what all of its bytes have led to.
            self.output = Some(self.shared.stead.follow(command, 0, false).await?);
        } else {
            self.output = Some(self.shared.stead.follow(command, seen, false).await?);
        }
        Ok(())
    }

    /// The process that an earlier owner left, wherever it is by now.
    pub(super) async fn find_process(&mut self) -> Result<(), Error> {
        let Some(process) = self.session.process.clone() else { return Ok(()) };
        let Ok(driver) = serde_json::from_value::<Driver>(process.machine.clone()) else {
            return self.process_ended(None).await;
        };
        let command = CommandId::parse(&process.command).map_err(|error| Error::Invalid(error.to_string()))?;
        let Some(spec) = self.spec() else { return self.process_ended(None).await };
        let known = self.shared.stead.known_command(&command).await?;
        if known.is_none() {
            // It was never run, and this run of it never will be: another takes its place.
            return self.process_ended(None).await;
        }
        let typed = matches!(driver, Driver::Pty(_)) && !process.unsent.is_empty();
        self.driver = Some(driver);
        if let Err(error) = self.follow(&spec, &command).await {
            tracing::warn!(%error, session = %self.session.id, "an agent's process can't be found again");
            return self.process_ended(None).await;
        }
        if typed && self.run.is_some() {
            // Keys have no place: whether these were pressed, nobody knows.
            if let Some(process) = &mut self.session.process {
                process.unsent.clear();
            }
            let why = "the server ended while the message was being typed; whether the agent got it is not known";
            return self.fail_run("delivery_unknown", why).await;
        }
        if self.run.is_some() && self.session.process.as_ref().is_some_and(|process| process.turns == 0) {
            return self.begin_turn().await;
        }
        Ok(())
    }

    /// Sends what waits to be sent.
    pub(super) async fn send(&mut self) -> Result<(), Error> {
        if self.send_again.is_some() {
            return Ok(());
        }
        let Some(process) = self.session.process.as_mut().filter(|process| !process.unsent.is_empty()) else {
            return Ok(());
        };
        let bytes = process.unsent.clone().into_bytes();
        let length = bytes.len() as u64;
        if let Some(screen) = &self.screen {
            if screen.press(bytes).await.is_ok() {
                process.unsent.clear();
                let step = Step::new(&self.session);
                return self.commit(step).await;
            }
            self.send_again = Some(Instant::now() + SEND_AGAIN);
            return Ok(());
        }
        let Ok(command) = CommandId::parse(&process.command) else { return Ok(()) };
        let sending = self.shared.stead.send_stdin_at(&command, process.sent, bytes, false);
        match tokio::time::timeout(SENT_WITHIN, sending).await {
            Ok(Ok(())) => {
                // Not written down now: sent again after a death, it is left out.
                process.sent += length;
                process.unsent.clear();
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, session = %self.session.id, "what an agent is sent has to wait");
                self.send_again = Some(Instant::now() + SEND_AGAIN);
            }
            Err(_) => self.send_again = Some(Instant::now() + SEND_AGAIN),
        }
        Ok(())
    }
}

/// Puts into a sandbox what an agent needs there. Returns the workspace as the agent sees it.
async fn prepare(shared: &Shared, session: &AgentSession, spec: &Spec) -> Result<String, Error> {
    let thread = shared.stead.thread(&session.thread).await?;
    let around = shared.stead.surroundings(&thread)?;
    let cwd = String::from_utf8_lossy(&around.cwd).into_owned();
    let home = around.home().map(<[u8]>::to_vec);
    let home = home.ok_or_else(|| Error::Unsupported("this provider has no home for an agent".to_owned()))?;
    let files = shared.stead.files(&session.thread).await?;
    credentials::bring(shared, &files, &home, spec).await?;
    for file in &spec.files {
        let content = file.text(&cwd, |name| shared.settings.variables.get(name).cloned()).into_bytes();
        match files.begin(credentials::inside(&home, &file.path), Condition::Absent).await {
            Ok(mut writing) => {
                writing.write(content.into()).await?;
                match writing.commit().await {
                    Ok(_) | Err(Error::PreconditionFailed(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Error::PreconditionFailed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut vars = BTreeMap::new();
    if let Some((_, path)) = around.env.iter().find(|(name, _)| name == b"PATH") {
        let more = shared.settings.interpreters(spec);
        let dirs =
            std::iter::once(path.clone()).chain(more.iter().map(|dir| dir.as_os_str().as_encoded_bytes().to_vec()));
        vars.insert(Bytes::from(b"PATH".as_slice()), Some(Bytes(dirs.collect::<Vec<_>>().join(&b':'))));
    }
    for (name, value) in &spec.env {
        vars.insert(Bytes::from(name.as_bytes()), Some(Bytes::from(value.as_bytes())));
    }
    for name in &spec.unset {
        vars.insert(Bytes::from(name.as_bytes()), None);
    }
    let secrets = spec.credential_vars.iter().filter(|name| !spec.env.contains_key(*name)).map(|name| {
        let value = shared.settings.variables.get(name).filter(|value| !value.is_empty());
        (Bytes::from(name.as_bytes()), value.map(|value| Secret::new(value.as_bytes())))
    });
    let change = EnvChange { vars, secrets: secrets.filter(|(_, value)| value.is_some()).collect() };
    shared.stead.set_env(&session.thread, DEFAULT_NAME, change).await?;
    Ok(cwd)
}
