//! Stops on all nodes of a cluster. The runs of this node are stopped at once; an order in the store stops those of other
//! nodes. A daemon that is alone writes no order.
//!
//! A node reads orders until its drain begins: the runs that it then hands over are stopped by their new owner.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_protocol::cluster::{OrderTarget, StopOrder, Topic};
use belay_protocol::{
    FreezeId, OrderId, ProcessesOf, RunId, RunProcesses, StillRunning, StopReport, StopTarget, StoreError,
};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Dispatcher;
use super::control::{report, working_tools};
use super::freeze::TREES_LIMIT;
use crate::agent_services::{AgentServices, ClusterServices};
use crate::mail::LaneNote;
use crate::stop_orders::{
    self, Answers, NodeReport, ORDER_ANSWER, ORDERS_MAX, OrderCause, STOP_ANSWER, StopRequest, acknowledge, cause_of,
    target_of,
};
use crate::stopped_mail::stop_mail;
use belay_run::live::LiveRun;

impl Dispatcher {
    /// Stops runs on request, on all nodes, and returns the future report, with the runs that were running. `repeated`: the
    /// order of a stop that is repeated until everything has ended. Its report waits for the ends on other nodes too, as
    /// long as for their answers.
    pub(super) fn stop_everywhere(
        &mut self,
        target: StopTarget,
        request: StopRequest,
        repeated: Option<OrderId>,
    ) -> impl Future<Output = (StopReport, Vec<RunId>)> + Send + use<> {
        self.services.titles.iter().for_each(|titles| titles.stop(&target));
        let mut runs = self.meant(&target, &request);
        let has_all = self.has_all(&target, &runs);
        // A repetition lists what the first request has ended. Its run may be gone meanwhile, but a process still there.
        let of = (!request.only_begun).then(|| processes_of(&target, &runs)).flatten();
        let first = repeated.and_then(|order| self.repeated_stops.again(order, &of));
        let is_again = first.is_some();
        let of = first.unwrap_or(of);
        if is_again {
            runs.retain(|run| run.control.cancel.is_cancelled());
        }
        let mut at_work = begun(&runs);
        let cluster = self.services.cluster.clone();
        self.stop(&runs, |run| request.cause(run));
        let to_end = of.as_ref().filter(|_| !is_again);
        let ended_processes = to_end.map_or(0, |of| self.services.processes.stop_background(of));
        let services = self.services.clone();
        async move {
            let others = async {
                let cluster = cluster?;
                // A run that has begun here is no mail. Otherwise the stop is answered in time, also without the database.
                let in_mail = match (has_all, &target) {
                    _ if is_again => Vec::new(), // what has come since is not meant
                    (true, StopTarget::Run(_) | StopTarget::RunOfGoneClient(_)) => Vec::new(),
                    _ => timeout(ORDER_ANSWER, stop_mail(&services, &cluster, &target, &request))
                        .await
                        .inspect_err(|_| tracing::error!("messages that wait for other nodes may not be stopped"))
                        .unwrap_or_default(),
                };
                if has_all {
                    return Some(Answers::of_mail(in_mail));
                }
                if is_over(&services, &target).await {
                    // An earlier request for the same stop may have ended it.
                    let earlier = match repeated {
                        Some(order) => stop_orders::reports(&cluster, order).await,
                        None => None,
                    };
                    return Some(earlier.unwrap_or_default().with_mail(in_mail));
                }
                let (id, cause) = (repeated.unwrap_or_default(), OrderCause::Request(request));
                let is_done = |reports: &NodeReport| repeated.is_none() || reports.still_running.is_empty();
                let answers = stop_orders::order(&services, &cluster, id, target_of(&target), &cause, is_done);
                Some(answers.await.with_mail(in_mail))
            };
            let background = background_ended(&*services.processes, of.as_ref(), STOP_ANSWER);
            let (mut stopped, others, ending) =
                tokio::join!(report(&runs, &*services.processes, STOP_ANSWER), others, background);
            add_ending(&mut stopped.still_running, ending);
            stopped.ended_processes = ended_processes;
            if let Some(others) = others {
                at_work.extend(&others.reports.at_work);
                others.merge_into(&mut stopped);
            }
            (stopped, at_work)
        }
    }

