//! Jobs: begun as places become free, worked at from attempt to attempt, and told about once. What their tests share.

mod care;
mod making;
mod managing;
mod places;
mod repair;
mod rooms;
mod working;

use std::time::Duration;

use belay_automation::JobsConfig;
use belay_protocol::{
    Ack, Control, JobFilter, JobId, JobOrder, JobRecord, JobRequest, JobState, RunFilter, RunRecord, job_session,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, Talker};

/// A model that says this and nothing else.
pub(super) fn always(reply: Scripted) -> ScriptedModel {
    ScriptedModel::new([]).then_forever(reply)
}

pub(crate) fn done(result: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "success", "summary": result}))
}

/// An agent that has jobs.
pub(crate) fn setup_of(model: ScriptedModel) -> Setup {
    Setup { jobs: JobsConfig::default(), ..Setup::new(model) }
}

pub(super) fn failed(why: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "failure", "summary": why}))
}

pub(crate) fn order(task: &str) -> JobOrder {
    JobOrder { task: task.into(), ..JobOrder::default() }
}

/// Makes a job as a program of the operator would, in the session `alice`.
pub(crate) async fn create(talker: &Talker, order: JobOrder) -> JobRecord {
    match request(talker, JobRequest::Create(order)).await {
        Ack::Job(job) => *job,
        other => panic!("no job was made: {other:?}"),
    }
}

pub(super) async fn request(talker: &Talker, request: JobRequest) -> Ack {
    talker.control(Control::Job(request)).await
}

pub(super) async fn job(setup: &Setup, id: JobId) -> JobRecord {
    setup.store.jobs.job(id).await.expect("readable").expect("known")
}

/// Waits until a job is in this state.
pub(crate) async fn until(setup: &Setup, id: JobId, state: JobState) -> JobRecord {
    let reached = async {
        loop {
            let job = job(setup, id).await;
            if job.state == state {
                return job;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let last = tokio::time::timeout(Duration::from_secs(100_000), reached).await;
    match last {
        Ok(job) => job,
        Err(_) => panic!("it never became {state:?}: {:?}", job(setup, id).await),
    }
}

pub(super) async fn in_state(setup: &Setup, state: JobState) -> usize {
    let filter = JobFilter { states: vec![state], limit: 500, ..JobFilter::default() };
    setup.store.jobs.jobs(filter).await.expect("readable").len()
}

/// The runs of a job, oldest first.
pub(crate) async fn runs(setup: &Setup, id: JobId) -> Vec<RunRecord> {
    let filter = RunFilter { session: Some(job_session(id)), limit: 100, ..RunFilter::default() };
    let mut runs = setup.store.runs.runs(filter).await.expect("readable");
    runs.reverse();
    runs
}

/// The id in the answer to `/job`.
pub(crate) fn id_in(answer: &str) -> JobId {
    answer.split('`').nth(1).expect("an id").parse().expect("an id")
}

/// That nobody is told anything more.
pub(crate) async fn silence(agent: &mut Running) {
    let more = tokio::time::timeout(Duration::from_secs(200), agent.one.delivered.recv()).await;
    assert!(more.is_err(), "{more:?}");
}

/// The next thing that anybody is told, however long it takes.
async fn told(agent: &mut Running) -> String {
    let told = tokio::time::timeout(Duration::from_secs(100_000), agent.one.delivered.recv()).await;
    told.expect("told in the end").expect("open").text
}
