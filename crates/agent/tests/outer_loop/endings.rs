//! Endings by rules, limits and the model's own word, as a conversation sees them.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::StopRules;
use belay_protocol::{Ack, EventKind, EventQuery, Price, RunOptions, RunRecord, RunStatus, StopReason, ToolStatus};
use belay_run::AgentConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, TestTool, end_of, saw};

const SENTENCE: &str = "The rope holds as long as someone holds the rope, and so it goes on. ";

/// Rules as the settings write them: the content of `[stops]`, with `[limits]` as a table in it.
fn rules(toml: &str) -> Arc<StopRules> {
    crate::support::rules(toml)
}

async fn run(setup: &Setup, text: &str) -> (Running, Arc<RunRecord>) {
    let agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", text).await).await;
    (agent, record)
}

async fn brakes(setup: &Setup, record: &RunRecord) -> Vec<String> {
    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    assert_eq!(events.iter().filter(|event| matches!(event.kind, EventKind::RunEnded { .. })).count(), 1);
    let brake = |kind: EventKind| {
        if let EventKind::GuardrailTriggered { guardrail: brake, .. } = kind { Some(brake) } else { None }
    };
    events.into_iter().filter_map(|event| brake(event.kind)).collect()
}

fn terminating(status: &str, summary: Option<&str>) -> Scripted {
    let mut arguments = json!({ "status": status });
    if let Some(summary) = summary {
        arguments["summary"] = summary.into();
    }
    Scripted::calls([
        ("echo", json!({"text": "before"})),
        ("terminate", arguments),
        ("echo", json!({"text": "behind"})),
    ])
}

fn with_terminate(model: ScriptedModel) -> Setup {
    Setup { config: AgentConfig { terminate: true, ..AgentConfig::default() }, ..Setup::new(model) }
}

