//! The limits of background processes.

use std::time::Duration;

/// The limits of background processes. Only [`Self::of_session`] is a setting.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processes of one conversation at the same time; 0: there are no background processes.
    pub of_session: usize,
    /// Whether a conversation may keep processes beyond a run. Not in a cluster: the stop of a conversation that has no run
    /// reaches one node only.
    pub may_outlive_runs: bool,
    /// Processes at the same time in all.
    pub in_all: usize,
    /// Ended processes whose output can still be read, in all. The oldest is dropped for a newer one.
    pub ended: usize,
    /// Bytes of output that are kept on disk for each process: the newest.
    pub kept_bytes: u64,
    /// Bytes that a process may print. It is ended when it prints more.
    pub printed_bytes: u64,
}

impl Limits {
    /// The usual limits, with this number of processes for a conversation.
    pub fn of(of_session: usize) -> Self {
        Self {
            of_session,
            may_outlive_runs: true,
            // An eighth of the trees that `belay_exec` manages; commands, hooks and servers need the others.
            in_all: 32,
            ended: 32,
            // 4 MiB: about a million tokens, more than any model reads. 256 MiB in the worst case.
            kept_bytes: 4 * 1024 * 1024,
            // 1 GiB: a program that prints more does so without end, and costs processor time and disk as long as it runs.
            printed_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// How long the output of an ended process can be read. One hour: a run that waits for a person or a model comes back in
/// it.
pub(super) const KEPT_AFTER_END: Duration = Duration::from_secs(3600);

/// Longest wait of one call. A model that needs longer calls again; the stop rules see each call.
pub(super) const MAX_WAIT_S: u32 = 300;

/// Wait of a call that names no time.
pub(super) const USUAL_WAIT_S: u32 = 30;

/// Most bytes that one call shows; below the limit of a result.
pub(super) const MAX_SHOWN_BYTES: usize = 60 * 1024;

/// Most bytes that one call writes.
pub(super) const MAX_WRITTEN_BYTES: usize = 64 * 1024;

/// Longest time in which a process must read what is written to it.
pub(super) const WRITE_LIMIT: Duration = Duration::from_secs(10);
