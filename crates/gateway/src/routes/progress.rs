//! The progress of a job: the usage of its runs, and the activity of the newest run.

use belay_protocol::{JobProgress, JobRecord, RunFilter, RunUsage};
use serde::Serialize;

use crate::app::App;
use crate::checks::LIST_MAX;
use crate::error::ApiError;

/// A job and its progress.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Job"))]
pub(crate) struct JobView {
    #[serde(flatten)]
    job: JobRecord,
    /// Over all its attempts.
    usage: RunUsage,
    cost_micro_usd: u64,
    #[serde(flatten)]
    progress: Option<JobProgress>,
}

/// A job with its usage, for lists; without its activity.
pub(crate) async fn used(app: &App, job: JobRecord) -> Result<JobView, ApiError> {
    let (mut usage, mut cost_micro_usd) = (RunUsage::default(), 0u64);
    if job.run_id.is_some() {
        let filter = RunFilter { session: Some(job.session.clone()), limit: LIST_MAX, ..RunFilter::default() };
        for run in app.runs.runs(filter).await? {
            usage.add(&run.usage);
            cost_micro_usd = cost_micro_usd.saturating_add(run.cost_micro_usd);
        }
    }
    Ok(JobView { job, usage, cost_micro_usd, progress: None })
}

/// A job with its usage and its current activity.
pub(crate) async fn seen(app: &App, job: JobRecord) -> Result<JobView, ApiError> {
    let progress = match job.run_id {
        Some(run) => app.jobs.progress(run, job.runs_in).await?,
        None => JobProgress::default(),
    };
    Ok(JobView { progress: Some(progress), ..used(app, job).await? })
}
