//! Forms of MCP servers that are open when the daemon stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{
    Ack, ApprovalId, ApprovalState, Control, Decided, MessageBody, RunStatus, StopReason, ToolStatus,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Map, Value, json};

use crate::in_place::{requests, states};
use crate::support::{Running, Setup, TestTool, end_of, faulty, saw};

/// A call whose server asks, with an effect that must not be repeated.
fn once() -> TestTool {
    TestTool::named("form").of_server("files").writing()
}

fn asks() -> ScriptedModel {
    ScriptedModel::new([Scripted::call("form", json!({}))])
}

fn medium() -> Map<String, Value> {
    json!({ "size": "m" }).as_object().cloned().expect("an object")
}

fn fill_in(approval: ApprovalId) -> Control {
    Control::FillIn { approval, values: medium() }
}

/// The results of calls that the model saw in its first request.
fn results(agent: &Running) -> Vec<(ToolStatus, String)> {
    let seen = agent.model.seen();
    let result = |body: &MessageBody| match body {
        MessageBody::Tool(result) => Some((result.status, result.text.clone())),
        _ => None,
    };
    seen[0].messages.iter().filter_map(|message| result(&message.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_form_whose_call_cannot_go_on_ends_and_its_person_and_a_late_answer_are_told() {
    for answered in [false, true] {
        let form = once();
        let calls = form.calls.clone();
        let setup = Setup::new(asks()).tool(form);
        let mut agent = setup.start().await;
        agent.one.accepted("alice", "go").await;
        agent.one.next().await;
        let asked = requests(&setup).await.remove(0);
        agent.crash().await;
        if answered {
            // The answer was stored, and the daemon died before its call had it.
            let questions = &setup.store.child_questions;
            let stored = questions.answer_form(asked.id, medium(), "tester", asked.asked_at).await;
            assert!(matches!(stored, Ok(Decided::Now(_))), "{stored:?}");
        }
        let next = setup.next_boot(ScriptedModel::new([Scripted::text("who knows")]));
        let mut agent = next.start().await;
        let (told, state, late) = match answered {
            false => ("has ended without an answer", ApprovalState::Withdrawn, "or the call that asked, has ended"),
            true => ("whether your answer has reached the server", ApprovalState::Used, "was approved before"),
        };
        let line = agent.one.next().await;
        assert!(line.contains(told) && line.contains("MCP server files"), "{line}");
        assert_eq!(agent.one.next().await, "who knows");
        let results = results(&agent);
        assert_eq!((results.len(), results[0].0, calls.load(Ordering::SeqCst)), (1, ToolStatus::OutcomeUnknown, 1));
        assert!(results[0].1.contains("if its server was asking a person, that question has ended"), "{results:?}");
        let Ack::Refused(refused) = agent.one.control(fill_in(asked.id)).await else { panic!("it waits no more") };
        assert!(refused.to_string().contains(late), "{refused}");
        assert_eq!(states(&next).await, [state]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_is_told_that_a_form_has_ended_before_it_is_withdrawn() {
    let (mut setup, store) = faulty(asks());
    setup.tools.push(Arc::new(once()));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.crash().await;
    store.plan().every(StoreOp::Withdraw, Fault::Fail);
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("who knows")]));
    let mut agent = next.start().await;
    let line = agent.one.next().await;
    assert!(line.contains("has ended without an answer"), "{line}");
    assert_eq!(states(&next).await, [ApprovalState::Waiting]);
    store.plan().clear();
    while agent.one.next().await != "who knows" {}
    assert_eq!(states(&next).await, [ApprovalState::Withdrawn]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_form_whose_call_goes_on_is_shown_again_and_a_text_fills_it_in() {
    let setup = Setup::new(asks()).tool(TestTool::named("form").of_server("files"));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let mut agent = next.start().await;
    let shown = agent.one.next().await;
    assert!(
        shown.starts_with("Belay was interrupted. This question still waits.") && shown.contains("How big?"),
        "{shown}"
    );
    assert_eq!(agent.one.command("alice", "m").await, "Answered. The server gets these values.");
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(results(&agent), [(ToolStatus::Success, r#"Given({"size": String("m")})"#.to_owned())]);
    assert_eq!(states(&next).await, [ApprovalState::Used], "nobody is asked twice");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_form_that_expired_during_the_downtime_is_not_shown_again() {
    let setup = Setup::new(asks()).tool(TestTool::named("form").of_server("files"));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    let asked = requests(&setup).await.remove(0);
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let left = asked.expires_at.0 - asked.asked_at.0;
    next.clock.forward(Duration::from_millis(u64::try_from(left).expect("it expires later")));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "done", "the question is not shown");
    assert_eq!(states(&next).await, [ApprovalState::Expired]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_its_call_goes_on_says_so_and_reaches_the_call() {
    let (mut setup, store) = faulty(asks());
    setup.tools.push(Arc::new(TestTool::named("form").of_server("files")));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    let asked = requests(&setup).await.remove(0);
    agent.crash().await;
    // The next attempt does not begin yet.
    store.plan().every(StoreOp::StartRun, Fault::Fail);
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let mut agent = next.start().await;
    let Ack::Command(reply) = agent.one.control(fill_in(asked.id)).await else { panic!("it waits") };
    assert!(reply.reply.contains("gets these values if its call can go on"), "{reply:?}");
    store.plan().clear();
    while agent.one.next().await != "done" {}
    assert_eq!(saw(&agent.model, 1).pop().as_deref(), Some(r#"Given({"size": String("m")})"#));
    assert_eq!(states(&next).await, [ApprovalState::Used]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_kept_its_round_goes_on_once_with_the_answer() {
    for (crashes, restarts) in [(true, 1), (false, 1), (false, 2), (false, 6)] {
        let form = once().keeping();
        let calls = form.calls.clone();
        let mut setup = Setup::new(asks()).tool(form);
        let mut agent = setup.start().await;
        let run = agent.one.accepted("alice", "go").await.run_id;
        assert!(agent.one.next().await.contains("How big?"));
        for _ in 0..restarts {
            if crashes {
                agent.crash().await;
            } else {
                agent.shut_down().await;
            }
            let record = setup.store.runs.run(run).await.expect("readable").expect("known");
            assert_eq!((record.status, states(&setup).await), (RunStatus::Running, vec![ApprovalState::Waiting]));
            setup = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
            agent = setup.start().await;
            assert!(agent.one.next().await.contains("How big?"));
        }
        assert_eq!(agent.one.command("alice", "m").await, "Answered. The server gets these values.");
        assert_eq!(agent.one.next().await, "done");
        let expected = r#"continued: true, Given({"size": String("m")})"#.to_owned();
        let begun = calls.load(Ordering::SeqCst);
        assert_eq!((results(&agent), begun), (vec![(ToolStatus::Success, expected)], 1 + restarts));
        assert_eq!(states(&setup).await, [ApprovalState::Used]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_form_whose_call_cannot_go_on_and_says_so() {
    let setup = Setup::new(asks()).tool(once());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    let asked = requests(&setup).await.remove(0);
    agent.shut_down().await;
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::Shutdown));
    let next = setup.next_boot(ScriptedModel::new([]));
    let agent = next.start().await;
    let Ack::Refused(refused) = agent.one.control(fill_in(asked.id)).await else { panic!("it waits no more") };
    assert!(refused.to_string().contains("is no longer asked"), "{refused}");
    assert_eq!(states(&next).await, [ApprovalState::Withdrawn]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_something_else_after_a_restart_withdraws_what_it_has_asked_before() {
    let form = TestTool::named("form").of_server("files");
    let world = form.world();
    let setup = Setup::new(asks()).tool(form);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.crash().await;
    "second".clone_into(&mut world.lock().expect("not poisoned"));
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let mut agent = next.start().await;
    assert!(agent.one.next().await.contains("How big?"));
    assert_eq!(states(&next).await, [ApprovalState::Withdrawn, ApprovalState::Waiting]);
    assert_eq!(agent.one.command("alice", "m").await, "Answered. The server gets these values.");
    assert_eq!(agent.one.next().await, "done");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_form_of_a_subagent_ends_with_it() {
    let spawn = Scripted::call("spawn_subagent", json!({ "task": "ask" }));
    let first = ScriptedModel::new([spawn, Scripted::call("form", json!({}))]);
    let setup = Setup::new(first).tool(TestTool::named("form").of_server("files"));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
    let mut agent = next.start().await;
    let line = agent.one.next().await;
    assert!(line.contains("has ended without an answer"), "{line}");
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(states(&next).await, [ApprovalState::Withdrawn]);
    agent.shut_down().await;
}
