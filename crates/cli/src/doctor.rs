//! `stead doctor`: what works on this machine.

use crate::args::Doctor;
use crate::print;
use crate::settings::{self, SettingsError};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use stead_server::provider::Availability;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DoctorError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("can't begin")]
    Runtime(#[source] std::io::Error),
}

struct Finding {
    name: String,
    kind: &'static str,
    isolated: bool,
    availability: Availability,
}

pub(crate) fn run(doctor: &Doctor) -> Result<ExitCode, DoctorError> {
    let (config, file) = settings::load(&doctor.place)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DoctorError::Runtime)?;
    let (findings, default, warning) = runtime.block_on(async {
        let mut findings = Vec::new();
        for provider in config.providers.iter() {
            findings.push(Finding {
                name: provider.name().to_string(),
                kind: provider.kind(),
                isolated: provider.capabilities().isolated,
                availability: provider.availability().await,
            });
        }
        let (settings, warning) = config.settings().await;
        (findings, settings.default_provider.to_string(), warning)
    });
    let file = file.map(|file| file.display().to_string());
    let works = |finding: &Finding| matches!(finding.availability, Availability::Works(_));
    let well = findings.iter().any(|finding| finding.name == default && works(finding));
    let text = if doctor.json {
        format!("{:#}\n", as_json(&findings, &default, warning.as_deref(), file.as_deref()))
    } else {
        as_text(&findings, &default, warning.as_deref(), file.as_deref())
    };
    let said = print::said(Some(text));
    Ok(if well { said } else { ExitCode::FAILURE })
}

fn as_text(findings: &[Finding], default: &str, warning: Option<&str>, file: Option<&str>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "configuration: {}", file.unwrap_or("none, so the defaults hold"));
    for finding in findings {
        let named = if finding.name == finding.kind { String::new() } else { format!(" ({})", finding.kind) };
        let walls = if finding.isolated { "isolated" } else { "not isolated" };
        match &finding.availability {
            Availability::Works(notes) => {
                let _ = writeln!(out, "\n{}{named}: works, {walls}", finding.name);
                for note in notes {
                    let _ = writeln!(out, "  {note}");
                }
            }
            Availability::Missing { why, hint } => {
                let _ = writeln!(out, "\n{}{named}: does not work: {why}", finding.name);
                if let Some(hint) = hint {
                    let _ = writeln!(out, "  {hint}");
                }
            }
        }
    }
    let _ = writeln!(out, "\nthreads that name no provider get `{default}`");
    if let Some(warning) = warning {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn as_json(findings: &[Finding], default: &str, warning: Option<&str>, file: Option<&str>) -> Value {
    let providers: Vec<_> = findings
        .iter()
        .map(|finding| {
            let (available, reason, hint, notes) = match &finding.availability {
                Availability::Works(notes) => (true, None, None, notes.clone()),
                Availability::Missing { why, hint } => (false, Some(why), hint.clone(), Vec::new()),
            };
            json!({
                "name": finding.name, "kind": finding.kind, "isolated": finding.isolated,
                "available": available, "reason": reason, "hint": hint, "notes": notes,
            })
        })
        .collect();
    json!({ "config": file, "default_provider": default, "warning": warning, "providers": providers })
}
