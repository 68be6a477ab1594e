//! Work that a run tree belongs to and that may end before the tree does, such as a job.

use std::fmt::Debug;

use async_trait::async_trait;
use belay_protocol::RunEnd;

use super::RunCore;
use crate::grants::WorkGrants;

/// Work that a run tree belongs to. The loop of every run of the tree checks before each step whether the work is still
/// active, and reports the step afterwards.
#[async_trait]
pub trait WorkItem: WorkGrants + Debug + Send + Sync {
    /// The end of the run, if the work is over; `None` while it is active.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    async fn ended(&self) -> Option<RunEnd>;

    /// Reports that step `number` of a piece of the work is done and, if it is stored at all, stored.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the next step reports it again.
    async fn made_progress(&self, number: u32);
}

impl RunCore {
    /// Checks the work before a step. Returns the end of the run, if the work is over.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn at_step(&self) -> Option<RunEnd> {
        self.work.as_ref()?.ended().await
    }

    /// Reports that step `number` of a piece of the work is done.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the next step reports it again.
    pub async fn after_step(&self, number: u32) {
        if let Some(work) = &self.work {
            work.made_progress(number).await;
        }
    }

    /// Reports that a whole piece of the work is done and stored. A crash does not undo it.
    pub async fn after_piece(&self) {
        self.after_step(u32::MAX).await;
    }
}
