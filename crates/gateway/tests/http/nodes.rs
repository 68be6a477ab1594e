//! The nodes of a cluster: what an operator sees.

use std::sync::Arc;

use async_trait::async_trait;
use belay_gateway::ClusterView;
use belay_protocol::{
    BootId, ClusterStore, ClusterTask, Hints, LeasedWork, NodeEnd, NodeRecord, StoreError, Topic, UnixMillis,
    WorkLease, WorkLeases,
};
use serde_json::json;
use tokio::sync::watch;

use crate::harness::{Harness, NOW, read};

/// Two nodes: one lives for ten more seconds, one was lost.
struct TwoNodes([BootId; 2]);

#[async_trait]
impl ClusterStore for TwoNodes {
    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let node = |boot, name: &str, ended| NodeRecord {
            boot,
            name: name.into(),
            version: "0.1.0".into(),
            settings: name.into(),
            started_at: UnixMillis(NOW - 1),
            lease_until: UnixMillis(NOW + 10_000),
            draining: false,
            ended,
            lanes: 7,
        };
        Ok(vec![node(self.0[0], "a", None), node(self.0[1], "b", Some((UnixMillis(NOW), NodeEnd::Lease)))])
    }
    async fn end_expired(&self) -> Result<Vec<BootId>, StoreError> {
        unreachable!("only read here")
    }
    async fn begin_drain(&self, _: BootId) -> Result<(), StoreError> {
        unreachable!("only read here")
    }
    async fn release(&self, _: BootId) -> Result<(), StoreError> {
        unreachable!("only read here")
    }
}

#[async_trait]
impl WorkLeases for TwoNodes {
    async fn claim(&self, _: &LeasedWork, _: BootId) -> Result<Option<WorkLease>, StoreError> {
        unreachable!("only read here")
    }
    async fn give_up(&self, _: &WorkLease) -> Result<(), StoreError> {
        unreachable!("only read here")
    }
    async fn leases(&self) -> Result<Vec<WorkLease>, StoreError> {
        let lease = |work, epoch| WorkLease { work, owner: self.0[0], epoch };
        Ok(vec![lease(LeasedWork::Channel("telegram".into()), 3), lease(LeasedWork::Task(ClusterTask::Janitor), 1)])
    }
}

/// Hints about the end of sign-ins.
#[derive(Default)]
pub(crate) struct FakeHints(pub(crate) watch::Sender<u64>);

impl Hints for FakeHints {
    fn changes(&self, topic: Topic) -> watch::Receiver<u64> {
        assert_eq!(topic, Topic::SignIns);
        self.0.subscribe()
    }
}

/// The view of the first of two nodes.
pub(crate) fn view(boots: [BootId; 2], hints: Arc<FakeHints>) -> ClusterView {
    let both = Arc::new(TwoNodes(boots));
    ClusterView { boot: boots[0], nodes: both.clone(), leases: both, hints }
}

#[tokio::test]
async fn an_operator_sees_the_nodes_and_their_work() {
    let boots = [BootId::new(), BootId::new()];
    let harness = Harness::with(|parts| parts.cluster = Some(view(boots, Arc::default()))).await;
    let (status, report) = harness.get("/api/v1/nodes").await;
    assert_eq!(status, 200, "{report}");
    let states: Vec<_> = report["nodes"].as_array().unwrap().iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["alive", "lost"]);
    let first = &report["nodes"][0];
    assert_eq!(
        (&first["here"], &first["lease_ms"], &first["settings_differ"]),
        (&json!(true), &json!(10_000), &json!(false))
    );
    let second = &report["nodes"][1];
    assert_eq!((&second["lease_ms"], &second["settings_differ"]), (&json!(0), &json!(true)));
    let leases = json!([
        {"channel": "telegram", "boot": boots[0], "node": "a", "epoch": 3},
        {"task": "janitor", "boot": boots[0], "node": "a", "epoch": 1},
    ]);
    assert_eq!(report["leases"], leases);
}

#[tokio::test]
async fn a_daemon_alone_has_no_nodes_and_a_client_sees_none() {
    let (status, report) = Harness::open().await.get("/api/v1/nodes").await;
    assert_eq!((status, report), (200, json!({"nodes": [], "leases": []})));
    let harness = Harness::locked().await;
    let request = harness.client.get(harness.url("/api/v1/nodes")).bearer_auth("client");
    assert_eq!(read(request).await.0, 403);
}
