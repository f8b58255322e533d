//! `namespace`: a steward and its shells in namespaces of their own, on this machine. No daemon, no image: the host's
//! system read-only, the workspace and a home that last, nothing of other threads, nothing of the data directory. The
//! default where the kernel allows it.

use super::local::chain;
use super::machine::{Machine, Program, Walls};
use super::on_machine::OnMachine;
use super::place::Places;
use super::{Availability, Blueprint, Surroundings, Tree};
use std::io;
use std::path::{Path, PathBuf};
use stead_model::enclosure::{Enclosure, Network, Share, TMP_BYTES, User};
use stead_model::ids::ProviderName;
use stead_steward::dir::Dir;
use stead_steward::start::{Enclosed, Settings, end_enclosure, start_enclosed};
use stead_term::cgroup::{Cgroups, Limits, Need};
use stead_term::proc;
use stead_term::tree::Id;

#[derive(Debug, Clone)]
pub struct NamespaceConfig {
    pub name: ProviderName,
    /// Where journals are.
    pub data: PathBuf,
    /// Where workspaces are; other providers may share it.
    pub workspaces: PathBuf,
    pub program: Program,
    pub limits: Limits,
    pub network: Network,
    pub user: User,
    /// Inside: where the workspace is.
    pub mount_path: PathBuf,
    /// What more of the host is seen, read-only.
    pub read_only: Vec<PathBuf>,
    /// What `/tmp` and its like may hold.
    pub tmp_bytes: u64,
}

impl NamespaceConfig {
    pub fn new(name: ProviderName, data: PathBuf, workspaces: PathBuf, program: Program) -> Self {
        Self {
            name,
            data,
            workspaces,
            program,
            limits: Limits::default(),
            network: Network::Host,
            user: User::default(),
            mount_path: PathBuf::from("/workspace"),
            read_only: Vec::new(),
            tmp_bytes: TMP_BYTES,
        }
    }
}

pub fn provider(config: NamespaceConfig) -> OnMachine {
    let (name, limits) = (config.name.clone(), config.limits);
    let places = Places { data: config.data.clone(), workspaces: config.workspaces.clone() };
    let program = config.program.clone();
    let walls = Box::new(Namespaces { config, cgroups: Cgroups::detect() });
    OnMachine { machine: Machine::new(name, places, limits, program, walls) }
}

#[derive(Debug)]
struct Namespaces {
    config: NamespaceConfig,
    cgroups: Cgroups,
}

impl Namespaces {
    fn home(&self) -> PathBuf {
        PathBuf::from("/home").join(&self.config.user.name)
    }
}

/// What `/tmp` and its like may hold where all may use so much memory. It is memory that no kill gives back, so a half is left
/// for processes: whoever fills it is told that it is full, and nobody dies of it.
pub(super) fn tmp_within(tmp_bytes: u64, memory: Option<u64>) -> u64 {
    memory.map_or(tmp_bytes, |memory| tmp_bytes.min(memory / 2))
}

impl Walls for Namespaces {
    fn kind(&self) -> &'static str {
        "namespace"
    }

    fn isolated(&self) -> bool {
        true
    }

    fn probe(&self) -> Availability {
        match stead_term::enclose::probe() {
            Ok(()) => Availability::Works(Vec::new()),
            Err(reason) if reason.passes => Availability::NotNow { why: reason.to_string() },
            Err(reason) => Availability::Missing { why: reason.to_string(), hint: reason.hint },
        }
    }

    fn start(&self, places: &Places, blueprint: &Blueprint, procs: &[PathBuf]) -> Result<(), String> {
        let config = &self.config;
        let place = places.steward(&blueprint.lease);
        let (files, home) = (places.files(&blueprint.workspace), places.home(&blueprint.workspace));
        let without = |need, limit: Option<u64>| limit.filter(|_| !self.cgroups.can(need));
        let enclosure = Enclosure {
            mount_path: config.mount_path.clone(),
            home_path: self.home(),
            user: config.user.clone(),
            network: blueprint.demands.network.unwrap_or(config.network),
            read_only: config.read_only.clone(),
            tmp_bytes: tmp_within(config.tmp_bytes, blueprint.demands.memory.or(config.limits.memory)),
            cgroup_procs: procs.to_vec(),
            more: places
                .memories(&blueprint.workspace)
                .into_iter()
                .map(|(host, inside)| Share { host, inside })
                .collect(),
            // Where no group can limit all of it, each process is limited.
            max_processes: without(Need::Processes, blueprint.demands.processes.or(config.limits.processes)),
            max_memory: without(Need::Memory, blueprint.demands.memory.or(config.limits.memory)),
            ..Enclosure::new(&config.program.path, &place, &files, &home)
        };
        let call: Vec<_> = config.program.call.iter().map(String::as_str).collect();
        let started = start_enclosed(&place, &enclosure, &call, &Settings::default());
        started.map(drop).map_err(|error| chain(&error))
    }

    fn root(&self, place: &Path) -> io::Result<Option<Id>> {
        let Ok(dir) = Dir::open(place) else { return Ok(None) };
        Ok(Enclosed::find(&dir)?.map(|enclosed| Id { pid: enclosed.pid, start_time: enclosed.start_time }))
    }

    /// The first process is the enclosure: with it everything in it dies. Its number lies where nobody inside can reach;
    /// the lock does not.
    fn is_alive(&self, place: &Path) -> io::Result<bool> {
        let Some(root) = self.root(place)? else { return Ok(false) };
        let stat = proc::look(root.pid)?.filter(|stat| stat.start_time == root.start_time);
        Ok(stat.is_some_and(|stat| stat.state != b'Z'))
    }

    fn end(&self, place: &Path) -> Result<(), String> {
        end_enclosure(place).map_err(|error| chain(&error))
    }

    fn surroundings(&self, _: &Places, _: &str) -> Surroundings {
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME", self.home().display().to_string()),
            ("USER", self.config.user.name.clone()),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "xterm-256color".to_owned()),
        ];
        Surroundings {
            env: env.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect(),
            cwd: self.config.mount_path.clone().into_os_string().into_encoded_bytes(),
            scratch: "/tmp".to_owned(),
        }
    }

    fn trees(&self, places: &Places, workspace: &str) -> Vec<Tree> {
        vec![
            Tree { inside: self.config.mount_path.display().to_string(), outside: places.files(workspace) },
            Tree { inside: self.home().display().to_string(), outside: places.home(workspace) },
        ]
    }
}
