//! Settings of projects.

use super::ConfigError;
use crate::project::ProjectSettings;
use crate::stead::UpkeepSettings;
use crate::webhook::Webhook;
use serde::Deserialize;
use std::time::Duration;
use stead_model::env::Secret;
use stead_model::project::{MOST_DAYS, Schemes};
use stead_model::retention::Rules;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    max_projects: Option<u32>,
    clone_from_files: Option<bool>,
    stop_on_disconnect: Option<bool>,
    recreate_on_reconnect: Option<bool>,
    cleanup_enabled: Option<bool>,
    cleanup_after_days: Option<u32>,
    cleanup_warning_days: Option<u32>,
    cleanup_check_interval_s: Option<u64>,
    trash_hours: Option<u64>,
    snapshot_ttl_days: Option<u32>,
    webhook_url: Option<String>,
    webhook_secret: Option<Hidden>,
}

/// A text that is in no message and no log.
#[derive(Deserialize)]
#[serde(transparent)]
struct Hidden(String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A list of them all is held in memory now and then.
const MOST_PROJECTS: u32 = 1_000_000;
/// Ten years, in seconds.
const MOST_INTERVAL: u64 = 315_360_000;
/// A year, in hours.
const MOST_TRASH: u64 = 8760;

impl Written {
    pub(super) fn read(self, file: &str) -> Result<(ProjectSettings, UpkeepSettings), ConfigError> {
        let standard = ProjectSettings::default();
        let wrong = |key: &str, message: String| ConfigError::Setting {
            file: file.to_owned(),
            key: format!("projects.{key}"),
            message,
        };
        let within = |key: &str, asked: Option<u64>, usual: u64, least: u64, most: u64| {
            let value = asked.unwrap_or(usual);
            let message = || format!("it is {least} to {most}");
            if (least..=most).contains(&value) { Ok(value) } else { Err(wrong(key, message())) }
        };
        let days = |key: &str, asked: Option<u32>, usual: u32, least: u32| {
            let value = within(key, asked.map(u64::from), usual.into(), least.into(), MOST_DAYS.into())?;
            Ok(u32::try_from(value).unwrap_or(MOST_DAYS))
        };
        let most = self.max_projects.unwrap_or(standard.most);
        if !(1..=MOST_PROJECTS).contains(&most) {
            return Err(wrong("max_projects", format!("it is 1 to {MOST_PROJECTS}")));
        }
        let usual = UpkeepSettings::default();
        let interval =
            within("cleanup_check_interval_s", self.cleanup_check_interval_s, usual.every.as_secs(), 1, MOST_INTERVAL)?;
        let trash = within("trash_hours", self.trash_hours, usual.rules.trash.as_secs() / 3600, 1, MOST_TRASH)?;
        let ttl = self.snapshot_ttl_days.map(|asked| days("snapshot_ttl_days", Some(asked), 1, 1)).transpose()?;
        let webhook = match (self.webhook_url, self.webhook_secret) {
            (None, None) => None,
            (Some(url), Some(Hidden(secret))) if !secret.is_empty() => {
                Some(Webhook::new(&url, Secret::new(secret)).map_err(|message| wrong("webhook_url", message))?)
            }
            (Some(_), _) => {
                return Err(wrong(
                    "webhook_secret",
                    "nobody could tell that it comes from here without one".to_owned(),
                ));
            }
            (None, Some(_)) => return Err(wrong("webhook_url", "there is a secret for it, and no address".to_owned())),
        };
        let keep_days = days("cleanup_after_days", self.cleanup_after_days, standard.keep_days, 1)?;
        if self.cleanup_warning_days.is_some_and(|warned| warned >= keep_days) {
            let message =
                format!("a project is kept for {keep_days} days: it would be warned of from the first one on");
            return Err(wrong("cleanup_warning_days", message));
        }
        let upkeep = UpkeepSettings {
            timer: true,
            enabled: self.cleanup_enabled.unwrap_or(usual.enabled),
            rules: Rules {
                warning_days: days("cleanup_warning_days", self.cleanup_warning_days, usual.rules.warning_days, 0)?,
                trash: Duration::from_hours(trash),
            },
            every: Duration::from_secs(interval),
            snapshot_ttl: ttl.map(|days| Duration::from_hours(24 * u64::from(days))),
            webhook,
        };
        let projects = ProjectSettings {
            root: None,
            most,
            schemes: Schemes { files: self.clone_from_files.unwrap_or(standard.schemes.files) },
            stop_on_disconnect: self.stop_on_disconnect.unwrap_or(standard.stop_on_disconnect),
            recreate_on_reconnect: self.recreate_on_reconnect.unwrap_or(standard.recreate_on_reconnect),
            keep_days,
        };
        Ok((projects, upkeep))
    }
}
