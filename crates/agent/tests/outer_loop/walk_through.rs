//! A walk through the whole agent under paused time: what a message meets from its acceptance to its one ending, each line
//! a test of its own or the name of one. What is seen through the RPC is walked in `websocket::walk_through` of the gateway.
//!
//! | line | proved by |
//! |---|---|
//! | a message is acknowledged before any model answers, in no time | `a_message_is_accepted_in_no_time_whatever_the_model_does` |
//! | a wait of 100 ms ends alone; a later one knows the beginning and the end of the run | `a_wait_that_ends_first_ends_only_itself` |
//! | two messages of a session follow each other, those of other sessions run beside them up to the cap | `turns_of_a_session_follow_each_other_and_others_run_beside_them_up_to_the_cap` |
//! | messages within 500 ms of each other become one turn with numbered items | `collect::what_arrives_during_a_turn_becomes_one_turn_with_numbered_items`, `collect::it_waits_until_nobody_has_written_for_a_moment_but_not_for_ever` |
//! | 25 messages where 20 may wait: the oldest five are lines | `full::of_25_messages_the_oldest_5_are_lines_before_the_other_20` |
//! | a message during the first of three tools | `words_during_three_calls_stand_behind_their_results_and_before_the_model`, `steer::calls_that_have_not_begun_are_skipped_in_order_and_those_at_work_finish` |
//! | of two hooks before a call the higher one changes, the lower one refuses | `a_higher_hook_changes_the_call_that_a_lower_one_refuses` |
//! | a hook before a call that hangs refuses it after 15 s | `a_hook_before_a_call_that_hangs_refuses_it_after_15_seconds` |
//! | a hook before a reply that hangs lets it out as it is after 15 s | `a_hook_before_a_reply_that_hangs_lets_it_out_unchanged_after_15_seconds` |
//! | a hook about a result that gives nothing of use leaves the result, and that is told | `a_hook_about_a_result_that_gives_nothing_of_use_leaves_the_result` |
//! | no piece of the silent token is seen, and nothing is said | `nothing_is_seen_of_a_silent_token_that_comes_in_pieces`, `streaming::nobody_reads_a_part_of_the_silent_token_or_reasoning_as_text` |
//! | what only begins like it is seen from where it differs | `words_that_begin_like_the_silent_token_are_seen_once_they_differ` |
//! | an error of a tool and nothing else is one line; after a message of the tool it is none | `an_error_alone_is_one_line_and_behind_a_message_of_the_tool_it_is_none` |
//! | an overflow is shortened once, and the answer comes once | `an_overflow_is_shortened_once_told_as_such_and_answered_once` |
//! | 600 s are up: the partial answer stays, one end, and every wait is answered | `after_600_seconds_a_run_ends_once_its_partial_answer_stays_and_every_wait_is_answered` |
//!
//! Where we differ on purpose: calls of one batch run side by side, at most 16, so words that come during the first of three
//! find all three at work, and these finish; what is skipped is what has not begun (the 17th). A result of a hook is never
//! written later: it is waited for, 5 s at most. A turn whose time is up is closed by a model call without tools where a
//! closing turn is on; the lines here are those without one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Accepted, BoundHook, Delta, EventKind, EventQuery, Hook, HookAnswer, HookEvent, HookPoint, MessageBody,
    ModelErrorKind, QueueMode, RunId, RunOptions, RunStatus, StopReason, ToolStatus,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::hooks::{change, refuse, spy};
use crate::support::{Running, Setup, TestTool, by_rule, end_of, rules, saw};

const SECOND: Duration = Duration::from_secs(1);

