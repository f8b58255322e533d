//! `stead doctor`: what works on this machine.

use crate::about;
use crate::args::Doctor;
use crate::client::{Client, ClientError, Way};
use crate::json::Fields;
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
    configured: bool,
}

/// The server that the command line would speak to.
enum Neighbour {
    Answers { at: Way, version: Value },
    Absent { at: Way },
    Ill { at: Way, error: ClientError },
}

impl Neighbour {
    /// Asks; starts nothing.
    async fn find(client: &Client) -> Self {
        let at = client.way().clone();
        match (about::running(client).await, &at) {
            (Ok(said), _) => Self::Answers { at, version: said.at("version").clone() },
            // No server on this machine's socket is how every machine begins.
            (Err(ClientError::Unreachable { .. }), Way::Socket(_)) => Self::Absent { at },
            (Err(error), _) => Self::Ill { at, error },
        }
    }

    fn is_ill(&self) -> bool {
        matches!(self, Self::Ill { .. })
    }

    fn as_text(&self) -> String {
        match self {
            Self::Answers { at, version } => {
                format!("server: {} answers at {at}\n", version.as_str().unwrap_or("one without a version"))
            }
            Self::Absent { at } => format!("server: none at {at}; `stead exec` starts one when it is needed\n"),
            Self::Ill { at, error } => {
                let advice = error.advice().map(|advice| format!("  {advice}\n")).unwrap_or_default();
                format!("server: {at} does not answer: {error}\n{advice}")
            }
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Answers { at, version } => {
                json!({ "at": at.to_string(), "running": true, "version": version, "error": null })
            }
            Self::Absent { at } => json!({ "at": at.to_string(), "running": false, "version": null, "error": null }),
            Self::Ill { at, error } => {
                json!({ "at": at.to_string(), "running": null, "version": null, "error": error.to_string() })
            }
        }
    }
}

pub(crate) fn run(doctor: &Doctor) -> Result<ExitCode, DoctorError> {
    let (config, file) = settings::load(&doctor.reach.place)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DoctorError::Runtime)?;
    let client = Client::new(settings::server(&doctor.reach)?);
    let (findings, default, warning, server) = runtime.block_on(async {
        let mut findings = Vec::new();
        let configured = config.providers.iter().map(|provider| (provider, true));
        for (provider, configured) in configured.chain(config.possible.iter().map(|provider| (provider, false))) {
            findings.push(Finding {
                configured,
                name: provider.name().to_string(),
                kind: provider.kind(),
                isolated: provider.capabilities().isolated,
                availability: provider.availability().await,
            });
        }
        let (settings, warning) = config.settings().await;
        (findings, settings.default_provider.to_string(), warning, Neighbour::find(&client).await)
    });
    let file = file.map(|file| file.display().to_string());
    let works = |finding: &Finding| matches!(finding.availability, Availability::Works(_));
    let well = findings.iter().any(|finding| finding.name == default && works(finding)) && !server.is_ill();
    let text = if doctor.json {
        let mut document = as_json(&findings, &default, warning.as_deref(), file.as_deref());
        document.set("server", server.as_json());
        format!("{document:#}\n")
    } else {
        let findings = as_text(&findings, &default, warning.as_deref(), file.as_deref());
        format!("{findings}\n{}", server.as_text())
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
                if !finding.configured {
                    let _ = writeln!(
                        out,
                        "  not configured: `[provider.{0}]` with `kind = \"{0}\"` in `stead.toml` adds it",
                        finding.kind
                    );
                }
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
            Availability::NotNow { why } => {
                let _ = writeln!(out, "\n{}{named}: does not work at the moment: {why}", finding.name);
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
                Availability::NotNow { why } => (false, Some(why), None, Vec::new()),
            };
            json!({
                "name": finding.name, "kind": finding.kind, "isolated": finding.isolated,
                "configured": finding.configured, "available": available, "reason": reason, "hint": hint, "notes": notes,
            })
        })
        .collect();
    json!({ "config": file, "default_provider": default, "warning": warning, "providers": providers })
}
