//! Stops that apply to all nodes of a cluster: the content of an order, and the answers of the nodes.

use std::time::Duration;

use belay_protocol::cluster::{OrderTarget, StopOrder, Topic};
use belay_protocol::{
    BootId, ChannelId, FreezeId, Inbound, OrderId, PendingRun, RunId, SessionKey, StillRunning, StopReason, StopReport,
    StopTarget, StoreError, UnixMillis,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::agent_services::{AgentServices, ClusterServices};
use belay_run::live::{LiveRun, RunOrigin, StopCause};

/// Time limit of a stop, after which a node answers with the list of the runs that are still ending.
pub(crate) const STOP_ANSWER: Duration = Duration::from_millis(100);

/// How long a stop waits for the answers of other nodes: a node that misses the hint reads the order within a second, and
/// takes up to [`STOP_ANSWER`] for its report.
pub(crate) const ORDER_ANSWER: Duration = Duration::from_secs(1).saturating_add(STOP_ANSWER.saturating_mul(2));

/// Pause between two readings of the answers, if no hint comes.
const LOOK: Duration = Duration::from_millis(50);

/// The number of orders that are read at once.
pub(crate) const ORDERS_MAX: u32 = 256;

/// Why an order stops runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderCause {
    /// Somebody has asked for the stop.
    Request(StopRequest),
    /// The freeze covers them.
    Freeze(FreezeId),
}

/// A request to stop runs, as every node carries it out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StopRequest {
    /// Who asks, by the id within `channel`.
    pub(crate) principal: String,
    pub(crate) channel: ChannelId,
    /// The conversation from which the request comes.
    pub(crate) session: SessionKey,
    pub(crate) is_operator: bool,
    /// Whether the answer to the request is shown in the conversation.
    pub(crate) replies: bool,
    /// Whether the client of the run has gone.
    pub(crate) client_gone: bool,
    /// Whether runs that wait in the queue go on.
    pub(crate) only_begun: bool,
    /// Whether runs of jobs and routines may be stopped.
    pub(crate) may_stop_work: bool,
}

impl StopRequest {
    /// The request of this message.
    pub(crate) fn of(by: &Inbound) -> Self {
        Self {
            principal: by.principal.id.to_string(),
            channel: by.channel.clone(),
            session: by.session.clone(),
            is_operator: by.principal.is_operator(),
            replies: by.reply_to.is_some(),
            client_gone: false,
            only_begun: false,
            // Operators, and the agent itself, which has checked the right before.
            may_stop_work: by.principal.is_operator() || by.work.is_autonomous(),
        }
    }

    /// This request, if the client of the run has gone.
    pub(crate) fn with_gone_client(self, client_gone: bool) -> Self {
        Self { client_gone, ..self }
    }

    /// The cause for one run. A stopped run of the requesting conversation sends no reply, because the report is the reply
    /// there.
    pub(crate) fn cause(&self, run: &LiveRun) -> StopCause {
        self.cause_of(&run.session, Some(&run.origin))
    }

    /// The cause for a run of this session. `origin`: whose run it is; `None`: it is not known, and counts as that of
    /// another principal.
    pub(crate) fn cause_of(&self, session: &SessionKey, origin: Option<&RunOrigin>) -> StopCause {
        let told = self.replies && *session == self.session;
        StopCause { told, ..StopCause::of(self.reason(origin)) }
    }

    /// The reason of a requested stop, on every path: `operator_stop` if an operator stops another principal's run, else
    /// `user_stop`. The run of a job or a routine belongs to its creator, whatever channel the request comes through.
    fn reason(&self, origin: Option<&RunOrigin>) -> StopReason {
        let own = origin.is_some_and(|RunOrigin { work, channel, principal, .. }| {
            **principal == *self.principal && (*channel == self.channel || work.is_autonomous())
        });
        match self.client_gone {
            true => StopReason::ClientGone,
            false if self.is_operator && !own => StopReason::OperatorStop,
            false => StopReason::UserStop,
        }
    }
}

