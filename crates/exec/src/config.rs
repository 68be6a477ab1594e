//! How processes are started and ended.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How processes are started and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessesConfig {
    /// Whether each tree gets a control group of its own.
    pub cgroup: CgroupUse,
    /// How long processes have to end by themselves after TERM, before KILL; up to [`MAX_TERM_GRACE`]. Zero: KILL at once.
    pub term_grace: Duration,
    /// The binary whose `launch --bare --parent DAEMON -- PROGRAM ARGUMENTS…` ties a process to this daemon
    /// (parent-death signal) before it becomes the program. `None`: programs are started as they are, and outlive a
    /// daemon that is killed. With `launch --group DIRECTORY -- …` it enters a control group first. Launches that are isolated, or whose program is this binary, bring such a stage with them.
    pub launcher: Option<PathBuf>,
}

/// Upper end of [`ProcessesConfig::term_grace`]. A minute: what ends slower than that does not end.
pub const MAX_TERM_GRACE: Duration = Duration::from_secs(60);

/// Whether each tree gets a control group of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupUse {
    /// Where the daemon may make groups below its own (`Delegate=` of its unit), else not.
    #[default]
    Auto,
    /// Never.
    Off,
}

impl Default for ProcessesConfig {
    /// Two seconds from TERM to KILL: what a person waits before doubting that a stop works.
    fn default() -> Self {
        Self { cgroup: CgroupUse::Auto, term_grace: Duration::from_secs(2), launcher: None }
    }
}
