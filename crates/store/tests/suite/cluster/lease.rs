//! The lease of a node: registration, silence, loss.

use std::time::Duration;

use belay_protocol::store::ClusterStore;
use belay_protocol::{BootId, NodeEnd};
use belay_store::lease::{LeaseTimes, NewNode, NodeLease, NodeState};
use belay_store::{OpenError, PostgresUrl};
use belay_testkit::proxy::TcpProxy;

use super::Cluster;

const HOUR: Duration = Duration::from_secs(3_600);

/// Frequent renewals, and limits that no test reaches.
const TIMES: LeaseTimes = LeaseTimes {
    lease: HOUR,
    renew_every: Duration::from_millis(20),
    silent_after: HOUR,
    lost_after: HOUR,
    renewal_limit: Duration::from_millis(400),
};

fn node(name: &str) -> NewNode {
    NewNode { boot: BootId::new(), name: name.into(), version: "1.2.3".into(), settings: "same".into() }
}

async fn register(url: PostgresUrl, node: NewNode, times: LeaseTimes) -> Result<NodeLease, OpenError> {
    tokio::task::spawn_blocking(move || NodeLease::register_with(&url, node, times)).await.unwrap()
}

async fn end(lease: NodeLease) {
    tokio::task::spawn_blocking(move || drop(lease)).await.unwrap();
}

impl Cluster {
    /// The end of the lease of the one node, in milliseconds.
    async fn lease_until(&self) -> i64 {
        let sql = "SELECT MAX(lease_until) FROM belay.nodes WHERE ended_at IS NULL";
        tokio::task::block_in_place(|| self.database.sql(sql)).unwrap().parse().unwrap()
    }

