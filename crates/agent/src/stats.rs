//! Numbers of jobs and routines: read from the store on each request, and then shown as gauges.

use std::time::Duration;

use belay_protocol::{JobNumbers, JobsStatus, RoutineNumbers, StoreError};
use tokio::time::timeout;

use crate::agent_services::AgentServices;
use belay_run::metrics;

/// Time limit for the store. After it, a status report goes without these numbers.
const LIMIT: Duration = Duration::from_secs(1);

/// The numbers of jobs and routines; `None`: the store did not respond in time.
///
/// # Cancel safety
/// Nothing is changed.
pub(crate) async fn read(services: &AgentServices) -> (Option<JobsStatus>, Option<RoutineNumbers>) {
    let jobs = said::<JobNumbers>(services.store.jobs.numbers()).await;
    let routines = said::<RoutineNumbers>(services.store.routines.numbers()).await;
    if let Some(numbers) = &jobs {
        metrics::set_job_gauges(numbers, services.jobs.config.max_parallel);
    }
    if let Some(numbers) = &routines {
        metrics::set_routine_gauges(numbers);
    }
    (jobs.map(|numbers| JobsStatus { numbers, slots: services.jobs.config.max_parallel }), routines)
}

async fn said<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    match timeout(LIMIT, asked).await {
        Ok(Ok(numbers)) => Some(numbers),
        Ok(Err(error)) => {
            tracing::warn!(%error, "jobs or routines could not be counted");
            None
        }
        Err(_elapsed) => {
            tracing::warn!(limit_s = LIMIT.as_secs(), "the store takes too long to count jobs or routines");
            None
        }
    }
}
