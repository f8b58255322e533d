//! Making a container, or finding the one that is there.
//!
//! ```text
//!  note down whose the place is ─► create ─► start ─► the steward greets
//! ```
//!
//! Whoever is killed between two of these leaves something that the next call with the same name finds: what runs is
//! taken as it is, what doesn't is removed and made again.

use super::super::place::{Occupant, give};
use super::super::{Blueprint, Created, Effect, Handle, ProviderError, Trouble};
use super::engine::{self, START};
use super::image;
use super::look::{Container, Looked, State};
use super::{Base, Docker, recipe};
use crate::steward::Steward;
use crate::steward_program::HINT;
use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum};
use bollard::query_parameters::{CreateContainerOptionsBuilder, LogsOptionsBuilder};
use futures_util::StreamExt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_model::enclosure::User;
use stead_model::ids::LeaseId;
use stead_model::lease::{Caveat, Seen};
use stead_term::cgroup::Limits;

/// Who is root in an engine's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineRoot {
    Root,
    /// We are: the engine runs without root, as the user that the server is.
    Us,
}

const WHAT: &str = "start a container";

/// How long a container that was started may take until its steward greets.
const GREETS_WITHIN: Duration = Duration::from_secs(30);

/// How long the socket of a container that was just started is waited for before the engine is asked for a way in.
const GRACE: Duration = Duration::from_secs(1);

/// Of what a container said before it died, as much as this is worth repeating.
const LAST_WORDS: usize = 2048;

impl Docker {
    pub(super) async fn make(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        let program = self.program().await?;
        let _turn = self.prepare(blueprint).await?;
        let docker = self.engine.docker(WHAT).await?;
        let info = self.info(docker, blueprint).await?;
        let root = self.root_of(&info).await;
        let user = self.user_inside(root);
        let caveats = self.caveats(&info, root, blueprint);
        if let Some(container) = self.adopt(blueprint).await? {
            return Ok(self.created(blueprint, &container, caveats));
        }
        let image = self.image_for(blueprint).await?;
        self.hand_over(blueprint, &user).await?;
        let name = recipe::container_name(&blueprint.instance);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let body = self.recipe(blueprint, image.clone(), &program, &user);
        if let Err(error) = docker.create_container(Some(options), body).await {
            return Err(self.without_image(&image, error));
        }
        match self.begin(blueprint).await {
            Ok(container) => Ok(self.created(blueprint, &container, caveats)),
            Err(error) => {
                if let Err(error) = self.discard(&blueprint.instance, WHAT).await {
                    tracing::warn!(%error, container = name, "what was begun of a container is left");
                }
                Err(error)
            }
        }
    }

    fn created(&self, blueprint: &Blueprint, container: &Container, caveats: Vec<Caveat>) -> Created {
        let metadata = vec![
            ("container".to_owned(), container.id.clone()),
            ("workspace".to_owned(), self.places.files(&blueprint.workspace).display().to_string()),
        ];
        let caveats = caveats.into_iter().chain(self.places.caveats(&blueprint.workspace)).collect();
        Created { reference: recipe::container_name(&blueprint.instance), metadata, caveats }
    }

    async fn program(&self) -> Result<PathBuf, ProviderError> {
        let steward = self.config.steward.clone();
        let found = self.blocking(WHAT, move || Ok(steward.find())).await?;
        found.map_err(|error| {
            let message = format!("{}; {HINT}", super::super::local::chain(&error));
            self.engine.error(WHAT, Trouble::Unavailable, Effect::None, message)
        })
    }

    /// Makes the directories, and waits for our turn over them.
    async fn prepare(&self, blueprint: &Blueprint) -> Result<Option<File>, ProviderError> {
        let (places, lease) = (self.places.clone(), blueprint.lease.clone());
        let workspace = blueprint.workspace.clone();
        self.blocking(WHAT, move || {
            places.make(&lease, &workspace)?;
            places.turn(&lease)
        })
        .await
    }

    /// The container of this name if it lives; others over the same place are ended.
    async fn adopt(&self, blueprint: &Blueprint) -> Result<Option<Container>, ProviderError> {
        for other in self.containers(Some(&blueprint.lease), WHAT).await? {
            if other.instance != blueprint.instance {
                self.end_processes(&other, WHAT).await?;
            }
        }
        let found = match self.look(&blueprint.instance, WHAT).await? {
            Looked::There(container) if container.state == State::Paused => Some(container),
            Looked::There(container) if container.state == State::Running => {
                self.await_greeting(blueprint).await?;
                Some(container)
            }
            Looked::There(_) => {
                self.discard(&blueprint.instance, WHAT).await?;
                None
            }
            Looked::Absent => None,
        };
        Ok(found)
    }

