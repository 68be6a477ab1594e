//! Jobs as the model of a conversation lists, reads, informs and cancels them.

use std::time::Duration;

use belay_protocol::{JobId, JobOrder, JobState, PrincipalRole, RunsIn};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use super::{create, done, order, setup_of, until};
use crate::support::{TestTool, saw};

#[tokio::test(start_paused = true)]
async fn the_model_lists_reads_and_cancels_the_jobs_of_its_person() {
    let id = JobId::new();
    let short = id.to_string()[..13].to_owned();
    let model = ScriptedModel::new([
        Scripted::hang(),
        Scripted::calls([("list_jobs", json!({})), ("job_status", json!({"id": short}))]),
        Scripted::call("cancel_job", json!({"id": id.to_string()})),
        Scripted::calls([("cancel_job", json!({"id": id.to_string()})), ("job_status", json!({"id": "nothing"}))]),
        Scripted::text("over"),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { job_id: Some(id), ..order("count the rooms") }).await;
    agent.asked(1).await;
    agent.one.accepted("alice", "how is it?").await;
    assert_eq!(agent.one.next().await, "The job “count the rooms” was cancelled.", "where it was made");
    assert_eq!(agent.one.next().await, "over");
    until(&setup, id, JobState::Cancelled).await;
    let line = format!("`{id}` at work: count the rooms");
    let seen = saw(&agent.model, 3);
    assert!(seen[2].contains(&line), "{seen:#?}");
    assert!(seen[3].contains(&line) && seen[3].contains("<untrusted"), "its result is the model's: {seen:#?}");
    let seen = saw(&agent.model, 5);
    assert!(seen[5].contains("is cancelled"), "{seen:#?}");
    assert!(seen[7].contains("is cancelled") && seen[8].starts_with("id: it is not"), "{seen:#?}");
    agent.shut_down().await;
}

/// The job reads it as untrusted content, since a model has written it.
#[tokio::test(start_paused = true)]
async fn the_model_passes_a_message_to_a_running_job_and_to_no_other() {
    let id = JobId::new();
    let told = json!({"id": id.to_string(), "text": "skip the halls"});
    let model = ScriptedModel::new([
        Scripted::call("echo", json!({"text": "one"})).after(Duration::from_secs(10)),
        Scripted::call("message_job", told.clone()),
        Scripted::text("told"),
        done("three rooms"),
        Scripted::call("message_job", told),
        Scripted::text("too late"),
    ]);
    let setup = setup_of(model).tool(TestTool::named("echo"));
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { job_id: Some(id), ..order("count the rooms") }).await;
    agent.asked(1).await;
    assert_eq!(agent.one.ask("alice", "no halls, please").await, "told");
    assert!(saw(&agent.model, 3).last().is_some_and(|text| text.contains("was passed to the job")));
    assert!(agent.one.next().await.ends_with("three rooms"));
    let seen = agent.model.seen()[3].messages.clone();
    let message = seen.iter().find(|message| message.text().contains("skip the halls")).expect("the job reads it");
    assert!(message.untrusted, "{message:?}");
    assert_eq!(agent.one.ask("alice", "nor the cellar").await, "too late");
    assert!(saw(&agent.model, 6).last().is_some_and(|text| text.contains("is not running")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_another_person_do_not_exist_for_the_model() {
    see_no_jobs_of_others(PrincipalRole::User).await;
}

/// The model may have read untrusted content. Operators themselves have `/jobs` and `belay jobs`.
#[tokio::test(start_paused = true)]
async fn the_jobs_of_another_person_do_not_exist_for_the_model_of_an_operator_either() {
    see_no_jobs_of_others(PrincipalRole::Operator).await;
}

async fn see_no_jobs_of_others(role: PrincipalRole) {
    let id = JobId::new();
    let one = || json!({"id": id.to_string()});
    let model = ScriptedModel::new([
        Scripted::hang(),
        Scripted::calls([("list_jobs", json!({})), ("job_status", one()), ("cancel_job", one())]),
        Scripted::text("none"),
    ]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { job_id: Some(id), ..order("count the rooms") }).await;
    agent.asked(1).await;
    agent.two.text_as("bob", role, "what is going on?").await;
    assert_eq!(agent.two.next().await, "none");
    let seen = saw(&agent.model, 3);
    assert!(seen[2].contains("There are no jobs"), "{seen:#?}");
    assert!(seen[3].contains("There is no job") && seen[4].contains("There is no job"), "{seen:#?}");
    assert_eq!(super::job(&setup, id).await.state, JobState::InProgress);
    agent.shut_down().await;
}

/// Autonomous work may neither create nor manage jobs.
#[tokio::test(start_paused = true)]
async fn a_job_neither_lists_nor_cancels_jobs() {
    let model =
        ScriptedModel::new([Scripted::calls([("list_jobs", json!({})), ("list_routines", json!({}))]), done("alone")]);
    let setup = setup_of(model);
    let mut agent = setup.start().await;
    create(&agent.one, JobOrder { runs_in: RunsIn::Local, ..order("look around") }).await;
    assert!(agent.one.next().await.ends_with("alone"));
    let tools = agent.model.seen()[0].tools.clone().expect("tools");
    assert!(!tools.iter().any(|tool| tool.contains("job") || tool.contains("routine")), "{tools:?}");
    agent.shut_down().await;
}
