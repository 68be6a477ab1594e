//! Processes of runs, in the view of the agent: they can be ended and listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::ids::{RunId, SessionKey};
use serde::{Deserialize, Serialize};

/// A part of a stopped run that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StillRunning {
    /// The run.
    pub run_id: RunId,
    /// The process id, if it is a process.
    pub pid: Option<u32>,
    /// Its description.
    pub what: String,
}

/// A process in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundProcess {
    /// Its name, which the model uses.
    pub id: String,
    /// The session of the run that has started it.
    pub session: SessionKey,
    /// The run.
    pub run_id: RunId,
    /// Its command line.
    pub command: String,
    /// The process id; absent: it is being started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Whether the conversation keeps it when the run ends.
    pub kept: bool,
    /// The milliseconds since its start.
    pub for_ms: u64,
    /// The bytes that it has printed.
    pub printed_bytes: u64,
}

/// The generation of a run: the life of the run that a call belongs to. A stop raises the run's number. Code that is
/// about to start a process for the run first checks that its own number is current.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    now: Arc<AtomicU64>,
    mine: u64,
}

impl Generation {
    /// Whether the run was not stopped since this generation was handed out.
    pub fn is_current(&self) -> bool {
        self.now.load(Ordering::SeqCst) == self.mine
    }

    /// Ends every generation handed out so far.
    pub fn end(&self) {
        self.now.fetch_add(1, Ordering::SeqCst);
    }

    /// The present generation of the same run.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { now: self.now.clone(), mine: self.now.load(Ordering::SeqCst) }
    }
}

/// Which processes in the background are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessesOf {
    /// Those of this session: of its runs, and those that it keeps beyond them.
    Session(SessionKey),
    /// Those that this run has started.
    Run(RunId),
    /// Those that sessions keep beyond the run that has started them.
    Sessions,
    /// All.
    Everyone,
}

/// Ends the processes of runs: the one way for `/stop`, a timeout, a shutdown and a crash of a turn.
#[async_trait]
pub trait RunProcesses: Send + Sync {
    /// Ends every process of the run: TERM, 2 s, KILL. Returns when the process tree is verified to be empty. No
    /// process of the run is started meanwhile. Two concurrent calls wait for the same end.
    ///
    /// # Cancel safety
    /// If the future is dropped, the end continues.
    async fn end(&self, run: RunId);

    /// The processes of the run that are alive now.
    fn alive(&self, run: RunId) -> Vec<StillRunning>;

    /// The processes in the background that are alive now, oldest first.
    fn in_background(&self) -> Vec<BackgroundProcess> {
        Vec::new()
    }

    /// Begins to end processes in the background, at once. Returns the number of those whose end had not begun.
    fn stop_background(&self, _of: &ProcessesOf) -> usize {
        0
    }

    /// Waits until the processes in the background whose end has begun have ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the end continues.
    async fn background_ended(&self, _of: &ProcessesOf) {}

    /// Makes what a session keeps unknown to its later runs, also what has ended. The ends must have begun.
    fn forget_background(&self, _session: &SessionKey) {}

    /// The processes in the background whose end has begun and that are alive still. [`Self::alive`] may have those of runs
    /// too.
    fn background_ending(&self, _of: &ProcessesOf) -> Vec<StillRunning> {
        Vec::new()
    }
}

/// For agents that start no processes.
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