/// The facts of a run, or of everything.
async fn facts(setup: &Setup, run: Option<RunId>) -> Vec<(Option<RunId>, EventKind)> {
    let query = EventQuery { run, limit: 1000, ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    events.into_iter().map(|event| (event.run_id, event.kind)).collect()
}

/// The results that the model was shown in its request number `n`, from 1.
fn results(agent: &Running, n: usize) -> Vec<(ToolStatus, String)> {
    let result = |body: &MessageBody| match body {
        MessageBody::Tool(result) => Some((result.status, result.text.clone())),
        _ => None,
    };
    agent.model.seen()[n - 1].messages.iter().filter_map(|message| result(&message.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_accepted_in_no_time_whatever_the_model_does() {
    for model in [Scripted::hang(), Scripted::text("late").after(60 * SECOND)] {
        let setup = Setup::new(ScriptedModel::new([model]));
        let agent = setup.start().await;
        let begun = Instant::now();
        let accepted = agent.one.unanswered("alice", "hello").await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let stored = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("it was committed before");
        assert!(!stored.status.is_end() && !accepted.duplicate, "{stored:?}");
        agent.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_first_ends_only_itself() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("done").after(60 * SECOND)]));
    let agent = setup.start().await;
    let accepted = agent.one.unanswered("alice", "hello").await;
    agent.asked(1).await;
    let run = accepted.run_id;
    let mut finished = accepted.watch.as_ref().expect("alive").finished.clone();
    let ended = timeout(Duration::from_millis(100), finished.wait_for(Option::is_some)).await.is_ok();
    assert!(!ended, "100 ms are not enough");
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.ended_at), (RunStatus::Running, None), "the run goes on");
    setup.clock.forward(60 * SECOND);
    let end = end_of(accepted).await;
    assert_eq!((end.status, end.reply.as_deref()), (RunStatus::Completed, Some("done")));
    let began = end.started_at.expect("it has begun");
    assert_eq!(end.ended_at.map(|at| at.0 - began.0), Some(60_000));
    let late = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!(late, *end, "whoever waits later reads the same");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_session_follow_each_other_and_others_run_beside_them_up_to_the_cap() {
    let model = ScriptedModel::new([]).then_forever(Scripted::text("done").after(SECOND));
    let mut setup = Setup::new(model);
    setup.config.max_concurrent_turns = 2;
    setup.queue.mode = Some(QueueMode::Followup);
    let agent = setup.start().await;
    let begun = Instant::now();
    let mut runs = Vec::new();
    for session in ["alice", "alice", "bob", "carol"] {
        runs.push(agent.one.unanswered(session, "hello").await);
    }
    let [first, second, bob] = [0, 1, 2].map(|at: usize| runs[at].run_id);
    // Alice's first turn and Bob's ask the model; then her second one and Carol's.
    for (after, asked) in [(SECOND / 2, 2), (SECOND, 4)] {
        sleep(after).await;
        assert_eq!(agent.model.seen().len(), asked, "no more than two at a time");
    }
    for accepted in runs {
        end_of(accepted).await;
    }
    assert_eq!(begun.elapsed(), 2 * SECOND, "four turns of a second, two at a time");
    let facts = facts(&setup, None).await;
    let place = |run: RunId, wanted: fn(&EventKind) -> bool| {
        facts.iter().position(|(of, kind)| *of == Some(run) && wanted(kind)).expect("a fact")
    };
    let start = |run| place(run, |kind| matches!(kind, EventKind::RunStarted { .. }));
    let end = |run| place(run, |kind| matches!(kind, EventKind::RunEnded { .. }));
    assert!(end(first) < start(second), "one after the other: {facts:#?}");
    assert!(start(bob) < end(first), "side by side: {facts:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn words_during_three_calls_stand_behind_their_results_and_before_the_model() {
    let three = Scripted::calls([("slow", json!({})), ("slow", json!({})), ("slow", json!({}))]);
    let setup = Setup::new(ScriptedModel::new([three, Scripted::text("as you wish")])).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "do all three").await;
    agent.asked(1).await;
    sleep(SECOND / 2).await;
    agent.one.accepted("alice", "and then stop").await;
    assert_eq!(agent.one.next().await, "as you wish");
    assert_eq!(saw(&agent.model, 2), ["do all three", "", "slowly", "slowly", "slowly", "and then stop"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_higher_hook_changes_the_call_that_a_lower_one_refuses() {
    let tool = TestTool::named("echo").called("mark");
    let calls = tool.calls.clone();
    let script = [Scripted::call("mark", json!({"text": "loud"})), Scripted::text("done")];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(tool);
    let (lower, told_lower) = spy(&[HookPoint::BeforeToolCall], |_| refuse("not even so"));
    let (higher, _) = spy(&[HookPoint::BeforeToolCall], |_| change(json!({"arguments": {"text": "softly"}})));
    let with = |hooks: Vec<BoundHook>, priority| hooks.into_iter().map(move |hook| BoundHook { priority, ..hook });
    setup.hooks = with(lower, 5).chain(with(higher, 10)).collect();
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "done", "the run goes on");
    let results = results(&agent, 2);
    assert_eq!((calls.load(Ordering::SeqCst), results[0].0), (0, ToolStatus::Denied));
    assert!(results[0].1.contains("not even so"), "{results:?}");
    assert_eq!(told_lower.told(HookPoint::BeforeToolCall)[0]["arguments"], json!({"text": "softly"}));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_before_a_call_that_hangs_refuses_it_after_15_seconds() {
    let tool = TestTool::named("echo").called("mark");
    let calls = tool.calls.clone();
    let script = [Scripted::call("mark", json!({"text": "a"})), Scripted::text("done")];
    let mut setup = Setup::new(ScriptedModel::new(script)).tool(tool);
    (setup.hooks, _) = spy(&[HookPoint::BeforeToolCall], |_| None);
    let mut agent = setup.start().await;
    let begun = Instant::now();
    assert_eq!(agent.one.ask("alice", "go").await, "done");
    assert_eq!((begun.elapsed(), calls.load(Ordering::SeqCst)), (15 * SECOND, 0));
    assert_eq!(results(&agent, 2)[0].0, ToolStatus::Denied);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_before_a_reply_that_hangs_lets_it_out_unchanged_after_15_seconds() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::text("hello")]));
    (setup.hooks, _) = spy(&[HookPoint::MessageSending], |_| None);
    let mut agent = setup.start().await;
    let begun = Instant::now();
    let accepted = agent.one.accepted("alice", "hi").await;
    assert_eq!((agent.one.next().await.as_str(), begun.elapsed()), ("hello", 15 * SECOND));
    assert_eq!(end_of(accepted).await.reply.as_deref(), Some("hello"));
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err(), "once");
}

