//! Instances on this machine: a steward and its shells as processes, with or without walls around them. What `local` and
//! `namespace` have in common.
//!
//! The kernel is asked, not our memory: an instance lives as long as somebody holds the lock of its directory, and
//! sleeps as long as its group is frozen.

use super::place::{BOOT, Occupant, Places, remove_tree};
use super::{
    Access, Availability, Blueprint, Created, Effect, Found, Handle, Metrics, ProviderError, Surroundings, Trouble,
};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_model::ids::{LeaseId, ProviderName};
use stead_model::lease::{Caveat, Seen};
use stead_model::proto::Request;
use stead_steward::client::Client;
use stead_steward::past::{self, PastError, PastShell};
use stead_term::cgroup::{Cgroups, Group, Limits, Need};
use stead_term::tree::{Id, Tree};
use stead_term::{proc, scarce};
use tokio::net::UnixStream;

/// How long processes may take to stop, go on or die.
const WITHIN: Duration = Duration::from_secs(10);

/// How long a steward may take to end its shells by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The program that is a steward, and the words before its role.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub call: Vec<String>,
}

/// What stands around a steward, and how it is started there.
pub(super) trait Walls: Send + Sync + std::fmt::Debug {
    fn kind(&self) -> &'static str;
    fn isolated(&self) -> bool;
    /// Whether they can be had on this machine, by trying; with what is worth knowing.
    fn probe(&self) -> Availability;
    /// Starts the steward of an instance; returns when it can be connected to. `procs`: files of control groups that
    /// its first process joins before it starts another, so that nothing is ever outside of them.
    fn start(&self, places: &Places, blueprint: &Blueprint, procs: &[PathBuf]) -> Result<(), String>;
    /// The first of its processes, as this machine numbers them.
    fn root(&self, place: &Path) -> io::Result<Option<Id>>;
    /// Whether anybody lives over a directory, by what nobody inside can change.
    fn is_alive(&self, place: &Path) -> io::Result<bool>;
    /// Moves output from pipes into the journal, where pipes outlive an instance.
    fn collect_output(&self, _place: &Path) -> Result<(), PastError> {
        Ok(())
    }
    /// Makes sure that nobody is left of it.
    fn end(&self, place: &Path) -> Result<(), String>;
    fn surroundings(&self, places: &Places, workspace: &str) -> Surroundings;
    fn trees(&self, places: &Places, workspace: &str) -> Vec<super::Tree>;
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: ProviderName,
    pub(super) places: Places,
    pub(super) limits: Limits,
    pub(super) cgroups: Cgroups,
    pub(super) program: Program,
    pub(super) walls: Box<dyn Walls>,
    /// The last reading of each lease's processor time.
    readings: Mutex<HashMap<LeaseId, (Instant, u64)>>,
}

impl Machine {
    pub(super) fn new(
        name: ProviderName,
        places: Places,
        limits: Limits,
        program: Program,
        walls: Box<dyn Walls>,
    ) -> Arc<Self> {
        // Asked for now, when there are descriptors to ask with: without it what runs would be taken for another boot's.
        proc::boot_id();
        Arc::new(Self { name, places, limits, cgroups: Cgroups::detect(), program, walls, readings: Mutex::default() })
    }

