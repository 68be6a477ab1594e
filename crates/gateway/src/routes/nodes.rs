//! `GET /api/v1/nodes`: the daemons that share the database of this one.

use axum::Json;
use axum::extract::State;
use belay_protocol::{BootId, ClusterTask, LeasedWork, NodeEnd, NodeRecord, UnixMillis, WorkLease};
use serde::Serialize;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::Operator;

/// The nodes of the cluster. Both lists are empty if this daemon uses its database alone.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NodeReport {
    /// The living nodes, and those that ended within the last day; the newest start first.
    nodes: Vec<Node>,
    /// The work that one node does at a time.
    leases: Vec<LeaseOfNode>,
}

/// A node.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Node {
    boot: BootId,
    name: String,
    version: String,
    state: NodeStatus,
    started_at: UnixMillis,
    ended_at: Option<UnixMillis>,
    /// The time until its lease ends without a renewal, in milliseconds; 0 if it has ended.
    lease_ms: u64,
    /// The number of sessions whose lanes it owns.
    lanes: u64,
    /// Whether it is the node that answers this request.
    here: bool,
    /// Whether settings that all nodes must share differ from those of the node that answers.
    settings_differ: bool,
}

/// The state of a node.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeStatus {
    /// It works.
    Alive,
    /// It accepts no new work.
    Draining,
    /// It has released its work.
    Drained,
    /// Its lease ended without a renewal.
    Lost,
}

/// A work with its node.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeaseOfNode {
    /// The channel that it polls and sends to.
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    /// The task that it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    boot: BootId,
    /// The name of the node.
    node: String,
    /// Raised by one with each claim.
    epoch: u64,
}

/// Lists the nodes.
pub(crate) async fn list(State(app): State<Shared>, Operator(_): Operator) -> Result<Json<NodeReport>, ApiError> {
    let Some(cluster) = &app.cluster else { return Ok(Json(NodeReport { nodes: Vec::new(), leases: Vec::new() })) };
    let (nodes, leases) = (cluster.nodes.nodes().await?, cluster.leases.leases().await?);
    let settings = nodes.iter().find(|node| node.boot == cluster.boot).map(|node| node.settings.clone());
    let leases = leases.into_iter().map(|lease| of_node(lease, &nodes)).collect();
    let now = app.clock.now();
    let node = |node: NodeRecord| Node {
        state: match node.ended {
            Some((_, NodeEnd::Drain)) => NodeStatus::Drained,
            Some((_, NodeEnd::Lease)) => NodeStatus::Lost,
            None if node.draining => NodeStatus::Draining,
            None => NodeStatus::Alive,
        },
        here: node.boot == cluster.boot,
        settings_differ: settings.as_ref().is_some_and(|settings| *settings != node.settings),
        lease_ms: match node.ended {
            Some(_) => 0,
            None => u64::try_from(node.lease_until.0.saturating_sub(now.0)).unwrap_or(0),
        },
        boot: node.boot,
        name: node.name,
        version: node.version,
        started_at: node.started_at,
        ended_at: node.ended.map(|(at, _)| at),
        lanes: node.lanes,
    };
    Ok(Json(NodeReport { nodes: nodes.into_iter().map(node).collect(), leases }))
}

fn of_node(lease: WorkLease, nodes: &[NodeRecord]) -> LeaseOfNode {
    let node = nodes.iter().find(|node| node.boot == lease.owner).map(|node| node.name.clone()).unwrap_or_default();
    let (channel, task) = match &lease.work {
        LeasedWork::Channel(channel) => (Some(channel.to_string()), None),
        LeasedWork::Task(task) => (None, Some(ClusterTask::word(*task).to_owned())),
    };
    LeaseOfNode { channel, task, boot: lease.owner, node, epoch: lease.epoch }
}
