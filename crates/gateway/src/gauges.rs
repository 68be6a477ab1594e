//! The gauges of the agent: of runs, money, jobs and routines, and those of the nodes of a cluster. The agent updates its
//! own whenever it answers a status request, so that a message costs nothing for them; the others are read at the same time.

use std::sync::Weak;

use belay_protocol::{BootId, Control, NodeRecord, Principal, UnixMillis};
use metrics::{Unit, describe_gauge, gauge};

use crate::app::App;
use crate::parts::ClusterView;

/// Seconds until the lease of this node ends without a renewal.
const LEASE_LEFT: &str = "belay_node_lease_seconds";
/// The number of living nodes.
const NODES_ALIVE: &str = "belay_nodes_alive";

/// Updates the gauges of the agent, for an exporter that pushes metrics. It does not keep the gateway alive.
#[derive(Clone)]
pub struct GaugeRefresh(Weak<App>);

impl GaugeRefresh {
    pub(crate) fn new(app: Weak<App>) -> Self {
        Self(app)
    }

    /// Asks the agent for its status, as `GET /metrics` does. Waits for the answer for at most 30 s. Without an
    /// answer, or after the end of the gateway, the gauges keep their last values.
    ///
    /// # Cancel safety
    /// If the future is dropped, the agent may still update the gauges.
    pub async fn refresh(&self) {
        if let Some(app) = self.0.upgrade() {
            refresh(&app, Principal::operator("metrics")).await;
        }
    }
}

/// Describes the gauges of the nodes. A daemon alone has none.
pub(crate) fn describe_nodes() {
    describe_gauge!(LEASE_LEFT, Unit::Seconds, "Time until the lease of this node ends without a renewal");
    describe_gauge!(NODES_ALIVE, "Nodes of the cluster that have not ended");
}

/// Asks the agent for its status, and reads the nodes. If one of them does not answer, its gauges keep their last values.
pub(crate) async fn refresh(app: &App, principal: Principal) {
    if let Err(error) = app.control(principal, Control::Status).await {
        tracing::debug!(?error, "the gauges are as they were");
    }
    let Some(ClusterView { boot, nodes, .. }) = &app.cluster else { return };
    match nodes.nodes().await {
        Ok(nodes) => {
            let (lease, alive) = figures(&nodes, *boot, app.clock.now());
            gauge!(LEASE_LEFT).set(lease);
            gauge!(NODES_ALIVE).set(alive);
        }
        Err(error) => tracing::debug!(%error, "the gauges of the nodes are as they were"),
    }
}

/// The seconds that are left of the lease of this node, 0 if it has ended; and the number of living nodes.
fn figures(nodes: &[NodeRecord], boot: BootId, now: UnixMillis) -> (f64, f64) {
    let alive = || nodes.iter().filter(|node| node.ended.is_none());
    let own = alive().find(|node| node.boot == boot);
    let left_ms = own.map_or(0, |own| own.lease_until.0.saturating_sub(now.0).max(0));
    (left_ms as f64 / 1000.0, alive().count() as f64)
}

#[cfg(test)]
mod tests {
    use belay_protocol::NodeEnd;

    use super::*;

    #[test]
    fn the_gauges_count_living_nodes_and_the_rest_of_the_own_lease() {
        let node = |ended| NodeRecord {
            boot: BootId::new(),
            name: "a".into(),
            version: "0.1.0".into(),
            settings: String::new(),
            started_at: UnixMillis(0),
            lease_until: UnixMillis(17_500),
            draining: true,
            ended,
            lanes: 0,
        };
        let nodes = [node(None), node(None), node(Some((UnixMillis(9), NodeEnd::Lease)))];
        assert_eq!(figures(&nodes, nodes[0].boot, UnixMillis(10_000)), (7.5, 2.0));
        assert_eq!(figures(&nodes, nodes[0].boot, UnixMillis(20_000)), (0.0, 2.0), "not renewed in time");
        assert_eq!(figures(&nodes, nodes[2].boot, UnixMillis(10_000)), (0.0, 2.0), "another node has ended this one");
    }
}
