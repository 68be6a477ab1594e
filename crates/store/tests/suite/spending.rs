//! Who is charged for a model call, and for which model.

use belay_protocol::{
    Asker, CallCharge, JobCaps, JobId, JobStore, NewInput, NewJob, Purpose, RoutineRunId, RunId, SessionKey,
    SpendLedger, StoreError, Work, job_session, routine_run_session,
};
use belay_store::SqlStore;
use rusqlite::Connection;

use crate::kit::*;

const DAY: i64 = 20_000;

const CAPS: JobCaps = JobCaps { at_work: 2, at_work_each: 2, open_each: 9, open: 9 };

/// A run of a message through a channel.
async fn run(store: &SqlStore, work: Work, session: SessionKey, channel: &str, principal: &str) -> RunId {
    let lease = open(store, session.as_str()).await.lease;
    let asker = Asker { principal: principal.into(), ..Asker::default() };
    accept(store, &lease, NewInput { work, channel: channel.into(), asker, ..input("hi") }).await
}

/// A job of that creator, as its id.
async fn job_of(store: &SqlStore, channel: &str, creator: &str, routine_run: Option<RoutineRunId>) -> JobId {
    let new = NewJob { channel: channel.into(), routine_run, parent: None, ..job(creator) };
    let id = new.id;
    JobStore::create(store, new, CAPS).await.unwrap();
    id
}

#[tokio::test]
async fn a_call_is_charged_to_the_sender_or_to_the_creator_of_the_work_and_to_the_model_that_answered() {
    let (store, directory) = sqlite();
    let job = job_of(&store, "telegram", "bob", None).await;
    let mut watch = routine("watch");
    (watch.channel, watch.creator.principal) = ("telegram".into(), "cat".into());
    put(&store, watch).await;
    let fired = claim(&store, routine_run("watch", "k")).await.routine_run_id;
    let of_routine = job_of(&store, "routine", "cat", Some(fired)).await;

    let runs = [
        (run(&store, Work::Chat, "s".into(), "http", "ann").await, Purpose::Chat, 1),
        (run(&store, Work::Job { job, attempt: Some(1) }, job_session(job), "job", "bob").await, Purpose::Job, 10),
        (
            run(&store, Work::Job { job: of_routine, attempt: Some(1) }, job_session(of_routine), "job", "cat").await,
            Purpose::Job,
            100,
        ),
        (
            run(&store, Work::RoutineRun { id: fired }, routine_run_session(fired), "routine", "cat").await,
            Purpose::Routine,
            1_000,
        ),
        // A client chose the session key of the job.
        (run(&store, Work::Chat, job_session(job), "http", "eve").await, Purpose::Chat, 10_000),
        // A model call outside every run.
        (RunId::new(), Purpose::Chat, 100_000),
    ];
    for (run, purpose, micro_usd) in runs {
        let kept = store.reserve(reservation(run, purpose, DAY, micro_usd)).await.unwrap();
        store.settle(kept, CallCharge { model: Some("m".into()), ..charge(micro_usd) }).await.unwrap();
    }
    let answered_by_another = store.reserve(reservation(runs[0].0, Purpose::Chat, DAY, 5)).await.unwrap();
    store.settle(answered_by_another, CallCharge { model: Some("stand-in".into()), ..charge(3) }).await.unwrap();
    store.settle(answered_by_another, charge(2)).await.unwrap();
    let unknown = store.settle(answered_by_another + 1, charge(1)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
    assert_eq!(store.spent(DAY).await.unwrap().total(), 111_113);
    store.close().await;

    let conn = Connection::open(directory.path().join("belay.db")).unwrap();
    let rows = |sql: &str| -> Vec<String> {
        conn.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let expected = [
        "chat   m 100000",
        "chat http ann m 1",
        "chat http ann stand-in 2",
        "chat http eve m 10000",
        "job telegram bob m 10",
        "job telegram cat m 100",
        "routine telegram cat m 1000",
    ];
    let columns = "concat_ws(' ', purpose, channel, principal, model";
    let spent = format!("SELECT {columns}, micro_usd) FROM spend WHERE utc_day = {DAY} ORDER BY 1");
    assert_eq!(rows(&spent), expected);
    let settled =
        format!("SELECT {columns}, SUM(micro_usd)) FROM reservations WHERE settled = 1 GROUP BY {columns}) ORDER BY 1");
    assert_eq!(rows(&settled), expected, "the sums are those of the reservations");
}
