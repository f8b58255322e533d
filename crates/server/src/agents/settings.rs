//! What the agents of this machine are, and how they are treated.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_agent::{Spec, Specs};

#[derive(Debug, Clone)]
pub struct AgentSettings {
    pub specs: Specs,
    /// Directories of this machine below which agents may be asked to work.
    pub allowed_roots: Vec<PathBuf>,
    /// A session that nobody has used for so long loses its process.
    pub idle_timeout: Duration,
    /// A turn in which nothing happens for so long is ended.
    pub activity_timeout: Duration,
    /// A question that nobody answers for so long is answered with no.
    pub permission_timeout: Duration,
    /// How long an agent may take to let go of a turn, or to end, before its processes are killed.
    pub grace: Duration,
    /// Whose credentials are given to agents.
    pub home: Option<PathBuf>,
    /// Variables that a spec may name as credentials.
    pub variables: BTreeMap<String, String>,
    /// Where programs are looked for.
    pub path: String,
}

impl AgentSettings {
    /// As they are without a configuration.
    pub fn new(specs: Specs) -> Self {
        Self {
            specs,
            allowed_roots: Vec::new(),
            idle_timeout: Duration::from_mins(10),
            activity_timeout: Duration::from_mins(10),
            permission_timeout: Duration::from_mins(5),
            grace: Duration::from_secs(10),
            home: None,
            variables: BTreeMap::new(),
            path: String::new(),
        }
    }

    /// The trees that the agents of this machine were installed into, which their sandboxes have to see.
    pub(crate) fn installations(&self) -> Vec<PathBuf> {
        let home = self.home.as_deref();
        let mut trees = Vec::new();
        for spec in self.specs.iter() {
            let Found::At(program) = self.find(spec) else { continue };
            trees.extend(installation(&program, home));
            trees.extend(self.interpreter(&program).into_iter().flat_map(|found| installation(&found, home)));
            trees.extend(self.interpreters(spec));
        }
        trees.retain(|tree| !is_system(tree) && tree.is_dir());
        trees.sort();
        trees.dedup();
        trees
    }

    /// Directories in which an agent's program looks for what runs it, beyond those that every sandbox has.
    pub(super) fn interpreters(&self, spec: &Spec) -> Vec<PathBuf> {
        let Found::At(program) = self.find(spec) else { return Vec::new() };
        let Some(name) = env_interpreter(&program) else { return Vec::new() };
        let dirs = self.path.split(':').filter(|dir| !dir.is_empty()).map(Path::new);
        let found = dirs.into_iter().find(|dir| runnable(&dir.join(&name)).is_some());
        found
            .filter(|dir| !is_system(dir) && may_be_shown(dir, self.home.as_deref()))
            .map(Path::to_owned)
            .into_iter()
            .collect()
    }

    fn interpreter(&self, program: &Path) -> Option<PathBuf> {
        find_program(&env_interpreter(program)?, &self.path)
    }

    /// Where an agent's program is on this machine.
    pub fn find(&self, spec: &Spec) -> Found {
        let Some(program) = spec.command.first() else { return Found::Missing("it has no program".to_owned()) };
        match find_program(program, &self.path) {
            Some(path) => Found::At(path),
            None if program.contains('/') => Found::Missing(format!("`{program}` is not there")),
            None => Found::Missing(format!("`{program}` is not in PATH")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Itself, behind all links.
    At(PathBuf),
    Missing(String),
}

fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return runnable(Path::new(name));
    }
    path.split(':').filter(|dir| !dir.is_empty()).find_map(|dir| runnable(&Path::new(dir).join(name)))
}

fn runnable(path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(path).ok()?;
    let may = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    may.then(|| std::fs::canonicalize(path).ok()).flatten()
}

/// What a script names behind `env`, as `node`: the program that is looked for where it is started.
fn env_interpreter(program: &Path) -> Option<String> {
    let mut first = [0; 256];
    let read = std::fs::File::open(program).and_then(|mut file| file.read(&mut first)).ok()?;
    let line = first.get(..read)?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_prefix("#!")?;
    let mut words = line.split_whitespace();
    words.next().filter(|word| Path::new(word).file_name().is_some_and(|name| name == "env"))?;
    words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned)
}

