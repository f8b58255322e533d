//! The repository that a project begins with: cloned behind the answer, told while it goes on, begun again by the next
//! server if this one dies.
//!
//! ```text
//! git clone ─► tmp/clone.part ─► tmp/clone.whole ─► name by name into repo/ ─► row: done, credentials forgotten
//!              removed and begun again              gone on with
//! ```
//!
//! `repo/` itself stays the directory it is: instances may have it mounted. Git gets an address that was checked, no
//! configuration but ours, and credentials by its environment, where neither the list of processes nor the repository's
//! own configuration shows them.

use super::{get, place, update};
use crate::error::Error;
use crate::project::ProjectPlace;
use crate::stead::Inner;
use base64::Engine;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_model::env::{Secret, redact_text};
use stead_model::ids::ProjectId;
use stead_model::plain::plain;
use stead_model::project::{Cloning, Project};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The longest that a repository may take.
const PATIENCE: Duration = Duration::from_hours(6);

/// Of what git says, the end.
const MOST_SAID: usize = 4096;

/// Repositories that are cloned at the same time.
const MOST_AT_ONCE: usize = 4;

#[derive(Debug)]
pub(crate) struct Clones {
    on_their_way: Mutex<HashMap<ProjectId, watch::Receiver<String>>>,
    unwanted: Mutex<HashMap<ProjectId, CancellationToken>>,
    at_once: tokio::sync::Semaphore,
}

impl Default for Clones {
    fn default() -> Self {
        Self {
            on_their_way: Mutex::default(),
            unwanted: Mutex::default(),
            at_once: tokio::sync::Semaphore::new(MOST_AT_ONCE),
        }
    }
}

impl Clones {
    fn of(&self, id: &ProjectId) -> Option<watch::Receiver<String>> {
        self.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) fn is_on_its_way(&self, id: &ProjectId) -> bool {
        self.of(id).is_some()
    }

    /// The last that git said.
    pub(crate) fn progress(&self, id: &ProjectId) -> Option<String> {
        self.of(id).map(|said| said.borrow().clone()).filter(|said| !said.is_empty())
    }
}

/// Begins to clone, and doesn't wait.
pub(crate) fn begin(inner: &Arc<Inner>, id: &ProjectId) {
    let (say, said) = watch::channel(String::new());
    inner.projects.clones.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), said);
    let unwanted = CancellationToken::new();
    let token = unwanted.clone();
    inner.projects.clones.unwanted.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), token);
    let (worker, id) = (Arc::clone(inner), id.clone());
    inner.core.tasks.spawn(async move {
        let done = tokio::select! {
            done = clone(&worker, &id, &say) => done,
            // Whoever wants it again begins again.
            () = unwanted.cancelled() => {
                give_up(&worker, &id).await;
                Ok(())
            }
            // The next server begins again.
            () = worker.core.stop.cancelled() => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(%error, project = %id, "what has become of its repository can't be written down");
        }
        // Whoever waits hears that nobody speaks any more.
        worker.projects.clones.unwanted.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        worker.projects.clones.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    });
}

/// Gives up what is on its way: the project goes to the trash.
pub(crate) async fn abandon(inner: &Inner, id: &ProjectId) -> Result<(), Error> {
    if let Some(unwanted) = inner.projects.clones.unwanted.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
        unwanted.cancel();
    }
    arrived(inner, id).await
}

/// Removes what git left, which was killed a moment ago: until it is dead there may be more.
async fn give_up(inner: &Inner, id: &ProjectId) {
    let Some(place) = place(inner, id) else { return };
    let part = place.tmp().join("clone.part");
    for wait in [1, 2, 4, 8, 16, 32, 64, 128] {
        match remove(&part).await {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            Err(error) => return tracing::warn!(%error, project = %id, "what was cloned of its repository stays"),
            Ok(()) => return,
        }
    }
}

/// Waits until the repository of a project is there, or isn't going to be.
pub(crate) async fn arrived(inner: &Inner, id: &ProjectId) -> Result<(), Error> {
    if let Some(mut said) = inner.projects.clones.of(id) {
        while said.changed().await.is_ok() {}
    }
    if inner.core.stop.is_cancelled() { Err(Error::Stopping) } else { Ok(()) }
}

