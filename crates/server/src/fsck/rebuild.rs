//! Rows of a database that was lost, made anew from what sandboxes left beside it: their journals name terminals and
//! commands, and the states that shells were in. What threads were called stood in the database alone.

use super::{FsckError, Report, database, entries};
use crate::stead::recover::commands::row_of_journal;
use crate::store::{SqliteStore, Store, StoreError};
use std::path::Path;
use std::time::UNIX_EPOCH;
use stead_model::clock::Timestamp;
use stead_model::command::Command;
use stead_model::ids::{LeaseId, ProviderName, TerminalId, ThreadId};
use stead_model::lease::Lease;
use stead_model::session::Policy;
use stead_model::state::ShellState;
use stead_model::terminal::{DEFAULT_NAME, Terminal};
use stead_model::thread::Thread;
use stead_steward::past::{self, PastShell};

/// A lease as its directory tells.
struct Found {
    lease: LeaseId,
    provider: ProviderName,
    workspace: String,
    at: Timestamp,
    shells: Vec<PastShell>,
}

pub(super) async fn rebuild(data: &Path, report: &mut Report) -> Result<(), FsckError> {
    let failed = |source| FsckError::Io { path: data.to_owned(), source };
    let store = SqliteStore::open(&database(data)).await?;
    for provider in entries(&data.join("providers")).map_err(failed)? {
        for dir in entries(&provider.join("leases")).map_err(failed)? {
            let Some(found) = find(data, &provider, &dir, report).map_err(failed)? else { continue };
            let thread = write(&store, &found).await?;
            for shell in &found.shells {
                report.lost.extend(shell.state.as_ref().err().map(|damaged| {
                    format!(
                        "terminal `{}`: its variables, functions, aliases and options: their file {}",
                        shell.shell, damaged.error
                    )
                }));
            }
            let (terminals, commands) =
                (found.shells.len(), found.shells.iter().map(|shell| shell.commands.len()).sum::<usize>());
            let lease = &found.lease;
            report.mended.push(format!(
                "thread `{thread}` made of what `{lease}` left: {terminals} terminals, {commands} commands; its name is lost"
            ));
        }
    }
    Ok(store.close().await?)
}

/// None, with a word, where it can't be said whose files it had.
fn find(data: &Path, provider: &Path, dir: &Path, report: &mut Report) -> std::io::Result<Option<Found>> {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let (Ok(lease), Ok(provider)) = (LeaseId::parse(&name(dir)), ProviderName::parse(&name(provider))) else {
        return Ok(None);
    };
    // Of one that runs it is written down; else it is the one that was made for it, if that is there.
    let noted = std::fs::read_to_string(dir.join("instance")).ok();
    let noted = noted.and_then(|text| Some(text.lines().next()?.splitn(4, ' ').nth(3)?.to_owned()));
    let own = format!("w-{lease}");
    let is_there = data.join("workspaces").join(&own).is_dir();
    let Some(workspace) = noted.or(is_there.then_some(own)) else {
        report.lost.push(format!("`{lease}`: nobody can say which files it had"));
        return Ok(None);
    };
    let modified = std::fs::metadata(dir)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Timestamp(u64::try_from(modified.as_millis()).unwrap_or(0));
    let shells = past::peek(&dir.join("place"))?;
    Ok(Some(Found { lease, provider, workspace, at, shells }))
}

async fn write(store: &SqliteStore, found: &Found) -> Result<ThreadId, FsckError> {
    let Found { lease, provider, workspace, at, shells } = found;
    let broken = |what: String| StoreError::Corrupt { kind: "lease", id: lease.to_string(), what };
    let suffix = lease.as_str().trim_start_matches("lease-");
    let thread = ThreadId::parse(&format!("recovered-{suffix}")).map_err(|error| broken(error.to_string()))?;
    let mut terminals = Vec::new();
    for (number, shell) in shells.iter().enumerate() {
        let id = TerminalId::parse(shell.shell.as_str()).map_err(|error| broken(error.to_string()))?;
        let name = if number == 0 { DEFAULT_NAME.to_owned() } else { format!("recovered-{}", number + 1) };
        let fresh = Terminal::new(id, thread.clone(), lease.clone(), name, *at);
        let state = shell.state.clone().unwrap_or_else(|lost| lost.with(ShellState::default()));
        let version = shell.version;
        terminals.push(Terminal { state, version, content_version: version, ..fresh });
    }
    if terminals.is_empty() {
        let id = TerminalId::parse(&format!("term-{suffix}")).map_err(|error| broken(error.to_string()))?;
        terminals.push(Terminal::new(id, thread.clone(), lease.clone(), DEFAULT_NAME.to_owned(), *at));
    }
    let Some((first, others)) = terminals.split_first() else { return Ok(thread) };
    let row = Thread {
        id: thread.clone(),
        project: None,
        provider: provider.clone(),
        default_terminal: first.id.clone(),
        lease: lease.clone(),
        workspace: workspace.clone(),
        policy: Policy::default(),
        created_at: *at,
        last_active_at: *at,
    };
    let held = Lease::new(lease.clone(), provider.clone(), workspace.clone(), *at);
    store.create_thread(&row, first, Some(&held)).await?;
    for terminal in others {
        store.put_terminal(terminal).await?;
    }
    for (shell, terminal) in shells.iter().zip(&terminals) {
        // Of those that have no end yet their journal alone can say what becomes of them.
        let ended = shell.commands.iter().filter(|info| info.status.is_final());
        let commands: Vec<Command> =
            ended.map(|info| row_of_journal(terminal, info, shell.asked.get(&info.number))).collect();
        store.save_commands(&commands).await?;
    }
    Ok(thread)
}
