//! Nodes, their ends, and the work that one of them does at a time.

use belay_protocol::store::{ClusterStore, OrderStore, WorkLeases};
use belay_protocol::{
    BootId, ClusterTask, HeldJobs, JobAttempts, JobCaps, JobStore, LeasedWork, OrderId, OrderTarget, StopOrder,
    WorkLease,
};
use belay_store::{PostgresLimits, SqlStore, StoreOptions, StoreUrl, parse_url};
use serde_json::Value;

use super::holder::Holder;
use super::two::{against, two};
use crate::kit::*;

const HOUR_MS: u32 = 3_600_000;

fn janitor() -> LeasedWork {
    LeasedWork::Task(ClusterTask::Janitor)
}

fn id(boot: BootId) -> String {
    format!("'\\x{}'", boot.as_uuid().simple())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_claims_one_wins() {
    let Some(two) = two().await else { return };
    let (work, boots) = (janitor(), [BootId::new(), BootId::new()]);
    two.one.put_node(boots[0], "a", HOUR_MS).await.unwrap();
    two.one.put_node(boots[1], "b", HOUR_MS).await.unwrap();
    let winner = |claims: [Option<WorkLease>; 2]| {
        let won: Vec<WorkLease> = claims.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "{won:?}");
        won.into_iter().next().unwrap()
    };
    // Both find no row, then a free row, and then that of a node that ended.
    let no_writes = "LOCK TABLE belay.work_leases IN SHARE MODE";
    let (one, other) = (two.one.claim(&work, boots[0]), two.other.claim(&work, boots[1]));
    let claims = two.race(no_writes, async { one.await.unwrap() }, async { other.await.unwrap() }).await;
    let first = winner([claims.0, claims.1]);
    two.one.give_up(&first).await.unwrap();
    let (one, other) = (two.one.claim(&work, boots[0]), two.other.claim(&work, boots[1]));
    let claims = two.race(no_writes, async { one.await.unwrap() }, async { other.await.unwrap() }).await;
    let second = winner([claims.0, claims.1]);
    assert_eq!((first.epoch, second.epoch), (1, 2));
    two.one.release(second.owner).await.unwrap();
    let third = BootId::new();
    two.one.put_node(third, "c", HOUR_MS).await.unwrap();
    let left = if second.owner == boots[0] { boots[1] } else { boots[0] };
    let (one, other) = (two.one.claim(&work, left), two.other.claim(&work, third));
    let claims = two.race(no_writes, async { one.await.unwrap() }, async { other.await.unwrap() }).await;
    let third = winner([claims.0, claims.1]);
    assert_eq!((third.epoch, two.one.leases().await.unwrap()), (3, vec![third.clone()]));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_no_other_node() {
    let Some(two) = two().await else { return };
    let boot = BootId::new();
    two.one.put_node(boot, "a", HOUR_MS).await.unwrap();
    // Another node claims any work, then it uses the row of this one.
    let claiming = "SELECT pg_advisory_xact_lock(hashtextextended('belay work_leases', 0))";
    let holder = Holder::hold(&two.database, claiming).await;
    assert_eq!(two.one.claim(&janitor(), boot).await.unwrap(), None);
    holder.release().await;
    holder.close().await;
    let claimed = two.one.claim(&janitor(), boot).await.unwrap().unwrap();
    two.one.give_up(&claimed).await.unwrap();
    let holder = Holder::hold(&two.database, "SELECT 1 FROM belay.work_leases FOR SHARE").await;
    assert_eq!(two.one.claim(&janitor(), boot).await.unwrap(), None);
    holder.release().await;
    holder.close().await;
    assert_eq!(two.one.claim(&janitor(), boot).await.unwrap().unwrap().epoch, 2);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_committed_late_keeps_the_node_alive() {
    let Some(two) = two().await else { return };
    let boot = BootId::new();
    two.one.put_node(boot, "a", 0).await.unwrap();
    let renewal = format!(
        "UPDATE belay.nodes SET lease_until = lease_until + {HOUR_MS} WHERE boot = {} AND ended_at IS NULL",
        id(boot)
    );
    let renewing = Holder::hold(&two.database, &renewal).await;
    assert_eq!(two.one.end_expired().await.unwrap(), [], "its renewal is on its way");
    renewing.release().await;
    assert_eq!(two.other.end_expired().await.unwrap(), []);
    assert_eq!(two.one.nodes().await.unwrap()[0].ended, None);
    renewing.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sweeps_end_a_node_once() {
    let Some(two) = two().await else { return };
    for n in 0..20 {
        let boot = BootId::new();
        two.one.put_node(boot, &format!("node {n}"), 0).await.unwrap();
        let (mut one, other) = against(two.one.end_expired(), two.other.end_expired()).await;
        let one = one.as_mut().unwrap();
        one.extend(other.unwrap());
        one.extend(two.one.end_expired().await.unwrap());
        assert_eq!(*one, [boot]);
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_orders_skips_none() {
    let Some(two) = two().await else { return };
    let order = || StopOrder {
        id: OrderId::new(),
        at: at(1_000),
        target: OrderTarget::All,
        cause: Value::Null,
        source: BootId::new(),
    };
    let write = async |store: &SqlStore| {
        for _ in 0..50 {
            store.order(order()).await.unwrap();
        }
    };
    let (mut seen, mut read) = (0, 0);
    let reading = async {
        while read < 100 {
            for (number, _) in two.one.orders_after(seen, 10).await.unwrap() {
                assert!(number > seen);
                (seen, read) = (number, read + 1);
            }
        }
    };
    tokio::join!(write(&two.one), write(&two.other), reading);
    assert_eq!(two.other.newest_order().await.unwrap(), seen);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_parks_the_jobs_of_the_node_alone() {
    let Some(two) = two().await else { return };
    let (boot, other) = (BootId::new(), BootId::new());
    let caps = JobCaps { at_work: 10, at_work_each: 10, open_each: 10, open: 10 };
    for owner in [boot, other] {
        two.one.create(job("ann"), caps).await.unwrap();
        JobAttempts::begin_next(&two.one, caps, HeldJobs::default(), owner, at(2_000)).await.unwrap().unwrap();
    }
    two.one.release(boot).await.unwrap();
    let rows = two.database.sql("SELECT owner IS NULL, parked FROM belay.jobs ORDER BY seq").unwrap();
    assert_eq!(rows, "t|1\nf|0");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_alone_ends_every_node_and_forgets_old_ones() {
    let Some(two) = two().await else { return };
    let (boot, old) = (BootId::new(), BootId::new());
    two.one.put_node(boot, "a", HOUR_MS).await.unwrap();
    two.one.put_node(old, "old", HOUR_MS).await.unwrap();
    let month =
        "UPDATE belay.nodes SET ended_by = 'drain', ended_at = started_at - 31 * 86400000::bigint WHERE name = 'old'";
    two.database.sql(month).unwrap();
    two.one.close().await;
    two.other.close().await;
    let Ok(StoreUrl::Postgres(url)) = parse_url(&format!("{}?sslmode=disable", two.database.url())) else {
        panic!("not an address")
    };
    let limits = PostgresLimits { connections: 1, statement: SECONDS, lock: SECONDS };
    let alone = tokio::task::spawn_blocking(move || SqlStore::connect(&url, limits, StoreOptions::default()));
    let alone = alone.await.unwrap().unwrap();
    let left = two.database.sql("SELECT name, ended_by FROM belay.nodes").unwrap();
    assert_eq!(left, "a|lease");
    alone.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_commits_are_kept_for_living_nodes_and_deleted_with_old_ones() {
    let Some(two) = two().await else { return };
    let (living, ended) = (BootId::new(), BootId::new());
    for (boot, name) in [(living, "living"), (ended, "ended")] {
        two.one.put_node(boot, name, HOUR_MS).await.unwrap();
        two.database.sql(&format!("INSERT INTO belay.writers VALUES ({}, 7)", id(boot))).unwrap();
    }
    let month =
        "UPDATE belay.nodes SET ended_by = 'drain', ended_at = started_at - 31 * 86400000::bigint WHERE name = 'ended'";
    two.database.sql(month).unwrap();
    let expired = BootId::new();
    two.one.put_node(expired, "expired", 0).await.unwrap();
    assert_eq!(two.one.end_expired().await.unwrap(), [expired]);
    let left = two.database.sql("SELECT encode(boot, 'hex') FROM belay.writers WHERE commits = 7").unwrap();
    assert_eq!(left, living.as_uuid().simple().to_string());
    two.close().await;
}
