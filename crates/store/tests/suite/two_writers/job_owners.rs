//! Jobs: begun once within the limits by two daemons that work at the same moment, and changed by their owner alone.

use std::collections::HashMap;

use belay_protocol::{
    BootId, HeldJobs, JobAttempt, JobAttempts, JobCaps, JobChange, JobChanged, JobFilter, JobId, JobReader, JobRecord,
    JobState, JobStore,
};
use belay_store::SqlStore;
use futures_util::future::join_all;

use super::takeover::{begun_by, end_node, live};
use super::two::{Two, against, two};
use crate::kit::*;

const JOBS: usize = 50;
const CREATORS: usize = 5;

/// Begins jobs until none begins.
async fn begin_all(store: &SqlStore, caps: JobCaps, by: BootId) -> Vec<JobRecord> {
    let mut begun = Vec::new();
    while let Some(job) = store.begin_next(caps, HeldJobs::default(), by, at(2_000)).await.unwrap() {
        begun.push(job);
    }
    begun
}

fn end_of(job: &JobRecord, owner: BootId, to: JobState) -> JobChange {
    JobChange {
        job: job.job_id,
        to,
        attempt: Some(JobAttempt { number: job.attempt, owner }),
        detail: String::new(),
        result: None,
        notice: None,
        told_in: None,
        at: at(3_000),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_jobs_are_begun_once_each_within_every_limit() {
    for (at_work, at_work_each) in [(1, 1), (7, 2), (9, 9), (50, 3), (50, 50)] {
        let Some(Two { one, other, database: _database, .. }) = two().await else { return };
        let caps = JobCaps { at_work, at_work_each, open_each: 50, open: 50 };
        join_all((0..JOBS).map(|n| one.create(job(&format!("p{}", n % CREATORS)), caps))).await;
        let (first, second) = (BootId::new(), BootId::new());
        let all_at_once = (at_work as usize).min(CREATORS * at_work_each as usize).min(JOBS);
        let mut begun: HashMap<JobId, u32> = HashMap::new();
        while begun.len() < JOBS {
            let (a, b) = against(begin_all(&one, caps, first), begin_all(&other, caps, second)).await;
            let both: Vec<_> =
                a.into_iter().map(|job| (first, job)).chain(b.into_iter().map(|job| (second, job))).collect();
            assert_eq!(both.len(), all_at_once.min(JOBS - begun.len()), "{caps:?}");
            for (_, job) in &both {
                *begun.entry(job.job_id).or_default() += 1;
            }
            let mut each: HashMap<_, u32> = HashMap::new();
            let running = JobFilter { states: vec![JobState::InProgress], limit: 1_000, ..JobFilter::default() };
            for job in one.jobs(running).await.unwrap() {
                *each.entry(job.creator.principal).or_default() += 1;
            }
            assert!(each.values().all(|each| *each <= at_work_each), "{caps:?}: {each:?}");
            for (owner, job) in both {
                let ended = other.change(end_of(&job, owner, JobState::Completed)).await.unwrap();
                assert!(matches!(ended, JobChanged::Now(_)), "{ended:?}");
            }
        }
        assert!(begun.values().all(|times| *times == 1), "{caps:?}: {begun:?}");
        one.close().await;
        other.close().await;
    }
}

/// A daemon that was declared ended wakes, while another one has its jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_daemon_ends_no_job_that_another_one_has_taken_over() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    for to in [JobState::Completed, JobState::Failed, JobState::Stuck, JobState::Cancelled] {
        let (late, now) = (live(&database).await, live(&database).await);
        let job = begun_by(&one, late).await;
        end_node(&database, late).await;
        let (ended, taken) = against(one.change(end_of(&job, late, to)), other.reclaim(now)).await;
        let left = one.job(job.job_id).await.unwrap().unwrap();
        match ended.unwrap() {
            // The end was first: the job is over, or stuck and goes on elsewhere.
            JobChanged::Now(_) => assert_eq!(left.state, to),
            JobChanged::Not(_) => assert_eq!((left.state, taken.unwrap().len()), (JobState::InProgress, 1), "{to:?}"),
            JobChanged::Unknown => panic!("there is such a job"),
        }
        assert!(other.reclaim(now).await.unwrap().len() <= 1);
        if left.state == JobState::InProgress {
            let again = one.change(end_of(&job, late, to)).await.unwrap();
            assert!(matches!(again, JobChanged::Not(_)), "{again:?}");
        }
        let stop = JobChange { attempt: None, ..end_of(&job, late, JobState::Cancelled) };
        one.change(stop).await.unwrap();
    }
    one.close().await;
    other.close().await;
}