    /// Writes down whose the place is, and gives its files to who will use them.
    async fn hand_over(&self, blueprint: &Blueprint, user: &User) -> Result<(), ProviderError> {
        let (places, lease, uid, gid) = (self.places.clone(), blueprint.lease.clone(), user.uid, user.gid);
        let workspace = blueprint.workspace.clone();
        let occupant =
            Occupant { instance: blueprint.instance.clone(), keeper: 0, start_time: 0, workspace: workspace.clone() };
        // Where the server is not root, or the engine maps users, they are who they need to be.
        let giving = self.config.user.is_some() && rustix::process::geteuid().is_root();
        self.blocking(WHAT, move || {
            places.occupy(&lease, &occupant)?;
            if giving {
                give(&places.steward(&lease), uid, gid)?;
                give(&places.home(&workspace), uid, gid)?;
                if !workspace.starts_with('/') {
                    give(&places.files(&workspace), uid, gid)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// From a container that was made to one whose steward greets.
    async fn begin(&self, blueprint: &Blueprint) -> Result<Container, ProviderError> {
        let docker = self.engine.docker(WHAT).await?;
        let name = recipe::container_name(&blueprint.instance);
        match docker.start_container(&name, None).await {
            Err(error) if !engine::is_so_already(&error) => return Err(self.engine.failed(WHAT)(error)),
            _ => {}
        }
        self.await_greeting(blueprint).await?;
        match self.look(&blueprint.instance, WHAT).await? {
            Looked::There(container) => Ok(container),
            Looked::Absent => {
                let message = "it was removed as soon as it had started";
                Err(self.engine.error(WHAT, Trouble::Unavailable, Effect::Unknown, message))
            }
        }
    }

    async fn await_greeting(&self, blueprint: &Blueprint) -> Result<(), ProviderError> {
        let place = self.places.steward(&blueprint.lease);
        let until = Instant::now() + GREETS_WITHIN;
        loop {
            let opened = self.open(&blueprint.instance, &place, GRACE, WHAT).await;
            let greeted = match opened {
                Ok(channel) => Steward::greet(channel).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.message),
            };
            let Err(message) = greeted else { return Ok(()) };
            let seen = self.look(&blueprint.instance, WHAT).await?.seen();
            if seen == Seen::Paused {
                return Ok(());
            }
            if seen == Seen::Gone {
                let said = self.said(blueprint).await;
                let message = format!("the container ended as soon as it had started{said}");
                return Err(self.engine.error(WHAT, Trouble::Unavailable, Effect::Unknown, message));
            }
            if Instant::now() > until {
                let message = format!("the steward in the container does not answer: {message}");
                return Err(self.engine.error(WHAT, Trouble::TimedOut, Effect::Unknown, message));
            }
        }
    }

    /// What a container had to say, after a colon.
    async fn said(&self, blueprint: &Blueprint) -> String {
        let Ok(docker) = self.engine.docker(WHAT).await else { return String::new() };
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("20").build();
        let mut logs = docker.logs(&recipe::container_name(&blueprint.instance), Some(options));
        let mut said = Vec::new();
        while let Some(Ok(line)) = logs.next().await {
            said.extend(line.into_bytes());
            if said.len() > LAST_WORDS {
                break;
            }
        }
        said.truncate(LAST_WORDS);
        let said = String::from_utf8_lossy(&said);
        if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) }
    }

    async fn image_for(&self, blueprint: &Blueprint) -> Result<String, ProviderError> {
        match (&blueprint.demands.image, &self.config.base) {
            (Some(image), _) | (None, Base::Image(image)) => Ok(image.clone()),
            (None, Base::Root(root)) => self.image_of(root).await,
        }
    }

    fn without_image(&self, image: &str, error: bollard::errors::Error) -> ProviderError {
        if engine::is_absent(&error) {
            let message = format!("the engine has no image `{image}`; {}", advice(image));
            return self.engine.error(WHAT, Trouble::NotFound, Effect::None, message);
        }
        self.engine.failed(WHAT)(error)
    }

    /// Who commands run as. Files that they make are read from outside, so that is whoever we are, as the engine sees us.
    fn user_inside(&self, root: EngineRoot) -> User {
        if let Some(user) = &self.config.user {
            return user.clone();
        }
        let name = self.user_name().to_owned();
        match root {
            EngineRoot::Root => {
                let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
                User { name, uid, gid }
            }
            EngineRoot::Us => User { name, uid: 0, gid: 0 },
        }
    }

    async fn root_of(&self, info: &SystemInfo) -> EngineRoot {
        let uid = rustix::process::geteuid();
        let says_so = info.security_options.iter().flatten().any(|option| option.contains("rootless"));
        // Not every Podman says that it is: then it is known by who listens.
        if !uid.is_root() && (says_so || self.engine.owner().await == Some(uid.as_raw())) {
            EngineRoot::Us
        } else {
            EngineRoot::Root
        }
    }

    /// Asked for only where something depends on it: the engine counts all that it has for an answer.
    async fn info(&self, docker: &bollard::Docker, blueprint: &Blueprint) -> Result<SystemInfo, ProviderError> {
        let Limits { memory, processes, cpu_millis } = self.limits_for(blueprint);
        let limited = memory.is_some() || processes.is_some() || cpu_millis.is_some();
        if rustix::process::geteuid().is_root() && !limited {
            return Ok(SystemInfo::default());
        }
        let looking = |error| ProviderError { effect: Effect::None, ..self.engine.failed(WHAT)(error) };
        docker.info().await.map_err(looking)
    }

    /// Limits that were asked for and that the engine can't keep.
    fn caveats(&self, info: &SystemInfo, root: EngineRoot, blueprint: &Blueprint) -> Vec<Caveat> {
        let limits = self.limits_for(blueprint);
        // An ordinary user may make no control groups of the first kind; the engine goes on without, and says nothing.
        let none = root == EngineRoot::Us && info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
        let all = [
            ("memory", limits.memory.is_some(), info.memory_limit),
            ("processes", limits.processes.is_some(), info.pids_limit),
            ("cpu", limits.cpu_millis.is_some(), info.cpu_cfs_quota),
        ];
        let missing = all.into_iter().filter(|(_, asked, can)| *asked && (none || *can == Some(false)));
        let caveat = |(what, _, _): (&str, bool, Option<bool>)| Caveat {
            code: format!("{what}-not-limited"),
            message: format!("the engine can't limit {what} on this machine"),
        };
        missing.map(caveat).collect()
    }

    /// Whether containers can be had here, by asking the engine.
    pub(super) async fn probe(&self) -> Result<Vec<String>, (String, Option<String>)> {
        let data = self.places.data.clone();
        let usable = move || {
            DirBuilder::new().recursive(true).mode(0o700).create(&data)?;
            let probe = tempfile_in(&data)?;
            std::fs::remove_file(probe)
        };
        self.blocking(WHAT, usable)
            .await
            .map_err(|error| (format!("can't use `{}`: {}", self.places.data.display(), error.message), None))?;
        let steward = self.config.steward.clone();
        let found = self.blocking(WHAT, move || Ok(steward.find())).await.map_err(|error| (error.message, None))?;
        found.map_err(|error| (super::super::local::chain(&error), Some(HINT.to_owned())))?;
        let plain = |error: ProviderError| {
            let (why, hint) = error.message.split_once("; ").unwrap_or((&error.message, START));
            (why.to_owned(), Some(hint.to_owned()))
        };
        let docker = self.engine.docker(WHAT).await.map_err(plain)?;
        let version = docker.version().await.map_err(self.engine.failed(WHAT)).map_err(plain)?;
        let engine = version.components.unwrap_or_default().into_iter().next();
        let named =
            engine.map_or_else(|| "an engine".to_owned(), |engine| format!("{} {}", engine.name, engine.version));
        let socket = self.engine.socket().map(|socket| socket.display().to_string()).unwrap_or_default();
        let mut notes = vec![format!("{named} at `{socket}`")];
        notes.push(match &self.config.base {
            Base::Image(image) if image::has(&self.engine, image).await.map_err(plain)? => {
                format!("image `{image}` is there")
            }
            Base::Image(image) => format!("image `{image}` is not there: {}", advice(image)),
            Base::Root(root) if root.path().is_dir() => format!("made of `{}`", root.path().display()),
            Base::Root(root) => {
                let why = format!("there is no directory `{}`", root.path().display());
                return Err((why, Some("`root` has to name a directory with a system in it".to_owned())));
            }
        });
        Ok(notes)
    }

    /// Does something that waits for the disk, away from the tasks that must not. What fails there did nothing yet.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done.map_err(|error| {
                let trouble = super::super::machine::trouble_of(&error);
                self.engine.error(what, trouble, Effect::None, error.to_string())
            }),
            Err(error) => Err(self.engine.error(what, Trouble::Broken, Effect::Unknown, error.to_string())),
        }
    }

    pub(super) async fn turn(&self, lease: &LeaseId, what: &'static str) -> Result<Option<File>, ProviderError> {
        let (places, lease) = (self.places.clone(), lease.clone());
        self.blocking(what, move || places.turn(&lease)).await
    }

    /// A handle to a container of ours by its name alone.
    pub(super) fn is_place_of(&self, handle: &Handle) -> bool {
        self.places.occupant(&handle.lease).ok().flatten().is_some_and(|there| there.instance == handle.instance)
    }
}

fn advice(image: &str) -> String {
    format!("`docker pull {image}` fetches it, `stead image build --name {image}` makes one")
}

/// An empty file, to see that one can be made.
fn tempfile_in(dir: &std::path::Path) -> io::Result<PathBuf> {
    let path = dir.join(format!(".probe-{}", std::process::id()));
    File::create(&path).map(|_| path)
}
