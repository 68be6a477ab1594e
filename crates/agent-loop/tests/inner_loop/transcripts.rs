//! What the model sees, message for message: one golden transcript for each brake and for each ending.
//!
//! Refresh with `BELAY_UPDATE_GOLDEN=1`, then read the difference as carefully as code.

use crate::support::Play;
use belay_agent_loop::{AgenticLoopConfig, Guardrail, GuardrailAction, LoopContext, LoopOutcome, LoopSignal};
use belay_protocol::{FinishReason, ModelErrorKind, StopReason};
use belay_testkit::assert_golden;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

const INTENT: &str = "Let me read the file.";

fn config() -> AgenticLoopConfig {
    AgenticLoopConfig { max_iterations: 8, ..AgenticLoopConfig::default() }
}

fn read() -> Scripted {
    Scripted::call("read", json!({ "path": "a.txt" }))
}

fn failing() -> Scripted {
    Scripted::calls([("read", json!({ "path": "b.txt", "fail": true })), ("search", json!({ "fail": true }))])
}

// The brakes.

#[tokio::test]
async fn an_announcement_is_nudged_twice_and_then_let_through() {
    let mut play = Play::new([Scripted::text(INTENT), Scripted::text(INTENT), Scripted::text(INTENT)]);
    assert_golden!("tool_intent_nudge", play.transcript(&config()).await);
    assert_eq!(play.visited.iter().filter(|step| *step == "nudge").count(), 2);
}

#[tokio::test]
async fn a_nudged_model_makes_the_call() {
    let mut play = Play::new([Scripted::text(INTENT), read(), Scripted::text("It says hello.")]);
    assert_golden!("tool_intent_nudge_heeded", play.transcript(&config()).await);
}

#[tokio::test]
async fn a_call_that_is_left_in_the_text_is_nudged_and_then_made() {
    let left = r#"{"name": "read", "arguments": {"path": "a.txt"}}"#;
    let mut play = Play::new([Scripted::text(left), read(), Scripted::text("It says hello.")]);
    assert_golden!("left_call", play.transcript(&config()).await);
}

