//! From the wish for a process to the task that attends to it.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::ToolContext;
use tracing::Instrument as _;

use super::BackgroundProcesses;
use super::attend::{Begun, attend};
use super::end::{End, EndedBy};
use super::handle::{Keeper, Process};

/// A process that is about to be started.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) what: &'a str,
    pub(crate) keeper: Keeper,
    /// The time after which it is ended.
    pub(crate) limit: Duration,
    pub(crate) context: &'a ToolContext,
}

/// A process that counts already, and is not started yet. Dropping it gives the place back.
pub(crate) struct Slot {
    registry: Arc<BackgroundProcesses>,
    process: Arc<Process>,
    begun: bool,
}

impl Slot {
    pub(super) fn new(registry: Arc<BackgroundProcesses>, process: Arc<Process>) -> Self {
        Self { registry, process, begun: false }
    }

    /// Requests the end of the process, as a stop does.
    pub(crate) fn stop(&self) {
        self.process.request_end(EndedBy::Stop);
    }

    /// Attends to the process, which has begun, in a task of its own until it has ended. Returns its name.
    pub(crate) fn attend(mut self, mut begun: Begun) -> String {
        self.begun = true;
        self.process.has_begun(&mut begun.running);
        let (registry, process) = (self.registry.clone(), self.process.clone());
        let task = async move {
            let _crashed = Crashed(&process);
            // Beside each other, so that a store that does not answer keeps no process from its end.
            let attending = attend(&process, begun, registry.limits.printed_bytes);
            let ((), end) = tokio::join!(registry.record_start(&process), attending);
            (registry.parts.count_end)(end.word());
            tracing::info!(process = process.name, run = %process.run, end = end.word(), "a background process ended");
            // Before the end is known: the one that waits for the end of the run writes the end of its record next.
            registry.record_end(&process, end).await;
            process.has_ended(end);
            registry.drop_over();
        };
        self.registry.tasks.spawn(task.in_current_span());
        self.process.name.clone()
    }
}

/// Records an end that the task did not come to, because it has crashed.
struct Crashed<'a>(&'a Process);

impl Drop for Crashed<'_> {
    fn drop(&mut self) {
        self.0.has_ended(End::Ended(EndedBy::Crash));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.begun {
            self.registry.remove(&self.process);
            self.process.has_ended(End::Ended(EndedBy::Run)); // somebody may wait for it
        }
    }
}
