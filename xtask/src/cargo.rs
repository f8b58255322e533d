//! What cargo knows of this workspace, and how it is called.

use crate::failed::{Failed, Result, While};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
    /// The same for every call, so that nothing is built twice because of another.
    variables: Vec<(&'static str, PathBuf)>,
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Where its manifest is.
    pub(crate) directory: PathBuf,
    /// Direct dependencies of every kind, by name.
    pub(crate) dependencies: Vec<String>,
}

impl Workspace {
    /// The workspace that the current directory is in.
    pub(crate) fn load() -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let text = output(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).or_failed("`cargo metadata` is not JSON")?;
        Self::read(&metadata).or_failed("`cargo metadata` lacks what we look for")
    }

    fn read(metadata: &Value) -> Option<Self> {
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let name = |value: &Value| value.get("name")?.as_str().map(str::to_owned);
        let package = |value: &Value| {
            Some(Package {
                name: name(value)?,
                directory: path(value.get("manifest_path")?)?.parent()?.to_owned(),
                dependencies: value.get("dependencies")?.as_array()?.iter().map(name).collect::<Option<_>>()?,
            })
        };
        Some(Self {
            root: path(metadata.get("workspace_root")?)?,
            target: path(metadata.get("target_directory")?)?,
            packages: metadata.get("packages")?.as_array()?.iter().map(package).collect::<Option<_>>()?,
            variables: Vec::new(),
        })
    }

    /// From now on `stead` is built with this steward in it, as one that is shipped, and tests put it into sandboxes.
    pub(crate) fn embed(&mut self, static_steward: &Path) {
        let names = ["STEAD_EMBED_STEWARD", "STEAD_STATIC_STEWARD"];
        self.variables = names.map(|name| (name, static_steward.to_owned())).into();
    }

    /// Cargo, called at the root.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root).args(arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The cargo that runs us, so that a chore uses one toolchain from end to end.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program that speaks to the user itself.
pub(crate) fn run(command: &mut Command) -> Result {
    let line = line(command);
    let status = command.status().or_failed(format!("can't run `{line}`"))?;
    if status.success() { Ok(()) } else { Err(Failed::new(format!("`{line}` failed ({status})"))) }
}

/// Runs a program for what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.output().or_failed(format!("can't run `{line}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failed::new(format!("`{line}` failed ({}): {}", output.status, said.trim())));
    }
    String::from_utf8(output.stdout).or_failed(format!("`{line}` prints what is not text"))
}

/// A command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
