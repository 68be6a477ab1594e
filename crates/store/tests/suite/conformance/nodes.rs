//! Nodes, and how they end.

use std::sync::Arc;

use belay_protocol::store::{ClusterStore, WorkLeases};
use belay_protocol::{BootId, ClusterTask, LeasedWork, NodeEnd, NodeRecord};
use belay_store::SqlStore;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_node_ends_when_its_lease_is_over_and_only_once
    a_drained_node_ends_and_releases_its_work
    a_release_of_an_unknown_node_changes_nothing
}

type Store = Arc<SqlStore>;

/// A lease that does not end during a test.
const HOUR_MS: u32 = 3_600_000;

async fn node(store: &Store, name: &str) -> NodeRecord {
    let nodes = store.nodes().await.unwrap();
    nodes.into_iter().find(|node| node.name == name).unwrap()
}

fn end(node: &NodeRecord) -> Option<NodeEnd> {
    node.ended.map(|(_, end)| end)
}

async fn a_node_ends_when_its_lease_is_over_and_only_once(store: Store) {
    assert_eq!(store.nodes().await.unwrap(), []);
    let (a, b) = (BootId::new(), BootId::new());
    store.put_node(a, "a", HOUR_MS).await.unwrap();
    store.put_node(b, "b", 0).await.unwrap();
    assert_eq!(end(&node(&store, "b").await), None, "only an end counts, never the date of the lease");
    assert_eq!(store.end_expired().await.unwrap(), [b]);
    assert_eq!(store.end_expired().await.unwrap(), []);
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    assert_eq!((end(&a), end(&b)), (None, Some(NodeEnd::Lease)));
    assert!(a.lease_until.0 - a.started_at.0 >= i64::from(HOUR_MS) && b.ended.unwrap().0 >= b.started_at);
    store.put_node(BootId::new(), "b", HOUR_MS).await.expect("the name is free again");
    store.put_node(BootId::new(), "a", HOUR_MS).await.expect_err("the name of a living node");
}

async fn a_drained_node_ends_and_releases_its_work(store: Store) {
    let (boot, other) = (BootId::new(), BootId::new());
    for (boot, name) in [(boot, "a"), (other, "b")] {
        store.put_node(boot, name, HOUR_MS).await.unwrap();
        for session in 0..2 {
            open_as(&*store, &format!("{name}{session}"), boot).await;
        }
    }
    let work = LeasedWork::Task(ClusterTask::Janitor);
    store.claim(&work, boot).await.unwrap().unwrap();
    store.begin_drain(boot).await.unwrap();
    let draining = node(&store, "a").await;
    assert_eq!((draining.draining, end(&draining), draining.lanes), (true, None, 2));

    store.release(boot).await.unwrap();
    let (released, other) = (node(&store, "a").await, node(&store, "b").await);
    assert_eq!((end(&released), released.lanes), (Some(NodeEnd::Drain), 0));
    assert_eq!((end(&other), other.lanes, other.draining), (None, 2, false));
    assert_eq!(store.claim(&work, other.boot).await.unwrap().unwrap().epoch, 2);
    store.release(boot).await.unwrap();
    assert_eq!(node(&store, "a").await, released, "a node ends once");
}

async fn a_release_of_an_unknown_node_changes_nothing(store: Store) {
    let boot = BootId::new();
    open_as(&*store, "s", boot).await;
    store.release(BootId::new()).await.unwrap();
    store.begin_drain(BootId::new()).await.unwrap();
    assert_eq!(store.nodes().await.unwrap(), []);
}
