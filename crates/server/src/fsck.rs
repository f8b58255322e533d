//! Whether a data directory is whole, while no server has it.

use crate::store::{StoreError, mend};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

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
    Ok(report)
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
    }
    Ok(())
}

pub fn database(data: &Path) -> PathBuf {
    data.join("stead.db")
}

/// Whether a database that isn't there is one that was never made: not beside sandboxes and files that only a database can
/// have told of. A server that began with an empty one there would have forgotten them all without a word.
pub fn refuse_a_lost_database(data: &Path) -> io::Result<Result<(), StoreError>> {
    let path = database(data);
    match std::fs::metadata(&path) {
        Ok(file) if file.len() > 0 => return Ok(Ok(())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let left = left_without_database(data)?;
    let Some(one) = left.first() else { return Ok(Ok(())) };
    let what = format!(
        "it is gone or empty, and there is what it told of ({} directories, such as `{}`)",
        left.len(),
        one.display()
    );
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
