//! `stead fsck`: whether the data directory is whole, while no server has it.

use crate::args::Fsck;
use crate::print;
use crate::serve::{self, ServeError};
use crate::settings;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use stead_server::fsck::{self, FsckError, Mode, Report};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error("there is no data directory `{}`; name another with `--data`", .0.display())]
    NoData(PathBuf),
    #[error("end it first (SIGTERM)")]
    Running(#[source] ServeError),
    #[error(transparent)]
    Fsck(#[from] FsckError),
    #[error("can't begin")]
    Runtime(#[source] io::Error),
}

/// Something is damaged, or was lost.
const DAMAGED: u8 = 1;

pub(crate) fn run(asked: &Fsck) -> Result<ExitCode, CheckError> {
    let data = settings::ground(&asked.place)?.data;
    if !data.is_dir() {
        return Err(CheckError::NoData(data));
    }
    let _lock = serve::lock(&data).map_err(CheckError::Running)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CheckError::Runtime)?;
    let mode = if asked.repair { Mode::Repair } else { Mode::Check };
    let report = runtime.block_on(fsck::run(&data, mode))?;
    let text = if asked.form.json { as_json(&report, mode) } else { as_text(&report, mode) };
    let printed = print::said(Some(text));
    Ok(if is_well(&report, mode) { printed } else { ExitCode::from(DAMAGED) })
}

fn is_well(report: &Report, mode: Mode) -> bool {
    match mode {
        Mode::Check => report.damage.is_empty(),
        Mode::Repair => report.lost.is_empty(),
    }
}

fn as_json(report: &Report, mode: Mode) -> String {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("ok".to_owned(), is_well(report, mode).into());
        fields.insert("repaired".to_owned(), (mode == Mode::Repair).into());
    }
    format!("{value:#}\n")
}

fn as_text(report: &Report, mode: Mode) -> String {
    let Report { whole, damage, notes, mended, lost, kept } = report;
    let mut text = String::new();
    let groups: [(&str, &[String]); 6] =
        [("whole", whole), ("damaged", damage), ("note", notes), ("mended", mended), ("lost", lost), ("kept in", kept)];
    for (name, lines) in groups {
        for line in lines {
            // Writing into a string can't fail.
            let _ = writeln!(text, "{name:8} {line}");
        }
    }
    let last = match (mode, damage.is_empty(), lost.is_empty()) {
        (_, true, _) => "all is whole",
        (Mode::Check, false, _) => "something is damaged; `stead fsck --repair` saves what is whole",
        (Mode::Repair, false, true) => "mended; nothing is lost",
        (Mode::Repair, false, false) => "mended as far as it can be; what is lost is named above",
    };
    let _ = writeln!(text, "{last}");
    text
}
