//! Messages that become one turn together, once nobody has written for a moment.

use std::time::Duration;

use belay_protocol::{MessageBody, QueueMode, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Setup, end_of, saw};

/// What the model is told of a message that holds this many: not in the person's name.
fn notice(parts: usize) -> String {
    format!(
        "The user message above holds several messages that arrived while you were busy: its {parts} numbered parts are messages in \
         the order they arrived. Answer all of them."
    )
}

fn setup(script: impl IntoIterator<Item = Scripted>) -> Setup {
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.queue.mode = Some(QueueMode::Collect);
    setup
}

fn busy_for(seconds: u64) -> Scripted {
    Scripted::text("done").after(Duration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn what_arrives_during_a_turn_becomes_one_turn_with_numbered_items() {
    let setup = setup([busy_for(5), Scripted::text("both"), Scripted::text("alone")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    let b = agent.one.accepted("alice", "B").await;
    let c = agent.one.accepted("alice", "C").await;
    let (b_run, c_run) = (b.run_id, c.run_id);
    assert_eq!([agent.one.next().await, agent.one.next().await], ["done", "both"]);
    assert_eq!(saw(&agent.model, 2), ["A", "done", "1. B\n2. C", &notice(2)]);
    assert!(matches!(agent.model.seen()[1].messages[3].body, MessageBody::System { .. }));
    assert_eq!(end_of(b).await.reason, Some(StopReason::FinalText));
    let record = end_of(c).await;
    assert_eq!(record.reason, Some(StopReason::Joined));
    assert_eq!((&record.evidence["run"], &record.evidence["mode"]), (&json!(b_run.to_string()), &json!("collect")));
    let stored = setup.store.runs.run(c_run).await.expect("readable").expect("known");
    assert_eq!(stored.reason, Some(StopReason::Joined));
    assert_eq!(agent.one.ask("alice", "D").await, "alone");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_until_nobody_has_written_for_a_moment_but_not_for_ever() {
    for (pieces, every_ms, expected_ms) in [(1, 0, 500), (3, 400, 1300), (20, 400, 2500)] {
        let setup = setup([busy_for(1), Scripted::hang()]);
        let agent = setup.start().await;
        agent.one.accepted("alice", "A").await;
        agent.asked(1).await;
        sleep(Duration::from_millis(999)).await;
        let first = Instant::now();
        let asked = async {
            agent.asked(2).await;
            first.elapsed()
        };
        let written = async {
            for n in 0..pieces {
                agent.one.accepted("alice", &format!("piece {n}")).await;
                sleep(Duration::from_millis(every_ms)).await;
            }
        };
        let (waited, ()) = tokio::join!(asked, written);
        let expected = Duration::from_millis(expected_ms);
        assert_eq!(waited.as_millis() / 10, expected.as_millis() / 10, "{pieces} pieces");
        agent.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_for_different_places_get_their_own_turns_until_all_are_answered() {
    let answers = ["one", "two", "three"].map(Scripted::text);
    let setup = setup([busy_for(5)].into_iter().chain(answers));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    agent.one.accepted("alice", "B").await;
    agent.one.elsewhere("alice", "another room", QueueMode::Collect, "C").await;
    agent.one.accepted("alice", "D").await;
    for answer in ["done", "one", "two", "three"] {
        assert_eq!(agent.one.next().await, answer);
    }
    assert_eq!(saw(&agent.model, 4).last().map(String::as_str), Some("D"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_collected_outlasts_a_crash_as_the_one_turn_that_it_is() {
    let setup = setup([busy_for(1), Scripted::hang()]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    for text in ["B", "C"] {
        agent.one.accepted("alice", text).await;
    }
    assert_eq!(agent.one.next().await, "done");
    agent.asked(2).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("both")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "both");
    assert_eq!(saw(&agent.model, 1), ["A", "done", "1. B\n2. C"]);
    let (one, _two) = agent.shut_down().await;
    assert!(one.delivered.is_empty(), "nothing is answered twice");
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_while_they_wait_for_a_place_is_not_answered_with_the_others() {
    // Which of the messages are stopped, and what the model reads then.
    let told = |text: &str, parts| vec![text.to_owned(), notice(parts)];
    for (stopped, expected) in
        [(vec![], told("1. B\n2. C\n3. D", 3)), (vec![2], told("1. B\n2. C", 2)), (vec![1, 2], vec!["B".to_owned()])]
    {
        let mut setup = setup([busy_for(30), Scripted::text("done")]);
        setup.config.max_concurrent_turns = 1;
        let mut agent = setup.start().await;
        agent.two.accepted("bob", "busy").await;
        agent.asked(1).await;
        let mut waiting = Vec::new();
        for text in ["B", "C", "D"] {
            waiting.push(agent.one.accepted("alice", text).await);
        }
        sleep(Duration::from_secs(10)).await; // they are gathered, and wait for the place
        let mut ends = Vec::new();
        for at in &stopped {
            let answer = agent.two.command("bob", &format!("/stop {}", waiting[*at].run_id)).await;
            assert!(answer.starts_with("Cleared 1 waiting message."), "{answer}");
        }
        for accepted in waiting {
            ends.push(end_of(accepted).await.reason);
        }
        let end = |at: &usize| if stopped.contains(at) { StopReason::OperatorStop } else { StopReason::Joined };
        let others: Vec<_> = [1, 2].iter().map(|at| Some(end(at))).collect();
        assert_eq!((ends[0], &ends[1..]), (Some(StopReason::FinalText), &others[..]));
        assert_eq!(saw(&agent.model, 2), expected);
        agent.shut_down().await;
    }
}