    /// Does something that waits for processes, away from the tasks that must not.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl FnOnce(&Self) -> Result<T, ProviderError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let machine = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&machine)).await {
            Ok(answer) => answer,
            Err(error) => Err(self.error(what, Trouble::Broken, Effect::Unknown, error.to_string())),
        }
    }

    pub(super) fn error(
        &self,
        what: &'static str,
        trouble: Trouble,
        effect: Effect,
        message: impl Into<String>,
    ) -> ProviderError {
        ProviderError::new(&self.name, what, trouble, effect, message)
    }

    fn io(&self, what: &'static str, effect: Effect) -> impl Fn(io::Error) -> ProviderError + '_ {
        move |error| self.error(what, trouble_of(&error), effect, error.to_string())
    }

    /// Whether instances can be had here, by trying.
    pub(super) fn probe(&self) -> Availability {
        if let Err(error) = self.places.probe() {
            return Availability::Missing { why: error.to_string(), hint: None };
        }
        if !self.program.path.is_file() {
            return Availability::Missing {
                why: format!("`{}` is not there", self.program.path.display()),
                hint: None,
            };
        }
        match self.walls.probe() {
            Availability::Works(mut notes) => {
                notes.extend(self.cgroups.describe());
                Availability::Works(notes)
            }
            missing @ (Availability::Missing { .. } | Availability::NotNow { .. }) => missing,
        }
    }

    pub(super) fn create(&self, blueprint: &Blueprint) -> Result<Created, ProviderError> {
        const WHAT: &str = "start a steward";
        let before = self.io(WHAT, Effect::None);
        let place = self.places.steward(&blueprint.lease);
        self.places.make(&blueprint.lease, &blueprint.workspace).map_err(&before)?;
        let _turn = self.places.turn(&blueprint.lease).map_err(&before)?;
        let there = self.walls.is_alive(&place).map_err(&before)?;
        let occupant = self.places.occupant(&blueprint.lease).map_err(&before)?;
        let ours = occupant.is_some_and(|there| there.instance == blueprint.instance);
        if !(there && ours) {
            // One that was taken for dead, for two over one directory can't be; or what one that is dead has left, its
            // group asleep perhaps.
            self.end(&blueprint.lease)?;
        }
        let intent = Occupant {
            instance: blueprint.instance.clone(),
            keeper: 0,
            start_time: 0,
            workspace: blueprint.workspace.clone(),
        };
        if !(there && ours) {
            self.places.occupy(&blueprint.lease, &intent).map_err(&before)?;
        }
        let (group, warnings) =
            self.cgroups.create(blueprint.lease.as_str(), &self.limits_for(blueprint)).map_err(&before)?;
        if !(there && ours) {
            self.walls.start(&self.places, blueprint, &group.procs_files()).map_err(|message| {
                if let Err(error) = self.end(&blueprint.lease) {
                    tracing::warn!(%error, lease = %blueprint.lease, "what was begun of an instance is left");
                }
                // What failed in another process can't say whether that passes.
                let passes = matches!(self.walls.probe(), Availability::NotNow { .. });
                let trouble = if passes { Trouble::UsedUp } else { Trouble::Unavailable };
                self.error(WHAT, trouble, Effect::Unknown, message)
            })?;
        }
        let after = self.io(WHAT, Effect::Unknown);
        let root = self.walls.root(&place).map_err(&after)?.ok_or_else(|| {
            self.error(WHAT, Trouble::Unavailable, Effect::Unknown, "it ended as soon as it had started")
        })?;
        let occupant = Occupant { keeper: root.pid, start_time: root.start_time, ..intent };
        self.places.occupy(&blueprint.lease, &occupant).map_err(&after)?;
        let mut caveats: Vec<_> = warnings
            .into_iter()
            .map(|warning| Caveat { code: warning.code.to_owned(), message: warning.message })
            .collect();
        if !self.cgroups.can(Need::Freeze) {
            caveats.push(Caveat {
                code: "pause-by-signal".to_owned(),
                message: "no cgroup freezer here: pausing stops each process with a signal".to_owned(),
            });
        }
        caveats.extend(self.places.caveats(&blueprint.workspace));
        let metadata = vec![
            ("pid".to_owned(), root.pid.to_string()),
            ("workspace".to_owned(), self.places.files(&blueprint.workspace).display().to_string()),
        ];
        Ok(Created { reference: blueprint.lease.to_string(), metadata, caveats })
    }

    /// A project's own stand above the provider's.
    fn limits_for(&self, blueprint: &Blueprint) -> Limits {
        let asked = &blueprint.demands;
        Limits {
            memory: asked.memory.or(self.limits.memory),
            processes: asked.processes.or(self.limits.processes),
            cpu_millis: asked.cpu_millis.or(self.limits.cpu_millis),
        }
    }

    pub(super) fn status(&self, handle: &Handle) -> Result<Seen, ProviderError> {
        let failed = self.io("look at an instance", Effect::None);
        let occupant = self.places.occupant(&handle.lease).map_err(&failed)?;
        let ours = occupant.is_some_and(|there| there.instance == handle.instance);
        if !ours || !self.walls.is_alive(&self.places.steward(&handle.lease)).map_err(&failed)? {
            return Ok(Seen::Gone);
        }
        Ok(if self.is_asleep(&handle.lease).map_err(&failed)? { Seen::Paused } else { Seen::Running })
    }

    fn is_asleep(&self, lease: &LeaseId) -> io::Result<bool> {
        if let Some(group) = self.freezer(lease) {
            return group.is_frozen();
        }
        let stopped = self.stopped(lease);
        Ok(!stopped.is_empty() && self.tree(lease)?.is_some_and(|mut tree| tree.is_stopped()))
    }

    fn freezer(&self, lease: &LeaseId) -> Option<Group> {
        self.cgroups.can(Need::Freeze).then(|| self.cgroups.find(lease.as_str())).flatten()
    }

    fn tree(&self, lease: &LeaseId) -> io::Result<Option<Tree>> {
        let Some(occupant) = self.places.occupant(lease)? else { return Ok(None) };
        let alive = proc::look(occupant.keeper)?.is_some_and(|stat| stat.start_time == occupant.start_time);
        Ok(alive.then(|| Tree::of(occupant.keeper, occupant.start_time)))
    }

    /// Notes the first of its processes where that is not known: a server was killed before it could, or another keeper has
    /// taken over. Whoever calls this has the turn.
    fn note_keeper(&self, lease: &LeaseId) -> io::Result<()> {
        let Some(occupant) = self.places.occupant(lease)? else { return Ok(()) };
        if self.tree(lease)?.is_some() {
            return Ok(());
        }
        let Some(root) = self.walls.root(&self.places.steward(lease))? else { return Ok(()) };
        self.places.occupy(lease, &Occupant { keeper: root.pid, start_time: root.start_time, ..occupant })
    }

    pub(super) fn pause(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.require(handle, "pause")?;
        let failed = self.io("pause", Effect::Unknown);
        if let Some(group) = self.freezer(&handle.lease) {
            return group.freeze(WITHIN).map_err(failed);
        }
        let _turn = self.places.turn(&handle.lease).map_err(&failed)?;
        self.require(handle, "pause")?;
        self.note_keeper(&handle.lease).map_err(self.io("pause", Effect::None))?;
        let Some(mut tree) = self.tree(&handle.lease).map_err(&failed)? else {
            let message = "its processes can't be found just now, so none of them was stopped";
            return Err(self.error("pause", Trouble::Unavailable, Effect::None, message));
        };
        tree.stop(WITHIN).map_err(&failed)?;
        let lines: String =
            tree.stopped().iter().fold(String::new(), |lines, id| lines + &format!("\n{} {}", id.pid, id.start_time));
        let text = format!("{lines}{BOOT}{}\n", proc::boot_id());
        fs::write(self.places.lease(&handle.lease).join("stopped"), text).map_err(&failed)
    }

    pub(super) fn resume(&self, handle: &Handle) -> Result<(), ProviderError> {
        self.require(handle, "resume")?;
        self.wake(&handle.lease).map_err(self.io("resume", Effect::Unknown))
    }

    fn wake(&self, lease: &LeaseId) -> io::Result<()> {
        if let Some(group) = self.freezer(lease) {
            return group.thaw(WITHIN);
        }
        if let Some(mut tree) = self.tree(lease)? {
            tree.take_stopped(self.stopped(lease));
            tree.resume();
        }
        remove_file(&self.places.lease(lease).join("stopped"))
    }

    /// What we stopped by signals: the user's own stopped jobs stay stopped. Nothing of what ran before a reboot.
    fn stopped(&self, lease: &LeaseId) -> Vec<Id> {
        let text = fs::read_to_string(self.places.lease(lease).join("stopped")).unwrap_or_default();
        let lines = match text.trim_end_matches('\n').rsplit_once(BOOT) {
            Some((lines, boot)) if boot == proc::boot_id() => lines,
            Some(_) | None => "",
        };
        let ids = lines.lines().filter_map(|line| {
            let (pid, start_time) = line.split_once(' ')?;
            Some(Id { pid: pid.parse().ok()?, start_time: start_time.parse().ok()? })
        });
        ids.collect()
    }

    fn require(&self, handle: &Handle, what: &'static str) -> Result<Seen, ProviderError> {
        match self.status(handle)? {
            Seen::Gone => Err(self.error(what, Trouble::NotFound, Effect::None, "there is no such instance")),
            seen @ (Seen::Running | Seen::Paused | Seen::Unclear) => Ok(seen),
        }
    }

    pub(super) fn destroy(&self, handle: &Handle) -> Result<(), ProviderError> {
        let _turn = self.places.turn(&handle.lease).map_err(self.io("destroy", Effect::None))?;
        let occupant = self.places.occupant(&handle.lease).map_err(self.io("destroy", Effect::None))?;
        let ours = occupant.is_some_and(|there| there.instance == handle.instance);
        if ours { self.end(&handle.lease) } else { Ok(()) }
    }

    /// Ends whatever runs over a lease's directory. Its journal stays.
    fn end(&self, lease: &LeaseId) -> Result<(), ProviderError> {
        let failed = self.io("destroy", Effect::Unknown);
        let place = self.places.steward(lease);
        if self.walls.is_alive(&place).map_err(&failed)? {
            self.wake(lease).map_err(&failed)?;
            if let Err(error) = self.note_keeper(lease) {
                tracing::warn!(%error, %lease, "the first of its processes can't be found");
            }
            ask_to_stop(&place);
        }
        // Whatever it left, and whatever didn't listen.
        if let Some(group) = self.cgroups.find(lease.as_str()) {
            if self.cgroups.can(Need::Kill) {
                group.kill(WITHIN).map_err(&failed)?;
            }
            group.remove(WITHIN).map_err(&failed)?;
        }
        if let Some(mut tree) = self.tree(lease).map_err(&failed)? {
            tree.kill(WITHIN).map_err(&failed)?;
        }
        self.walls
            .end(&place)
            .map_err(|message| self.error("destroy", Trouble::Unavailable, Effect::Unknown, message))?;
        if !wait_until(WITHIN, || self.walls.is_alive(&place).is_ok_and(|alive| !alive)) {
            return Err(self.error("destroy", Trouble::TimedOut, Effect::Unknown, "its processes don't end"));
        }
        past::forget_memory(&place);
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
        for name in ["instance", "stopped", "place/sock"] {
            remove_file(&self.places.lease(lease).join(name)).map_err(&failed)?;
        }
        Ok(())
    }

    pub(super) async fn access(self: &Arc<Self>, handle: &Handle) -> Result<Access, ProviderError> {
        let handle = handle.clone();
        let stream = self.blocking("connect", move |machine| {
            if machine.require(&handle, "connect")? == Seen::Paused {
                return Err(machine.error("connect", Trouble::Conflict, Effect::None, "the instance is paused"));
            }
            let failed = machine.io("connect", Effect::None);
            let dir = stead_steward::dir::Dir::open(&machine.places.steward(&handle.lease))
                .map_err(|error| machine.error("connect", Trouble::Unavailable, Effect::None, error.to_string()))?;
            // One whose maker was killed may be on its way still: it lives, and will listen.
            let mut connected = dir.connect();
            let nobody = |connected: &io::Result<_>| {
                let kind = connected.as_ref().err().map(io::Error::kind);
                matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
            };
            wait_until(WITHIN, || {
                if nobody(&connected) && past::is_alive(dir.root()).unwrap_or(false) {
                    connected = dir.connect();
                    return false;
                }
                true
            });
            // Or it has died since we looked, and that is what is to be said.
            if nobody(&connected) {
                machine.require(&handle, "connect")?;
            }
            let stream = connected.map_err(&failed)?;
            stream.set_nonblocking(true).map_err(&failed)?;
            Ok(stream)
        });
        let stream = UnixStream::from_std(stream.await?).map_err(self.io("connect", Effect::None))?;
        Ok(Access::Steward(Box::new(stream)))
    }

    pub(super) fn journal(&self, lease: &LeaseId) -> PathBuf {
        self.places.steward(lease)
    }

    pub(super) fn last_words(&self, handle: &Handle) -> Result<Vec<PastShell>, ProviderError> {
        const WHAT: &str = "read a journal";
        let place = self.places.steward(&handle.lease);
        if self.walls.is_alive(&place).map_err(self.io(WHAT, Effect::None))? {
            return Err(self.error(WHAT, Trouble::Conflict, Effect::None, "its steward lives: ask it"));
        }
        // The last of its processes may still be on its way out, with the lock in its hands; or somebody else is at it.
        let read = || self.walls.collect_output(&place).and_then(|()| past::read(&place));
        let is_early = |told: &Result<_, PastError>| matches!(told, Err(PastError::Alive | PastError::Busy));
        let mut told = read();
        wait_until(WITHIN, || {
            if is_early(&told) {
                told = read();
            }
            !is_early(&told)
        });
        told.map_err(|error| self.error(WHAT, Trouble::Unavailable, Effect::None, error.to_string()))
    }

    pub(super) fn metrics(&self, handle: &Handle) -> Result<Metrics, ProviderError> {
        self.require(handle, "measure")?;
        let group = self.cgroups.find(handle.lease.as_str());
        let usage = group.as_ref().map(Group::usage).unwrap_or_default();
        let tree = self.tree(&handle.lease).ok().flatten().map(|mut tree| tree.usage());
        let cpu_micros = usage.cpu_micros.or(tree.as_ref().map(|usage| usage.cpu_micros));
        Ok(Metrics {
            cpu_percent: cpu_micros.and_then(|micros| self.percent(&handle.lease, micros)),
            memory_used_bytes: usage.memory_bytes.or(tree.as_ref().map(|usage| usage.memory_bytes)),
            memory_limit_bytes: usage.memory_limit,
            processes: usage.processes.or(tree.map(|usage| usage.processes)),
            ..Metrics::default()
        })
    }

    /// Since the last time it was asked for; unknown the first time.
    fn percent(&self, lease: &LeaseId, micros: u64) -> Option<f64> {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (at, before) = readings.insert(lease.clone(), (now, micros))?;
        let span = now.duration_since(at).as_secs_f64();
        let used = Duration::from_micros(micros.checked_sub(before)?).as_secs_f64();
        (span > 0.0).then(|| used / span * 100.0)
    }

    pub(super) fn list(&self) -> Result<Vec<Found>, ProviderError> {
        let failed = self.io("list", Effect::None);
        let mut found = Vec::new();
        for lease in self.places.leases().map_err(&failed)? {
            let Some(occupant) = self.places.occupant(&lease).map_err(&failed)? else { continue };
            let handle = Handle {
                instance: occupant.instance,
                reference: lease.to_string(),
                workspace: occupant.workspace,
                lease,
            };
            let seen = self.status(&handle)?;
            if seen != Seen::Gone {
                found.push(Found { handle, seen });
            }
        }
        Ok(found)
    }

    pub(super) fn forget(&self, lease: &LeaseId, workspace: Option<&str>) -> Result<(), ProviderError> {
        let failed = self.io("remove files", Effect::Unknown);
        let turn = self.places.turn(lease).map_err(&failed)?;
        if self.walls.is_alive(&self.places.steward(lease)).map_err(&failed)? {
            return Err(self.error("remove files", Trouble::Conflict, Effect::None, "the instance still runs"));
        }
        if turn.is_some() {
            // What one that died has left of itself.
            self.end(lease)?;
        }
        remove_tree(&self.places.lease(lease)).map_err(&failed)?;
        if let Some(workspace) = workspace {
            remove_tree(&self.places.workspace(workspace)).map_err(&failed)?;
        }
        Ok(())
    }
}

