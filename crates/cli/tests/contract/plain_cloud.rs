//! The simplest cloud there can be: machines of `stead-testclouds`, called directly. What holds for sandboxes that are
//! somewhere else is tried with it; what each real cloud makes of it is tried with that.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_clouds::{Channel, Cloud, CloudError, Condition, Effect, Listed, Metrics, Ran, Trouble, Wish};
use stead_testclouds::machine::Machine;

#[derive(Debug, Default)]
pub(crate) struct PlainCloud {
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
}

#[derive(Debug)]
struct Sandbox {
    labels: BTreeMap<String, String>,
    machine: Machine,
    paused: Mutex<bool>,
    /// Whether the cloud says that it doesn't know how it is.
    is_blurred: Mutex<bool>,
}

fn env() -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("HOME".to_owned(), "/root".to_owned())])
}

impl PlainCloud {
    fn find(&self, what: &'static str, id: &str) -> Result<Arc<Sandbox>, CloudError> {
        let found = self.sandboxes.lock().unwrap().get(id).filter(|sandbox| sandbox.machine.is_alive()).cloned();
        found.ok_or_else(|| CloudError::new(what, Trouble::NotFound, Effect::None, "no such sandbox"))
    }

    fn awake(&self, what: &'static str, id: &str) -> Result<Arc<Sandbox>, CloudError> {
        let sandbox = self.find(what, id)?;
        if *sandbox.paused.lock().unwrap() {
            return Err(CloudError::new(what, Trouble::Conflict, Effect::None, "it sleeps"));
        }
        Ok(sandbox)
    }

    /// Takes a sandbox away, as a cloud that has lost it.
    pub(crate) fn lose(&self, id: &str) {
        let lost = self.sandboxes.lock().unwrap().remove(id);
        // Whoever is in the middle of a call to it has one in which nothing runs.
        lost.inspect(|sandbox| sandbox.machine.end());
    }

    /// From now on the cloud doesn't know how a sandbox is, which works all the same.
    pub(crate) fn blur(&self, id: &str) {
        *self.sandboxes.lock().unwrap()[id].is_blurred.lock().unwrap() = true;
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.sandboxes.lock().unwrap().values().flat_map(|sandbox| sandbox.machine.pids()).collect()
    }

    pub(crate) fn outside(&self, id: &str, path: &str) -> Option<PathBuf> {
        Some(self.sandboxes.lock().unwrap().get(id)?.machine.outside(path))
    }
}

#[async_trait]
impl Cloud for PlainCloud {
    async fn check(&self) -> Result<Vec<String>, CloudError> {
        if Machine::is_possible() {
            return Ok(Vec::new());
        }
        Err(CloudError::unsupported("make namespaces"))
    }

    async fn create(&self, wish: &Wish) -> Result<String, CloudError> {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        sandboxes.retain(|_, sandbox| sandbox.machine.is_alive());
        if let Some((id, _)) = sandboxes.iter().find(|(_, sandbox)| sandbox.labels == wish.labels) {
            return Ok(id.clone());
        }
        let machine = Machine::start().map_err(|error| {
            CloudError::new("make a sandbox", Trouble::Unavailable, Effect::None, error.to_string())
        })?;
        let id = machine.root().file_name().unwrap().to_str().unwrap().to_owned();
        let sandbox =
            Sandbox { labels: wish.labels.clone(), machine, paused: Mutex::default(), is_blurred: Mutex::default() };
        sandboxes.insert(id.clone(), Arc::new(sandbox));
        Ok(id)
    }

    async fn look(&self, id: &str) -> Result<Condition, CloudError> {
        let Ok(sandbox) = self.find("look", id) else { return Ok(Condition::Gone) };
        if *sandbox.is_blurred.lock().unwrap() {
            return Ok(Condition::Unclear);
        }
        let paused = *sandbox.paused.lock().unwrap();
        Ok(if paused { Condition::Paused } else { Condition::Running })
    }

    async fn pause(&self, id: &str) -> Result<(), CloudError> {
        let sandbox = self.find("pause", id)?;
        sandbox.machine.set_frozen(true);
        *sandbox.paused.lock().unwrap() = true;
        Ok(())
    }

    async fn resume(&self, id: &str) -> Result<(), CloudError> {
        let sandbox = self.find("resume", id)?;
        sandbox.machine.set_frozen(false);
        *sandbox.paused.lock().unwrap() = false;
        Ok(())
    }

    async fn destroy(&self, id: &str) -> Result<(), CloudError> {
        self.lose(id);
        Ok(())
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Listed>, CloudError> {
        let sandboxes = self.sandboxes.lock().unwrap();
        let ours = sandboxes.iter().filter(|(_, sandbox)| {
            sandbox.machine.is_alive() && labels.iter().all(|(name, value)| sandbox.labels.get(name) == Some(value))
        });
        let listed = ours.map(|(id, sandbox)| {
            let condition = if *sandbox.paused.lock().unwrap() { Condition::Paused } else { Condition::Running };
            Listed { id: id.clone(), labels: sandbox.labels.clone(), condition }
        });
        Ok(listed.collect())
    }

    async fn upload(&self, id: &str, path: &str, bytes: Bytes) -> Result<(), CloudError> {
        let sandbox = self.awake("upload", id)?;
        let at = sandbox.machine.outside(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        // Beside it first: a program that runs can't be written to.
        let beside = at.with_extension("new");
        std::fs::write(&beside, bytes).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&beside, &at).unwrap();
        Ok(())
    }

    async fn run(&self, id: &str, script: &str, patience: Duration) -> Result<Ran, CloudError> {
        let sandbox = self.awake("run", id)?;
        let command = sandbox.machine.command("/bin/sh", &["-c".to_owned(), script.to_owned()], &env(), "/");
        let mut command = tokio::process::Command::from(command);
        let output = tokio::time::timeout(patience, command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        Ok(Ran { exit_code: output.status.code().unwrap_or(-1), output: [output.stdout, output.stderr].concat() })
    }

    async fn open(&self, id: &str, program: &str, arguments: &[&str]) -> Result<Box<dyn Channel>, CloudError> {
        let sandbox = self.awake("open", id)?;
        let words: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut command = tokio::process::Command::from(sandbox.machine.command(program, &words, &env(), "/"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        tokio::spawn(async move { child.wait().await });
        Ok(Box::new(tokio::io::join(stdout, stdin)))
    }

    async fn keep_awake(&self, _: &str) -> Result<(), CloudError> {
        Ok(())
    }

    async fn metrics(&self, id: &str) -> Result<Metrics, CloudError> {
        let sandbox = self.find("measure", id)?;
        let processes = sandbox.machine.pids().len() as u64;
        Ok(Metrics { cpu_percent: Some(0.0), memory_used_bytes: Some(processes << 20), ..Metrics::default() })
    }
}
