//! Whatever comes between a message and the turn it was to join: it is answered once, in its place.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{QueueMode, RunFilter, RunRecord, StopReason};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::sleep;

use crate::support::{Setup, TestTool, end_of, ports, saw};

async fn all_runs(setup: &Setup) -> Vec<RunRecord> {
    let mut runs = setup.store.runs.runs(RunFilter { limit: 100, ..RunFilter::default() }).await.expect("readable");
    runs.reverse(); // newest first
    runs
}

/// A message joins while a tool runs, its commit goes wrong in this way, and the run is stopped during the outage.
async fn joins_badly(fault: Fault) -> (Setup, Vec<String>) {
    let store = Faulty::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens")));
    let script = [Scripted::call("slow", json!({})), Scripted::text("answered"), Scripted::text("more")];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(TestTool::named("slow"));
    setup.store = ports(Arc::new(store.clone()));
    let agent = setup.start().await;
    let first = agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    sleep(Duration::from_millis(500)).await;
    let second = agent.one.accepted("alice", "second").await;
    // Two checkpoints follow: the results of the batch, then what has joined.
    store.plan().nth_of(StoreOp::Checkpoint, 2, fault);
    (3..=9).for_each(|nth| store.plan().nth_of(StoreOp::Checkpoint, nth, Fault::Fail));
    sleep(Duration::from_secs(1)).await;
    agent.two.text("other", &format!("/stop {}", first.run_id)).await;
    assert_eq!(end_of(first).await.reason, Some(StopReason::OperatorStop));
    end_of(second).await;
    agent.shut_down().await;
    let seen = setup.model.seen().iter().map(|request| request.messages.len().to_string()).collect();
    (setup, seen)
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_joining_is_not_stored_gets_a_turn_of_its_own() {
    let (setup, _) = joins_badly(Fault::Fail).await;
    let reasons: Vec<_> = all_runs(&setup).await.iter().map(|run| run.reason).collect();
    assert_eq!(reasons, [Some(StopReason::OperatorStop), Some(StopReason::FinalText)]);
    assert_eq!(saw(&setup.model, 2), ["first", "", "slowly", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_joined_although_nobody_said_so_is_not_answered_again() {
    let (setup, seen) = joins_badly(Fault::LoseAnswer).await;
    let reasons: Vec<_> = all_runs(&setup).await.iter().map(|run| run.reason).collect();
    assert_eq!(reasons, [Some(StopReason::OperatorStop), Some(StopReason::Joined)]);
    assert_eq!(seen.len(), 1, "the model was asked once");
    // What the person said is in the conversation, and a next turn reads it.
    let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.expect("readable");
    let said: Vec<_> = history.iter().filter(|line| line.role == "user").map(|line| line.text.as_str()).collect();
    assert_eq!(said, ["first", "second"]);
}

/// What may happen around a message that is to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Steer,
    Stop,
    Interrupt,
    Wait,
    Crash,
}

#[tokio::test(start_paused = true)]
async fn in_every_order_of_messages_stops_and_crashes_each_message_has_one_end() {
    use Step::{Crash, Interrupt, Steer, Stop, Wait};
    let alphabet = [Steer, Stop, Interrupt, Wait, Crash];
    let orders = (0..125).map(|n| [alphabet[n % 5], alphabet[n / 5 % 5], alphabet[n / 25]]);
    for order in orders {
        // A tool of a second between two model calls, again and again: there is always something to join, or to miss.
        let script = || {
            let steps =
                (0..6).map(|n| if n % 2 == 0 { Scripted::call("slow", json!({})) } else { Scripted::text("said") });
            ScriptedModel::new(steps).then_forever(Scripted::text("more"))
        };
        let setup = Setup::new(script()).tool(TestTool::named("slow"));
        let mut agent = setup.start().await;
        let mut boots = vec![];
        let mut sent = vec!["first".to_owned()];
        agent.one.accepted("alice", "first").await;
        sleep(Duration::from_millis(300)).await;
        for (n, step) in order.into_iter().enumerate() {
            match step {
                Steer | Interrupt => {
                    let mode = if step == Steer { QueueMode::Steer } else { QueueMode::Interrupt };
                    sent.push(format!("message {n}"));
                    agent.one.in_mode("alice", mode, &format!("message {n}")).await;
                }
                Stop => drop(agent.one.text("alice", "/stop").await),
                Wait => sleep(Duration::from_millis(900)).await,
                Crash => {
                    agent.crash().await;
                    let next = setup.next_boot(script());
                    agent = next.start().await;
                    boots.push(next.model.clone());
                }
            }
        }
        sleep(Duration::from_secs(60)).await;
        agent.shut_down().await;
        let runs = all_runs(&setup).await;
        assert_eq!(runs.len(), sent.len(), "{order:?}");
        let open: Vec<_> = runs.iter().filter(|run| run.reason.is_none()).collect();
        assert!(open.is_empty(), "{order:?}: {open:?}");
        // A message that nobody has stopped was read by the model: as a part of a turn, or as its beginning.
        let history = setup.store.sessions.history(&"alice".into(), 0, 100).await.expect("readable");
        let heard = |text: &String| history.iter().filter(|line| line.role == "user" && line.text == *text).count();
        let stopped = order.contains(&Stop);
        for text in &sent {
            assert!(heard(text) <= 1, "{order:?}: {text} was read twice");
            assert!(stopped || heard(text) == 1, "{order:?}: {text} was lost");
        }
        drop(boots);
    }
}