    /// The runs here that a request stops.
    fn meant(&self, target: &StopTarget, request: &StopRequest) -> Vec<Arc<LiveRun>> {
        let mut runs = self.targets(target);
        runs.retain(|run| !request.only_begun || run.activity.has_begun());
        runs
    }

    /// Whether no other node can have a run of this target: a run of the lane has begun here. A lane without one may
    /// only forward messages to its owner.
    fn has_all(&self, target: &StopTarget, runs: &[Arc<LiveRun>]) -> bool {
        !matches!(target, StopTarget::All) && runs.iter().any(|run| run.activity.has_begun())
    }

    /// Begins to carry out the orders of other nodes after this number, if this is a node of a cluster.
    pub(super) fn watch_orders(&mut self, after: u64) {
        let Some(cluster) = self.services.cluster.clone() else { return };
        // A task that begins again continues after the last order.
        let last = Arc::new(AtomicU64::new(after));
        self.watch("stop_orders", Topic::Stops, move |services, notes| {
            let (cluster, last) = (cluster.clone(), last.clone());
            async move { read_orders(&services, &cluster, &notes, &last).await }
        });
    }

    /// Carries out an order of another node, and acknowledges it.
    pub(super) fn ordered(&mut self, order: StopOrder) {
        let Some(cluster) = self.services.cluster.clone() else { return };
        let (runs, freeze) = match cause_of(&order) {
            Some(OrderCause::Request(request)) => (self.stop_as_ordered(order.target, &request), None),
            Some(OrderCause::Freeze(freeze)) => (self.stop_as_frozen(freeze), Some(freeze)),
            None => (Vec::new(), None),
        };
        let (services, order, at_work) = (self.services.clone(), order.id, begun(&runs));
        self.background(async move {
            let everyone = freeze.map(|_| ProcessesOf::Everyone);
            let processes = &*services.processes;
            let background = background_ended(processes, everyone.as_ref(), STOP_ANSWER);
            let (StopReport { stopped, still_running, .. }, background) =
                tokio::join!(report(&runs, processes, STOP_ANSWER), background);
            let mut said = NodeReport { stopped, still_running, at_work };
            if let Some(freeze) = freeze {
                add_stopped(&services, freeze, &mut said);
            }
            let left = said.still_running.iter().map(|still| still.run_id).collect::<HashSet<_>>();
            add_ending(&mut said.still_running, background);
            acknowledge(&cluster, services.boot, order, &said).await;
            if said.still_running.is_empty() {
                return;
            }
            if freeze.is_some() {
                let ends = timeout(TREES_LIMIT, join_all(left.iter().map(|run| processes.end(*run))));
                let background = background_ended(processes, everyone.as_ref(), TREES_LIMIT);
                let (Ok(_), background) = tokio::join!(ends, background) else { return };
                // A process may not die.
                said.still_running = left.iter().flat_map(|run| processes.alive(*run)).collect();
                said.still_running.extend(runs.iter().flat_map(|run| working_tools(run)));
                add_ending(&mut said.still_running, background);
            } else {
                let StopReport { stopped, still_running, .. } = report(&runs, &*services.processes, TREES_LIMIT).await;
                (said.stopped, said.still_running) = (stopped, still_running);
            }
            acknowledge(&cluster, services.boot, order, &said).await;
        });
    }