/// The runs that a node has stopped for an order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeReport {
    pub(crate) stopped: Vec<RunId>,
    pub(crate) still_running: Vec<StillRunning>,
    /// The runs that were running when they were stopped.
    pub(crate) at_work: Vec<RunId>,
}

/// The answers of the other nodes to an order.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// All reports together.
    pub(crate) reports: NodeReport,
    /// The names of living nodes that have not answered.
    pub(crate) pending: Vec<String>,
}

impl Answers {
    /// No answers, and runs whose messages waited as mail.
    pub(crate) fn of_mail(stopped: Vec<RunId>) -> Self {
        Self::default().with_mail(stopped)
    }

    /// The same with runs whose messages waited as mail.
    pub(crate) fn with_mail(mut self, stopped: Vec<RunId>) -> Self {
        self.reports.stopped.extend(stopped);
        self
    }

    /// Adds them to the report of this node.
    pub(crate) fn merge_into(self, report: &mut StopReport) {
        let NodeReport { stopped, still_running, at_work: _ } = self.reports;
        report.still_running.retain(|still| !stopped.contains(&still.run_id));
        let new: Vec<RunId> = stopped.into_iter().filter(|run| !report.stopped.contains(run)).collect();
        report.stopped.extend(new);
        report.still_running.extend(still_running);
        report.pending_nodes = self.pending;
    }
}

/// The target of the orders for a stop.
pub(crate) fn target_of(target: &StopTarget) -> OrderTarget {
    match target {
        StopTarget::Run(run) | StopTarget::RunOfGoneClient(run) => OrderTarget::Run(*run),
        StopTarget::Session(session) => OrderTarget::Session(session.clone()),
        StopTarget::All => OrderTarget::All,
    }
}

/// The content of an order; `None`: a newer version of Belay has written it.
pub(crate) fn cause_of(order: &StopOrder) -> Option<OrderCause> {
    let cause = OrderCause::deserialize(&order.cause);
    cause.inspect_err(|error| tracing::error!(%error, order = %order.id, "a stop order cannot be read")).ok()
}

/// Writes an order, unless it is written already, and waits until all other living nodes have answered it and `is_done`, at
/// most [`ORDER_ANSWER`].
pub(crate) async fn order(
    services: &AgentServices,
    cluster: &ClusterServices,
    id: OrderId,
    target: OrderTarget,
    cause: &OrderCause,
    is_done: impl Fn(&NodeReport) -> bool,
) -> Answers {
    let cause = serde_json::to_value(cause).unwrap_or(Value::Null); // it has no map whose keys are no texts
    let order = StopOrder { id, at: services.clock.now(), target, cause, source: services.boot };
    if let Err(error) = cluster.orders.order(order).await {
        tracing::error!(%error, "a stop could not be written for the other nodes");
        return Answers { pending: vec![format!("every other node ({error})")], ..Answers::default() };
    }
    answers(cluster, services.boot, id, Instant::now() + ORDER_ANSWER, is_done).await
}

