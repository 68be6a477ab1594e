//! What background processes need from the daemon.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use belay_protocol::{Clock, EventLog};

/// What background processes need.
pub struct BackgroundParts {
    /// Where outputs are stored: a directory that exists when a process is started.
    pub directory: PathBuf,
    /// Where starts and ends are recorded, and the time of these events; `None`: nowhere.
    pub events: Option<(Arc<dyn EventLog>, Arc<dyn Clock>)>,
    /// Counts an end, by its reason: `exited`, `killed`, `run_ended`, `stopped`, `age`, `output`, `disk` or `crashed`.
    pub count_end: fn(&'static str),
}

impl fmt::Debug for BackgroundParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundParts").field("directory", &self.directory).finish_non_exhaustive()
    }
}
