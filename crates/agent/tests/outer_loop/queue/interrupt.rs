//! A message that takes the place of the running turn.

use belay_protocol::{QueueMode, RunStatus, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, end_of};

#[tokio::test(start_paused = true)]
async fn the_running_turn_ends_the_newest_is_next_and_the_queue_behind_it_stays() {
    let setup =
        Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::text("the newest"), Scripted::text("the rest")]));
    let mut agent = setup.start().await;
    let running = agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    let queued = agent.one.in_mode("alice", QueueMode::Followup, "second").await;
    let newest = agent.one.in_mode("alice", QueueMode::Interrupt, "third").await;
    let record = end_of(running).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::Superseded)));
    assert_eq!(record.evidence["newer_run"], json!(newest.run_id.to_string()));
    for said in ["Interrupted by your newer message.", "the newest", "the rest"] {
        assert_eq!(agent.one.next().await, said);
    }
    assert_eq!(end_of(queued).await.reply.as_deref(), Some("the rest"));
    assert_eq!(agent.model.dropped_count(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_meets_nobody_at_work_interrupts_nothing() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("hello")]));
    let mut agent = setup.start().await;
    agent.one.in_mode("alice", QueueMode::Interrupt, "hi").await;
    assert_eq!(agent.one.next().await, "hello");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn several_that_interrupt_are_answered_in_the_order_they_came_in() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::text("two"), Scripted::text("three")]));
    // The end of the running turn takes a while, so that both find it.
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    let (one, two) = (agent.one.writer(), agent.one.writer());
    let (second, third) = tokio::join!(
        one.in_mode("alice", QueueMode::Interrupt, "second"),
        two.in_mode("alice", QueueMode::Interrupt, "third")
    );
    assert_eq!(end_of(second).await.reply.as_deref(), Some("two"));
    assert_eq!(end_of(third).await.reply.as_deref(), Some("three"));
    agent.one.next().await;
    agent.shut_down().await;
}
