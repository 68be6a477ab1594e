//! Jobs: limits, beginnings, changes and grants.

use belay_protocol::{
    HeldJobs, JobAttempts, JobCaps, JobChange, JobChanged, JobCreated, JobId, JobReader, JobState, JobStore,
    StoreHealth, WorkGrant,
};
use belay_store::SqlStore;

use super::holder::Holder;
use super::two::{Two, count, two};
use crate::kit::*;

/// Nobody writes jobs, but everybody reads and locks them.
const NO_WRITES: &str = "LOCK TABLE jobs IN SHARE MODE";

/// Far away.
const CAPS: JobCaps = JobCaps { at_work: 10, at_work_each: 10, open_each: 10, open: 10 };

async fn created(store: &SqlStore) -> JobId {
    match store.create(job("ann"), CAPS).await.unwrap() {
        JobCreated::New(job) => job.job_id,
        other => panic!("{other:?}"),
    }
}

async fn begin(store: &SqlStore, caps: JobCaps) -> Option<JobId> {
    store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().map(|job| job.job_id)
}

/// A job in progress.
async fn at_work(store: &SqlStore) -> JobId {
    let job = created(store).await;
    assert_eq!(begin(store, CAPS).await, Some(job));
    job
}

fn to(job: JobId, state: JobState, text: &str) -> JobChange {
    JobChange {
        job,
        to: state,
        attempt: Some(attempt(1)),
        detail: String::new(),
        result: Some(text.into()),
        notice: Some(outbound(text, text)),
        told_in: None,
        at: at(3_000),
    }
}

fn is_now(changed: &JobChanged) -> bool {
    matches!(changed, JobChanged::Now(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_open_jobs_hold_for_both_together() {
    let Some(two) = two().await else { return };
    for caps in [JobCaps { open: 1, ..CAPS }, JobCaps { open_each: 2, ..CAPS }] {
        let (one, other) =
            two.race(NO_WRITES, two.one.create(job("ann"), caps), two.other.create(job("ann"), caps)).await;
        assert!(matches!(one.unwrap(), JobCreated::New(_)));
        assert!(matches!(other.unwrap(), JobCreated::TooMany(_)));
    }
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_is_begun_by_one_and_the_limit_of_running_jobs_holds() {
    let Some(two) = two().await else { return };
    let (first, second) = (created(&two.one).await, created(&two.one).await);
    let begun = two.race(NO_WRITES, begin(&two.one, CAPS), begin(&two.other, CAPS)).await;
    assert_eq!(begun, (Some(first), Some(second)));

    let third = created(&two.one).await;
    created(&two.one).await;
    let caps = JobCaps { at_work: 3, ..CAPS };
    let begun = two.race(NO_WRITES, begin(&two.one, caps), begin(&two.other, caps)).await;
    assert_eq!(begun, (Some(third), None));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_when_it_would_begin_stays_so_and_the_next_one_begins() {
    let Some(two) = two().await else { return };
    let (first, second) = (created(&two.one).await, created(&two.one).await);
    let cancel = "UPDATE jobs SET state = 'cancelled', ended_at = 2000 WHERE seq = (SELECT MIN(seq) FROM jobs)";
    let (begun, ()) = two.race(cancel, begin(&two.one, CAPS), async {}).await;
    assert_eq!(begun, Some(second));
    assert_eq!(two.other.job(first).await.unwrap().unwrap().state, JobState::Cancelled);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_ends_once_with_one_notice() {
    let Some(two) = two().await else { return };
    let job = at_work(&two.one).await;
    let (failed, cancelled) = (to(job, JobState::Failed, "failed"), to(job, JobState::Cancelled, "cancelled"));
    let (one, other) = two.race(NO_WRITES, two.one.change(failed), two.other.change(cancelled)).await;
    assert_eq!((is_now(&one.unwrap()), is_now(&other.unwrap())), (true, false));
    let ended = two.one.job(job).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.result.as_deref()), (JobState::Failed, Some("failed")));
    assert_eq!(told(&two.one).await, ["failed"]);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_job_begins_again_once() {
    let Some(two) = two().await else { return };
    let job = at_work(&two.one).await;
    two.one.change(to(job, JobState::Stuck, "stuck")).await.unwrap();
    let again = two
        .race(NO_WRITES, two.one.begin_again(job, boot(), at(4_000)), two.other.begin_again(job, boot(), at(4_000)))
        .await;
    assert_eq!((is_now(&again.0.unwrap()), is_now(&again.1.unwrap())), (true, false));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_grants_that_are_revoked_together_are_both_revoked() {
    let Some(two) = two().await else { return };
    let grants = ["run_command: cargo test", "run_command: cargo build"];
    let grants = grants.map(|text| WorkGrant::parse(text).unwrap()).to_vec();
    let new = belay_protocol::NewJob { grants, ..job("ann") };
    let id = new.id;
    two.one.create(new, CAPS).await.unwrap();
    let (one, other) =
        (JobStore::revoke(&two.one, id, 1, "ann", at(4_000)), JobStore::revoke(&two.other, id, 2, "ann", at(4_000)));
    let revoked = two.race(NO_WRITES, one, other).await;
    assert_eq!((is_now(&revoked.0.unwrap()), is_now(&revoked.1.unwrap())), (true, true));
    let grants = two.one.job(id).await.unwrap().unwrap().grants;
    assert!(grants.iter().all(|grant| grant.revoked), "{grants:?}");
    two.close().await;
}

/// The owner of a lane may change a job in the transaction that holds the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_waits_for_the_session_of_its_notice_without_holding_the_job() {
    let Some(two) = two().await else { return };
    let Two { one, other, database, .. } = &two;
    open(other, "s").await;
    other.ping().await.unwrap(); // the session is committed with it
    let job = at_work(one).await;
    let notice = belay_protocol::SessionNotice { session: "s".into(), text: "it is 42".into() };
    let change = JobChange { told_in: Some(notice), ..to(job, JobState::Completed, "done") };
    let holder = Holder::hold(database, "SELECT 1 FROM sessions FOR UPDATE").await;
    let ended = std::cell::Cell::new(0);
    let lock = async {
        holder.until_waiting(1, &ended).await;
        holder.execute("SELECT 1 FROM jobs FOR UPDATE NOWAIT").await;
        holder.release().await;
    };
    let (changed, ()) = tokio::join!(count(one.change(change), &ended), lock);
    holder.close().await;
    assert!(is_now(&changed.unwrap()));
    two.close().await;
}
