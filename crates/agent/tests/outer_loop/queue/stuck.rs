//! Runs of which nothing is heard.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{RunStatus, StopReason};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Setup, TestTool, end_of, ports, rest_of, saw};

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_return_when_told_to_stop_is_aborted_and_the_lane_goes_on() {
    let store = Faulty::new(Arc::new(SqlStore::in_memory().unwrap()));
    let call = Scripted::call("echo", json!({})).with_text("Let me see.").after_pieces(["Let me ", "see."]);
    let mut setup = Setup::new(ScriptedModel::new([call, Scripted::text("next")]));
    setup.store = ports(Arc::new(store.clone()));
    store.plan().nth_of(StoreOp::Checkpoint, 1, Fault::Stall);
    let mut agent = setup.start().await;
    let stuck = agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    agent.one.accepted("alice", "second").await;
    let run = stuck.run_id.to_string();
    let begun = Instant::now();
    assert!(agent.two.command("alice", &format!("/stop {run}")).await.starts_with("Interrupted. Still ending"));
    let record = end_of(stuck).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::OperatorStop)));
    assert_eq!(record.evidence["aborted"], json!(true));
    assert!(begun.elapsed() >= Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(agent.one.next().await, "next");
    let cut = "Let me see.\n\n[cut off: the run was stopped here]";
    assert_eq!(saw(&agent.model, 2), ["first", cut, "second"], "what was streamed is part of the conversation");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_silent_for_too_long_is_ended_and_its_queue_goes_on() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::text("next")]));
    let mut agent = setup.start().await;
    let begun = Instant::now();
    let stuck = agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    agent.one.accepted("alice", "second").await;
    sleep(Duration::from_secs(590)).await; // longer than a test waits for anything
    let record = end_of(stuck).await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::Stuck)));
    assert!(record.evidence["silent_s"].as_u64().is_some_and(|silent_s| silent_s >= 600), "{:?}", record.evidence);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(600) && took < Duration::from_secs(620), "{took:?}");
    let said = [agent.one.next().await, agent.one.next().await];
    assert_eq!(said, ["Ended: this made no progress for too long. Please try again.", "next"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn with_0_nothing_is_ever_ended_for_its_silence() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::text("at last").after(Duration::from_secs(7200))]));
    setup.queue.stuck_after_s = 0;
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "first").await.run_id;
    sleep(Duration::from_secs(7201)).await;
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!(record.reply.as_deref(), Some("at last"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_person_or_a_place_is_not_silent() {
    let script = [Scripted::call("mark", json!({})), Scripted::hang()];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(TestTool::named("echo").called("mark").asking());
    setup.config.max_concurrent_turns = 1;
    setup.queue.stuck_after_s = 60;
    let agent = setup.start().await;
    let mut asking = agent.one.accepted("alice", "mark it").await;
    rest_of(&mut asking).await;
    let busy = agent.one.accepted("bob", "hello").await;
    agent.asked(2).await;
    sleep(Duration::from_secs(50)).await;
    let waiting = agent.one.accepted("carol", "hello").await.run_id;
    agent.model.push(Scripted::text("hello carol"));
    assert_eq!(end_of(busy).await.reason, Some(StopReason::Stuck));
    sleep(Duration::from_secs(1)).await;
    let record = setup.store.runs.run(waiting).await.expect("readable").expect("known");
    assert_eq!(record.reply.as_deref(), Some("hello carol"), "it waited, and was then answered");
    let resting = setup.store.runs.run(asking.run_id).await.expect("readable").expect("known");
    assert_eq!(resting.status, RunStatus::Paused);
    agent.shut_down().await;
}
