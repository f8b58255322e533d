//! Threads: made, found, removed.

use super::{Inner, Stead};
use crate::error::Error;
use crate::lease::{Force, LeaseError, Source};
use crate::provider::{Lasting, in_time};
use crate::store::{Page, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use stead_model::clock::Timestamp;
use stead_model::env::EnvError;
use stead_model::ids::{LeaseId, ProjectId, ProviderName, TerminalId, ThreadId};
use stead_model::lease::Lease;
use stead_model::project::Config;
use stead_model::session::{CloseReason, Policy};
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::{DEFAULT_NAME, Terminal};
use stead_model::thread::Thread;
use stead_model::word::{is_name, quote};

/// How the workspace of a thread that stands alone is called; it goes with its lease.
const OWN_WORKSPACE: &str = "w-";

/// The workspace of a thread that stands alone.
pub(super) fn own_workspace(lease: &LeaseId) -> String {
    format!("{OWN_WORKSPACE}{lease}")
}

/// Whether a workspace is one thread's own. A project's is called by the project, whose id can begin in the same way,
/// but ends in eight digits, not sixteen.
pub(crate) fn is_own(workspace: &str) -> bool {
    let digits = workspace.strip_prefix(OWN_WORKSPACE).and_then(|lease| lease.strip_prefix("lease-"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A thread to be made; whatever is absent is chosen.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    pub id: Option<ThreadId>,
    pub project: Option<ProjectId>,
    pub provider: Option<ProviderName>,
    /// Put its terminal on this thread's lease.
    pub share_with: Option<ThreadId>,
    /// A directory of this machine to work in, by its canonical path. It is nobody's to remove.
    pub workspace: Option<String>,
    pub policy: Policy,
    pub cwd: Option<Vec<u8>>,
    pub env: Vec<(String, Vec<u8>)>,
}

impl Stead {
    pub async fn create_thread(&self, new: NewThread) -> Result<Thread, Error> {
        create(&self.inner, new).await
    }

    pub async fn thread(&self, id: &ThreadId) -> Result<Thread, Error> {
        let thread = self.inner.core.store.thread(id).await?;
        thread.ok_or_else(|| Error::NotFound { kind: "thread", id: id.to_string() })
    }

    /// As it is shown: with uses that are not written down yet.
    pub async fn present_thread(&self, id: &ThreadId) -> Result<Thread, Error> {
        let thread = self.thread(id).await?;
        Ok(Thread { last_active_at: self.inner.last_used(&thread), ..thread })
    }

    pub async fn threads(&self, project: Option<&ProjectId>, page: &Page) -> Result<Vec<Thread>, Error> {
        Ok(self.inner.core.store.threads(project, page).await?)
    }

    /// Removes a thread and everything that is only its own: its commands are cancelled, its sessions closed, its
    /// instance destroyed unless another terminal uses it. One that isn't there is removed already.
    pub async fn delete_thread(&self, id: &ThreadId) -> Result<(), Error> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        let work = async move {
            match delete(&inner, &id).await {
                // It makes room, so what was kept for this is its to take.
                Err(error) if error.code() == "no_space" && super::ready::give_up_reserve(inner.data.as_deref()) => {
                    delete(&inner, &id).await
                }
                done => done,
            }
        };
        self.inner.core.finish(work).await.unwrap_or(Err(Error::Stopping))
    }
}

pub(super) async fn create(inner: &Arc<Inner>, new: NewThread) -> Result<Thread, Error> {
    let core = &inner.core;
    let now = core.now();
    let id = new.id.unwrap_or_else(|| ThreadId::made_of(core.entropy()));
    // As long as we are inside nobody moves it to another lease.
    let door = new.share_with.as_ref().map(|other| inner.door(other));
    let _inside = match &door {
        Some(door) => Some(door.lock().await),
        None => None,
    };
    let shared = match &new.share_with {
        Some(other) => {
            let other = core.store.thread(other).await?;
            Some(other.ok_or_else(|| Error::NotFound {
                kind: "thread",
                id: new.share_with.as_ref().map(ToString::to_string).unwrap_or_default(),
            })?)
        }
        None => None,
    };
    // Whoever shares a project's files is in the project.
    let project = match (&shared, new.project) {
        (Some(shared), Some(asked)) if shared.project.as_ref() != Some(&asked) => {
            return Err(Error::Conflict(format!("thread `{}` is not in project `{asked}`", shared.id)));
        }
        (Some(shared), _) => shared.project.clone(),
        (None, asked) => asked,
    };
    let config = match &project {
        Some(id) => Some(super::projects::open(inner, id).await?.config),
        None => None,
    };
    let provider = match (&shared, new.provider) {
        (Some(shared), Some(asked)) if asked != shared.provider => {
            let message = format!("thread `{}` is on provider `{}`, not `{asked}`", shared.id, shared.provider);
            return Err(Error::Conflict(message));
        }
        (Some(shared), _) => shared.provider.clone(),
        (None, Some(asked)) => asked,
        (None, None) => {
            let usual = config.as_ref().and_then(|config| config.provider.clone());
            usual.unwrap_or_else(|| inner.settings.default_provider.clone())
        }
    };
    core.provider(&provider)?;
    if let Some(config) = &config {
        super::projects::check_demands(inner, &provider, config)?;
    }
    let (lease_id, workspace) = if let Some(shared) = &shared {
        (shared.lease.clone(), shared.workspace.clone())
    } else {
        let lease = LeaseId::made_of(core.entropy());
        // A thread that stands alone has a workspace of its own, which outlives any lease.
        let asked = new.workspace.or_else(|| project.as_ref().map(ToString::to_string));
        let workspace = asked.unwrap_or_else(|| own_workspace(&lease));
        (lease, workspace)
    };
    let thread = Thread {
        id: id.clone(),
        project,
        provider: provider.clone(),
        default_terminal: TerminalId::made_of(core.entropy()),
        lease: lease_id.clone(),
        workspace: workspace.clone(),
        policy: new.policy,
        created_at: now,
        last_active_at: now,
    };
    let mut terminal = Terminal::new(thread.default_terminal.clone(), id, lease_id.clone(), DEFAULT_NAME.into(), now);
    terminal.state = first_state(new.cwd, &with_defaults(config.as_ref(), new.env))?;
    let lease = shared.is_none().then(|| Lease::new(lease_id, provider, workspace, now));
    core.store.create_thread(&thread, &terminal, lease.as_ref()).await?;
    Ok(thread)
}

/// The variables of a terminal over those that its project begins with.
pub(super) fn with_defaults(config: Option<&Config>, own: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let defaults = config.into_iter().flat_map(|config| &config.env);
    let mut env: BTreeMap<_, _> = defaults.map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
    env.extend(own);
    env.into_iter().collect()
}

/// The state of a terminal that is asked for with a directory and variables.
pub(super) fn first_state(cwd: Option<Vec<u8>>, env: &[(String, Vec<u8>)]) -> Result<ShellState, Error> {
    if let Some(cwd) = cwd.as_ref().filter(|cwd| !cwd.starts_with(b"/") || cwd.contains(&0)) {
        let path = String::from_utf8_lossy(cwd).replace(char::is_control, "?");
        return Err(Error::Path {
            path,
            message: "a terminal begins at an absolute path, as `/workspace/src`".to_owned(),
        });
    }
    let mut state = ShellState { cwd: Bytes(cwd.unwrap_or_default()), ..ShellState::default() };
    for (name, value) in env {
        if !is_name(name.as_bytes()) {
            return Err(EnvError::Name(name.clone()).into());
        }
        if value.contains(&0) {
            return Err(EnvError::Nul(name.clone()).into());
        }
        let statement = [b"declare -x ", name.as_bytes(), b"=", &quote(value)].concat();
        state.variables.insert(Bytes::from(name.as_bytes()), Bytes(statement));
    }
    Ok(state)
}

pub(super) async fn delete(inner: &Arc<Inner>, id: &ThreadId) -> Result<(), Error> {
    let store = &inner.core.store;
    let door = inner.door(id);
    let _inside = door.lock().await;
    let Some(thread) = store.thread(id).await? else { return Ok(()) };
    delete_inside(inner, &thread).await
}

/// The same for who thinks that nobody has used it since: not if somebody has.
pub(super) async fn delete_unused(inner: &Arc<Inner>, id: &ThreadId, since: Timestamp) -> Result<(), Error> {
    let door = inner.door(id);
    let _inside = door.lock().await;
    match inner.core.store.thread(id).await? {
        Some(thread) if thread.last_active_at <= since => delete_inside(inner, &thread).await,
        Some(_) | None => Ok(()),
    }
}

async fn delete_inside(inner: &Arc<Inner>, thread: &Thread) -> Result<(), Error> {
    let (store, id) = (&inner.core.store, &thread.id);
    let terminals = store.terminals_of_thread(id).await?;
    for terminal in &terminals {
        super::close::cancel_all(inner, &terminal.id).await;
        if let Some(session) = store.live_session(&terminal.id).await? {
            super::close::session(inner, session, CloseReason::Destroyed).await?;
        }
    }
    let users = store.terminals_of_lease(&thread.lease).await?;
    if users.iter().all(|terminal| terminal.thread == *id) {
        destroy(inner, &thread.lease).await?;
    } else {
        for terminal in &terminals {
            super::close::end_shell(inner, terminal).await?;
        }
    }
    inner.ledger.flush().await;
    let past = store.past_leases(id).await?;
    store.delete_thread(id).await?;
    let mut left = Ok(());
    for lease in past {
        left = left.and(remove_lease(inner, &lease, "api").await);
    }
    // Of those who share a lease and are deleted at once, each was not the only one before; the last one is now.
    if store.terminals_of_lease(&thread.lease).await?.is_empty() {
        remove_lease(inner, &thread.lease, "api").await?;
    }
    left
}

/// Removes a lease that no terminal uses any more, with its files. What can't be removed now is remembered, and tried
/// again with every round of the reaper and every start.
pub(super) async fn remove_lease(inner: &Inner, id: &LeaseId, source: Source) -> Result<(), Error> {
    let removed = try_remove(inner, id, source).await;
    let mut unfinished = inner.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
    if removed.is_ok() {
        unfinished.remove(id);
    } else {
        unfinished.insert(id.clone());
    }
    removed
}

async fn try_remove(inner: &Inner, id: &LeaseId, source: Source) -> Result<(), Error> {
    let store = &inner.core.store;
    let Some(lease) = store.lease(id).await? else { return Ok(()) };
    match inner.leases.destroy(id, Force::Yes, Vec::new(), source).await {
        Ok(_) | Err(LeaseError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    if !store.terminals_of_lease(id).await?.is_empty() {
        // Somebody has come to it meanwhile; whoever wants an instance gets another.
        return Ok(());
    }
    let provider = inner.core.provider(&lease.provider)?;
    // A thread that moved may have its files with it, where both providers see the same.
    let own = is_own(&lease.workspace) && !store.is_workspace_used(&lease.workspace).await?;
    let own = own.then_some(lease.workspace.as_str());
    if store.mover(id).await?.is_some() {
        // The thread is elsewhere, and what its commands wrote here is still its own.
        if let Some(lasting) = own.and_then(|workspace| provider.lasting(workspace)) {
            remove_files(lasting).await?;
        }
        return Ok(());
    }
    in_time(provider.name(), "forget", provider.forget(id, own)).await?;
    match store.delete_lease(id).await {
        // Somebody has begun to share it meanwhile.
        Ok(()) | Err(StoreError::NotFound { .. } | StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the files of a workspace that nobody has any more; what isn't there is removed already.
async fn remove_files(lasting: Lasting) -> Result<(), Error> {
    let work = move || {
        for dir in std::iter::once(&lasting.files).chain(&lasting.home) {
            match std::fs::remove_dir_all(dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // What held both, if nothing else is in it.
        if let Some(above) = lasting.home.as_ref().and_then(|home| home.parent()) {
            let _ = std::fs::remove_dir(above);
        }
        Ok(())
    };
    let removed = tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io(error.to_string()))?;
    removed.map_err(|error| Error::Io(format!("can't remove the files of a workspace: {error}")))
}

/// Destroys what a lease has; one that isn't there has nothing.
async fn destroy(inner: &Inner, lease: &LeaseId) -> Result<(), Error> {
    if inner.core.store.lease(lease).await?.is_none() {
        return Ok(());
    }
    match inner.leases.destroy(lease, Force::Yes, Vec::new(), "api").await {
        Ok(_) | Err(LeaseError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::project::Project;

    #[test]
    fn the_workspace_of_a_project_is_nobodys_own_whatever_it_is_called() {
        assert!(is_own(&own_workspace(&LeaseId::made_of([7; 8]))));
        for prefix in ["w", "w-lease", "w-lease-00000000", "app"] {
            let project = Project::new(prefix, [1, 2, 3, 4], stead_model::clock::Timestamp(1)).unwrap();
            assert!(!is_own(project.id.as_str()), "{}", project.id);
        }
    }
}
