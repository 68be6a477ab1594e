//! One lane per session: order, bounds, duplicates, and lanes side by side.

mod bounds;
mod collect;
mod full;
mod interrupt;
mod nothing_lost;
mod parked;
mod settings;
mod steer;
mod stuck;
mod widths;

use std::collections::HashSet;
use std::time::Duration;

use belay_protocol::{Ack, QueueDrop, Refusal};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Setup, end_of, saw};

#[tokio::test(start_paused = true)]
async fn what_arrives_during_a_turn_is_answered_next_in_order() {
    let script = (1..=3).map(|n| Scripted::text(format!("answer {n}")).after(Duration::from_secs(1)));
    let setup = Setup::new(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    for n in 1..=3 {
        agent.one.accepted("alice", &format!("question {n}")).await;
    }
    for n in 1..=3 {
        assert_eq!(agent.one.next().await, format!("answer {n}"));
    }
    assert_eq!(saw(&agent.model, 3), ["question 1", "answer 1", "question 2", "answer 2", "question 3"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn twenty_messages_wait_the_next_is_told_so_and_a_duplicate_never_is() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    setup.queue.drop = QueueDrop::New;
    let mut agent = setup.start().await;
    let mut first_waiting = None;
    for n in 0..21 {
        let ack = agent.one.keyed("alice", &format!("message {n}"), &format!("key {n}")).await;
        let Ack::Accepted(accepted) = ack else { panic!("message {n}: {ack:?}") };
        if n == 1 {
            first_waiting = Some(accepted.run_id);
        }
    }
    let Ack::Refused(refusal) = agent.one.keyed("alice", "one too many", "key 21").await else { panic!() };
    assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
    assert!(agent.one.delivered.is_empty(), "the channel offers it again; the person is not told");
    let Ack::Accepted(again) = agent.one.keyed("alice", "message 1", "key 1").await else { panic!() };
    assert_eq!((Some(again.run_id), again.duplicate), (first_waiting, true));
    let Ack::Refused(conflict) = agent.one.keyed("alice", "another text", "key 1").await else { panic!() };
    assert!(matches!(conflict, Refusal::Conflict { .. }), "{conflict:?}");
    // Another session is not held up by any of this.
    agent.model.push(Scripted::text("hello bob"));
    assert_eq!(agent.two.ask("bob", "hello").await, "hello bob");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_key_fifty_times_at_once_makes_one_run() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("once").after(Duration::from_secs(1))]));
    let mut agent = setup.start().await;
    let acks = futures_util::future::join_all((0..50).map(|_| agent.one.keyed("alice", "hello", "k"))).await;
    let runs: Vec<_> = acks
        .into_iter()
        .map(|ack| match ack {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(runs.iter().map(|accepted| accepted.run_id).collect::<HashSet<_>>().len(), 1);
    assert_eq!(runs.iter().filter(|accepted| !accepted.duplicate).count(), 1);
    for accepted in runs {
        assert_eq!(end_of(accepted).await.reply.as_deref(), Some("once"), "each of the fifty can wait for it");
    }
    assert_eq!(agent.one.next().await, "once");
    // Long after its end it is still known, by the store.
    let Ack::Accepted(late) = agent.one.keyed("alice", "hello", "k").await else { panic!() };
    assert!(late.duplicate);
    assert_eq!(agent.model.seen().len(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn turns_wait_for_a_place_in_the_global_lane_and_can_be_stopped_there() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    setup.config.max_concurrent_turns = 1;
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let waiting = agent.two.accepted("bob", "hello").await;
    assert_eq!(agent.two.command("bob", "/stop").await, "Cleared 1 waiting message.");
    let record = end_of(waiting).await;
    assert_eq!((record.usage.model_calls, record.started_at.is_some()), (0, record.attempt > 0));
    agent.model.push(Scripted::text("hello bob"));
    agent.two.accepted("bob", "again").await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(agent.two.next().await, "hello bob", "the place was given on");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn sleeping_lanes_wake_with_their_conversation() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("one"), Scripted::text("two")]));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "first").await, "one");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let Ack::Status(status) = agent.two.control(belay_protocol::Control::Status).await else { panic!() };
    assert_eq!(status.sessions_awake, 0, "nobody keeps a lane that nobody needs");
    assert_eq!(agent.one.ask("alice", "second").await, "two");
    assert_eq!(saw(&agent.model, 2), ["first", "one", "second"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn unusable_texts_are_refused_and_unknown_commands_cost_no_model_call() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    for text in ["", "   ", "a\0b", &"x".repeat(100_001)] {
        let Ack::Refused(refusal) = agent.one.text("alice", text).await else { panic!("{text:?}") };
        assert!(matches!(refusal, Refusal::Invalid(_)));
        agent.one.next().await;
    }
    assert_eq!(
        agent.one.command("alice", "/stattus").await,
        "There is no command /stattus. Did you mean /status? /help all lists them all."
    );
    assert_eq!(agent.one.command("alice", "/ping").await, "pong");
    assert!(agent.one.command("alice", "/status").await.contains("scripted"));
    assert!(agent.model.seen().is_empty());
    agent.shut_down().await;
}
