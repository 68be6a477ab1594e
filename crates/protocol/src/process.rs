//! Processes of runs, as the agent sees them: something that can be ended and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::ids::RunId;
use serde::Serialize;

/// Something of a stopped run that is still alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StillRunning {
    /// The run.
    pub run_id: RunId,
    /// The process, if it is one.
    pub pid: Option<u32>,
    /// What it is.
    pub what: String,
}

/// Which life of a run something belongs to. A stop raises the run's number; whoever is about to start anything for the
/// run looks whether its own number still holds.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    now: Arc<AtomicU64>,
    mine: u64,
}

impl Generation {
    /// Whether nothing has been stopped since this was handed out.
    pub fn is_current(&self) -> bool {
        self.now.load(Ordering::SeqCst) == self.mine
    }

    /// Ends every generation handed out so far.
    pub fn end(&self) {
        self.now.fetch_add(1, Ordering::SeqCst);
    }

    /// The number as it stands now, over the same run.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { now: self.now.clone(), mine: self.now.load(Ordering::SeqCst) }
    }
}

/// Ends the processes of runs. The one way for `/stop`, a timeout, a shutdown and a crash of a turn.
#[async_trait]
pub trait RunProcesses: Send + Sync {
    /// Ends every process of the run: TERM, 2 s, KILL; returns when the tree is verified empty. Nothing is started for
    /// the run meanwhile. Asked twice at once, both wait for the same end.
    ///
    /// # Cancel safety
    /// Dropped, the ending goes on.
    async fn end(&self, run: RunId);

    /// What of the run is alive now.
    fn alive(&self, run: RunId) -> Vec<StillRunning>;
}

/// For daemons that start no processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProcesses;

#[async_trait]
impl RunProcesses for NoProcesses {
    async fn end(&self, _run: RunId) {}

    fn alive(&self, _run: RunId) -> Vec<StillRunning> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_out_before_a_stop_holds_no_longer() {
        let run = Generation::default();
        let before = run.renewed();
        assert!(before.is_current());
        run.end();
        assert!(!before.is_current());
        assert!(run.renewed().is_current());
    }
}
