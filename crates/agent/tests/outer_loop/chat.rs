//! The chat delegate: tools, limits, and contexts that are too long.

use std::time::Duration;

use belay_protocol::{EventKind, EventQuery, ModelErrorKind, RunStatus, StopReason, ToolStatus};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Setup, TestTool, by_rule, end_of, saw};

#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_run_side_by_side_and_their_results_keep_the_order() {
    let model = ScriptedModel::new([
        Scripted::calls([
            ("slow", json!({})),
            ("panic", json!({})),
            ("echo", json!({"text": "hi"})),
            ("fail", json!({})),
            ("echo", json!({"text": 7})),
            ("nothing", json!({})),
            ("slow", json!({})),
        ]),
        Scripted::text("done"),
    ]);
    let setup = Setup::new(model).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    let begun = Instant::now();
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(begun.elapsed().as_secs(), 1, "two slow tools take the time of one");
    assert_eq!((record.status, record.usage.tool_calls, record.usage.model_calls), (RunStatus::Completed, 5, 2));
    let texts = saw(&agent.model, 2);
    assert_eq!(texts[2], "slowly");
    assert!(texts[3].contains("crashed"), "{}", texts[3]);
    assert_eq!(texts[4], "hi");
    assert_eq!(texts[5], "it does not work");
    assert!(texts[6].starts_with("invalid arguments: /text"), "{}", texts[6]);
    assert!(texts[7].contains("nothing") && texts[7].contains("echo"), "{}", texts[7]);
    assert_eq!(texts[8], "slowly");

    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let finished: Vec<ToolStatus> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolFinished { status, .. } => Some(*status),
            _ => None,
        })
        .collect();
    use ToolStatus::{Error, Success};
    assert_eq!(finished, [Success, Error, Success, Error, Error, Error, Success]);
    assert_eq!(events.iter().filter(|event| matches!(event.kind, EventKind::RunEnded { .. })).count(), 1);
    assert_eq!(agent.one.next().await, "done");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_gives_an_error_and_the_turn_goes_on() {
    let model = ScriptedModel::new([Scripted::call("deaf", json!({})), Scripted::text("I gave up")]);
    let setup = Setup::new(model).tool(TestTool::named("deaf"));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "I gave up");
    assert!(saw(&agent.model, 2)[2].contains("no result after 30 s"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_iterations_gives_notice_then_takes_the_tools_then_ends_the_run() {
    for (limit, notice_in) in [(1, None), (2, Some(1)), (4, Some(3))] {
        let mut setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::call("echo", json!({}))));
        setup.config.max_tool_iterations = limit;
        let mut agent = setup.start().await;
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::MaxIterations)));
        assert_eq!(record.evidence.get("max_tool_iterations"), Some(&json!(limit)));
        assert_eq!(agent.one.next().await, StopReason::MaxIterations.user_line());
        let seen = agent.model.seen();
        assert_eq!(seen.len() as u32, limit + 1);
        for (at, request) in seen.iter().enumerate() {
            let iteration = at as u32 + 1;
            assert_eq!(request.tools.is_none(), iteration >= limit, "iteration {iteration} of {limit}");
            let noticed = request.messages.iter().any(|message| message.text().contains("close to the limit"));
            assert_eq!(noticed, notice_in.is_some_and(|notice| iteration >= notice));
        }
        // The notice was for that run alone.
        agent.model.push(Scripted::text("fine"));
        agent.model.push(Scripted::text("fine"));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn echoes_are_cleaned_and_a_cut_off_answer_says_so() {
    let model = ScriptedModel::new([
        Scripted::text("[Called tool echo with {}]\nIt says hi."),
        Scripted::text("[Tool echo returned: hi]"),
        Scripted::text("The beginning of").truncated(),
    ]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "1").await, "It says hi.");
    assert_eq!(agent.one.ask("alice", "2").await, "I could not complete that request. Please rephrase it.");
    let cut = agent.one.ask("alice", "3").await;
    assert!(cut.starts_with("The beginning of\n\n[cut off"), "{cut}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_context_too_long_is_shortened_while_that_helps_then_it_is_an_honest_error() {
    let setup = Setup::new(by_rule(ScriptedModel::new([])));
    let mut agent = setup.start().await;
    for n in 0..6 {
        agent.model.push(Scripted::text(format!("answer {n}")));
        agent.one.ask("alice", &format!("question {n} {}", "x".repeat(300))).await;
    }
    agent.model.push(Scripted::error(ModelErrorKind::ContextTooLong));
    agent.model.push(Scripted::text("it fits now"));
    assert_eq!(agent.one.ask("alice", "the question").await, "it fits now");
    let (long, short) = (saw(&agent.model, 7), saw(&agent.model, 8));
    assert_eq!(long.len(), 13);
    assert!(short.len() < long.len() && short[0].contains("question 0"), "{short:#?}");
    assert_eq!(short.last(), Some(&"the question".to_owned()));

    for _ in 0..10 {
        agent.model.push(Scripted::error(ModelErrorKind::ContextTooLong));
    }
    let record = end_of(agent.one.accepted("alice", "again").await).await;
    assert_eq!(record.reason, Some(StopReason::ContextTooLong));
    assert_eq!(agent.one.next().await, StopReason::ContextTooLong.user_line());
    assert!(agent.model.left() > 5, "it is not tried for ever");
    agent.shut_down().await;

    // What was shortened is shortened after a restart too, and the originals are in the store.
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("ok")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "after").await;
    let seen = saw(&agent.model, 1);
    assert!(seen[0].contains("question 0") && seen.len() < 13, "{seen:#?}");
    let history = setup.store.sessions.history(&"alice".into(), 0, 100).await.expect("readable");
    assert!(history.iter().any(|entry| entry.text.starts_with("question 0")), "the original stays");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_turn_that_outgrows_the_context_loses_its_oldest_steps() {
    let mut script: Vec<Scripted> =
        (0..5).map(|n| Scripted::call("echo", json!({"text": format!("step {n} {}", "x".repeat(800))}))).collect();
    script.extend([Scripted::error(ModelErrorKind::ContextTooLong), Scripted::text("done")]);
    let setup = Setup::new(by_rule(ScriptedModel::new(script)));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "done");
    let seen = saw(&agent.model, 7);
    assert_eq!(seen[1], "go");
    assert!(seen[0].contains("step 0") && !seen[1..].iter().any(|text| text.starts_with("step 0")), "{seen:#?}");
    assert!(seen.iter().any(|text| text.starts_with("step 4")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn brakes_leave_no_trace_in_the_next_turn_and_are_events() {
    let model = ScriptedModel::new([
        Scripted::text("Let me search for that."),
        Scripted::call("fail", json!({})),
        Scripted::call("fail", json!({})),
        Scripted::text("It does not work."),
        Scripted::text("Fine."),
    ]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(agent.one.next().await, "It does not work.");
    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let brakes: Vec<(String, u32)> = events
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::GuardrailTriggered { guardrail: brake, count, .. } => Some((brake, count)),
            _ => None,
        })
        .collect();
    assert_eq!(brakes, [("tool_intent_nudge".to_owned(), 1), ("duplicate_failures".to_owned(), 2)]);
    agent.one.ask("alice", "thanks").await;
    let texts = saw(&agent.model, 5);
    assert_eq!(texts, ["go", "", "it does not work", "", "it does not work", "It does not work.", "thanks"]);
    agent.shut_down().await;
    // The same after a restart: the store leaves the steering out too.
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("ok")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "more").await;
    assert_eq!(saw(&agent.model, 1).len(), 9);
    tokio::time::sleep(Duration::from_millis(1)).await;
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_without_tools_is_in_the_log_before_the_next_one_begins() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("Let me search for that."), Scripted::hang()]));
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "go").await.run_id;
    agent.asked(2).await;
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let told = setup.store.events.read(query).await.expect("readable");
    let steps = told.iter().filter(|event| matches!(event.kind, EventKind::ModelCalled { step: 1, .. }));
    let nudges = told.iter().filter(|event| matches!(event.kind, EventKind::GuardrailTriggered { .. }));
    assert_eq!((steps.count(), nudges.count()), (1, 1), "{told:#?}");
    agent.crash().await;
}
