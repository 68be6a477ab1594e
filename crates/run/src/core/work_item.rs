//! Work that a tree of runs belongs to and that may end without them, such as a job.

use std::fmt::Debug;

use async_trait::async_trait;
use belay_protocol::RunEnd;

use super::RunCore;

/// Work that a tree of runs belongs to. Each loop of the tree, whichever run it is of, asks before a step whether the work is
/// still active, and reports the step afterwards.
#[async_trait]
pub trait WorkItem: Debug + Send + Sync {
    /// How the run ends, when the work is over; `None` while it is active.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn ended(&self) -> Option<RunEnd>;

    /// The `number`th step of its piece of work is done and, where it is stored at all, stored.
    ///
    /// # Cancel safety
    /// Dropped midway, the next step reports it again.
    async fn made_progress(&self, number: u32);
}

impl RunCore {
    /// Before a step: how the run ends, when the work it belongs to is over.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn at_step(&self) -> Option<RunEnd> {
        self.work.as_ref()?.ended().await
    }

    /// After a step: the `number`th of its piece of work is done.
    ///
    /// # Cancel safety
    /// Dropped midway, the next step reports it again.
    pub async fn after_step(&self, number: u32) {
        if let Some(work) = &self.work {
            work.made_progress(number).await;
        }
    }

    /// A whole piece of work is done and stored, and no crash takes it back.
    pub async fn after_piece(&self) {
        self.after_step(u32::MAX).await;
    }
}
