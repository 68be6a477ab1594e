//! Usage and cost of a job, over all its attempts.

use belay_protocol::{JobRecord, RunFilter, RunId, RunUsage, StoreError};

use super::service::JobService;

/// Most runs of a job that are counted: its attempts, and messages that came too late.
const MOST_RUNS: u32 = 500;

/// Sums the usage of a job's runs and their cost in millionths of a US dollar, without the run `but`.
///
/// # Errors
/// The store does not answer.
pub async fn spent(service: &JobService, job: &JobRecord, but: Option<RunId>) -> Result<(RunUsage, u64), StoreError> {
    let filter = RunFilter { session: Some(job.session.clone()), limit: MOST_RUNS, ..RunFilter::default() };
    let (mut usage, mut cost_micro_usd) = (RunUsage::default(), 0_u64);
    for run in service.runs.runs(filter).await? {
        if but != Some(run.run_id) {
            usage.add(&run.usage);
            cost_micro_usd = cost_micro_usd.saturating_add(run.cost_micro_usd);
        }
    }
    Ok((usage, cost_micro_usd))
}
