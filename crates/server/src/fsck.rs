//! Whether a data directory is whole, while no server has it.

mod rebuild;

use crate::store::{SqliteStore, Store, StoreError, mend};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use stead_model::ids::TerminalId;
use stead_model::state::ShellState;
use stead_steward::past::{self, Checked, DamagedState, PastError};

#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("can't look through `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What was found, in words.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// What is as it was written.
    pub whole: Vec<String>,
    /// What isn't, by name.
    pub damage: Vec<String>,
    /// What can't be told from damage, or is merely left over.
    pub notes: Vec<String>,
    /// What a repair put right.
    pub mended: Vec<String>,
    /// What is gone for good.
    pub lost: Vec<String>,
    /// Where damaged files were put as they were found.
    pub kept: Vec<String>,
}

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Check,
    Repair,
}

/// Looks through a data directory that no server has. With [`Mode::Repair`] what is damaged is mended as far as it can be.
pub async fn run(data: &Path, mode: Mode) -> Result<Report, FsckError> {
    let mut report = Report::default();
    look_at_database(data, mode, &mut report).await?;
    let failed = |source| FsckError::Io { path: data.to_owned(), source };
    for dir in stewards(data).map_err(failed)? {
        look_at_journals(data, &dir, mode, &mut report).await?;
    }
    look_at_snapshots(data, mode, &mut report).map_err(failed)?;
    Ok(report)
}

/// The directories of stewards, which hold journals: those of sandboxes here, and copies of those elsewhere.
fn stewards(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for provider in entries(&data.join("providers"))? {
        for lease in entries(&provider.join("leases"))? {
            let within = entries(&lease)?;
            found.extend(within.into_iter().chain([lease]).filter(|dir| dir.join("journal").is_dir()));
        }
    }
    Ok(found)
}

async fn look_at_journals(data: &Path, dir: &Path, mode: Mode, report: &mut Report) -> Result<(), FsckError> {
    let failed = |source| FsckError::Io { path: dir.to_owned(), source };
    let name = dir.strip_prefix(data).unwrap_or(dir).display().to_string();
    let checked = past::check(dir).map_err(failed)?;
    report.notes.extend(checked.notes.iter().map(|what| format!("{name}: {what}")));
    if checked.damage.is_empty() {
        let Checked { records, whole, unsummed, .. } = checked;
        report
            .whole
            .push(format!("{name}: {records} records, output of {whole} commands; of {unsummed} there is no sum"));
        return Ok(());
    }
    report.damage.extend(checked.damage.iter().map(|what| format!("{name}: {what}")));
    if mode == Mode::Check {
        return Ok(());
    }
    let known = states_in_database(data, &checked.damaged_states).await?;
    match past::repair(dir, &known) {
        Ok(lost) => {
            let is_more = checked.damage.len() > known.len();
            report
                .mended
                .extend(is_more.then(|| format!("{name}: what is damaged was taken out, the rest is as it was")));
            report.mended.extend(known.iter().map(|(damaged, _)| {
                let (shell, stored) = (&damaged.shell, damaged.stored);
                format!("{name}: terminal `{shell}`: its state of version {stored} was taken from the database")
            }));
            report.lost.extend(lost.into_iter().map(|what| format!("{name}: {what}")));
        }
        Err(PastError::Alive) => {
            let what =
                "left as it is, for its shells are running: delete the thread, or end its instance, and repair again";
            report.lost.push(format!("{name}: {what}"));
        }
        Err(error @ PastError::Busy) => return Err(failed(io::Error::other(error))),
        Err(PastError::Io(source)) => return Err(failed(source)),
    }
    Ok(())
}

/// Of the states of shells those that the database has as well.
async fn states_in_database(
    data: &Path,
    damaged: &[DamagedState],
) -> Result<Vec<(DamagedState, ShellState)>, FsckError> {
    let path = database(data);
    if damaged.is_empty() || !path.exists() {
        return Ok(Vec::new());
    }
    let (store, mut known) = (SqliteStore::open(&path).await?, Vec::new());
    for damaged in damaged {
        let Ok(id) = TerminalId::parse(damaged.shell.as_str()) else { continue };
        let terminal = store.terminal(&id).await?;
        let terminal = terminal.filter(|terminal| terminal.version >= damaged.stored);
        known.extend(terminal.map(|terminal| (damaged.clone(), terminal.state)));
    }
    store.close().await?;
    Ok(known)
}

