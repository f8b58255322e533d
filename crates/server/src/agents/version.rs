//! Which version of an agent is installed: what its package says, or else what it says itself.

use super::Agents;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use stead_agent::Spec;

/// How long a program may take to say what it is.
const WITHIN: Duration = Duration::from_secs(5);

/// What was said, by programs that have not changed since.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<HashMap<PathBuf, Known>>);

#[derive(Debug)]
struct Known {
    changed: Option<SystemTime>,
    version: Option<String>,
}

impl Agents {
    pub async fn version(&self, spec: &Spec, program: &Path) -> Option<String> {
        if let Some(version) = of_package(program) {
            return Some(version);
        }
        let changed = std::fs::metadata(program).and_then(|metadata| metadata.modified()).ok();
        let known = || {
            let known = self.shared.versions.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(program).filter(|known| known.changed == changed).map(|known| known.version.clone())
        };
        if let Some(version) = known() {
            return version;
        }
        // One that could not be asked now may say it the next time.
        let version = ask(spec, program, &self.shared.settings.path).await.ok()?;
        let mut known = self.shared.versions.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(program.to_owned(), Known { changed, version: version.clone() });
        version
    }
}

/// What the package that a program came with says of itself.
fn of_package(program: &Path) -> Option<String> {
    let mut above = program.ancestors().skip(1).take(4).map(|dir| dir.join("package.json"));
    let package = above.find(|file| file.is_file())?;
    let package: Value = serde_json::from_slice(&std::fs::read(package).ok()?).ok()?;
    package.get("version")?.as_str().map(str::to_owned)
}

/// What it prints when it is asked. It knows nothing of us but where programs are.
async fn ask(spec: &Spec, program: &Path, path: &str) -> io::Result<Option<String>> {
    if spec.version_args.is_empty() {
        return Ok(None);
    }
    let mut command = tokio::process::Command::new(program);
    command.args(&spec.version_args).env_clear().env("PATH", path).env("HOME", "/nonexistent").current_dir("/");
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(WITHIN, command.output()).await??;
    Ok(number(&String::from_utf8_lossy(&output.stdout)))
}

/// The first word that looks like one.
fn number(said: &str) -> Option<String> {
    let words = said.split_whitespace().map(|word| word.trim_start_matches('v').trim_end_matches([',', ';', ')']));
    words
        .filter(|word| word.len() <= 64)
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_a_program_says() {
        let cases = [
            ("codex-cli 0.166.0\n", Some("0.166.0")),
            ("2.1.325 (Claude Code)\n", Some("2.1.325")),
            ("goose v1.9.0-beta, built today", Some("1.9.0-beta")),
            ("usage: toy [FILE]", None),
            ("", None),
        ];
        for (said, version) in cases {
            assert_eq!(number(said).as_deref(), version, "{said}");
        }
    }
}
