//! Start of a job's run: finds the job that the run is an attempt at, and applies the limits of that job.

use std::sync::Arc;

use belay_agent_loop::LoopError;
use belay_agent_loop::policies::RunLimits;
use belay_protocol::{JobBudget, JobId, JobRecord, JobState, RunEnd, StopReason};

use super::context::JobContext;
use super::service::JobService;
use super::spent::spent;
use super::text::NOT_AT_WORK;
use belay_run::core::RunCore;
use belay_run::rights;

/// The result of [`begin`].
pub enum Begun {
    /// The run works on this job.
    Active(Arc<JobContext>),
    /// The run must end: the job is over or between two attempts, or the message of the run came too late to be an
    /// attempt.
    Over(RunEnd),
}

/// Finds the job of a run and checks that the run is its current attempt. Applies the job's limits to the run.
///
/// # Errors
/// The store does not answer.
pub async fn begin(
    core: &mut RunCore,
    service: &JobService,
    job: JobId,
    attempt: Option<u32>,
) -> Result<Begun, LoopError> {
    let Some(job) = service.jobs.job(job).await? else { return Ok(Begun::Over(not_at_work("unknown"))) };
    if job.state != JobState::InProgress {
        return Ok(Begun::Over(not_at_work(job.state.word())));
    }
    if attempt != Some(job.attempt) {
        return Ok(Begun::Over(not_at_work("between_attempts")));
    }
    // The scheduler checked the permissions before it sent the attempt. A restart with other settings may have resumed
    // the run since.
    let Ok(creator) = rights::of_job(&service.access, &job) else { return Ok(Begun::Over(not_at_work("not_allowed"))) };
    let job = JobRecord { creator, ..job };
    if of_others(service, &job).await? {
        core.tally.note_untrusted();
    }
    let context = JobContext::of(service, job, core.live.id).await?;
    let budget = context.budget;
    let mut tokens = None;
    if budget.max_tokens > 0 {
        let (before, _) = spent(service, &context.job, Some(core.live.id)).await?;
        let used = before.input.saturating_add(before.output);
        if used >= budget.max_tokens {
            let end = RunEnd::of(StopReason::Tokens).with("used", used).with("limit", budget.max_tokens);
            return Ok(Begun::Over(end));
        }
        tokens = Some(budget.max_tokens - used);
    }
    core.rules = {
        let rules = core.services.rules();
        Arc::new(rules.with_limits(limits_of(rules.limits(), &budget, tokens)))
    };
    let context = Arc::new(context);
    core.work = Some(context.clone());
    Ok(Begun::Active(context))
}

/// Returns whether the task may contain untrusted content. It may when a run made the job, since its model may have
/// read untrusted content, and when the task contains the payload of a trigger.
async fn of_others(service: &JobService, job: &JobRecord) -> Result<bool, LoopError> {
    if job.parent.is_some() {
        return Ok(true);
    }
    let Some(routine_run) = job.routine_run else { return Ok(false) };
    Ok(service.routines.routine_run(routine_run).await?.is_none_or(|routine_run| routine_run.payload.is_some()))
}

/// How a run ends when it is not the current attempt of a running job.
fn not_at_work(state: &str) -> RunEnd {
    RunEnd::of(StopReason::ParentStopped).with(NOT_AT_WORK, state)
}

/// The limits of all runs combined with those of the job. The job's active time replaces the general one; of each
/// other limit the lower one applies. All attempts of a job share one session, so the limit of dollars per session
/// counts the money of the whole job.
fn limits_of(all: &RunLimits, budget: &JobBudget, tokens: Option<u64>) -> RunLimits {
    let dollars = (budget.max_micro_usd > 0).then(|| budget.max_micro_usd as f64 / 1e6);
    let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
    RunLimits {
        active_s: budget.max_time_ms.div_ceil(1000),
        tokens_total: all.tokens_total.into_iter().chain(tokens).min(),
        usd_per_session: least(all.usd_per_session, dollars),
        ..all.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_held_to_its_own_time_and_to_the_lesser_of_every_other_limit() {
        let all = RunLimits { tokens_total: Some(500), usd_per_session: Some(0.25), ..RunLimits::default() };
        let budget = JobBudget { max_steps: 1, max_tokens: 900, max_micro_usd: 100_000, max_time_ms: 1_500 };
        let expected =
            RunLimits { active_s: 2, tokens_total: Some(500), usd_per_session: Some(0.1), ..RunLimits::none() };
        assert_eq!(limits_of(&all, &budget, Some(900)), expected);
        let none = JobBudget { max_time_ms: 1000, ..JobBudget::default() };
        assert_eq!(limits_of(&RunLimits::none(), &none, None), RunLimits { active_s: 1, ..RunLimits::none() });
    }
}