/// Archives are named by the SHA-256 of what they hold.
fn look_at_snapshots(data: &Path, mode: Mode, report: &mut Report) -> io::Result<()> {
    let mut whole = 0;
    for path in entries(&data.join("snapshots"))? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(wanted) = name.strip_suffix(".tar.zst").filter(|digest| digest.len() == 64) else { continue };
        if digest(&path)? == wanted {
            whole += 1;
        } else {
            report.damage.push(format!("snapshot `{}`: its archive is damaged", path.display()));
            if mode == Mode::Repair {
                let aside = data.join("snapshots").join(format!("{wanted}.damaged"));
                std::fs::rename(&path, &aside)?;
                report.lost.push(format!("snapshot `{wanted}`"));
                report.kept.push(aside.display().to_string());
            }
        }
    }
    report.whole.extend((whole > 0).then(|| format!("{whole} archives of snapshots")));
    Ok(())
}

async fn look_at_database(data: &Path, mode: Mode, report: &mut Report) -> Result<(), FsckError> {
    let path = database(data);
    let checked = mend::check(&path).await?;
    let lost = refuse_a_lost_database(data).map_err(|source| FsckError::Io { path: data.to_owned(), source })?;
    let mut damage = checked.damage;
    if let (true, Err(StoreError::Damaged { what, .. })) = (damage.is_empty(), lost) {
        damage.push(what);
    }
    let is_damaged = !damage.is_empty();
    report.damage.extend(damage.into_iter().map(|what| format!("database: {what}")));
    report.notes.extend(checked.odd.into_iter().map(|what| format!("database: {what}")));
    if !is_damaged {
        let rows: Vec<String> = checked.rows.iter().map(|(table, rows)| format!("{rows} {table}")).collect();
        report.whole.push(if rows.is_empty() {
            "database: none yet".to_owned()
        } else {
            format!("database: {}", rows.join(", "))
        });
        return Ok(());
    }
    if mode == Mode::Repair {
        let mended = mend::repair(&path).await?;
        report.mended.extend(mended.mended.into_iter().map(|what| format!("database: {what}")));
        report.lost.extend(mended.lost.into_iter().map(|what| format!("database: {what}")));
        report.kept.extend(mended.kept.map(|path| path.display().to_string()));
        if mended.is_empty {
            rebuild::rebuild(data, report).await?;
        }
    }
    Ok(())
}

pub fn database(data: &Path) -> PathBuf {
    data.join("stead.db")
}

/// Whether a database that isn't there is one that was never made: not beside sandboxes and files that only a database can
/// have told of, nor beside what a server makes when it has one. A server that began with an empty one there would have
/// forgotten everything without a word.
pub fn refuse_a_lost_database(data: &Path) -> io::Result<Result<(), StoreError>> {
    let path = database(data);
    match std::fs::metadata(&path) {
        Ok(file) if file.len() > 0 => return Ok(Ok(())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let (left, marks) = (left_without_database(data)?, marks_of_a_server(data));
    let what = match (left.first(), marks.as_slice()) {
        (None, []) => return Ok(Ok(())),
        (Some(one), _) => {
            let count = left.len();
            format!(
                "it is gone or empty, and there is what it told of ({count} directories, such as `{}`)",
                one.display()
            )
        }
        (None, marks) => format!(
            "it is gone or empty, and a server has had one in this directory, because it has left {} (to begin anew with \
             nothing, remove that as well)",
            marks.join(" and ")
        ),
    };
    Ok(Err(StoreError::Damaged { path: path.display().to_string(), what }))
}

/// Directories of sandboxes, workspaces and projects.
fn left_without_database(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for provider in entries(&data.join("providers"))? {
        found.extend(entries(&provider.join("leases"))?);
    }
    found.extend(entries(&data.join("workspaces"))?);
    found.extend(entries(&data.join("projects"))?);
    Ok(found)
}

/// Files that a server makes once it has a database, and nobody else. A token or a key for secrets may have been put there
/// before the first start.
fn marks_of_a_server(data: &Path) -> Vec<String> {
    let made = ["link.key", "reserve"].map(|name| data.join(name));
    made.iter().filter(|path| path.exists()).map(|path| format!("`{}`", path.display())).collect()
}

fn digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut bytes) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut bytes)?;
        if read == 0 {
            break;
        }
        hash.update(bytes.get(..read).unwrap_or_default());
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing into a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let found = match std::fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        found => found?,
    };
    let mut paths = found.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
