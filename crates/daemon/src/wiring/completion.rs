//! The lists of the daemon's own prompt, from its store.

use async_trait::async_trait;
use belay_agent::StorePorts;
use belay_cli::completion::{Lists, Wanted};
use belay_protocol::{ApprovalFilter, JobFilter, RunFilter, SessionFilter};

/// Most entries of a list that are read.
const LIST_MAX: u32 = 100;

/// Lists from the store, and the configured models.
pub(super) struct StoreLists {
    pub(super) ports: StorePorts,
    pub(super) models: Vec<String>,
}

#[async_trait]
impl Lists for StoreLists {
    async fn list(&self, what: Wanted) -> Vec<String> {
        let ports = &self.ports;
        let listed = match what {
            Wanted::Words(_) => Ok(Vec::new()),
            Wanted::Models => Ok(self.models.clone()),
            Wanted::Sessions => ports
                .sessions
                .sessions(SessionFilter::lasting(LIST_MAX))
                .await
                .map(|sessions| sessions.into_iter().map(|session| session.session.to_string()).collect()),
            Wanted::Runs => ports.runs.runs(RunFilter { limit: LIST_MAX, ..RunFilter::default() }).await.map(|runs| {
                let open = runs.into_iter().filter(|run| !run.status.is_end());
                open.map(|run| run.run_id.to_string()).collect()
            }),
            Wanted::Jobs => ports
                .jobs
                .jobs(JobFilter { limit: LIST_MAX, ..JobFilter::default() })
                .await
                .map(|jobs| jobs.into_iter().map(|job| job.job_id.to_string()).collect()),
            Wanted::Approvals => {
                let filter = ApprovalFilter { waiting: true, limit: LIST_MAX, ..ApprovalFilter::default() };
                let waiting = ports.approvals.approvals(filter).await;
                waiting.map(|waiting| waiting.into_iter().map(|request| request.id.to_string()).collect())
            }
            Wanted::Routines => ports
                .routines
                .routines()
                .await
                .map(|routines| routines.into_iter().map(|routine| routine.spec.name.to_string()).collect()),
        };
        // Without a list there is nothing to complete; whatever is typed still works.
        listed.unwrap_or_default()
    }
}