    fn stop_as_ordered(&mut self, target: OrderTarget, request: &StopRequest) -> Vec<Arc<LiveRun>> {
        let target = match target {
            OrderTarget::Run(run) => StopTarget::Run(run),
            OrderTarget::Session(session) => StopTarget::Session(session),
            OrderTarget::All => StopTarget::All,
        };
        self.services.titles.iter().for_each(|titles| titles.stop(&target));
        let mut runs = self.meant(&target, request);
        // The node that was asked does not know the runs of this one.
        runs.retain(|run| request.may_stop_work || !run.origin.work.is_autonomous());
        self.stop(&runs, |run| request.cause(run));
        runs
    }
}

/// Adds the runs that this node has stopped for a freeze before its order came.
fn add_stopped(services: &AgentServices, freeze: FreezeId, said: &mut NodeReport) {
    let in_force = services.run.freezer.in_force();
    let receipt = in_force.iter().find(|other| other.id == freeze).and_then(|freeze| freeze.receipt.as_ref());
    for run in receipt.iter().flat_map(|receipt| &receipt.stopped) {
        if !said.at_work.contains(run) {
            said.still_running.extend(services.processes.alive(*run));
            said.at_work.push(*run);
        }
    }
    said.stopped = said.at_work.clone();
}

/// Whose processes in the background a stop ends: all of the stopped conversation, because none outlives a stop. A client
/// that is gone has stopped nothing that a person has kept; the processes of its run end with the run.
fn processes_of(target: &StopTarget, runs: &[Arc<LiveRun>]) -> Option<ProcessesOf> {
    match target {
        StopTarget::All => Some(ProcessesOf::Everyone),
        StopTarget::Session(session) => Some(ProcessesOf::Session(session.clone())),
        StopTarget::Run(id) => {
            Some(runs.first().map_or(ProcessesOf::Run(*id), |run| ProcessesOf::Session(run.session.clone())))
        }
        StopTarget::RunOfGoneClient(_) => None,
    }
}

/// Waits for processes in the background whose end has begun, for `limit` at most. Returns those that have not ended.
pub(super) async fn background_ended(
    processes: &dyn RunProcesses,
    by: Option<&ProcessesOf>,
    limit: Duration,
) -> Vec<StillRunning> {
    let Some(by) = by else { return Vec::new() };
    match timeout(limit, processes.background_ended(by)).await {
        Ok(()) => Vec::new(),
        Err(_elapsed) => processes.background_ending(by),
    }
}

/// Adds processes in the background to a list that may have them already, because their runs have ended too.
pub(super) fn add_ending(still_running: &mut Vec<StillRunning>, background: Vec<StillRunning>) {
    for process in background {
        let is_it = |known: &StillRunning| *known == process || (known.pid.is_some() && known.pid == process.pid);
        if !still_running.iter().any(is_it) {
            still_running.push(process);
        }
    }
}

fn begun(runs: &[Arc<LiveRun>]) -> Vec<RunId> {
    runs.iter().filter(|run| run.activity.has_begun()).map(|run| run.id).collect()
}

/// Whether the target is one run that has ended: no node has it.
async fn is_over(services: &AgentServices, target: &StopTarget) -> bool {
    let (StopTarget::Run(run) | StopTarget::RunOfGoneClient(run)) = target else { return false };
    matches!(services.store.runs.run(*run).await, Ok(Some(record)) if record.status.is_end())
}

/// Gives the dispatcher the orders of other nodes after `last`.
async fn read_orders(
    services: &AgentServices,
    cluster: &ClusterServices,
    notes: &mpsc::Sender<LaneNote>,
    last: &AtomicU64,
) -> Result<(), StoreError> {
    loop {
        let orders = cluster.orders.orders_after(last.load(Ordering::Relaxed), ORDERS_MAX).await?;
        if orders.is_empty() {
            return Ok(());
        }
        for (number, order) in orders {
            if order.source != services.boot {
                if let Some(OrderCause::Freeze(_)) = cause_of(&order) {
                    super::freeze::adopt(services, notes).await?;
                }
                // Fails only when the dispatcher ends.
                let _ = notes.send(LaneNote::Ordered(Box::new(order))).await;
            }
            last.store(number, Ordering::Relaxed);
        }
    }
}
