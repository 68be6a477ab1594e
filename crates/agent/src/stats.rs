//! Numbers of jobs and routines, and the money of the day: read from the store on each request, and then shown as gauges.

use std::time::Duration;

use belay_protocol::{JobNumbers, JobsStatus, RoutineNumbers, StatusReport, StoreError};
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

/// The report with the money of the day of all nodes, which becomes the gauge too. If the store does not respond in time, the
/// report keeps the money that this node knows. A daemon alone reads nothing.
///
/// # Cancel safety
/// Nothing is changed.
pub(crate) async fn with_money(services: &AgentServices, report: StatusReport) -> StatusReport {
    let Some(spent) = said(services.run.cost.spent_today_by_all()).await else { return report };
    metrics::set_spent_gauge(&spent);
    StatusReport { spent_today_micro_usd: spent.total(), spent_today_for: spent, ..report }
}

async fn said<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    match timeout(LIMIT, asked).await {
        Ok(Ok(numbers)) => Some(numbers),
        Ok(Err(error)) => {
            tracing::warn!(%error, "numbers of the status could not be read");
            None
        }
        Err(_elapsed) => {
            tracing::warn!(limit_s = LIMIT.as_secs(), "the store takes too long to read numbers of the status");
            None
        }
    }
}
