//! A message that joins the running turn: between two steps, never lost, never answered twice.

use std::time::Duration;

use belay_protocol::{EventKind, EventQuery, QueueMode, RunStatus, StopReason};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::sleep;

use crate::support::{Setup, TestTool, end_of, rules, saw};

fn slowly() -> Scripted {
    Scripted::call("slow", json!({}))
}

fn setup(script: impl IntoIterator<Item = Scripted>) -> Setup {
    Setup::new(ScriptedModel::new(script)).tool(TestTool::named("slow"))
}

#[tokio::test(start_paused = true)]
async fn a_message_during_a_tool_joins_at_the_next_step_and_one_answer_is_for_both() {
    let setup = setup([slowly(), Scripted::text("12:00 in Tokyo")]);
    let mut agent = setup.start().await;
    let first = agent.one.accepted("alice", "what time is it?").await;
    let into = first.run_id;
    agent.asked(1).await;
    sleep(Duration::from_millis(500)).await;
    let second = agent.one.accepted("alice", "in Tokyo, please").await;
    let third = agent.one.accepted("alice", "and in words").await;
    let (second_run, third_run) = (second.run_id, third.run_id);

    assert_eq!(agent.one.next().await, "12:00 in Tokyo");
    assert_eq!(saw(&agent.model, 2), ["what time is it?", "", "slowly", "in Tokyo, please", "and in words"]);
    assert_eq!(end_of(first).await.reason, Some(StopReason::FinalText));
    for joined in [second, third] {
        let record = end_of(joined).await;
        assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Joined)));
        assert_eq!((record.reply.as_deref(), record.usage.model_calls), (None, 0));
        assert_eq!(record.evidence["run"], json!(into.to_string()));
        assert_eq!(record.evidence["mode"], json!("steer"));
    }
    let events = setup.store.events.read(EventQuery::default()).await.expect("readable");
    let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
    assert!(kinds.contains(&&EventKind::Queued { mode: "steer".into(), before: 1 }));
    assert!(kinds.contains(&&EventKind::Queued { mode: "steer".into(), before: 2 }));
    let runs = vec![second_run, third_run];
    assert!(kinds.contains(&&EventKind::Joined { runs, mode: "steer".into() }), "{kinds:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_have_not_begun_are_skipped_in_order_and_those_at_work_finish() {
    let calls = (0..18).map(|n| ("slow", json!({ "text": n.to_string() })));
    let setup = setup([Scripted::calls(calls), Scripted::text("as you wish")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "do all of it").await;
    agent.asked(1).await;
    sleep(Duration::from_millis(500)).await;
    agent.one.accepted("alice", "stop after the first ones").await;
    assert_eq!(agent.one.next().await, "as you wish");
    let seen = saw(&agent.model, 2);
    let skipped = "skipped: the user sent a newer message first";
    let expected: Vec<&str> = ["do all of it", ""]
        .into_iter()
        .chain(["slowly"; 16])
        .chain([skipped; 2])
        .chain(["stop after the first ones"])
        .collect();
    assert_eq!(seen, expected);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_model_asks_for_while_something_newer_waits_do_not_begin() {
    let tool = TestTool::named("echo").called("mark");
    let calls = tool.calls.clone();
    let asks =
        Scripted::calls([("mark", json!({})), ("mark", json!({ "text": "again" }))]).after(Duration::from_secs(1));
    let setup = setup([asks, Scripted::text("fine")]).tool(tool);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    agent.one.accepted("alice", "no, wait").await;
    assert_eq!(agent.one.next().await, "fine");
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_during_the_final_text_is_the_next_turn() {
    let setup = setup([Scripted::text("one").after(Duration::from_secs(1)), Scripted::text("two")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    let late = agent.one.accepted("alice", "second").await;
    assert_eq!([agent.one.next().await, agent.one.next().await], ["one", "two"]);
    assert_eq!(end_of(late).await.reason, Some(StopReason::FinalText));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn words_of_another_person_or_for_another_place_do_not_join() {
    let setup = setup([slowly(), Scripted::text("one"), Scripted::text("two"), Scripted::text("three")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    agent.one.text_of("bob", "alice", "second").await;
    agent.one.elsewhere("alice", "another room", QueueMode::Steer, "third").await;
    for answer in ["one", "two", "three"] {
        assert_eq!(agent.one.next().await, answer);
    }
    assert_eq!(saw(&agent.model, 2), ["first", "", "slowly"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_never_joins() {
    let setup = setup([slowly(), Scripted::text("one"), Scripted::text("two")]);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    agent.one.in_mode("alice", QueueMode::Followup, "second").await;
    assert_eq!([agent.one.next().await, agent.one.next().await], ["one", "two"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_rests_takes_nothing_and_what_came_is_answered_behind_it() {
    let script = [Scripted::call("mark", json!({})), Scripted::text("marked"), Scripted::text("and now this")];
    let setup = setup(script).tool(TestTool::named("echo").called("mark").asking());
    let mut agent = setup.start().await;
    let mut first = agent.one.accepted("alice", "mark it").await;
    crate::support::rest_of(&mut first).await;
    agent.one.next().await; // the question
    agent.one.accepted("alice", "something else").await;
    assert!(agent.one.next().await.starts_with("Your message is queued"));
    agent.one.text("alice", "yes").await;
    let said = [agent.one.next().await, agent.one.next().await, agent.one.next().await];
    assert_eq!(said, ["Approved.", "marked", "and now this"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_said_when_a_run_is_stopped_stays_in_the_conversation_once() {
    let hanging = Scripted::hang().after_pieces(["Once upon ", "a time"]);
    let setup = setup([hanging, Scripted::text("there was a king")]);
    let mut agent = setup.start().await;
    let first = agent.one.accepted("alice", "tell me a story").await;
    agent.asked(1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(end_of(first).await.reason, Some(StopReason::UserStop));
    assert_eq!(agent.one.ask("alice", "go on").await, "there was a king");
    let cut = "Once upon a time\n\n[cut off: the run was stopped here]";
    assert_eq!(saw(&agent.model, 2), ["tell me a story", cut, "go on"]);
    let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.expect("readable");
    assert_eq!(history.iter().filter(|line| line.text == cut).count(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_said_when_the_time_is_up_stays_where_no_closing_turn_answers() {
    for (closing, stays) in [(None, true), (Some("I got no further."), false)] {
        let hanging = Scripted::hang().after_pieces(["Once upon ", "a time"]);
        let script =
            [hanging].into_iter().chain(closing.map(Scripted::text)).chain([Scripted::text("there was a king")]);
        let mut setup = setup(script);
        let own = format!("closing_turn_s = {}\n[limits]\nactive_s = 60", if closing.is_some() { 60 } else { 0 });
        setup.rules = rules(&own);
        let mut agent = setup.start().await;
        let first = agent.one.accepted("alice", "tell me a story").await;
        assert_eq!(end_of(first).await.reason, Some(StopReason::ActiveTime));
        agent.one.next().await;
        assert_eq!(agent.one.ask("alice", "go on").await, "there was a king");
        let cut = "Once upon a time\n\n[cut off: the run was stopped here]";
        let seen = saw(&agent.model, 2 + usize::from(closing.is_some()));
        assert_eq!(seen.iter().any(|text| text == cut), stays, "{seen:?}");
        agent.shut_down().await;
    }
}