/// Waits until every other living node has answered an order and `is_done`, or until `deadline`.
pub(crate) async fn answers(
    cluster: &ClusterServices,
    own: BootId,
    order: OrderId,
    deadline: Instant,
    is_done: impl Fn(&NodeReport) -> bool,
) -> Answers {
    let mut changes = cluster.hints.changes(Topic::Stops);
    let mut found = Answers { pending: vec!["every other node".to_owned()], ..Answers::default() };
    loop {
        changes.mark_unchanged();
        match timeout_at(deadline, read(cluster, own, order)).await {
            Ok(Ok(answers)) => found = answers,
            Ok(Err(error)) => tracing::warn!(%error, "the answers of other nodes cannot be read; trying again"),
            Err(_late) => return found,
        }
        if found.pending.is_empty() && is_done(&found.reports) {
            return found;
        }
        tokio::select! {
            biased; // the deadline applies even if hints never stop
            () = sleep_until(deadline) => return found,
            Ok(()) = changes.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// The answers to an order whose run has ended, once its processes have ended too, or after [`ORDER_ANSWER`]. `None`: they
/// cannot be read.
pub(crate) async fn reports(cluster: &ClusterServices, order: OrderId) -> Option<Answers> {
    let deadline = Instant::now() + ORDER_ANSWER;
    let mut changes = cluster.hints.changes(Topic::Stops);
    loop {
        changes.mark_unchanged();
        let answered = cluster.orders.acknowledgements(order).await;
        let answered =
            answered.inspect_err(|error| tracing::warn!(%error, "the answers of other nodes cannot be read"));
        let reports = together(answered.ok()?);
        if reports.still_running.is_empty() || Instant::now() >= deadline {
            return Some(Answers { reports, pending: Vec::new() });
        }
        tokio::select! {
            biased; // the deadline applies even if hints never stop
            () = sleep_until(deadline) => {}
            Ok(()) = changes.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

async fn read(cluster: &ClusterServices, own: BootId, order: OrderId) -> Result<Answers, StoreError> {
    // The answers first: a node that answers and ends meanwhile is not pending.
    let answered = cluster.orders.acknowledgements(order).await?;
    let nodes = cluster.nodes.nodes().await?;
    let is_pending = |boot: BootId| boot != own && answered.iter().all(|(other, _)| *other != boot);
    let pending = nodes.into_iter().filter(|node| node.ended.is_none() && is_pending(node.boot));
    let pending = pending.map(|node| node.name).collect();
    Ok(Answers { reports: together(answered), pending })
}

fn together(answered: Vec<(BootId, Value)>) -> NodeReport {
    let mut reports = NodeReport::default();
    for (_, report) in answered {
        let NodeReport { stopped, still_running, at_work } = NodeReport::deserialize(report).unwrap_or_default();
        reports.stopped.extend(stopped);
        reports.still_running.extend(still_running);
        reports.at_work.extend(at_work);
    }
    reports
}

/// Writes what this node has stopped.
pub(crate) async fn acknowledge(cluster: &ClusterServices, own: BootId, order: OrderId, report: &NodeReport) {
    let report = serde_json::to_value(report).unwrap_or(Value::Null); // it has no map whose keys are no texts
    if let Err(error) = cluster.orders.acknowledge(order, own, report).await {
        tracing::warn!(%error, %order, "the node that has asked for a stop is not told what this one has stopped");
    }
}

/// All orders that the store has.
pub(crate) async fn all(cluster: &ClusterServices) -> Result<Vec<StopOrder>, StoreError> {
    let (mut orders, mut after) = (Vec::new(), 0);
    loop {
        let some = cluster.orders.orders_after(after, ORDERS_MAX).await?;
        let Some((last, _)) = some.last() else { return Ok(orders) };
        after = *last;
        orders.extend(some.into_iter().map(|(_, order)| order));
    }
}

/// Stops a run that came from another owner, if an order has stopped it that this node has not carried out. A freeze is
/// no such order: its node reads the freezes themselves.
pub(crate) fn apply(orders: &[StopOrder], run: &LiveRun, pending: &PendingRun) {
    for order in orders.iter().filter(|order| order.at >= pending.accepted_at && is_meant(order, run)) {
        let Some(OrderCause::Request(request)) = cause_of(order) else { continue };
        let begun_before = |at: UnixMillis| pending.started_at.is_some_and(|begun| begun <= at);
        let is_for_it = request.may_stop_work || !run.origin.work.is_autonomous();
        if is_for_it && (!request.only_begun || begun_before(order.at)) {
            tracing::info!(run = %run.id, order = %order.id, "a run that was taken over had been stopped before");
            run.control.stop(request.cause(run));
            return;
        }
    }
}

fn is_meant(order: &StopOrder, run: &LiveRun) -> bool {
    match &order.target {
        OrderTarget::Run(id) => *id == run.id,
        OrderTarget::Session(session) => *session == run.session,
        OrderTarget::All => true,
    }
}