/// A hook whose answer cannot be read.
struct Garbage;

#[async_trait]
impl Hook for Garbage {
    fn name(&self) -> &str {
        "garbage"
    }

    async fn call(&self, _event: &HookEvent) -> Result<HookAnswer, String> {
        Err("its answer is not JSON".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_about_a_result_that_gives_nothing_of_use_leaves_the_result() {
    let point = HookPoint::ToolResultPersist;
    let garbage = || {
        let (mut hooks, _) = spy(&[point], |_| Some(HookAnswer::Continue));
        hooks[0].hook = Arc::new(Garbage);
        hooks
    };
    let failed = [format!("failed at {}", point.word())];
    // What the hook answers, what is told of it as a fact, and how long it was waited for.
    for (name, hooks, told, waited) in [
        ("nothing", spy(&[point], |_| Some(HookAnswer::Continue)).0, &[][..], Duration::ZERO),
        ("a wrong type", spy(&[point], |_| change(json!({"text": 7}))).0, &[], Duration::ZERO),
        ("another field", spy(&[point], |_| change(json!({"status": "success"}))).0, &[], Duration::ZERO),
        ("a refusal", spy(&[point], |_| refuse("no")).0, &[], Duration::ZERO),
        ("garbage", garbage(), &failed[..], Duration::ZERO),
        ("no answer at all", spy(&[point], |_| None).0, &failed[..], 5 * SECOND),
    ] {
        let script = [Scripted::call("echo", json!({"text": "the result"})), Scripted::text("done")];
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.hooks = hooks;
        let mut agent = setup.start().await;
        let begun = Instant::now();
        let accepted = agent.one.accepted("alice", "go").await;
        let run = accepted.run_id;
        assert_eq!(agent.one.next().await, "done", "{name}");
        assert_eq!(results(&agent, 2), [(ToolStatus::Success, "the result".to_owned())], "{name}");
        let stored = setup.store.runs.run_messages(run).await.expect("readable");
        assert!(stored.iter().any(|message| message.text() == "the result"), "{name}: it is in the store as well");
        let of_hooks = |(_, kind): (_, EventKind)| match kind {
            EventKind::Hook { point, outcome, .. } => Some(format!("{outcome} at {point}")),
            _ => None,
        };
        let facts: Vec<String> = facts(&setup, Some(run)).await.into_iter().filter_map(of_hooks).collect();
        assert_eq!((&facts[..], begun.elapsed()), (told, waited), "{name}");
        agent.shut_down().await;
    }
}

/// The pieces of text that somebody who reads along has read by the end of the run.
async fn pieces(mut accepted: Accepted) -> Vec<String> {
    let mut deltas = accepted.watch.as_mut().and_then(|watch| watch.deltas.take()).expect("asked for");
    end_of(accepted).await;
    let mut pieces = Vec::new();
    while let Ok(delta) = deltas.try_recv() {
        if let Delta::Text { text, .. } = delta {
            pieces.push(text);
        }
    }
    pieces
}

#[tokio::test(start_paused = true)]
async fn nothing_is_seen_of_a_silent_token_that_comes_in_pieces() {
    let setup = Setup::new(ScriptedModel::new([Scripted::streamed(["NO_", "REPLY"]).paced(SECOND)]));
    let agent = setup.start().await;
    let accepted = agent.one.watching("alice", "go").await;
    let run = accepted.run_id;
    assert_eq!(pieces(accepted).await, Vec::<String>::new());
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, None));
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn words_that_begin_like_the_silent_token_are_seen_once_they_differ() {
    let setup = Setup::new(ScriptedModel::new([Scripted::streamed(["NO", " PROBLEM", " at all"]).paced(SECOND)]));
    let mut agent = setup.start().await;
    let accepted = agent.one.watching("alice", "go").await;
    let pieces = pieces(accepted).await;
    assert_eq!(pieces.concat(), "NO PROBLEM at all");
    assert!(pieces[0].starts_with("NO P") && pieces.len() > 1, "withheld first, then streamed: {pieces:?}");
    assert_eq!(agent.one.next().await, "NO PROBLEM at all");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_alone_is_one_line_and_behind_a_message_of_the_tool_it_is_none() {
    let fail = || Scripted::call("fail", json!({}));
    let sent = "The meeting is at ten.";
    let send = || Scripted::call("send_message", json!({ "text": sent }));
    for (script, said) in [
        (vec![fail(), Scripted::text("")], "⚠ fail failed: it does not work"),
        (vec![send(), fail(), Scripted::text("")], sent),
        (vec![fail(), send(), Scripted::text("")], sent),
    ] {
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.config.send_message = true;
        let mut agent = setup.start().await;
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!(agent.one.next().await, said, "{record:?}");
        let (mut one, _) = agent.shut_down().await;
        assert!(one.delivered.try_recv().is_err(), "one line: {record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_shortened_once_told_as_such_and_answered_once() {
    let setup = Setup::new(by_rule(ScriptedModel::new([])));
    let mut agent = setup.start().await;
    for n in 0..6 {
        agent.model.push(Scripted::text(format!("answer {n}")));
        agent.one.ask("alice", &format!("question {n} {}", "x".repeat(300))).await;
    }
    agent.model.push(Scripted::call("echo", json!({"text": "hi"})));
    agent.model.push(Scripted::error(ModelErrorKind::ContextTooLong));
    agent.model.push(Scripted::text("done"));
    let options = RunOptions { verbose: Some(true), ..RunOptions::default() };
    let record = end_of(agent.one.asking("alice", "the question", options).await).await;
    assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("done")));
    assert_eq!(agent.one.next().await, "✓ echo `text: hi`\n\ndone", "a line for each call, once");
    let facts = facts(&setup, Some(record.run_id)).await;
    let told: Vec<String> = facts
        .iter()
        .filter_map(|(_, kind)| match kind {
            EventKind::CompactionStarted { reason: why, .. } => Some(format!("start {why}")),
            EventKind::Compacted { will_retry, .. } => Some(format!("end, retries: {will_retry}")),
            EventKind::RunEnded { reason, .. } => Some(reason.word().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["start overflow", "end, retries: true", "final_text"]);
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err(), "once");
}

#[tokio::test(start_paused = true)]
async fn after_600_seconds_a_run_ends_once_its_partial_answer_stays_and_every_wait_is_answered() {
    let limits = rules("closing_turn_s = 0\n[limits]\nactive_s = 600");
    let script = [Scripted::hang().after_pieces(["Half of ", "the answer"]), Scripted::text("go on, then")];
    let setup = Setup { rules: limits, ..Setup::new(ScriptedModel::new(script)) };
    let mut agent = setup.start().await;
    let begun = Instant::now();
    let accepted = agent.one.accepted("alice", "tell me everything").await;
    let run = accepted.run_id;
    let mut early = accepted.watch.as_ref().expect("alive").finished.clone();
    // Longer than a test waits for anything else.
    let waited =
        timeout(700 * SECOND, early.wait_for(Option::is_some)).await.expect("an end").expect("published").clone();
    let ended = waited.expect("some");
    assert_eq!(begun.elapsed(), 600 * SECOND);
    assert_eq!((ended.status, ended.reason), (RunStatus::Stopped, Some(StopReason::ActiveTime)));
    assert_eq!(agent.one.next().await, StopReason::ActiveTime.user_line());
    assert_eq!(agent.model.dropped_count(), 1, "the call was ended, not left to itself");
    let ends = facts(&setup, Some(run)).await;
    assert_eq!(ends.iter().filter(|(_, kind)| matches!(kind, EventKind::RunEnded { .. })).count(), 1, "{ends:#?}");
    assert_eq!(
        setup.store.runs.run(run).await.expect("readable"),
        Some((*ended).clone()),
        "a late wait reads the same"
    );
    agent.one.ask("alice", "go on").await;
    let seen = saw(&agent.model, 2);
    assert!(seen[1].starts_with("Half of the answer"), "what was said stays in the conversation: {seen:?}");
    agent.shut_down().await;
}
