//! The care for jobs, where it crashes: by a store that panics when it is told which run an attempt is.

use std::time::Duration;

use belay_automation::JobsConfig;
use belay_protocol::{JobState, StopReason};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use super::{always, create, done, in_state, job, order, runs, silence, told, until};
use crate::support::{Setup, faulty};

fn setup_of(model: ScriptedModel, jobs: JobsConfig) -> (Setup, belay_testkit::faulty::Faulty<belay_store::SqlStore>) {
    let (setup, store) = faulty(model);
    (Setup { jobs, ..setup }, store)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_care_crashes_is_ended_and_the_job_is_begun_again() {
    let model = ScriptedModel::new([Scripted::hang(), done("after all")]);
    let (setup, store) = setup_of(model, JobsConfig::default());
    store.plan().nth_of(StoreOp::NoteJobRun, 1, Fault::Panic);
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    assert!(told(&mut agent).await.ends_with("is done.\n\nafter all"));
    let job = until(&setup, id, JobState::Submitted).await;
    let ends: Vec<_> = runs(&setup, id).await.iter().map(|run| run.reason).collect();
    // Ended before the next began: two at a time would do everything twice.
    assert_eq!((job.attempt, ends), (2, vec![Some(StopReason::UserStop), Some(StopReason::Terminated)]));
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_care_crashes_again_and_again_has_failed_with_one_notice_and_leaves_its_place() {
    let jobs = JobsConfig { max_parallel: 1, ..JobsConfig::default() };
    let (setup, store) = setup_of(always(Scripted::hang()), jobs);
    for attempt in 1..=3 {
        store.plan().nth_of(StoreOp::NoteJobRun, attempt, Fault::Panic);
    }
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    let next = create(&agent.one, order("something else")).await.job_id;
    let said = told(&mut agent).await;
    assert!(
        said.contains("an internal error of Belay ended it") && said.contains("in its third and last attempt"),
        "{said}"
    );
    assert_eq!(until(&setup, id, JobState::Failed).await.attempt, 3);
    until(&setup, next, JobState::InProgress).await;
    assert_eq!(in_state(&setup, JobState::InProgress).await, 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(agent.one.delivered.try_recv().is_err(), "told once");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_settled_before_the_care_crashed_is_handed_in() {
    let (setup, store) = setup_of(ScriptedModel::new([done("two")]), JobsConfig::default());
    // The change to completed passes, the one to submitted panics.
    store.plan().nth_of(StoreOp::ChangeJob, 2, Fault::Panic);
    let mut agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    assert!(told(&mut agent).await.ends_with("is done.\n\ntwo"));
    assert_eq!(until(&setup, id, JobState::Submitted).await.attempt, 1);
    assert_eq!(job(&setup, id).await.result.as_deref(), Some("two"));
    silence(&mut agent).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_care_that_crashes_each_time_begins_again_after_growing_pauses() {
    let (setup, store) = setup_of(always(Scripted::hang()), JobsConfig::default());
    store.plan().nth_of(StoreOp::NoteJobRun, 1, Fault::Panic);
    store.plan().every(StoreOp::BeginJobAgain, Fault::Panic);
    let agent = setup.start().await;
    let id = create(&agent.one, order("count")).await.job_id;
    until(&setup, id, JobState::Stuck).await;
    let asked = store.plan().asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = store.plan().asked() - asked;
    assert!(asked < 500, "{asked} times in a minute");
    store.plan().clear();
    until(&setup, id, JobState::InProgress).await;
    agent.crash().await;
}
