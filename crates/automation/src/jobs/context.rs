//! Context of a running job, shared by its run loop, planner, plan executors and worker host. Each of them checks
//! before a step whether the job is still active, and reports progress after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use belay_agent_loop::LoopContext;
use belay_protocol::{
    JobAttempts, JobBudget, JobReader, JobRecord, RoutineReader, RunEnd, RunId, StopReason, StoreError, WorkGrant,
};

use super::service::JobService;
use super::text;
use crate::routine_grants::of_routine_run;
use belay_run::core::WorkItem;
use belay_run::grants::WorkGrants;
use belay_run::unattended::last_words;

/// A running job.
pub struct JobContext {
    /// The stored job. Its creator here has only the permissions that still hold.
    pub job: JobRecord,
    /// The budget of the job, within the budget of `[jobs]`.
    pub budget: JobBudget,
    /// Steps that the current piece of work had made when the daemon last crashed; 0 without a crash. A plan step or a
    /// worker starts again after a crash. It makes progress only once it exceeds this number.
    reached: u32,
    /// Whether the store knows of progress since the last crash.
    progressed: AtomicBool,
    jobs: Arc<dyn JobReader>,
    attempts: Arc<dyn JobAttempts>,
    routines: Arc<dyn RoutineReader>,
}

impl std::fmt::Debug for JobContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobContext").field("job", &self.job.job_id).finish_non_exhaustive()
    }
}

impl JobContext {
    /// Makes the context for this run of a job. The budget of `[jobs]` limits that of the job.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn of(service: &JobService, job: JobRecord, run: RunId) -> Result<Self, StoreError> {
        let budget = job.budget.within(service.config.budget());
        let reached = match job.crashes {
            0 => 0,
            _ => service.jobs.progress(run, job.runs_in).await?.piece(),
        };
        let progressed = AtomicBool::new(job.crashes == 0); // without a crash there is no count to reset
        let (jobs, attempts) = (service.jobs.clone(), service.attempts.clone());
        let routines = service.routines.clone();
        Ok(Self { job, budget, reached, progressed, jobs, attempts, routines })
    }

    /// Steps that the current piece of work had made when the daemon last crashed, as far as the store knows. `None`:
    /// the daemon did not crash, or the job has made progress since.
    pub fn made_at_crash(&self) -> Option<u32> {
        (self.job.crashes > 0).then_some(self.reached)
    }

    /// The request for the planner: the task and, in a later attempt, the last text that the model wrote before this
    /// attempt. A planner and its executors do not see the conversation. `start` is the index in `context` of the
    /// first message of this attempt.
    pub fn request(&self, context: &LoopContext, start: usize) -> String {
        let before = LoopContext::new(context.messages.get(..start).unwrap_or_default().to_vec());
        text::request(&self.job, last_words(&before, 0).as_deref())
    }
}

#[async_trait]
impl WorkGrants for JobContext {
    async fn grants(&self) -> Result<Vec<WorkGrant>, StoreError> {
        if let Some(routine_run) = self.job.routine_run {
            return of_routine_run(&*self.routines, routine_run).await;
        }
        if self.job.grants.is_empty() {
            return Ok(Vec::new()); // grants are only given at the creation
        }
        let now = self.jobs.job(self.job.job_id).await?;
        let grants = now.map(|job| job.grants).unwrap_or_default();
        Ok(grants.into_iter().filter(|grant| !grant.revoked).collect())
    }
}

#[async_trait]
impl WorkItem for JobContext {
    /// Returns how the run must end when its job is over or has another attempt. A stop of the job also cancels the
    /// run's token. This check catches a stop that came before the run was registered.
    async fn ended(&self) -> Option<RunEnd> {
        match self.jobs.job(self.job.job_id).await {
            Ok(Some(now)) if !now.state.is_over() && now.attempt == self.job.attempt => None,
            Ok(now) => {
                let state = now.map_or("unknown", |now| now.state.word());
                Some(RunEnd::of(StopReason::ParentStopped).with(text::NOT_AT_WORK, state))
            }
            // The next write reports the failure of the store.
            Err(error) => {
                tracing::warn!(%error, job = %self.job.job_id, "the state of a job could not be read");
                None
            }
        }
    }

    /// Stores, once after a crash, that the job makes progress: at the first step beyond those made before the crash.
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