/// What every sandbox sees anyhow.
fn is_system(dir: &Path) -> bool {
    ["/usr", "/bin", "/lib", "/lib64", "/sbin", "/opt", "/nix"].iter().any(|system| dir.starts_with(system))
}

/// A home or what is above one would show far more than a program.
fn may_be_shown(dir: &Path, home: Option<&Path>) -> bool {
    dir.components().count() > 2 && !home.is_some_and(|home| home.starts_with(dir))
}

/// What of the machine a sandbox has to see for a program to run in it: the tree it was installed into. Of a prefix, as
/// `~/.local` or a version of node, that is what programs have there, and not what else lies beside it.
fn installation(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let named = |dir: &&Path, name: &str| dir.file_name().is_some_and(|dir| dir == name);
    let modules = program.ancestors().filter(|dir| named(dir, "node_modules")).last();
    let Some(dir) = modules.and_then(Path::parent).or_else(|| program.parent()) else { return Vec::new() };
    let prefix = dir.parent().filter(|_| named(&dir, "lib") || named(&dir, "bin"));
    let trees = match prefix {
        Some(prefix) => vec![prefix.join("bin"), prefix.join("lib")],
        None => vec![dir.to_owned()],
    };
    trees.into_iter().filter(|tree| may_be_shown(tree, home)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_installation_is_its_own_tree() {
        let cases = [
            (
                "/home/me/.npm/lib/node_modules/@openai/codex/bin/codex.js",
                vec!["/home/me/.npm/bin", "/home/me/.npm/lib"],
            ),
            ("/home/me/.local/bin/agent", vec!["/home/me/.local/bin", "/home/me/.local/lib"]),
            ("/opt/tools/agent", vec!["/opt/tools"]),
            ("/opt/agent", vec![]),
            ("/agent", vec![]),
            ("/home/me/node_modules/agent/bin/agent", vec![]),
            ("/home/me/agent", vec![]),
        ];
        for (program, expected) in cases {
            let shown = installation(Path::new(program), Some(Path::new("/home/me")));
            assert_eq!(shown, expected.into_iter().map(PathBuf::from).collect::<Vec<_>>(), "{program}");
        }
    }

    #[test]
    fn what_runs_a_script_is_seen_too() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let agent = write("tools/agent", "#!/usr/bin/env -S mynode --quiet\n");
        write("v20/bin/mynode", "#!/bin/sh\n");
        let toml = format!("[x]\ncommand = ['{}']\ntransport = 'acp'", agent.display());
        let specs = Specs::parse(&toml).unwrap();
        let path = format!("/usr/bin:{}", root.join("v20/bin").display());
        let settings = AgentSettings { path, ..AgentSettings::new(specs) };
        assert_eq!(settings.interpreters(settings.specs.get("x").unwrap()), [root.join("v20/bin")]);
        assert_eq!(settings.installations(), [root.join("tools"), root.join("v20/bin")]);
    }

    #[test]
    fn a_program_is_found_where_a_shell_would_find_it() {
        let settings =
            AgentSettings { path: "/nonexistent:/usr/bin:/bin".to_owned(), ..AgentSettings::new(Specs::built_in()) };
        let spec = |command: &str| {
            let toml = format!("[x]\ncommand = ['{command}']\ntransport = 'acp'");
            Specs::parse(&toml).unwrap().get("x").unwrap().clone()
        };
        assert!(matches!(settings.find(&spec("sh")), Found::At(_)));
        assert_eq!(
            settings.find(&spec("no-such-program")),
            Found::Missing("`no-such-program` is not in PATH".to_owned())
        );
        assert_eq!(settings.find(&spec("/etc/passwd")), Found::Missing("`/etc/passwd` is not there".to_owned()));
    }
}
