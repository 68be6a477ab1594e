//! Context of a running job, shared by its run loop, planner, plan executors and worker host. Each checks before a step whether
//! the job is still active, and reports progress afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use belay_agent_loop::LoopContext;
use belay_protocol::{JobAttempts, JobBudget, JobReader, JobRecord, RunEnd, RunId, StopReason, StoreError};

use super::service::JobService;
use super::text;
use belay_run::core::WorkItem;
use belay_run::unattended::last_words;

/// A running job.
pub struct JobContext {
    /// Its creator has the rights that are left of theirs.
    pub job: JobRecord,
    /// What it may use: its own budget within that of every job.
    pub budget: JobBudget,
    /// Steps of the piece of work at which the daemon died last; 0 where it did not. A piece that begins anew after a crash, a
    /// step of a plan or a worker, gets on where it comes further than that.
    reached: u32,
    /// Whether the store knows of progress since the last crash.
    progressed: AtomicBool,
    jobs: Arc<dyn JobReader>,
    attempts: Arc<dyn JobAttempts>,
}

impl std::fmt::Debug for JobContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobContext").field("job", &self.job.job_id).finish_non_exhaustive()
    }
}

impl JobContext {
    /// The context of a job that this run works on, within what any job may use.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn of(service: &JobService, job: JobRecord, run: RunId) -> Result<Self, StoreError> {
        let budget = job.budget.within(service.config.budget());
        let reached = match job.crashes {
            0 => 0,
            _ => service.jobs.progress(run, job.runs_in).await?.piece(),
        };
        let progressed = AtomicBool::new(job.crashes == 0); // then there is nothing to take back
        let (jobs, attempts) = (service.jobs.clone(), service.attempts.clone());
        Ok(Self { job, budget, reached, progressed, jobs, attempts })
    }

    /// Steps of the piece of work at which the daemon died last, as far as the store knows. `None`: it did not, or not since the
    /// job got on.
    pub fn made_at_crash(&self) -> Option<u32> {
        (self.job.crashes > 0).then_some(self.reached)
    }

    /// What a plan is to be made for: the task, and, in a later attempt, what the ones before had come to. A plan and its steps
    /// see no conversation. `start`: where the attempt begins in the context.
    pub fn request(&self, context: &LoopContext, start: usize) -> String {
        let before = LoopContext::new(context.messages.get(..start).unwrap_or_default().to_vec());
        text::request(&self.job, last_words(&before, 0).as_deref())
    }
}

#[async_trait]
impl WorkItem for JobContext {
    /// How the run ends, when its job is over or at another attempt. A stop tells the run as well; this is for one that came
    /// before the run could be told.
    async fn ended(&self) -> Option<RunEnd> {
        match self.jobs.job(self.job.job_id).await {
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

    /// Stores once that the job makes progress, where a crash came before: with the first step beyond those made then.
    async fn made_progress(&self, number: u32) {
        if number <= self.reached || self.progressed.load(Ordering::Relaxed) {
            return;
        }
        match self.attempts.note_progress(self.job.job_id).await {
            Ok(()) => self.progressed.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(%error, job = %self.job.job_id, "progress of a job could not be stored; the next step tries");
            }
        }
    }
}
