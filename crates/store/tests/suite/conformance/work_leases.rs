//! Work that one node does at a time.

use std::sync::Arc;

use belay_protocol::store::{ClusterStore, WorkLeases};
use belay_protocol::{BootId, ClusterTask, LeasedWork, WorkLease};
use belay_store::SqlStore;

use super::for_every_store;

for_every_store! {
    a_work_has_one_living_owner
    only_the_owner_gives_a_work_up
    a_daemon_that_is_alone_takes_over_from_every_earlier_one
    an_ended_node_claims_nothing
    a_claim_of_a_work_that_another_node_does_writes_nothing
}

type Store = Arc<SqlStore>;

const HOUR_MS: u32 = 3_600_000;

fn telegram() -> LeasedWork {
    LeasedWork::Channel("telegram".into())
}

async fn alive(store: &Store, name: &str) -> BootId {
    let boot = BootId::new();
    store.put_node(boot, name, HOUR_MS).await.unwrap();
    boot
}

fn lease(owner: BootId, epoch: u64) -> Option<WorkLease> {
    Some(WorkLease { work: telegram(), owner, epoch })
}

async fn a_work_has_one_living_owner(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    assert_eq!(store.claim(&telegram(), a).await.unwrap(), lease(a, 1));
    assert_eq!(store.claim(&telegram(), a).await.unwrap(), lease(a, 1), "it has the work already");
    assert_eq!(store.claim(&telegram(), b).await.unwrap(), None);
    let janitor = LeasedWork::Task(ClusterTask::Janitor);
    let own = store.claim(&janitor, b).await.unwrap().unwrap();
    assert_eq!(store.leases().await.unwrap(), [lease(a, 1).unwrap(), own.clone()]);
    store.release(a).await.unwrap();
    assert_eq!(store.leases().await.unwrap(), [own]);
    assert_eq!(store.claim(&telegram(), b).await.unwrap(), lease(b, 2));
}

async fn only_the_owner_gives_a_work_up(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    let first = store.claim(&telegram(), a).await.unwrap().unwrap();
    for other in [WorkLease { owner: b, ..first.clone() }, WorkLease { epoch: 2, ..first.clone() }] {
        store.give_up(&other).await.unwrap();
        assert_eq!(store.claim(&telegram(), b).await.unwrap(), None);
    }
    store.give_up(&first).await.unwrap();
    assert_eq!(store.leases().await.unwrap(), []);
    assert_eq!(store.claim(&telegram(), a).await.unwrap(), lease(a, 2), "each new owner has a new epoch");
}

async fn a_daemon_that_is_alone_takes_over_from_every_earlier_one(store: Store) {
    let (earlier, now) = (BootId::new(), BootId::new());
    assert_eq!(store.claim(&telegram(), earlier).await.unwrap(), lease(earlier, 1));
    assert_eq!(store.claim(&telegram(), now).await.unwrap(), lease(now, 2));
}

async fn an_ended_node_claims_nothing(store: Store) {
    let (a, b) = (alive(&store, "a").await, BootId::new());
    store.put_node(b, "b", 0).await.unwrap();
    assert_eq!(store.claim(&telegram(), b).await.unwrap(), lease(b, 1));
    assert_eq!(store.claim(&telegram(), a).await.unwrap(), None, "a lease that is over is not an end");
    assert_eq!(store.end_expired().await.unwrap(), [b]);
    assert_eq!(store.claim(&telegram(), b).await.unwrap(), None);
    assert_eq!(store.claim(&telegram(), a).await.unwrap(), lease(a, 2));
}

async fn a_claim_of_a_work_that_another_node_does_writes_nothing(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    store.claim(&telegram(), a).await.unwrap();
    let before = store.stats();
    assert_eq!(store.claim(&telegram(), b).await.unwrap(), None);
    let after = store.stats();
    assert_eq!((after.jobs, after.commits), (before.jobs, before.commits), "each node claims once a second");
}