#[tokio::test(start_paused = true)]
async fn terminate_ends_the_run_by_its_status_and_nothing_behind_it_is_executed() {
    for (status, summary, ending, reason, said) in [
        ("success", Some("All done."), RunStatus::Completed, StopReason::Terminated, "All done."),
        ("failure", Some("No such customer."), RunStatus::Failed, StopReason::GaveUp, "No such customer."),
        ("success", None, RunStatus::Completed, StopReason::Terminated, "Done."),
        ("failure", Some("  "), RunStatus::Failed, StopReason::GaveUp, StopReason::GaveUp.user_line()),
    ] {
        let setup = with_terminate(ScriptedModel::new([terminating(status, summary), Scripted::text("next turn")]));
        let (mut agent, record) = run(&setup, "go").await;
        assert_eq!((record.status, record.reason, record.usage.model_calls), (ending, Some(reason), 1), "{status}");
        assert_eq!(record.usage.tool_calls, 2, "the one before, and terminate itself");
        assert_eq!((record.reply.as_deref(), agent.one.next().await.as_str()), (Some(said), said));
        assert_eq!(agent.one.ask("alice", "and now?").await, "next turn");
        let texts = saw(&agent.model, 2);
        assert!(texts.iter().any(|text| text.starts_with("not executed")), "the call behind has its result: {texts:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminate_that_the_tool_refuses_ends_nothing() {
    let setup = with_terminate(ScriptedModel::new([terminating("perhaps", None), Scripted::text("sorry")]));
    let (agent, record) = run(&setup, "go").await;
    assert_eq!((record.reason, record.reply.as_deref()), (Some(StopReason::FinalText), Some("sorry")));
    let texts = saw(&agent.model, 2);
    assert!(texts.iter().any(|text| text.starts_with("invalid arguments")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("the terminate call before it")), "{texts:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_chat_has_no_terminate_unless_it_is_configured() {
    let setup = Setup::new(ScriptedModel::new([terminating("success", Some("no")), Scripted::text("a text ends me")]));
    let (agent, record) = run(&setup, "go").await;
    assert_eq!(record.reason, Some(StopReason::FinalText));
    let tools = agent.model.seen()[0].tools.clone().unwrap_or_default();
    assert!(!tools.iter().any(|name| name == "terminate"), "{tools:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_chanting_stream_is_cut_answered_with_feedback_and_the_second_time_ended() {
    let chant = || Scripted::text("").after_pieces(vec![SENTENCE; 400]);
    let setup = Setup::new(ScriptedModel::new([chant(), chant(), Scripted::text("In short: nothing new.")]));
    let (agent, record) = run(&setup, "go").await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::Chanting)), "{record:?}");
    assert_eq!(record.evidence["rule"], "CHANTING_IDENTICAL_SENTENCES");
    assert_eq!((&record.evidence["strikes"], &record.evidence["closing"]), (&json!(2), &json!("answered")));
    let line = StopReason::Chanting.user_line();
    let explanation = record.evidence["explanation"].as_str().expect("a sentence");
    assert!(explanation.starts_with("The answer repeated one text 10 times: “"), "{explanation}");
    assert_eq!(record.evidence["loop"], json!({"kind": "chanting"}));
    assert_eq!(record.reply.as_deref(), Some(format!("In short: nothing new.\n\n{line} {explanation}").as_str()));
    let feedback = saw(&agent.model, 2);
    assert!(feedback.last().is_some_and(|text| text.contains("seems to be in a loop")), "{feedback:?}");
    assert!(feedback[feedback.len() - 2].len() < SENTENCE.len() * 40, "the stream was cut, not heard to its end");
    assert_eq!(agent.model.seen()[2].tools, None, "the closing turn offers no tools");
    assert_eq!(brakes(&setup, &record).await, ["CHANTING_IDENTICAL_SENTENCES"], "the recovery is a fact as well");
    let told = setup.store.events.read(EventQuery { run: Some(record.run_id), ..EventQuery::default() }).await;
    let step = |kind| if let EventKind::ModelCalled { step, .. } = kind { Some(step) } else { None };
    let steps: Vec<u32> = told.expect("readable").into_iter().filter_map(|event| step(event.kind)).collect();
    assert_eq!(steps[..2], [1, 2], "a call that was cut has ended too");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn loops_off_lets_a_chant_go_on_and_loops_on_brings_detection_back() {
    let chant = || Scripted::text(SENTENCE.repeat(60)).after_pieces(vec![SENTENCE; 60]);
    let setup = Setup::new(ScriptedModel::new([chant(), chant(), Scripted::text("better")]));
    let mut agent = setup.start().await;
    assert!(agent.one.command("alice", "/loops off").await.contains("is off"));
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.reason, Some(StopReason::FinalText));
    agent.one.next().await;
    assert!(agent.one.command("alice", "/loops on").await.contains("is on"));
    assert_eq!(agent.one.ask("alice", "go").await, "better", "the chant was cut and recovered from");
    assert!(agent.one.command("alice", "/loops maybe").await.contains("/loops on"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn every_limit_of_time_includes_its_closing_turn() {
    let part = || Scripted::text("What I have: hi.").after(Duration::from_secs(9));
    for (toml, last, reason, took_s, closing) in [
        ("active_s = 120", part(), StopReason::ActiveTime, 90 + 9, "answered"),
        ("active_s = 120", Scripted::hang(), StopReason::ActiveTime, 120, "timeout"),
        ("active_s = 30", part(), StopReason::ActiveTime, 30, "no_time"),
        ("wall_clock_s = 120", part(), StopReason::WallClock, 90 + 9, "answered"),
        ("wall_clock_s = 120", Scripted::hang(), StopReason::WallClock, 120, "timeout"),
        ("active_s = 280\nwall_clock_s = 1000", Scripted::hang(), StopReason::ActiveTime, 279, "timeout"),
        // The shorter limit ends the work, at 71.25 s.
        ("active_s = 120\nwall_clock_s = 95", part(), StopReason::WallClock, 71 + 9, "answered"),
    ] {
        let setup = Setup {
            rules: rules(&format!("[limits]\n{toml}")),
            ..Setup::new(ScriptedModel::new([
                Scripted::call("echo", json!({"text": "hi"})).after(Duration::from_secs(20)),
                Scripted::hang(),
                last,
            ]))
        };
        let begun = tokio::time::Instant::now();
        let (mut agent, record) = run(&setup, "go").await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(reason)), "{record:?}");
        assert_eq!((begun.elapsed().as_secs(), &record.evidence["closing"]), (took_s, &json!(closing)), "{toml}");
        let line = reason.user_line();
        let told = if closing == "answered" { format!("What I have: hi.\n\n{line}") } else { line.to_owned() };
        assert_eq!(agent.one.next().await, told);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_closing_turn_that_does_not_come_to_an_end_is_given_up_and_the_line_is_told() {
    for (closing, toml) in [("timeout", ""), ("off", "closing_turn_s = 0\n")] {
        let setup = Setup {
            rules: rules(&format!("{toml}[limits]\nwall_clock_s = 60")),
            ..Setup::new(ScriptedModel::new([]).then_forever(Scripted::hang()))
        };
        let (mut agent, record) = run(&setup, "go").await;
        assert_eq!((record.reason, &record.evidence["closing"]), (Some(StopReason::WallClock), &json!(closing)));
        assert_eq!(agent.one.next().await, StopReason::WallClock.user_line());
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn counted_limits_end_a_run_with_their_reason_and_a_closing_turn() {
    for (toml, reason, count) in [
        ("model_calls = 3", StopReason::ModelCalls, 3),
        ("tool_calls = 2", StopReason::ToolCalls, 2),
        ("tool_calls_of = { echo = 2 }", StopReason::ToolCalls, 2),
        ("tokens_total = 40", StopReason::Tokens, 40),
        ("output_bytes = 3", StopReason::OutputBytes, 4),
    ] {
        let calls = (0..9).map(|n| Scripted::call("echo", json!({"text": format!("n{n}")})).with_usage(10, 10));
        let model = ScriptedModel::new([]);
        calls.for_each(|call| model.push(call));
        let setup = Setup { rules: rules(&format!("closing_turn_s = 0\n[limits]\n{toml}")), ..Setup::new(model) };
        let (agent, record) = run(&setup, "go").await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(reason)), "{toml}: {record:?}");
        assert_eq!(record.evidence["count"], count, "{toml}: {record:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_passes_a_limit_of_calls_the_first_ones_run() {
    for limit in ["tool_calls = 3", "tool_calls_of = { echo = 3 }"] {
        let storm = Scripted::calls((0..8).map(|n| ("echo", json!({"text": format!("n{n}")}))));
        let setup = Setup {
            rules: rules(&format!("closing_turn_s = 0\n[limits]\n{limit}")),
            ..Setup::new(ScriptedModel::new([storm]))
        };
        let (agent, record) = run(&setup, "go").await;
        assert_eq!((record.reason, record.usage.tool_calls), (Some(StopReason::ToolCalls), 3), "{limit}: {record:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_runs_money_ends_it_before_the_reserve_is_touched_and_pays_its_closing_turn() {
    // One dollar for a million tokens; a request is estimated at a little over 1000 millionths.
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    for (usd, reason) in
        [("usd_per_run = 0.004", StopReason::RunCost), ("usd_per_session = 0.004", StopReason::SessionCost)]
    {
        let script = [
            Scripted::call("echo", json!({"text": "a"})).with_usage(100, 1500),
            Scripted::text("So far: a.").with_usage(100, 100),
        ];
        let model = ScriptedModel::new(script).with_info(|info| info.price = Some(price));
        let setup = Setup { rules: rules(&format!("[limits]\n{usd}")), ..Setup::new(model) };
        let (mut agent, record) = run(&setup, "go").await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(reason)), "{record:?}");
        assert!(record.cost_micro_usd <= 4000, "the limit holds, closing turn included: {record:?}");
        assert_eq!(record.evidence["closing"], "answered", "{record:?}");
        assert_eq!(agent.one.next().await, format!("So far: a.\n\n{}", reason.user_line()));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_money_of_a_session_is_that_of_all_its_runs_and_of_no_other() {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    let script = [Scripted::text("one").with_usage(100, 3000), Scripted::text("bob's").with_usage(100, 100)];
    let model = ScriptedModel::new(script).with_info(|info| info.price = Some(price));
    let setup = Setup { rules: rules("[limits]\nusd_per_session = 0.004"), ..Setup::new(model) };
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "hi").await, "one");
    let second = end_of(agent.one.accepted("alice", "more").await).await;
    assert_eq!((second.reason, second.usage.model_calls), (Some(StopReason::SessionCost), 0), "{second:?}");
    assert_eq!(second.evidence["closing"], "no_reserve");
    agent.one.next().await;
    assert_eq!(agent.two.ask("bob", "hi").await, "bob's");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_call_five_times_is_held_back_and_five_more_times_end_the_run() {
    let model = ScriptedModel::new([]).then_forever(Scripted::call("echo", json!({"text": "again"})));
    let config = AgentConfig { max_tool_iterations: 50, ..AgentConfig::default() };
    let setup = Setup { config, rules: rules("closing_turn_s = 0"), ..Setup::new(model) };
    let (mut agent, record) = run(&setup, "go").await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::ToolLoop)), "{record:?}");
    assert_eq!((record.usage.model_calls, record.usage.tool_calls), (10, 8), "the fifth of each row is not executed");
    assert_eq!(
        (&record.evidence["rule"], &record.evidence["strikes"]),
        (&json!("CONSECUTIVE_IDENTICAL_TOOL_CALLS"), &json!(2))
    );
    let told = "The last 4 calls of echo (“again”) (steps 6 to 9) returned the same line: “again”.";
    assert_eq!(record.evidence["explanation"], told);
    assert_eq!(agent.one.next().await, format!("{} {told}", StopReason::ToolLoop.user_line()));
    let texts = saw(&agent.model, 6);
    assert!(texts.iter().any(|text| text.starts_with("not executed: this call repeats")), "{texts:?}");
    let feedback = "The last 4 calls of echo (“again”) (steps 1 to 4) returned the same line: “again”. Use the result that you have";
    assert!(texts.iter().any(|text| text.contains(feedback)), "{texts:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn steps_in_which_everything_fails_are_noticed_and_then_end_the_run() {
    let model = ScriptedModel::new([]);
    (0..9).for_each(|n| model.push(Scripted::call("fail", json!({"text": format!("try {n}")}))));
    let config = AgentConfig { max_tool_iterations: 50, ..AgentConfig::default() };
    let setup = Setup { config, rules: rules("closing_turn_s = 0"), ..Setup::new(model) };
    let (agent, record) = run(&setup, "go").await;
    assert_eq!(
        (record.reason, &record.evidence["count"]),
        (Some(StopReason::ConsecutiveErrors), &json!(5)),
        "{record:?}"
    );
    assert_eq!(record.usage.model_calls, 5);
    assert_eq!(brakes(&setup, &record).await, ["consecutive_errors"], "the notice at three");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_operators_own_rule_ends_a_run_in_its_own_name() {
    let toml = "closing_turn_s = 0\n[[rules]]\nname = \"slow_and_chatty\"\nwhen = { all = [{ steps = 3 }, { tool_calls = 2 }] }\n";
    let calls = (0..9).map(|n| Scripted::call("echo", json!({"text": format!("n{n}")})));
    let setup = Setup { rules: rules(toml), ..Setup::new(ScriptedModel::new(calls)) };
    let (agent, record) = run(&setup, "go").await;
    assert_eq!((record.reason, &record.evidence["rule"]), (Some(StopReason::OperatorRule), &json!("slow_and_chatty")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn counters_go_on_after_a_restart() {
    let script = (0..3).map(|_| Scripted::call("echo", json!({"text": "again"}))).chain([Scripted::hang()]);
    let config = AgentConfig { max_tool_iterations: 50, ..AgentConfig::default() };
    let setup =
        Setup { config, rules: rules("closing_turn_s = 0\nmax_strikes = 1"), ..Setup::new(ScriptedModel::new(script)) };
    let first = setup.start().await;
    let accepted = first.one.accepted("alice", "go").await;
    first.asked(4).await;
    first.crash().await;
    let again = ScriptedModel::new([]).then_forever(Scripted::call("echo", json!({"text": "again"})));
    let mut second = setup.next_boot(again).start().await;
    let told = "The last 4 calls of echo (“again”) (steps 1 to 4) returned the same line: “again”.";
    assert_eq!(second.one.next().await, format!("{} {told}", StopReason::ToolLoop.user_line()));
    let record = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("known");
    assert_eq!((record.reason, record.attempt), (Some(StopReason::ToolLoop), 2), "{record:?}");
    assert_eq!(second.model.seen().len(), 2, "the fourth and the fifth");
    second.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_the_daemon_was_down_is_no_time_at_work_and_yet_passes() {
    for (toml, reason) in [
        ("[limits]\nactive_s = 30", StopReason::FinalText),
        ("[limits]\nactive_s = 30\nwall_clock_s = 1800", StopReason::WallClock),
    ] {
        let script = [Scripted::call("echo", json!({"text": "hi"})).after(Duration::from_secs(20)), Scripted::hang()];
        let closing = format!("closing_turn_s = 0\n{toml}");
        let setup = Setup { rules: rules(&closing), ..Setup::new(ScriptedModel::new(script)) };
        let first = setup.start().await;
        let accepted = first.one.accepted("alice", "go").await;
        first.asked(2).await;
        first.crash().await;
        setup.clock.set(1_795_000_000_000 + 3_600_000); // an hour later
        let next = setup.next_boot(ScriptedModel::new([Scripted::text("here").after(Duration::from_secs(9))]));
        let mut second = next.start().await;
        second.one.next().await;
        let record = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("known");
        assert_eq!((record.reason, record.attempt), (Some(reason), 2), "{record:?}");
        second.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_may_bring_its_own_limit_of_time_or_none() {
    for (timeout_ms, reason, took_ms, limit) in [
        (Some(200), StopReason::ActiveTime, 200, json!([200, "ms"])),
        (Some(1_500), StopReason::ActiveTime, 1_500, json!([1_500, "ms"])),
        (Some(2_000), StopReason::ActiveTime, 2_000, json!([2, "s"])),
        (Some(0), StopReason::FinalText, 50_000, json!([null, null])),
    ] {
        let setup = Setup {
            rules: rules("closing_turn_s = 0\n[limits]\nactive_s = 30"),
            ..Setup::new(ScriptedModel::new([Scripted::text("at last").after(Duration::from_secs(50))]))
        };
        let agent = setup.start().await;
        let begun = tokio::time::Instant::now();
        let options = RunOptions { timeout_ms, ..RunOptions::default() };
        let Ack::Accepted(run) = agent.one.text_with("alice", "go", options).await else { panic!("accepted") };
        let record = end_of(run).await;
        assert_eq!(record.reason, Some(reason), "{record:?}");
        // The scripted model and the store take some milliseconds of paused time at most.
        let elapsed = begun.elapsed().as_millis();
        assert!((took_ms..took_ms + 30).contains(&elapsed), "{timeout_ms:?} took {elapsed} ms");
        let told = ["threshold", "unit"].map(|key| record.evidence.get(key).cloned().unwrap_or_default());
        assert_eq!(json!(told), limit, "{record:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_message_includes_its_closing_turn() {
    let part = || Scripted::text("What I have.").after(Duration::from_secs(5));
    for (timeout_ms, last, took_ms, closing, calls) in [
        (200, part(), 200, "no_time", 1),
        (20_000, part(), 20_000, "no_time", 1),
        (60_000, part(), 45_000 + 5_000, "answered", 2),
        (60_000, Scripted::hang(), 60_000, "timeout", 2),
        (260_000, Scripted::hang(), 260_000 - 1_000, "timeout", 2), // `stops.closing_turn_s` is a minute
    ] {
        let setup = Setup { rules: rules(""), ..Setup::new(ScriptedModel::new([Scripted::hang(), last])) };
        let agent = setup.start().await;
        let begun = tokio::time::Instant::now();
        let options = RunOptions { timeout_ms: Some(timeout_ms), ..RunOptions::default() };
        let Ack::Accepted(run) = agent.one.text_with("alice", "go", options).await else { panic!("accepted") };
        let record = end_of(run).await;
        assert_eq!(record.reason, Some(StopReason::ActiveTime), "{record:?}");
        let elapsed = begun.elapsed().as_millis();
        assert!((took_ms..took_ms + 60).contains(&elapsed), "{timeout_ms} took {elapsed} ms");
        assert_eq!((&record.evidence["closing"], agent.model.seen().len()), (&json!(closing), calls), "{record:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_message_with_outputs_includes_its_closing_turn() {
    let setup = Setup { rules: rules(""), ..Setup::new(ScriptedModel::new([Scripted::hang()])) };
    let agent = setup.start().await;
    let begun = tokio::time::Instant::now();
    let options = RunOptions { timeout_ms: Some(1000), ..RunOptions::default() };
    let outputs = vec![belay_protocol::DeclaredOutput::parse("a:integer").expect("an output")];
    let Ack::Accepted(run) = agent.one.with_outputs_and("alice", "go", outputs, options).await else {
        panic!("accepted")
    };
    let record = end_of(run).await;
    assert_eq!((record.reason, &record.evidence["closing"]), (Some(StopReason::ActiveTime), &json!("no_time")));
    assert!(begun.elapsed() < Duration::from_millis(1060), "{:?}", begun.elapsed());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_who_stops_a_closing_turn_ends_the_run_at_once() {
    let setup = Setup {
        rules: rules("[limits]\nactive_s = 60"),
        ..Setup::new(ScriptedModel::new([]).then_forever(Scripted::hang()))
    };
    let mut agent = setup.start().await;
    let run = agent.one.accepted("alice", "go").await;
    agent.asked(2).await; // the second is the closing turn
    agent.one.command("alice", "/stop").await;
    let record = end_of(run).await;
    assert_eq!(record.reason, Some(StopReason::UserStop), "somebody's stop comes before every limit");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_does_not_outlive_the_time_of_the_run_by_more_than_its_own_limit() {
    let model = ScriptedModel::new([
        Scripted::call("slow", json!({})).after(Duration::from_secs(44)),
        Scripted::text("late, but here"),
    ]);
    let setup = Setup { rules: rules("[limits]\nactive_s = 60"), ..Setup::new(model) }.tool(TestTool::named("slow"));
    let (agent, record) = run(&setup, "go").await;
    assert_eq!(record.reason, Some(StopReason::ActiveTime), "{record:?}");
    let texts = saw(&agent.model, 2);
    assert!(texts.iter().any(|text| text == "slowly"), "the tool's result stands: {texts:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn events_show_results_without_the_markers_for_models() {
    let script = [
        Scripted::call("page", json!({"text": "noon"})),
        Scripted::call("fail", json!({})), // its error may quote the page
        Scripted::text("done"),
    ];
    let setup = Setup::new(ScriptedModel::new(script)).tool(TestTool::named("echo").called("page").of_outside());
    let (agent, record) = run(&setup, "go").await;
    let query = belay_protocol::EventQuery { run: Some(record.run_id), limit: 100, ..Default::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let results: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            belay_protocol::EventKind::ToolFinished { result, .. } => Some(result.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(results, ["noon\n", "it does not work"], "{events:?}");
    let model = saw(&agent.model, 3);
    assert!(model.iter().any(|text| text.starts_with("<untrusted source=")), "{model:?}");
    agent.shut_down().await;
}

#[test]
fn every_tool_status_has_the_word_of_the_wire() {
    use ToolStatus::{Cancelled, Denied, Error, NotExecuted, OutcomeUnknown, Success};
    for status in [Success, Error, Denied, Cancelled, NotExecuted, OutcomeUnknown] {
        assert_eq!(serde_json::to_value(status).expect("serialises"), status.word());
    }
}
