//! Two daemons on one file: what only the rows can settle between them.

use belay_protocol::store::ClusterStore;
use belay_protocol::{
    BootId, Claim, EventLog, EventQuery, Held, HeldJobs, JobAttempts, JobCaps, JobChange, JobReader, JobState,
    JobStore, NodeEnd, RoutineReader, RoutineRunFilter, RoutineRunStore,
};
use belay_store::{SqlStore, StoreOptions};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::kit::*;

/// Two stores on one file. The locks of the first keep others away; the rows hold where a file system knows no locks.
fn two() -> (SqlStore, SqlStore, TempDir) {
    let (one, directory) = sqlite();
    let other = SqlStore::open_beside_another(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    (one, other, directory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_alone_ends_every_node() {
    let (store, directory) = sqlite();
    store.put_node(BootId::new(), "a", 3_600_000).await.unwrap();
    store.close().await;
    let again = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    let nodes = again.nodes().await.unwrap();
    assert_eq!(
        nodes.into_iter().map(|node| node.ended.map(|(_, end)| end)).collect::<Vec<_>>(),
        [Some(NodeEnd::Lease)]
    );
    again.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_routine_run_is_claimed_by_exactly_one() {
    let (one, other, _directory) = two();
    put(&one, scheduled("tick", 60_000)).await;
    put(&one, routine("hook")).await;
    let mut claiming = JoinSet::new();
    for n in 1..=50 {
        for store in [one.clone(), other.clone()] {
            claiming.spawn(async move {
                let time = n * 60_000;
                let scheduled = store.claim(on_time("tick", time, time + 60_000), 1_000).await.unwrap();
                let webhook = store.claim(routine_run("hook", &format!("delivery {n}")), 1_000).await.unwrap();
                [scheduled, webhook]
            });
        }
    }
    let claims: Vec<_> = claiming.join_all().await.into_iter().flatten().collect();
    let count = |is: fn(&Claim) -> bool| claims.iter().filter(|claim| is(claim)).count();
    let claimed = count(|claim| matches!(claim, Claim::Claimed(_)));
    assert_eq!(claimed + count(|claim| matches!(claim, Claim::Known(_) | Claim::Off(_))), 200, "nothing else");
    let filter =
        |name: &str| RoutineRunFilter { routine: Some(name.into()), limit: 1_000, ..RoutineRunFilter::default() };
    let deliveries = one.routine_runs(filter("hook")).await.unwrap();
    assert_eq!(deliveries.len(), 50, "each delivery once");
    let ticks = one.routine_runs(filter("tick")).await.unwrap();
    // A time that came late, after a later one, has passed.
    assert_eq!(ticks.len() + deliveries.len(), claimed);
    assert!(ticks.windows(2).all(|pair| pair[0].scheduled_at > pair[1].scheduled_at), "in their order, each once");
    let told = one.read(EventQuery { limit: 1_000, ..EventQuery::default() }).await.unwrap();
    assert_eq!(told.len(), claimed, "one fact for each");
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caps_hold_for_both_together() {
    let (one, other, _directory) = two();
    put(&one, routine("hook")).await;
    let caps = JobCaps { at_work: 5, at_work_each: 5, open_each: 30, open: 30 };
    let mut asking = JoinSet::new();
    for n in 0..40 {
        for (name, store) in [("one", one.clone()), ("other", other.clone())] {
            asking.spawn(async move {
                store.create(job("ann"), caps).await.unwrap();
                let begun = store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap();
                let claim = store.claim(routine_run("hook", &format!("{name} {n}")), 7).await.unwrap();
                (begun.is_some(), claim)
            });
        }
    }
    let done = asking.join_all().await;
    assert_eq!(done.iter().filter(|(begun, _)| *begun).count(), 5);
    assert_eq!(done.iter().filter(|(_, claim)| matches!(claim, Claim::Claimed(_))).count(), 7);
    assert_eq!(done.iter().filter(|(_, claim)| *claim == Claim::Held(Held::Global)).count(), 73);
    let jobs = other.jobs(belay_protocol::JobFilter { limit: 1_000, ..Default::default() }).await.unwrap();
    assert_eq!(jobs.len(), 30);
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_living_node_is_left_to_it() {
    let (store, directory) = sqlite();
    let caps = JobCaps { at_work: 9, at_work_each: 9, open_each: 9, open: 9 };
    store.create(job("ann"), caps).await.unwrap();
    store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a place");
    put(&store, routine("hook")).await;
    claim(&store, routine_run("hook", "1")).await;
    let conn = rusqlite::Connection::open(directory.path().join("belay.db")).unwrap();
    conn.execute(
        "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
         VALUES (?1, 'a', '1', 1, 1, '', 0, 0)",
        [boot().as_uuid()],
    )
    .unwrap();
    let taken = async |by| {
        (store.reclaim(by).await.unwrap().len(), RoutineRunStore::open_routine_runs(&store, by).await.unwrap().len())
    };
    let other = BootId::new();
    assert_eq!(taken(other).await, (0, 0));
    assert_eq!(taken(boot()).await, (1, 1));
    conn.execute("UPDATE nodes SET ended_at = 1, ended_by = 'lease'", []).unwrap();
    assert_eq!(taken(other).await, (1, 1));
    assert_eq!(taken(boot()).await, (1, 1), "the other one has no row, so that it has ended");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_after_a_restart() {
    let (store, directory) = sqlite();
    let path = directory.path().join("belay.db");
    let routine = put(&store, scheduled("tick", 60_000)).await;
    let claimed = claim(&store, on_time("tick", 60_000, 120_000)).await;
    let caps = JobCaps { at_work: 1, at_work_each: 1, open_each: 5, open: 5 };
    store.create(job("ann"), caps).await.unwrap();
    let begun = store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a place");
    let change = JobChange {
        job: begun.job_id,
        to: JobState::Completed,
        attempt: Some(attempt(1)),
        detail: "done".into(),
        result: Some("42".into()),
        notice: Some(outbound("c", "it is 42")),
        told_in: None,
        at: at(3_000),
    };
    store.change(change).await.unwrap();
    store.close().await;

    let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), [claimed]);
    assert_eq!(
        store.routine("tick").await.unwrap().map(|now| (now.revision, now.next_at)),
        Some((1, Some(at(120_000))))
    );
    assert_eq!(routine.next_at, Some(at(60_000)));
    let job = store.job(begun.job_id).await.unwrap().unwrap();
    assert_eq!((job.state, job.result.as_deref()), (JobState::Completed, Some("42")));
    assert_eq!(told(&store).await, ["it is 42"]);
    store.close().await;
}
