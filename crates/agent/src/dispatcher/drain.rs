//! The drain: what happens to the running turns.
//!
//! A daemon that is alone records them as stopped. In a cluster another node continues them, if one is there: they are
//! checkpointed, and their lanes are released.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Dispatcher, end_processes};
use crate::agent_services::AgentServices;

/// Longest wait for the list of the nodes.
const NODES_LIMIT: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// From now on no turn begins. Runs that wait in place for a person are stopped at once. Returns by `deadline`.
    pub(crate) async fn begin_drain(&mut self, deadline: Instant) {
        self.services.draining.cancel();
        let deadline = deadline.min(Instant::now() + NODES_LIMIT);
        self.shutdown.hand_over = has_heir(&self.services, deadline).await;
        // A person does not answer within the time of a drain. The run continues at the next start, or at another node.
        let waiting = self.waiting_in_place();
        let cause = self.shutdown;
        self.stop(&waiting, |_| cause);
        self.let_go_of_parked();
    }

    /// Stops the runs that work. Waiting runs stay in the store.
    pub(crate) fn stop_everything(&mut self) {
        for lane in self.lanes.values() {
            lane.runs.iter().filter(|run| run.activity.working_for().is_some()).for_each(|run| {
                run.control.stop(self.shutdown);
                end_processes(&mut self.tasks, &self.services, run);
            });
            lane.wake.notify_one();
        }
    }
}

/// Whether another node can continue the runs of this one. If the nodes cannot be read, it counts as one: a run that is
/// left in the store continues at the next start, while an end is final.
async fn has_heir(services: &AgentServices, deadline: Instant) -> bool {
    let Some(cluster) = &services.cluster else { return false };
    match timeout_at(deadline, cluster.nodes.nodes()).await {
        Ok(Ok(nodes)) => nodes.iter().any(|node| node.boot != services.boot && node.ended.is_none() && !node.draining),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the other nodes cannot be read; running turns are left to the next start");
            true
        }
        Err(_late) => {
            tracing::warn!("the other nodes could not be read in time; running turns are left to the next start");
            true
        }
    }
}