async fn clone(inner: &Arc<Inner>, id: &ProjectId, say: &watch::Sender<String>) -> Result<(), Error> {
    let _turn = inner.projects.clones.at_once.acquire().await.map_err(|_| Error::Stopping)?;
    let project = get(inner, id).await?;
    let outcome = fetch(inner, &project, say).await;
    let now = inner.core.now();
    let clone = match outcome {
        Ok(()) => Cloning::Done(now),
        Err(error) => {
            tracing::warn!(error, project = %id, "its repository could not be cloned");
            inner.core.store.project_failed(id, now, &format!("the repository could not be cloned: {error}")).await?;
            Cloning::Failed { at: now, error }
        }
    };
    update(inner, id, |project| Ok(Some(Project { clone: clone.clone(), ..project.clone() }))).await?;
    Ok(())
}

/// An error is for people: it has no credentials in it.
async fn fetch(inner: &Inner, project: &Project, say: &watch::Sender<String>) -> Result<(), String> {
    let Some(url) = &project.config.repo_url else { return Ok(()) };
    let place = place(inner, &project.id).ok_or_else(|| "projects have no directories here".to_owned())?;
    let credentials = credentials(inner, &project.id).await.map_err(|error| error.to_string())?;
    let (part, whole) = (place.tmp().join("clone.part"), place.tmp().join("clone.whole"));
    let failed = |error: io::Error| format!("can't use `{}`: {error}", place.root().display());
    if !tokio::fs::try_exists(&whole).await.map_err(failed)? {
        remove(&part).await.map_err(failed)?;
        let ended = git(&place, url.as_str(), credentials.as_ref(), &part, say).await;
        if let Err(error) = ended {
            remove(&part).await.map_err(failed)?;
            return Err(redact_text(&error, &credentials));
        }
        tokio::fs::rename(&part, &whole).await.map_err(failed)?;
    }
    let (from, to) = (whole.clone(), place.repo());
    let moved = tokio::task::spawn_blocking(move || move_in(&from, &to)).await.map_err(|error| error.to_string())?;
    let left = remove(&whole).await.map_err(failed);
    moved.and(left)
}

async fn credentials(inner: &Inner, id: &ProjectId) -> Result<Option<Secret>, Error> {
    match inner.core.store.clone_credentials(id).await? {
        Some(sealed) => Ok(Some(inner.core.vault.open_credentials(id, &sealed)?)),
        None => Ok(None),
    }
}

async fn remove(path: &Path) -> io::Result<()> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Name by name, what makes it a repository last. What somebody else has put there is not overwritten.
fn move_in(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("can't move `{}`: {error}", path.display());
    let entries = std::fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut names: Vec<_> =
        entries.map_err(|error| failed(from, error))?.iter().map(std::fs::DirEntry::file_name).collect();
    names.sort_by_key(|name| name == ".git");
    if let Some(taken) = names.iter().find(|name| to.join(name).symlink_metadata().is_ok()) {
        return Err(format!("`/workspace/{}` is there already", taken.display()));
    }
    for name in &names {
        std::fs::rename(from.join(name), to.join(name)).map_err(|error| failed(&from.join(name), error))?;
    }
    Ok(())
}

async fn git(
    place: &ProjectPlace,
    url: &str,
    credentials: Option<&Secret>,
    into: &Path,
    say: &watch::Sender<String>,
) -> Result<(), String> {
    let mut command = tokio::process::Command::new("git");
    // Nothing of the repository is run: no hooks are cloned, no submodules are followed, no configuration is read.
    command.args(["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "clone", "--progress", "--"]);
    command.arg(url).arg(into).current_dir(place.tmp()).env_clear();
    for (name, value) in environment(place, url, credentials) {
        command.env(name, value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("`git` can't be started: {error}"))?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()));
    let heard = child.stderr.take().map(|stderr| listen(stderr, say, credentials));
    let run = async {
        let said = match heard {
            Some(heard) => heard.await,
            None => String::new(),
        };
        (child.wait().await, said)
    };
    let (status, said) = tokio::time::timeout(PATIENCE, run)
        .await
        .map_err(|_| format!("it took more than {} hours", PATIENCE.as_secs() / 3600))?;
    drop(group);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(if said.is_empty() { format!("git ended with {status}") } else { said }),
        Err(error) => Err(error.to_string()),
    }
}