    /// Waits for two renewals that began after this call.
    async fn renewed(&self) {
        for _ in 0..2 {
            let before = self.lease_until().await;
            while self.lease_until().await == before {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_renews_and_ends() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let new = node("a");
    let lease = register(cluster.direct(), new.clone(), TIMES).await.unwrap();
    let found = store.nodes().await.unwrap();
    assert_eq!((found.len(), found[0].boot, found[0].ended), (1, new.boot, None));
    assert_eq!((found[0].name.as_str(), found[0].version.as_str(), found[0].settings.as_str()), ("a", "1.2.3", "same"));
    cluster.renewed().await;
    assert_eq!(lease.state_now(), NodeState::Member);
    assert!(lease.clock_offset().borrow().abs() < 60_000, "one machine has one clock");

    store.release(new.boot).await.unwrap();
    lease.state().wait_for(|state| *state == NodeState::Lost).await.unwrap();
    assert_eq!(store.nodes().await.unwrap()[0].ended.map(|(_, end)| end), Some(NodeEnd::Drain));
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_another_one_has_ended_is_lost_and_stays_so() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let lease = register(cluster.direct(), node("a"), TIMES).await.unwrap();
    let over = "UPDATE belay.nodes SET ended_at = 1, ended_by = 'lease'";
    tokio::task::block_in_place(|| cluster.database.sql(over)).unwrap();
    lease.state().wait_for(|state| *state == NodeState::Lost).await.unwrap();
    let again = "UPDATE belay.nodes SET ended_at = NULL, ended_by = NULL";
    tokio::task::block_in_place(|| cluster.database.sql(again)).unwrap();
    assert_eq!(lease.state_now(), NodeState::Lost);
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_shorter_than_the_node_has_seen_is_lost() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let lease = register(cluster.direct(), node("a"), TIMES).await.unwrap();
    cluster.renewed().await;
    // As a database that has lost the last renewals, and as one in which another node has recorded a loss.
    let older = "UPDATE belay.nodes SET lease_until = lease_until - 4000";
    tokio::task::block_in_place(|| cluster.database.sql(older)).unwrap();
    lease.state().wait_for(|state| *state == NodeState::Lost).await.unwrap();
    assert_eq!(store.nodes().await.unwrap()[0].ended, None, "others end it when its lease is over");
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_makes_the_node_silent_and_its_answer_makes_it_a_member_again() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let proxy = TcpProxy::start(cluster.server.port()).unwrap();
    let times = LeaseTimes { silent_after: Duration::from_millis(300), ..TIMES };
    let lease = register(cluster.url(proxy.port()), node("a"), times).await.unwrap();
    proxy.hold();
    lease.state().wait_for(|state| *state == NodeState::Silent).await.unwrap();
    proxy.release();
    lease.state().wait_for(|state| *state == NodeState::Member).await.unwrap();
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_stays_silent_makes_the_node_lost_for_ever() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let proxy = TcpProxy::start(cluster.server.port()).unwrap();
    let times =
        LeaseTimes { silent_after: Duration::from_millis(300), lost_after: Duration::from_millis(600), ..TIMES };
    let lease = register(cluster.url(proxy.port()), node("a"), times).await.unwrap();
    proxy.hold();
    lease.state().wait_for(|state| *state == NodeState::Lost).await.unwrap();
    proxy.release();
    // The row still lives: only the node itself has counted. Others end it later.
    assert_eq!(store.nodes().await.unwrap()[0].ended, None);
    assert_eq!((lease.state_now(), *lease.state().borrow()), (NodeState::Lost, NodeState::Lost));
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_cost_nothing() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let proxy = TcpProxy::start(cluster.server.port()).unwrap();
    let lease = register(cluster.url(proxy.port()), node("a"), TIMES).await.unwrap();
    let state = lease.state();
    for _ in 0..3 {
        cluster.renewed().await;
        let connections = proxy.accepted();
        proxy.cut_all();
        cluster.renewed().await;
        assert!(proxy.accepted() > connections, "by a new connection");
    }
    assert!(!state.has_changed().unwrap() && *state.borrow() == NodeState::Member);
    end(lease).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_living_node_is_refused_until_its_end() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let first = register(cluster.direct(), node("a"), TIMES).await.unwrap();
    let refused = register(cluster.direct(), node("a"), TIMES).await.unwrap_err();
    let OpenError::NodeName { ref name, ref version, seconds } = refused else { panic!("{refused}") };
    assert_eq!((name.as_str(), version.as_str()), ("a", "1.2.3"));
    assert!((1..=3_600).contains(&seconds), "{seconds}");
    for word in ["the name a", "version 1.2.3", &format!("{seconds} s left"), "cluster.name"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let other = register(cluster.direct(), node("b"), TIMES).await.unwrap();
    // The next start of a node that was killed.
    end(first).await;
    let over = "UPDATE belay.nodes SET lease_until = 0 WHERE name = 'a'";
    tokio::task::block_in_place(|| cluster.database.sql(over)).unwrap();
    let next = register(cluster.direct(), node("a"), TIMES).await.unwrap();
    let ended = store.nodes().await.unwrap().into_iter().filter_map(|node| Some((node.name, node.ended?.1)));
    assert_eq!(ended.collect::<Vec<_>>(), [("a".to_owned(), NodeEnd::Lease)]);
    end(next).await;
    end(other).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_settings_are_named_and_a_newer_schema_is_refused() {
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    let leases = [
        register(cluster.direct(), node("a"), TIMES).await.unwrap(),
        register(cluster.direct(), NewNode { settings: "other".into(), ..node("b") }, TIMES).await.unwrap(),
        register(cluster.direct(), node("c"), TIMES).await.unwrap(),
    ];
    assert_eq!(leases.each_ref().map(|lease| lease.differing_settings().join(" ")), ["", "a", "b"]);
    let newer = "UPDATE belay.belay_schema SET version = 9, oldest_program = 7";
    tokio::task::block_in_place(|| cluster.database.sql(newer)).unwrap();
    let refused = register(cluster.direct(), node("d"), TIMES).await.unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 9, oldest: 7, known: 1 }), "{refused}");
    assert_eq!(store.nodes().await.unwrap().len(), 3, "a refused node has no row");
    for lease in leases {
        end(lease).await;
    }
    store.close().await;
}
