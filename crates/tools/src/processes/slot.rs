//! From the wish for a process to the task that attends to it.

use std::sync::Arc;
use std::time::Duration;

use belay_exec::StartError;
use belay_protocol::ToolContext;
use tokio::sync::oneshot;
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

    /// Starts the process, and attends to it until it has ended, in a task of its own: the process is listed from before its
    /// start until after its end. Returns its name once it has begun. `is_stopped`: whether its run was stopped meanwhile.
    ///
    /// # Errors
    /// It was not started, or its run was stopped: then it is ended as soon as it has begun.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process is ended as soon as it has begun, or is not started.
    pub(crate) async fn start(
        self,
        starting: impl Future<Output = Result<Begun, StartError>> + Send + 'static,
        is_stopped: impl Fn() -> bool + Send + 'static,
    ) -> Result<String, StartError> {
        let (tell, told) = oneshot::channel();
        let (tasks, name) = (self.registry.tasks.clone(), self.process.name.clone());
        let unheard = Unheard(Some(self.process.clone()));
        let mut slot = self;
        let task = async move {
            // Ended before it has begun: nothing is started. From here on the start is not interrupted, so that no process is
            // alive without an entry.
            if slot.process.is_ending() || is_stopped() {
                let _ = tell.send(Err(StartError::Stopped)); // nobody may wait for it any more
                return;
            }
            let mut begun = match starting.await {
                Ok(begun) => begun,
                Err(error) => {
                    let _ = tell.send(Err(error)); // nobody waits for it any more
                    return;
                }
            };
            slot.begun = true;
            // Before its name is known, so that nobody sees it without its number and its input.
            slot.process.has_begun(&mut begun.running);
            let is_wanted = !is_stopped();
            if !is_wanted {
                slot.process.request_end(EndedBy::Stop);
            }
            // Also if nobody waits any more: then its end is requested.
            let _ = tell.send(if is_wanted { Ok(()) } else { Err(StartError::Stopped) });
            slot.attend(begun).await;
        };
        tasks.spawn(task.in_current_span());
        let begun = told.await.unwrap_or(Err(StartError::ShuttingDown)); // its task has crashed
        unheard.heard();
        begun.map(|()| name)
    }

    /// Attends to the process, which has begun, until it has ended.
    async fn attend(self, begun: Begun) {
        let (registry, process) = (&self.registry, &self.process);
        let _crashed = Crashed(process);
        // Beside each other, so that a store that does not answer keeps no process from its end.
        let attending = attend(process, begun, registry.limits.printed_bytes);
        let ((), end) = tokio::join!(registry.record_start(process), attending);
        (registry.parts.count_end)(end.word());
        tracing::info!(process = process.name, run = %process.run, end = end.word(), "a background process ended");
        // Before the end is known: the one that waits for the end of the run writes the end of its record next.
        registry.record_end(process, end).await;
        process.has_ended(end);
        registry.drop_over();
    }
}

/// A process whose name nobody has heard yet. Dropping it requests the end of the process.
struct Unheard(Option<Arc<Process>>);

impl Unheard {
    fn heard(mut self) {
        self.0 = None;
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            process.request_end(EndedBy::Stop);
        }
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