/// All that git knows of the world.
fn environment(place: &ProjectPlace, url: &str, credentials: Option<&Secret>) -> Vec<(&'static str, String)> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let mut env = vec![
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME", place.home().display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ("GIT_ASKPASS", "/bin/false".to_owned()),
        ("GIT_SSH_COMMAND", "ssh -o BatchMode=yes".to_owned()),
        ("GIT_ALLOW_PROTOCOL", scheme.to_owned()),
    ];
    if let Some(secret) = credentials {
        let encoded = base64::engine::general_purpose::STANDARD.encode(basic(secret));
        env.push(("GIT_CONFIG_COUNT", "1".to_owned()));
        env.push(("GIT_CONFIG_KEY_0", "http.extraHeader".to_owned()));
        env.push(("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {encoded}")));
    }
    env
}

/// `user:password`; a token alone is a user without one. Percent-encoding is undone, as git does it.
fn basic(secret: &Secret) -> Vec<u8> {
    let plain: Vec<u8> = percent_encoding::percent_decode(secret.reveal()).collect();
    if plain.contains(&b':') { plain } else { [plain, b":".to_vec()].concat() }
}

/// The processes of a clone, killed when nobody waits for it any more.
struct Group(Option<i32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            stead_term::proc::signal_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Tells the last line as it comes, and at the end all but the lines of progress, as far as somebody may read them.
async fn listen(
    mut stderr: impl AsyncRead + Unpin,
    say: &watch::Sender<String>,
    credentials: Option<&Secret>,
) -> String {
    let (mut line, mut said) = (Vec::new(), String::new());
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        for byte in buffer.get(..read).unwrap_or_default() {
            if *byte != b'\r' && *byte != b'\n' {
                if line.len() < MOST_SAID {
                    line.push(*byte);
                }
                continue;
            }
            let text = redact_text(&String::from_utf8_lossy(&line), credentials);
            let text = plain(&text).replace(['\n', '\t'], " ");
            line.clear();
            let news = !text.trim().is_empty() && !text.contains("% (") && !text.starts_with("Cloning into");
            if *byte == b'\n' && news && said.len() + text.len() < MOST_SAID {
                said.push_str(if said.is_empty() { "" } else { "; " });
                said.push_str(text.trim());
            }
            if !text.trim().is_empty() && !text.starts_with("Cloning into") {
                say.send_replace(text.trim().to_owned());
            }
        }
    }
    said
}

/// After a start: what was on its way begins again, or goes on where names were being moved.
pub(super) fn recover(inner: &Arc<Inner>, projects: &[Project]) {
    for project in projects.iter().filter(|project| project.clone == Cloning::Wanted) {
        begin(inner, &project.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_to_be_moved_is_gone_on_with_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let place = ProjectPlace::at(dir.path().join("p"));
        place.make().unwrap();
        let whole = place.tmp().join("clone.whole");
        std::fs::create_dir_all(whole.join(".git")).unwrap();
        std::fs::write(whole.join("b"), "b").unwrap();
        // A server that died had moved `a`.
        std::fs::write(place.repo().join("a"), "a").unwrap();
        move_in(&whole, &place.repo()).unwrap();
        for name in ["a", "b", ".git"] {
            assert!(place.repo().join(name).exists(), "{name}");
        }
        std::fs::write(whole.join("b"), "other").unwrap();
        assert!(move_in(&whole, &place.repo()).unwrap_err().contains("`/workspace/b` is there already"));
        assert_eq!(std::fs::read_to_string(place.repo().join("b")).unwrap(), "b");
    }

    #[test]
    fn credentials_are_in_the_environment_alone() {
        let place = ProjectPlace::at("/p".into());
        let secret = Secret::new("me:p%40ss");
        let env = environment(&place, "https://h/r", Some(&secret));
        let header = &env.iter().find(|(name, _)| *name == "GIT_CONFIG_VALUE_0").unwrap().1;
        assert_eq!(header, "Authorization: Basic bWU6cEBzcw==");
        assert!(environment(&place, "https://h/r", None).iter().all(|(name, _)| !name.starts_with("GIT_CONFIG_KEY")));
    }
}
