//! Ends of jobs that no run reports.

use belay_protocol::{
    Asker, Authority, BootId, Clock, HeldJobs, JobAttempt, JobAttempts, JobCaps, JobChange, JobCreated, JobReader,
    JobStore, NewJob, NoProcesses, UnixMillis,
};
use belay_run::freeze::Freezer;
use belay_run::rights::AccessPolicy;
use belay_store::SqlStore;

use super::*;
use crate::jobs::JobsConfig;
use crate::submitter::Submitter;

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> UnixMillis {
        UnixMillis(5_000)
    }
}

async fn service_on(store: &Arc<SqlStore>) -> Arc<JobService> {
    let (submitter, _messages) = Submitter::new();
    Arc::new(JobService {
        config: JobsConfig::default(),
        jobs: store.clone(),
        job_store: store.clone(),
        attempts: store.clone(),
        runs: store.clone(),
        inputs: store.clone(),
        routines: store.clone(),
        processes: Arc::new(NoProcesses),
        clock: Arc::new(Fixed),
        boot: BootId::new(),
        hints: None,
        submitter,
        bell: Wakeup::default(),
        access: Arc::new(AccessPolicy::new(Arc::default(), Default::default())),
        has_workers: false,
        freezer: Arc::new(Freezer::load(store.clone()).await.expect("readable")),
        draining: CancellationToken::new(),
    })
}

/// A job in progress of this node.
async fn begun(store: &SqlStore, boot: BootId) -> JobRecord {
    let caps = JobCaps { at_work: 9, at_work_each: 9, open_each: 9, open: 9 };
    let new = NewJob {
        id: JobId::new(),
        title: "count".into(),
        task: "count the stars".into(),
        plan: false,
        runs_in: Default::default(),
        budget: Default::default(),
        grants: Vec::new(),
        creator: Asker { principal: "ann".into(), authority: Authority::Operator, relayed: false },
        channel: "http".into(),
        asked_in: "s".into(),
        reply_to: None,
        parent: None,
        routine_run: None,
        at: UnixMillis(1_000),
    };
    assert!(matches!(store.create(new, caps).await.expect("stored"), JobCreated::New(_)));
    store.begin_next(caps, HeldJobs::default(), boot, UnixMillis(2_000)).await.expect("stored").expect("a slot")
}

async fn changed(service: &JobService, job: &JobRecord, to: JobState, attempt: Option<JobAttempt>) -> JobRecord {
    let change = JobChange {
        job: job.job_id,
        to,
        attempt,
        detail: String::new(),
        result: None,
        notice: None,
        told_in: None,
        at: UnixMillis(3_000),
    };
    match service.job_store.change(change).await.expect("stored") {
        JobChanged::Now(job) => *job,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_job_that_is_cancelled_between_two_attempts_is_reported_as_ended() {
    let store = Arc::new(SqlStore::in_memory().expect("there is memory"));
    let service = service_on(&store).await;
    let job = begun(&store, service.boot).await;
    let attempt = Some(JobAttempt { number: job.attempt, owner: service.boot });
    let stuck = changed(&service, &job, JobState::Stuck, attempt).await;
    changed(&service, &job, JobState::Cancelled, None).await;
    let ends = service.bell.ends();
    supervise(service.clone(), stuck).await;
    assert!(ends.has_changed().expect("the service lives"));
}

#[tokio::test]
async fn a_job_that_is_given_up_is_reported_as_ended() {
    let store = Arc::new(SqlStore::in_memory().expect("there is memory"));
    let service = service_on(&store).await;
    let job = begun(&store, service.boot).await;
    let ends = service.bell.ends();
    for (crashes, expected) in [(service.config.max_crashes - 1, false), (service.config.max_crashes, true)] {
        let given_up = give_up_crashed(&service, &JobRecord { crashes, ..job.clone() }).await.expect("stored");
        assert_eq!((given_up, ends.has_changed().expect("the service lives")), (expected, expected));
    }
    let state = store.job(job.job_id).await.expect("readable").expect("there").state;
    assert_eq!(state, JobState::Failed);
}