/// What an error of this machine means for whoever asked.
pub(super) fn trouble_of(error: &io::Error) -> Trouble {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        Trouble::NoSpace
    } else if kind == io::ErrorKind::PermissionDenied {
        Trouble::Denied
    } else if kind == io::ErrorKind::TimedOut {
        Trouble::TimedOut
    } else if scarce::is_passing(error) {
        Trouble::UsedUp
    } else {
        Trouble::Unavailable
    }
}

fn ask_to_stop(place: &Path) {
    let place = place.to_owned();
    let (done, ended) = std::sync::mpsc::channel();
    // One that doesn't answer is killed; it must not hold us up.
    let asking = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        let asked = Client::connect(&place, "destroy").and_then(|mut client| client.request(&Request::Shutdown));
        let _ = done.send(asked.is_ok());
    });
    if asking.is_ok() {
        let _ = ended.recv_timeout(GRACE);
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Waits for something that has no event: a lock that is let go.
fn wait_until(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + within;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

/// The keeper of a steward that runs without walls.
pub(super) fn keeper_of(place: &Path) -> Option<Id> {
    let client = Client::connect(place, "stead server").ok()?;
    let pid = i32::try_from(client.welcome().keeper_pid).ok()?;
    Some(Id { pid, start_time: proc::stat(pid)?.start_time })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::ids::InstanceId;

    /// Walls around one process that a test has started.
    #[derive(Debug)]
    struct Around(Option<Id>);

    impl Walls for Around {
        fn kind(&self) -> &'static str {
            "test"
        }
        fn isolated(&self) -> bool {
            false
        }
        fn probe(&self) -> Availability {
            Availability::Works(Vec::new())
        }
        fn start(&self, _: &Places, _: &Blueprint, _: &[PathBuf]) -> Result<(), String> {
            Ok(())
        }
        fn root(&self, _: &Path) -> io::Result<Option<Id>> {
            Ok(self.0)
        }
        fn is_alive(&self, _: &Path) -> io::Result<bool> {
            Ok(true)
        }
        fn end(&self, _: &Path) -> Result<(), String> {
            Ok(())
        }
        fn surroundings(&self, _: &Places, _: &str) -> Surroundings {
            Surroundings { env: Vec::new(), cwd: Vec::new(), scratch: String::new() }
        }
        fn trees(&self, _: &Places, _: &str) -> Vec<crate::provider::Tree> {
            Vec::new()
        }
    }

    /// Pauses an instance whose keeper was not noted, where there are no control groups; says the state of the process.
    fn pause_unnoted(is_found: bool) -> (Result<(), ProviderError>, u8) {
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(process.id()).unwrap();
        let root = Id { pid, start_time: proc::stat(pid).unwrap().start_time };
        let dir = tempfile::tempdir().unwrap();
        let places = Places { data: dir.path().join("data"), workspaces: dir.path().join("workspaces") };
        let lease = LeaseId::parse("lease-0123456789ab").unwrap();
        let instance = InstanceId::parse("inst-0123456789ab").unwrap();
        places.make(&lease, "w").unwrap();
        let occupant = Occupant { instance: instance.clone(), keeper: 0, start_time: 0, workspace: "w".to_owned() };
        places.occupy(&lease, &occupant).unwrap();
        let machine = Machine {
            name: ProviderName::parse("test").unwrap(),
            places,
            limits: Limits::default(),
            cgroups: Cgroups::default(),
            program: Program { path: PathBuf::new(), call: Vec::new() },
            walls: Box::new(Around(is_found.then_some(root))),
            readings: Mutex::default(),
        };
        let handle = Handle { instance, lease, workspace: "w".to_owned(), reference: String::new() };
        let paused = machine.pause(&handle);
        let state = proc::stat(pid).unwrap().state;
        process.kill().unwrap();
        process.wait().unwrap();
        (paused, state)
    }

    #[test]
    fn an_instance_whose_keeper_was_not_noted_is_paused_by_signals() {
        let (paused, state) = pause_unnoted(true);
        assert_eq!((paused, state), (Ok(()), b'T'));
    }

    #[test]
    fn an_instance_whose_processes_can_not_be_found_is_not_said_to_be_paused() {
        let (paused, state) = pause_unnoted(false);
        assert_eq!(paused.map_err(|error| (error.trouble, error.effect)), Err((Trouble::Unavailable, Effect::None)));
        assert_ne!(state, b'T');
    }
}
