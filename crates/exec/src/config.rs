//! Settings for starting and ending processes.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings for starting and ending processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessesConfig {
    /// Whether each tree gets a control group of its own.
    pub cgroup: CgroupUse,
    /// The time from TERM to KILL, in which processes can end by themselves; at most [`MAX_TERM_GRACE`]. Zero: KILL at
    /// once.
    pub term_grace: Duration,
    /// The binary that ties a process to this daemon by a parent-death signal, before it executes the program. The
    /// command is `launch --bare --parent DAEMON -- PROGRAM ARGUMENTS…`. `None`: programs are started directly, and
    /// outlive a daemon that is killed. As `launch --group DIRECTORY -- …`, it enters a control group first. Isolated
    /// launches, and launches of this binary itself, need no such stage.
    pub launcher: Option<PathBuf>,
}

/// Upper limit of [`ProcessesConfig::term_grace`]. A minute: a process that has not ended by then will not end by
/// itself.
pub const MAX_TERM_GRACE: Duration = Duration::from_secs(60);

/// Whether each tree gets a control group of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupUse {
    /// If the daemon may create groups below its own (`Delegate=` in its unit).
    #[default]
    Auto,
    /// Never.
    Off,
}

impl Default for ProcessesConfig {
    /// Two seconds from TERM to KILL: a person waits this long before doubting that a stop works.
    fn default() -> Self {
        Self { cgroup: CgroupUse::Auto, term_grace: Duration::from_secs(2), launcher: None }
    }
}
