//! As many wait as may wait: what gives way, and who is told.

use std::time::Duration;

use belay_protocol::{Ack, QueueDrop, QueueMode, Refusal, RunStatus, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, end_of, saw};

fn setup(drop: QueueDrop, cap: usize, script: impl IntoIterator<Item = Scripted>) -> Setup {
    let mut setup = Setup::new(ScriptedModel::new(script));
    (setup.queue.drop, setup.queue.cap, setup.queue.mode) = (drop, cap, Some(QueueMode::Collect));
    setup
}

fn busy() -> Scripted {
    Scripted::text("done").after(Duration::from_secs(5))
}

#[tokio::test(start_paused = true)]
async fn of_25_messages_the_oldest_5_are_lines_before_the_other_20() {
    let setup = setup(QueueDrop::Summarize, 20, [busy(), Scripted::text("all")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    let mut waiting = Vec::new();
    for n in 1..=25 {
        waiting.push(agent.one.accepted("alice", &format!("message {n}")).await);
    }
    assert_eq!([agent.one.next().await, agent.one.next().await], ["done", "all"]);
    let lines: String = (1..=5).map(|n| format!("- message {n}\n")).collect();
    let items: String = (6..=25).map(|n| format!("\n{}. message {n}", n - 5)).collect();
    let seen = saw(&agent.model, 2);
    assert_eq!(seen[2], format!("{lines}{items}"), "the person's words alone");
    assert!(seen[3].contains("its first 5 lines") && seen[3].contains("its 20 numbered parts"), "{}", seen[3]);
    let mut hows = Vec::new();
    for accepted in waiting {
        let record = end_of(accepted).await;
        hows.push(record.evidence.get("mode").and_then(|how| how.as_str()).unwrap_or("answered").to_owned());
    }
    let expected: Vec<&str> = ["summarize"; 5].into_iter().chain(["answered"]).chain(["collect"; 19]).collect();
    assert_eq!(hows, expected);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_digest_has_an_end_too_and_what_comes_then_is_told_so() {
    let setup = setup(QueueDrop::Summarize, 2, [busy(), Scripted::text("all")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    for n in 1..=4 {
        agent.one.accepted("alice", &format!("message {n}")).await;
    }
    let Ack::Refused(refusal) = agent.one.text("alice", "message 5").await else { panic!("there is no room") };
    assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
    assert_eq!([agent.one.next().await, agent.one.next().await], ["done", "all"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_its_own_run_is_answered_by_it_and_told_when_there_is_no_room() {
    let answers = (1..=3).map(|n| Scripted::text(format!("answer {n}")).after(Duration::from_secs(1)));
    let mut setup = setup(QueueDrop::Summarize, 2, answers);
    setup.queue.mode = Some(QueueMode::Followup);
    let agent = setup.start().await;
    let mut sent = Vec::new();
    for n in 1..=3 {
        sent.push(agent.one.unanswered("alice", &format!("message {n}")).await);
    }
    let Ack::Refused(refusal) = agent.one.silently("alice", "message 4").await else { panic!("there is no room") };
    assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
    for (n, accepted) in sent.into_iter().enumerate() {
        assert_eq!(end_of(accepted).await.reply, Some(format!("answer {}", n + 1)));
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_oldest_ends_and_its_conversation_is_told() {
    let setup = setup(QueueDrop::Old, 1, [busy(), Scripted::text("the newest")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    let oldest = agent.one.accepted("alice", "second").await;
    let newest = agent.one.accepted("alice", "third").await;
    let record = end_of(oldest).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::Superseded)));
    assert_eq!(record.evidence["newer_run"], json!(newest.run_id.to_string()));
    let said = [agent.one.next().await, agent.one.next().await, agent.one.next().await];
    assert_eq!(said, ["Interrupted by your newer message.", "done", "the newest"]);
    assert_eq!(saw(&agent.model, 2), ["first", "done", "third"]);
    agent.shut_down().await;
}
