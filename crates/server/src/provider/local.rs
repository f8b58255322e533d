//! `local`: a steward and its shells as plain processes of this user. No walls: a command sees what the user sees. For
//! machines that can't do better, and for people who want just that; never the silent default.

use super::machine::{Machine, Program, Walls, keeper_of};
use super::on_machine::OnMachine;
use super::place::Places;
use super::{Availability, Blueprint, Surroundings, Tree};
use crate::project::sight::MEMORIES;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use stead_model::ids::ProviderName;
use stead_steward::keeper::Role;
use stead_steward::past::PastError;
use stead_term::cgroup::Limits;
use stead_term::tree::Id;

#[derive(Debug, Clone)]
pub struct LocalConfig {
    pub name: ProviderName,
    /// Where journals are.
    pub data: PathBuf,
    /// Where workspaces are; other providers may share it.
    pub workspaces: PathBuf,
    pub program: Program,
    /// `PATH` of a fresh shell.
    pub path: String,
    pub limits: Limits,
}

pub fn provider(config: LocalConfig) -> OnMachine {
    let LocalConfig { name, data, workspaces, program, path, limits } = config;
    let walls = Box::new(NoWalls { program: program.clone(), path });
    OnMachine { machine: Machine::new(name, Places { data, workspaces }, limits, program, walls) }
}

#[derive(Debug)]
struct NoWalls {
    program: Program,
    path: String,
}

impl Walls for NoWalls {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn isolated(&self) -> bool {
        false
    }

    fn probe(&self) -> Availability {
        Availability::Works(vec!["commands see everything that you see".to_owned()])
    }

    fn start(&self, places: &Places, blueprint: &Blueprint, procs: &[PathBuf]) -> Result<(), String> {
        let keeper = |dir: &stead_steward::dir::Dir| {
            let words = ["keep", "--dir"].map(str::to_owned);
            let dir = dir.root().to_string_lossy().into_owned();
            let joined = procs.iter().flat_map(|file| ["--cgroup".to_owned(), file.to_string_lossy().into_owned()]);
            let arguments = self.program.call.iter().cloned().chain(words).chain([dir]).chain(joined).collect();
            Role { program: self.program.path.clone(), arguments }
        };
        let started = stead_steward::start::start_within(&places.steward(&blueprint.lease), &keeper, procs);
        started.map(drop).map_err(|error| chain(&error))
    }

    fn root(&self, place: &Path) -> io::Result<Option<Id>> {
        Ok(keeper_of(place))
    }

    fn is_alive(&self, place: &Path) -> io::Result<bool> {
        stead_steward::past::is_alive(place)
    }

    fn collect_output(&self, place: &Path) -> Result<(), PastError> {
        stead_steward::past::collect_output(place)
    }

    fn end(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    fn surroundings(&self, places: &Places, workspace: &str) -> Surroundings {
        let home = places.home(workspace).into_os_string().into_encoded_bytes();
        let env = [
            ("PATH", self.path.clone().into_bytes()),
            ("HOME", home),
            ("LANG", b"C.UTF-8".to_vec()),
            ("TERM", b"xterm-256color".to_vec()),
        ];
        let memories = named(places.memories(workspace));
        let memories =
            memories.into_iter().map(|(name, host)| (name.into_bytes(), host.into_os_string().into_encoded_bytes()));
        Surroundings {
            env: env.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value)).chain(memories).collect(),
            cwd: places.files(workspace).into_os_string().into_encoded_bytes(),
            scratch: "/tmp".to_owned(),
        }
    }

    fn trees(&self, places: &Places, workspace: &str) -> Vec<Tree> {
        let own = |path: PathBuf| Tree { inside: path.to_string_lossy().into_owned(), outside: path };
        vec![
            Tree { inside: "/workspace".to_owned(), outside: places.files(workspace) },
            own(places.files(workspace)),
            own(places.home(workspace)),
            own(PathBuf::from("/tmp")),
        ]
    }
}

/// Variables that say where memories are, for there are no mounts: `STEAD_MEMORIES_HOT` is `/memories/hot`.
fn named(memories: Vec<(PathBuf, PathBuf)>) -> BTreeMap<String, PathBuf> {
    let mut named = BTreeMap::new();
    for (host, inside) in memories {
        if inside == Path::new(MEMORIES) {
            // One directory has all that has none of its own.
            named.insert("STEAD_MEMORIES_HOT".to_owned(), host.join("hot"));
            named.insert("STEAD_MEMORIES_PERSISTENT".to_owned(), host.join("persistent"));
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = inside.to_string_lossy().chars().map(plain).collect();
        named.insert(format!("STEAD{name}"), host);
    }
    named
}

/// An error with all that caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
