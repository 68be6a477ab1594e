//! Taking over the jobs and routine runs of nodes that have ended.

use std::collections::BTreeSet;

use belay_protocol::{
    BootId, HeldJobs, JobAttempts, JobCaps, JobRecord, JobStore, NewRoutineRun, RoutineRunId, RoutineRunStore,
};
use belay_store::SqlStore;
use belay_testkit::postgres::TestDatabase;
use tokio::task::block_in_place;

use super::holder::Holder;
use super::two::{Two, against, two};
use crate::kit::*;

const CAPS: JobCaps = JobCaps { at_work: 1_000, at_work_each: 1_000, open_each: 1_000, open: 1_000 };
const ROUNDS: usize = 20;

/// A node that lives.
pub(super) async fn live(database: &TestDatabase<'_>) -> BootId {
    let boot = BootId::new();
    execute(
        database,
        &format!(
            "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
             VALUES (decode(replace('{boot}', '-', ''), 'hex'), '{boot}', '1', 1, 1, '', 0, 0)"
        ),
    );
    boot
}

/// Ends a node.
pub(super) async fn end_node(database: &TestDatabase<'_>, boot: BootId) {
    execute(
        database,
        &format!(
            "UPDATE nodes SET ended_at = 1, ended_by = 'lease' WHERE boot = decode(replace('{boot}', '-', ''), 'hex')"
        ),
    );
}

fn execute(database: &TestDatabase<'_>, sql: &str) {
    block_in_place(|| database.sql(sql)).unwrap();
}

/// A job in progress of this node.
pub(super) async fn begun_by(store: &SqlStore, owner: BootId) -> JobRecord {
    store.create(job("ann"), CAPS).await.unwrap();
    store.begin_next(CAPS, HeldJobs::default(), owner, at(2_000)).await.unwrap().expect("a slot")
}

async fn claimed_by(store: &SqlStore, boot: BootId, key: usize) -> RoutineRunId {
    claim(store, NewRoutineRun { boot, ..routine_run("hook", &key.to_string()) }).await.routine_run_id
}

/// The jobs with their crashes, and the routine runs, that this node has.
async fn taken(store: &SqlStore, by: BootId) -> (Vec<(belay_protocol::JobId, u32)>, Vec<RoutineRunId>) {
    let jobs = store.reclaim(by).await.unwrap();
    let routine_runs = store.open_routine_runs(by).await.unwrap();
    (
        jobs.into_iter().map(|job| (job.job_id, job.crashes)).collect(),
        routine_runs.into_iter().map(|routine_run| routine_run.routine_run_id).collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_an_ended_node_is_taken_over_once_and_that_of_a_living_one_stays() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    put(&one, routine("hook")).await;
    let (first, second, gone) = (live(&database).await, live(&database).await, live(&database).await);
    let own = begun_by(&one, first).await.job_id;
    let own_run = claimed_by(&one, first, 0).await;
    for n in 1..=ROUNDS {
        begun_by(&one, gone).await;
        claimed_by(&other, gone, n).await;
    }
    let suspended = live(&database).await;
    let deferred = begun_by(&one, suspended).await.job_id;
    one.suspend(suspended).await.unwrap();
    assert_eq!(taken(&other, second).await, (vec![], vec![]), "all of them live");

    end_node(&database, gone).await;
    end_node(&database, suspended).await;
    let (a, b) = against(taken(&one, first), taken(&other, second)).await;
    // A row that the other one was just changing is left to it, or to the next call.
    let (a, b) = (merged(a, taken(&one, first).await), merged(b, taken(&other, second).await));
    assert_eq!((a.0.len() + b.0.len(), a.1.len() + b.1.len()), (ROUNDS + 2, ROUNDS + 1));
    assert!(a.0.is_disjoint(&b.0) && a.1.is_disjoint(&b.1), "each by one of them");
    for (job, crashes) in a.0.iter().chain(&b.0) {
        assert_eq!(*crashes, u32::from(*job != own && *job != deferred), "{job}");
    }
    assert!(a.0.contains(&(own, 0)) && a.1.contains(&own_run));
    one.close().await;
    other.close().await;
}

type Taken = (BTreeSet<(belay_protocol::JobId, u32)>, BTreeSet<RoutineRunId>);

fn merged(
    one: (Vec<(belay_protocol::JobId, u32)>, Vec<RoutineRunId>),
    other: (Vec<(belay_protocol::JobId, u32)>, Vec<RoutineRunId>),
) -> Taken {
    (one.0.into_iter().chain(other.0).collect(), one.1.into_iter().chain(other.1).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_being_changed_does_not_keep_the_others_waiting() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    put(&one, routine("hook")).await;
    let (gone, by) = (BootId::new(), live(&database).await);
    let (busy, free) = (begun_by(&one, gone).await.job_id, begun_by(&one, gone).await.job_id);
    let (busy_run, free_run) = (claimed_by(&one, gone, 1).await, claimed_by(&one, gone, 2).await);
    let lock = "SELECT 1 FROM jobs WHERE seq = (SELECT MIN(seq) FROM jobs) FOR UPDATE;
                SELECT 1 FROM routine_runs WHERE seq = (SELECT MIN(seq) FROM routine_runs) FOR UPDATE";
    let holder = Holder::hold(&database, lock).await;
    assert_eq!(taken(&other, by).await, (vec![(free, 1)], vec![free_run]));
    holder.release().await;
    holder.close().await;
    assert_eq!(taken(&other, by).await, (vec![(busy, 1), (free, 1)], vec![busy_run, free_run]));
    one.close().await;
    other.close().await;
}
