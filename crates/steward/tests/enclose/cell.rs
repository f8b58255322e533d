//! An enclosed steward that goes with the test.

use crate::rig::{TestShell, open_shell};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{Enclosure, Owner};
use stead_model::proto::{Program, Request};
use stead_model::state::Bytes;
use stead_steward::client::{Client, ClientError};
use stead_steward::dir::Dir;
use stead_steward::start::{self, Enclosed, Settings, StartError, Started};

pub(crate) struct Cell {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) spec: Enclosure,
}

/// The steward under test; an ordinary user may need another copy of it.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("STEWARD_UNDER_TEST").map_or_else(|| crate::rig::binary().to_owned(), PathBuf::from)
}

/// Both ways to be somebody inside, where there are two: only root has the choice.
pub(crate) fn owners() -> Vec<Owner> {
    if rustix::process::geteuid().is_root() { vec![Owner::Apart, Owner::Same] } else { vec![Owner::Same] }
}

/// Says aloud that something was not tried: past the harness, which keeps to itself what a test that passes prints.
pub(crate) fn skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("SKIPPED: {reason} ({name})\n").as_bytes());
}

/// Whether this machine can do it; if not it is said aloud, once for each test that is left out.
pub(crate) fn possible() -> bool {
    match stead_term::enclose::probe() {
        Ok(()) => true,
        Err(reason) => {
            skipped(&reason.to_string());
            false
        }
    }
}

/// Processes of the host that live in the enclosure of this one.
pub(crate) fn inhabitants(first: i32) -> Vec<i32> {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = space(&first.to_string());
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    all.filter(|pid| ours.is_some() && space(pid) == ours).filter_map(|pid| pid.parse().ok()).collect()
}

impl Cell {
    /// `None` if this machine can't enclose anything.
    pub(crate) fn new() -> Option<Self> {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Enclosure)) -> Option<Self> {
        let cell = Self::unstarted(change)?;
        assert_eq!(cell.start().unwrap_or_else(|error| panic!("{error}: {error:?}")), Started::Now);
        Some(cell)
    }

    pub(crate) fn unstarted(change: impl FnOnce(&mut Enclosure)) -> Option<Self> {
        if !possible() {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("enclosed-").tempdir().unwrap();
        for name in ["place", "work", "home"] {
            std::fs::DirBuilder::new().mode(0o700).create(dir.path().join(name)).unwrap();
        }
        let path = |name: &str| dir.path().join(name);
        let mut spec = Enclosure::new(&program(), &path("place"), &path("work"), &path("home"));
        change(&mut spec);
        Some(Self { dir, spec })
    }

    pub(crate) fn start(&self) -> Result<Started, StartError> {
        start::start_enclosed(&self.place(), &self.spec, &[], &Settings::default())
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.dir.path().join("place")
    }

    /// The workspace as the host sees it.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn client(&self) -> Client {
        self.try_client().unwrap()
    }

    pub(crate) fn try_client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.place(), "test")
    }

    pub(crate) fn shell(&self) -> TestShell {
        self.shell_named("main")
    }

    pub(crate) fn shell_named(&self, name: &str) -> TestShell {
        let mut open = open_shell(name, Program::Bash, Path::new("/workspace"));
        open.env.retain(|(name, _)| name.0 != b"HOME");
        open.env.push((Bytes::from("HOME"), Bytes::from("/home/agent")));
        TestShell::open(self.client(), open)
    }

    /// The first process inside, as the host knows it.
    pub(crate) fn first(&self) -> i32 {
        Enclosed::of(&Dir::open(&self.place()).unwrap()).unwrap().pid
    }

    /// Stops it as a user does, and waits until nobody is left.
    pub(crate) fn stop(&self) {
        let mut command = std::process::Command::new(program());
        let output = command.arg("stop").arg("--dir").arg(self.place()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "stopped\n", "{output:?}");
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        while let Err(ClientError::Broken(_)) =
            self.try_client().and_then(|mut client| client.request(&Request::Shutdown))
        {}
        if let Err(error) = start::end_enclosure(&self.place()) {
            eprintln!("{error}");
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.place().join("log")).unwrap_or_default();
            eprintln!("--- the steward's log:\n{log}");
        }
    }
}
