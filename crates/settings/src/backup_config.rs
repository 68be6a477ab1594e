//! The section `[backup]`.

use std::path::PathBuf;

use belay_schedule::{Schedule, time_of_day};
use serde::{Deserialize, Serialize};

/// The section `[backup]` of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackupConfig {
    /// Hours between scheduled backups, 0 to 8760; 0: there are none.
    pub every_hours: u32,
    /// The time of day of a scheduled backup, `HH:MM`; absent: none.
    pub at: Option<String>,
    /// The IANA name of the time zone of `at`. The settings have it as `agent.timezone`.
    #[serde(skip)]
    pub zone: String,
    /// The directory of backups; absent: `backups` in the data directory.
    pub dir: Option<PathBuf>,
    /// Backups that the schedule keeps, 1 to 1000.
    pub keep: u32,
    /// Whether scheduled backups contain the key of the vault.
    pub with_key: bool,
}

impl Default for BackupConfig {
    fn default() -> Self {
        Self { every_hours: 0, at: None, zone: "UTC".into(), dir: None, keep: 7, with_key: false }
    }
}

impl BackupConfig {
    /// All problems, each beginning with the full key.
    pub fn validate(&self) -> Vec<String> {
        let checks = [
            (self.every_hours <= 8760, "backup.every_hours: must be 0 (no schedule) to 8760"),
            ((1..=1000).contains(&self.keep), "backup.keep: must be 1 to 1000"),
        ];
        let problems = checks.into_iter().filter(|(ok, _)| !ok).map(|(_, problem)| problem.to_owned());
        let at = self.at.as_deref().and_then(|at| time_of_day(at).err()).map(|problem| format!("backup.at: {problem}"));
        problems.chain(at).collect()
    }

    /// The daily schedule of `at`; `None`: there is none.
    ///
    /// # Errors
    /// `at` or `zone` is invalid.
    pub fn daily(&self) -> Result<Option<Schedule>, String> {
        let Some(at) = &self.at else { return Ok(None) };
        let at = time_of_day(at)?;
        let line = format!("{} {} * * *", at.minute(), at.hour());
        Schedule::read(&line, &self.zone, None).map(Some).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_checked() {
        let problems = |at: &str| BackupConfig { at: Some(at.to_owned()), ..BackupConfig::default() }.validate();
        assert_eq!(problems("03:30"), Vec::<String>::new());
        assert!(problems("3:30").join("; ").starts_with("backup.at: "), "{:?}", problems("3:30"));
    }
}
