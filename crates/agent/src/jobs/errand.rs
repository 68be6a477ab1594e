//! A job at work, as everything sees it that works for it: the loop of its run, the planner and the executors of a plan, the
//! clerk of a worker. Whatever of them makes a step asks here whether the job goes on, and says here that it got on.

use std::sync::atomic::{AtomicBool, Ordering};

use belay_agent_loop::LoopContext;
use belay_protocol::{Doing, JobBudget, JobRecord, JobStore, RunEnd, RunId, StopReason, StoreError};

use super::text;
use crate::core::RunCore;
use crate::house::House;
use crate::unattended::last_words;

/// A job at work.
#[derive(Debug)]
pub(crate) struct Errand {
    /// Its creator has the rights that are left of theirs.
    pub(crate) job: JobRecord,
    /// What it may use: its own budget within that of every job.
    pub(crate) budget: JobBudget,
    /// Steps of the piece of work at which the daemon died last; 0 where it did not. A piece that begins anew after a crash, a
    /// step of a plan or a worker, gets on where it comes further than that.
    reached: u32,
    /// Whether the store knows that the job gets on since the last crash.
    gets_on: AtomicBool,
}

impl Errand {
    /// A job at work, by this run, within what any job may use.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn of(house: &House, job: JobRecord, run: RunId) -> Result<Self, StoreError> {
        let budget = job.budget.within(house.jobs.budget());
        let reached = match job.crashes {
            0 => 0,
            _ => Doing::of_run(&*house.store.events, run, job.room).await?.piece(),
        };
        let gets_on = AtomicBool::new(job.crashes == 0); // then there is nothing to take back
        Ok(Self { job, budget, reached, gets_on })
    }

    /// Steps of the piece of work at which the daemon died last, as far as the store knows. `None`: it did not, or not since the
    /// job got on.
    pub(crate) fn made_at_crash(&self) -> Option<u32> {
        (self.job.crashes > 0).then_some(self.reached)
    }

    /// What a plan is to be made for: the task, and, in a later attempt, what the ones before had come to. A plan and its steps
    /// see no conversation. `start`: where the attempt begins in the context.
    pub(crate) fn request(&self, context: &LoopContext, start: usize) -> String {
        let before = LoopContext::new(context.messages.get(..start).unwrap_or_default().to_vec());
        text::request(&self.job, last_words(&before, 0).as_deref())
    }

    /// How the run ends here, since its job is over or is another attempt's. A stop tells the run as well; this is for one
    /// that came before the run could be told.
    async fn is_over(&self, store: &dyn JobStore) -> Option<RunEnd> {
        match store.job(self.job.job_id).await {
            Ok(Some(now)) if !now.state.is_over() && now.attempt == self.job.attempt => None,
            Ok(now) => {
                let state = now.map_or("unknown", |now| now.state.word());
                Some(RunEnd::of(StopReason::ParentStopped).with(text::NOT_AT_WORK, state))
            }
            // A store in trouble shows itself at the next write.
            Err(error) => {
                tracing::warn!(%error, job = %self.job.job_id, "the state of a job could not be read");
                None
            }
        }
    }

    /// Notes once that the job gets on, where a crash came before.
    async fn note_progress(&self, store: &dyn JobStore) {
        match store.note_progress(self.job.job_id).await {
            Ok(()) => self.gets_on.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(%error, job = %self.job.job_id, "that a job gets on could not be stored; the next step tries");
            }
        }
    }
}

impl RunCore {
    /// Before a step: how the run ends here, where it works for a job that does not go on.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub(crate) async fn at_step(&self) -> Option<RunEnd> {
        self.errand.as_ref()?.is_over(&*self.house.store.jobs).await
    }

    /// After a step: the `number`th of its piece of work is done and, as far as it goes, stored. Where a crash came before, the
    /// job gets on with the first step beyond it.
    ///
    /// # Cancel safety
    /// Dropped midway, the next step says it again.
    pub(crate) async fn after_step(&self, number: u32) {
        let Some(errand) = &self.errand else { return };
        if number > errand.reached && !errand.gets_on.load(Ordering::Relaxed) {
            errand.note_progress(&*self.house.store.jobs).await;
        }
    }

    /// A whole piece of work is done and stored, and no crash takes it back.
    pub(crate) async fn after_piece(&self) {
        self.after_step(u32::MAX).await;
    }
}