#[tokio::test]
async fn the_third_truncated_batch_takes_the_tools_away() {
    let cut = || Scripted::call("read", json!(r#"{"path":"a.t"#)).truncated();
    let mut play =
        Play::new([cut().with_text("I will read it."), cut(), cut(), Scripted::text("I could not read it.")]);
    assert_golden!("truncated_calls", play.transcript(&config()).await);
    assert!(play.visited.iter().all(|step| !step.starts_with("execute")), "nothing is executed");
}

#[tokio::test]
async fn a_batch_that_keeps_failing_is_warned_about_and_then_disarmed() {
    let mut play = Play::new([failing(), failing(), failing(), failing(), Scripted::text("I could not read it.")]);
    assert_golden!("duplicate_failures", play.transcript(&config()).await);
}

#[tokio::test]
async fn a_call_that_cannot_run_is_answered_with_what_could() {
    let mut play = Play::new([
        Scripted::calls([("open file", json!({})), ("read", json!({ "path": "a.txt" }))]),
        Scripted::call("read", json!(r#"{"path":"a.t"#)),
        Scripted::text("It says hello."),
    ]);
    assert_golden!("unavailable_tool", play.transcript(&config()).await);
}

#[tokio::test]
async fn calls_that_come_although_no_tools_are_offered_are_refused() {
    let cut = || read().truncated();
    let mut play = Play::new([cut(), cut(), cut(), read(), cut(), Scripted::text("I could not read it.")]);
    assert_golden!("calls_without_tools", play.transcript(&config()).await);
}

// The endings.

#[tokio::test]
async fn a_text_ends_the_run() {
    let mut play = Play::new([read().with_text("A moment."), Scripted::text("It says hello.")]);
    assert_golden!("end_response", play.transcript(&config()).await);
    let order = ["signals 1", "before 1", "call 1", "execute 1", "after 1", "signals 2", "before 2", "call 2", "text"];
    assert_eq!(play.visited, order);
}

#[tokio::test]
async fn a_call_that_needs_approval_pauses_the_run_and_keeps_the_results_before_it() {
    let batch = [("read", json!({ "path": "a.txt" })), ("search", json!({})), ("read", json!({ "path": "b.txt" }))];
    let mut play = Play::new([Scripted::calls(batch)]);
    play.guarded = Some("search");
    assert_golden!("end_need_approval", play.transcript(&config()).await);
}

#[tokio::test]
async fn a_stop_before_the_call_makes_no_call() {
    let mut play = Play::new([read()]);
    play.signals = [(2, LoopSignal::Stop(StopReason::UserStop))].into();
    assert_golden!("end_stopped_before_the_call", play.transcript(&config()).await);
}

#[tokio::test]
async fn a_stop_during_the_call_drops_it() {
    let mut play = Play::new([Scripted::hang().after_pieces(["It", " says"])]);
    let (model, stop) = (std::sync::Arc::clone(&play.model), play.stop.clone());
    let config = config();
    let (transcript, ()) = tokio::join!(play.transcript(&config), async {
        model.called(1).await;
        stop.cancel();
        model.dropped(1).await;
    });
    assert_golden!("end_stopped_during_the_call", transcript);
}

#[tokio::test]
async fn a_model_that_never_answers_comes_to_the_limit() {
    let mut play = Play::of(ScriptedModel::new([]).then_forever(read()));
    assert_golden!("end_max_iterations", play.transcript(&AgenticLoopConfig { max_iterations: 3, ..config() }).await);
    assert_eq!(play.model.seen().len(), 3);
}

#[tokio::test]
async fn a_model_error_ends_the_run_as_an_error() {
    let mut play = Play::new([read(), Scripted::error(ModelErrorKind::Overloaded { retry_after: None })]);
    assert_golden!("end_model_error", play.transcript(&config()).await);
}

#[tokio::test]
async fn the_delegate_may_end_the_run_before_a_call() {
    let mut play = Play::new([read()]);
    play.early = [(2, LoopOutcome::Stopped(StopReason::Shutdown.into()))].into();
    assert_golden!("end_before_the_call", play.transcript(&config()).await);
}

#[tokio::test]
async fn an_injected_message_joins_the_conversation_and_the_iteration_goes_on() {
    let mut play = Play::new([read(), Scripted::text("It says hello, too.")]);
    play.signals =
        [(2, LoopSignal::InjectMessage(belay_protocol::Message::user("And what is in b.txt?").into()))].into();
    assert_golden!("injected_message", play.transcript(&config()).await);
}

#[tokio::test]
async fn a_text_may_go_on_until_the_work_is_done() {
    let mut play = Play::new([Scripted::text("Half of it."), Scripted::text("All of it, done.")]);
    play.ends_with = Some("done");
    assert_golden!("text_goes_on", play.transcript(&config()).await);
    assert_eq!(play.visited[3..6], ["text", "after 1", "signals 2"]);
}

// What a transcript does not show.

#[tokio::test]
async fn no_iterations_mean_no_call() {
    let mut play = Play::new([]);
    let config = AgenticLoopConfig { max_iterations: 0, ..config() };
    let outcome = play.run(&mut LoopContext::default(), &config).await.unwrap();
    assert_eq!((outcome, play.visited.len()), (LoopOutcome::MaxIterations { iterations: 0 }, 0));
}

#[tokio::test]
async fn a_text_that_was_cut_off_says_so_in_the_state() {
    let mut play = Play::new([Scripted::text("It says hel").truncated()]);
    let mut context = LoopContext::default();
    let outcome = play.run(&mut context, &config()).await.unwrap();
    assert_eq!(outcome, LoopOutcome::Response("It says hel".into()));
    assert_eq!(context.state.last_finish, FinishReason::Length);
}

#[tokio::test]
async fn every_brake_is_reported_in_the_iteration_it_acts_in() {
    let mut play = Play::new([Scripted::text(INTENT), failing(), failing(), read().truncated(), Scripted::text("No.")]);
    play.run(&mut LoopContext::default(), &config()).await.unwrap();
    let reported: Vec<Option<GuardrailAction>> = play
        .stored
        .iter()
        .map(|(_, state)| serde_json::from_str::<belay_agent_loop::LoopState>(state).unwrap().braked)
        .collect();
    let acted = |brake, count| Some(GuardrailAction { brake, count });
    assert_eq!(
        reported,
        [
            acted(Guardrail::ToolIntentNudge, 1),
            None,
            acted(Guardrail::DuplicateFailures, 2),
            acted(Guardrail::TruncatedCalls, 1)
        ]
    );
}
