//! The section `[backup]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The section `[backup]` of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BackupConfig {
    /// Hours between scheduled backups, 0 to 8760; 0: there are none.
    pub(crate) every_hours: u32,
    /// The directory of backups; absent: `backups` in the data directory.
    pub(crate) dir: Option<PathBuf>,
    /// Backups that the schedule keeps, 1 to 1000.
    pub(crate) keep: u32,
    /// Whether scheduled backups contain the key of the vault.
    pub(crate) with_key: bool,
}

impl Default for BackupConfig {
    fn default() -> Self {
        Self { every_hours: 0, dir: None, keep: 7, with_key: false }
    }
}

impl BackupConfig {
    /// All problems, each beginning with the full key.
    pub(crate) fn validate(&self) -> Vec<String> {
        let checks = [
            (self.every_hours <= 8760, "backup.every_hours: must be 0 (no schedule) to 8760"),
            ((1..=1000).contains(&self.keep), "backup.keep: must be 1 to 1000"),
        ];
        checks.into_iter().filter(|(ok, _)| !ok).map(|(_, problem)| problem.to_owned()).collect()
    }
}
