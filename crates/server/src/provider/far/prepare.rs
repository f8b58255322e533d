//! What is done in a fresh sandbox before anybody may use it. Every step can be done twice, and a file that is written
//! last says for which instance all of them are done.

use super::porter::Errand;
use super::{BASE, Far, PLACE, PROGRAM};
use crate::provider::{Effect, Handle, ProviderError, Trouble};
use std::path::Path;
use std::time::Duration;

/// The home of shells over there; not that of the cloud's own user, which is full of the cloud's own things.
pub(super) const HOME: &str = "/home/agent";

/// For one script; the shortest of the clouds' own limits is 50 s.
const PATIENCE: Duration = Duration::from_secs(45);

const WHAT: &str = "prepare a sandbox";

impl Far {
    pub(super) async fn prepare(&self, handle: &Handle, id: &str, program: &Path) -> Result<(), ProviderError> {
        let instance = handle.instance.as_str();
        let found = self.script(id, &format!("cat {BASE}/made 2>/dev/null || :")).await?;
        let is_made = found.trim_end() == instance;
        if !is_made {
            self.script(id, &self.ground_script(handle)).await?;
            self.put_program(id, program).await?;
        }
        self.start_steward(id).await?;
        if !is_made {
            self.send(handle, id, WHAT, &[Errand::Deliver]).await?;
            self.script(id, &format!("echo {instance} > {BASE}/made")).await?;
        }
        Ok(())
    }

    /// The directories, ours whoever we are there. A steward that was started for somebody who was killed then is not to
    /// live on beside the next.
    fn ground_script(&self, handle: &Handle) -> String {
        let trees = self.all_trees(&handle.workspace);
        let dirs = trees.iter().map(|tree| quote(&tree.inside)).collect::<Vec<_>>().join(" ");
        format!(
            "set -e\n\
             as_root() {{ if [ \"$(id -u)\" = 0 ]; then \"$@\"; else sudo -n \"$@\"; fi; }}\n\
             for dir in {dirs} {BASE}; do\n\
               if [ ! -d \"$dir\" ]; then mkdir -p \"$dir\" 2>/dev/null || as_root mkdir -p \"$dir\"; fi\n\
               if [ ! -w \"$dir\" ]; then as_root chown \"$(id -u):$(id -g)\" \"$dir\"; fi\n\
             done\n\
             chmod 700 {BASE}\n\
             if [ -x {PROGRAM} ]; then {PROGRAM} stop --dir {PLACE} >/dev/null 2>&1 || :; fi\n\
             rm -rf {PLACE}\n"
        )
    }

    async fn put_program(&self, id: &str, program: &Path) -> Result<(), ProviderError> {
        let bytes = tokio::fs::read(program).await.map_err(|error| {
            let message = format!("`{}` can't be read: {error}", program.display());
            self.error(WHAT, Trouble::Broken, Effect::None, message)
        })?;
        let size = bytes.len();
        self.config.cloud.upload(id, PROGRAM, bytes.into()).await.map_err(self.failed(WHAT))?;
        let there = self.script(id, &format!("chmod 755 {PROGRAM} && wc -c < {PROGRAM}")).await?;
        if there.trim().parse() == Ok(size) {
            return Ok(());
        }
        let message = format!("the steward has {size} bytes here and {} there", there.trim());
        Err(self.error(WHAT, Trouble::Broken, Effect::None, message))
    }

    /// Starts it, or finds it running.
    pub(super) async fn start_steward(&self, id: &str) -> Result<(), ProviderError> {
        self.script(id, &format!("{PROGRAM} start --dir {PLACE}")).await.map(drop)
    }

    /// Runs a script that must succeed; what it printed.
    async fn script(&self, id: &str, script: &str) -> Result<String, ProviderError> {
        let ran = self.config.cloud.run(id, script, PATIENCE).await.map_err(self.failed(WHAT))?;
        let said = String::from_utf8_lossy(&ran.output).into_owned();
        if ran.exit_code == 0 {
            return Ok(said);
        }
        let said: String = said.trim().chars().take(500).collect();
        let message = format!("its script ended with {}: {said}", ran.exit_code);
        Err(self.error(WHAT, Trouble::Broken, Effect::Unknown, message))
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
