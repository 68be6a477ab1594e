//! Subagents: how each of their endings comes about, what the parent reads, and what bounds the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_agent_loop::StopRules;
use belay_agent_loop::policies::{RunLimits, StopsConfig};
use belay_protocol::{EventKind, EventQuery, RunId, RunStatus, StopReason, Termination};
use belay_testkit::assert_golden;
use belay_testkit::golden::render;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use belay_testkit::seen_request::SeenRequest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Running, Setup, TestTool, end_of, saw};

const SPAWN: &str = "spawn_subagent";

fn spawn(arguments: Value) -> Scripted {
    Scripted::call(SPAWN, arguments)
}

fn answer(text: &str) -> Scripted {
    Scripted::text(text)
}

/// The events of a run.
async fn events(setup: &Setup, run: RunId) -> Vec<EventKind> {
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    setup.store.events.read(query).await.expect("readable").into_iter().map(|event| event.kind).collect()
}

/// How the subagents of a run ended, by their events.
async fn endings(setup: &Setup, run: RunId) -> Vec<(Termination, StopReason, u32)> {
    let ended = events(setup, run).await.into_iter().filter_map(|event| match event {
        EventKind::SubagentEnded { termination, reason, turns, .. } => Some((termination, reason, turns)),
        _ => None,
    });
    ended.collect()
}

/// The facts and the line that the parent's model read as the result of its first call, in its request number `n`.
fn read(model: &ScriptedModel, n: usize) -> (Value, String) {
    let text = saw(model, n)[2].clone();
    let (facts, line) = text.split_once('\n').unwrap_or((&text, ""));
    let mut facts: Value = serde_json::from_str(facts).unwrap_or_else(|error| panic!("{error}: {text}"));
    facts.as_object_mut().expect("an object").remove("duration_ms").expect("told");
    (facts, line.to_owned())
}

/// Longer than the time of any run here.
const LONG: Duration = Duration::from_secs(3600);

/// Starts an agent whose model plays this, sends one message, and waits for the end of its run.
fn play(
    script: impl IntoIterator<Item = Scripted>,
    change: impl FnOnce(&mut Setup),
) -> impl Future<Output = (Setup, Running, RunId)> {
    // Made here, so that the future does not hold the whole script.
    let mut setup = Setup::new(ScriptedModel::new(script));
    change(&mut setup);
    async move {
        let agent = Box::pin(setup.start()).await;
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!(record.status, RunStatus::Completed, "{record:?}");
        (setup, agent, record.run_id)
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_with_outputs_ends_with_its_goal_and_the_parent_reads_them() {
    let script = [
        spawn(
            json!({"task": "count the boats", "context": "harbour: north", "outputs": {"boats": "integer", "names": "string[]"}}),
        ),
        Scripted::call("echo", json!({"text": "two boats"})),
        Scripted::call("emit_value", json!({"name": "boats", "value": "two"})),
        Scripted::call("emit_value", json!({"name": "ships", "value": 2})),
        Scripted::call("emit_value", json!({"name": "boats", "value": 3})),
        answer("There are two boats."),
        Scripted::calls([
            ("emit_value", json!({"name": "boats", "value": 2})),
            ("emit_value", json!({"name": "names", "value": ["Ada", "Bo"]})),
        ]),
        answer("two boats: Ada and Bo"),
    ];
    let (setup, agent, run) = Box::pin(play(script, |_| {})).await;
    let facts = json!({
        "termination": "GOAL", "reason": "goal", "turns": 6, "outputs": {"boats": 2, "names": ["Ada", "Bo"]},
    });
    assert_eq!(read(&agent.model, 8), (facts, "The subagent completed its task.".into()));
    assert_eq!(endings(&setup, run).await, [(Termination::Goal, StopReason::Goal, 6)]);
    let started = EventKind::SubagentStarted { call_id: "call-1-0".into(), task: "count the boats".into(), depth: 1 };
    assert!(events(&setup, run).await.contains(&started));
    let child: Vec<SeenRequest> = agent.model.seen()[1..7].to_vec();
    assert_golden!("subagent", render(&child, &child[5].messages, "GOAL"));
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.usage.model_calls, record.usage.tool_calls), (8, 7), "all of it is charged to the one run");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn completing_takes_everything_at_once_and_the_rest_of_the_batch_still_runs() {
    let echo = TestTool::named("wait");
    let waited = echo.calls.clone();
    let script = [
        spawn(json!({"task": "x", "outputs": {"a": "string", "b": {"type": "integer", "minimum": 1}}})),
        Scripted::call("complete_task", json!({"a": 1, "b": 0, "c": 2})),
        Scripted::calls([
            ("complete_task", json!({"a": "x", "b": 1})),
            ("complete_task", json!({"a": "y", "b": 2})),
            ("wait", json!({})),
            ("terminate", json!({"status": "success"})),
            ("wait", json!({})),
        ]),
        answer("fine"),
    ];
    let (_, agent, _) = play(script, |setup| setup.tools.push(Arc::new(echo))).await;
    let refused = saw(&agent.model, 3)[2].clone();
    for needle in ["invalid arguments: ", "a: 1 is not of type", "b: 0 is less than the minimum", "not declared: c"] {
        assert!(refused.contains(needle), "{needle}: {refused}");
    }
    let (facts, _) = read(&agent.model, 4);
    assert_eq!((&facts["termination"], &facts["outputs"]), (&json!("GOAL"), &json!({"a": "x", "b": 1})));
    assert_eq!(waited.load(Ordering::SeqCst), 1, "what stands behind terminate does not run");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_outputs_a_text_or_a_completion_is_the_goal() {
    for (reply, result, reason) in [
        (answer("It is four."), "It is four.", "final_text"),
        (Scripted::call("complete_task", json!({"result": " It is four. "})), "It is four.", "goal"),
        (
            Scripted::call("terminate", json!({"status": "success", "summary": "It is four."})),
            "It is four.",
            "terminated",
        ),
    ] {
        let script = [spawn(json!({"task": "add"})), reply, answer("four")];
        let (_, agent, _) = Box::pin(play(script, |_| {})).await;
        let facts = json!({"termination": "GOAL", "reason": reason, "turns": 1, "result": result});
        assert_eq!(read(&agent.model, 3).0, facts);
        let tools = agent.model.seen()[1].tools.clone().expect("tools");
        assert_eq!(tools, ["complete_task", "echo", "fail", "panic", SPAWN, "terminate"]);
        agent.shut_down().await;
    }
    let script = [
        spawn(json!({"task": "add"})),
        Scripted::call("complete_task", json!({"result": " "})),
        answer("ok"),
        answer("ok"),
    ];
    let (_, agent, _) = Box::pin(play(script, |_| {})).await;
    assert!(saw(&agent.model, 3)[2].contains("not blank"), "{:?}", saw(&agent.model, 3));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn two_reminders_name_what_is_missing_then_one_last_chance_then_it_is_an_error() {
    for (last, expected) in [
        (
            answer("No."),
            json!({"termination": "ERROR", "reason": "missing_outputs", "turns": 4, "missing": ["b"], "outputs": {"a": 1}}),
        ),
        (
            Scripted::call("emit_value", json!({"name": "b", "value": true})),
            json!({"termination": "GOAL", "reason": "goal", "turns": 4, "outputs": {"a": 1, "b": true}, "interrupted": "missing_outputs"}),
        ),
    ] {
        let script = [
            spawn(json!({"task": "x", "outputs": {"a": "integer", "b": "boolean"}})),
            Scripted::call("emit_value", json!({"name": "a", "value": 1})),
            answer("Done."),
            answer("I said done."),
            answer("Really."),
            last,
            answer("hm"),
        ];
        let (_, agent, _) = Box::pin(play(script, |_| {})).await;
        let seen = agent.model.seen();
        for n in [4, 5] {
            let reminder = saw(&agent.model, n).pop().expect("a reminder");
            assert!(reminder.starts_with("Still missing: b (boolean). Text"), "{reminder}");
            assert!(reminder.contains("emit_value") && reminder.contains("complete_task"), "{reminder}");
        }
        let chance = saw(&agent.model, 6).pop().expect("a last message");
        assert!(chance.contains("your last message") && chance.contains("b (boolean)"), "{chance}");
        assert_eq!(seen[5].tools.as_deref(), Some(&["complete_task".to_owned(), "emit_value".to_owned()][..]));
        assert!(
            seen.iter().all(|request| request
                .messages
                .iter()
                .filter(|m| m.text().contains("missing"))
                .all(|message| !matches!(message.body, belay_protocol::MessageBody::User { .. }))),
            "nothing is said in a person's name"
        );
        assert_eq!(read(&agent.model, 7).0, expected);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_between_two_texts_begins_the_reminders_anew() {
    let script = [
        spawn(json!({"task": "x", "outputs": {"a": "integer"}})),
        answer("one"),
        answer("two"),
        Scripted::call("echo", json!({})),
        answer("three"),
        answer("four"),
        Scripted::call("emit_value", json!({"name": "a", "value": 1})),
        answer("fine"),
    ];
    let (_, agent, _) = Box::pin(play(script, |_| {})).await;
    assert_eq!(read(&agent.model, 8).0["termination"], "GOAL");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn used_up_steps_end_in_a_closing_turn_that_may_still_reach_the_goal() {
    let echo = |n: i32| Scripted::call("echo", json!({ "text": n.to_string() }));
    for (last, termination, calls) in [
        (Scripted::call("complete_task", json!({"result": "half"})), "GOAL", 5),
        (answer("just words"), "MAX_TURNS", 5),
        (Scripted::error(belay_protocol::ModelErrorKind::Network), "MAX_TURNS", 5),
    ] {
        let script = [spawn(json!({"task": "x", "max_turns": 2})), echo(1), echo(2), last, answer("ok")];
        let (setup, agent, run) = Box::pin(play(script, |_| {})).await;
        let (facts, line) = read(&agent.model, calls);
        assert_eq!((facts["termination"].as_str(), facts["turns"].as_u64()), (Some(termination), Some(2)));
        if termination == "GOAL" {
            assert_eq!(
                (facts["interrupted"].as_str(), facts["result"].as_str()),
                (Some("max_iterations"), Some("half"))
            );
            assert!(line.contains("interrupted"), "{line}");
        } else {
            assert_eq!(facts["reason"], "max_iterations");
            let record = setup.store.runs.run(run).await.expect("readable").expect("known");
            assert_eq!(record.status, RunStatus::Completed, "the parent goes on");
        }
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn its_time_ends_it_during_a_model_call_and_during_a_tool() {
    for hanging in [Scripted::hang(), Scripted::call("wait", json!({}))] {
        let script = [spawn(json!({"task": "x", "max_time_s": 60})), hanging, answer("too late"), answer("ok")];
        let begun = Instant::now();
        let (setup, agent, run) =
            play(script, |setup| setup.tools.push(Arc::new(TestTool::named("wait").within(LONG)))).await;
        assert_eq!(begun.elapsed().as_secs(), 45, "a quarter is for the closing turn");
        assert_eq!(endings(&setup, run).await.len(), 1);
        let (facts, line) = read(&agent.model, 4);
        assert_eq!((facts["termination"].as_str(), facts["reason"].as_str()), (Some("TIMEOUT"), Some("active_time")));
        assert!(line.contains("its time limit"), "{line}");
        let chance = saw(&agent.model, 3).pop().expect("a last message");
        assert!(chance.starts_with("The time limit is reached. This is your last message."), "{chance}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_subagent_includes_its_closing_turn() {
    for (max_time_s, asked) in [(20, 1), (60, 2), (280, 2)] {
        let spawning = spawn(json!({"task": "x", "max_time_s": max_time_s}));
        let script = [spawning].into_iter().chain((0..asked).map(|_| Scripted::hang())).chain([answer("ok")]);
        let begun = Instant::now();
        let (_, agent, _) = Box::pin(play(script, |_| {})).await;
        let took = if max_time_s == 280 { 279 } else { max_time_s };
        assert_eq!((begun.elapsed().as_secs(), agent.model.dropped_count()), (took, asked));
        agent.shut_down().await;
    }
    // Below a subagent of 60 s, another of 200 s: the work of the upper one ends at 45 s, and so does all of the lower one.
    let script = [
        spawn(json!({"task": "outer", "max_time_s": 60})),
        spawn(json!({"task": "inner", "max_time_s": 200})),
        Scripted::hang(),
        answer("outer closes"),
        answer("ok"),
    ];
    let begun = Instant::now();
    let (setup, agent, run) = Box::pin(play(script, |_| {})).await;
    assert_eq!(begun.elapsed().as_secs(), 45);
    let timeouts: Vec<_> = endings(&setup, run).await.into_iter().map(|(termination, ..)| termination).collect();
    assert_eq!(timeouts, [Termination::Aborted, Termination::Timeout], "the lower one is stopped with the upper one");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_subagent_cannot_overcome_is_an_error_that_the_parent_reads() {
    use belay_protocol::ModelErrorKind::{Auth, ContextTooLong};
    for (reply, reason, result) in [
        (Scripted::error(Auth), "provider_auth", None),
        (Scripted::error(ContextTooLong), "context_too_long", None),
        (
            Scripted::call("terminate", json!({"status": "failure", "summary": "no such file"})),
            "gave_up",
            Some("no such file"),
        ),
    ] {
        let script = [spawn(json!({"task": "x"})), reply, answer("it did not work")];
        let (_, agent, _) = Box::pin(play(script, |_| {})).await;
        let (facts, line) = read(&agent.model, 3);
        assert_eq!((facts["termination"].as_str(), facts["reason"].as_str()), (Some("ERROR"), Some(reason)));
        assert_eq!(facts["result"].as_str(), result);
        assert!(line.starts_with("The subagent did not complete its task."), "{line}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn success_in_words_with_outputs_missing_is_none() {
    let script = [
        spawn(json!({"task": "x", "outputs": {"a": "integer"}})),
        Scripted::call("terminate", json!({"status": "success", "summary": "done"})),
        answer("done"),
        answer("ok"),
    ];
    let (_, agent, _) = Box::pin(play(script, |_| {})).await;
    assert_eq!(read(&agent.model, 4).0["reason"], "missing_outputs");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_subagent_has_a_part_of_its_parents_tools_and_no_others() {
    let script = [
        spawn(json!({"task": "x", "tools": ["echo", "complete_task"]})),
        Scripted::call("fail", json!({})),
        answer("could not"),
        answer("ok"),
    ];
    let (_, agent, _) = Box::pin(play(script, |_| {})).await;
    assert_eq!(agent.model.seen()[1].tools.as_deref().expect("tools"), ["complete_task", "echo", "terminate"]);
    let refused = saw(&agent.model, 3)[2].clone();
    assert!(refused.contains("no tool named fail") && refused.contains("echo"), "{refused}");
    agent.shut_down().await;

    // Below one that has echo alone, nobody has more.
    let script = [
        spawn(json!({"task": "x", "tools": ["echo", SPAWN]})),
        spawn(json!({"task": "y", "tools": ["echo", "fail"]})),
        spawn(json!({"task": "y", "tools": [SPAWN]})),
        spawn(json!({"task": "y", "outputs": {"a": "text", "b": "integer"}})),
        spawn(json!({"task": " ", "tools": []})),
        answer("no"),
        answer("ok"),
    ];
    let (setup, agent, run) = Box::pin(play(script, |_| {})).await;
    let refusals = saw(&agent.model, 6);
    for needle in [
        "invalid arguments: tools: fail: you do not have these tools; you can pass: echo",
        "spawn_subagent: you do not have these tools",
        "a: there is no type \"text\"; the types are string, number",
        "task: expected a text",
    ] {
        assert!(refusals.iter().any(|said| said.contains(needle)), "{needle}: {refusals:?}");
    }
    assert_eq!(endings(&setup, run).await.len(), 1, "no other was ever started");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn every_cap_of_the_tree_refuses_by_its_name() {
    let three = || Scripted::calls(["a", "b", "c"].map(|task| (SPAWN, json!({ "task": task }))));
    // Two at once: the third is refused. Three in all: the fourth is.
    let script = [
        three(),
        answer("a").after(Duration::from_secs(1)),
        answer("b").after(Duration::from_secs(1)),
        three(),
        answer("c"),
        answer("ok"),
    ];
    let (_, agent, _) = play(script, |setup| {
        setup.config.subagents.max_live = 2;
        setup.config.subagents.max_total = 3;
    })
    .await;
    let texts = saw(&agent.model, 6);
    let live = &texts[4];
    assert!(live.contains("refused: 2 subagents are running already;"), "{live}");
    for total in &texts[7..9] {
        assert!(total.contains("for this request, which is the limit"), "{total}");
    }
    agent.shut_down().await;

    // At the greatest depth the tool is not offered, and calling it all the same is refused.
    let script = [spawn(json!({"task": "a"})), spawn(json!({"task": "b"})), answer("alone then"), answer("ok")];
    let (_, agent, _) = play(script, |setup| setup.config.subagents.max_depth = 1).await;
    assert!(!agent.model.seen()[1].tools.as_ref().expect("tools").contains(&SPAWN.to_owned()));
    assert!(saw(&agent.model, 3)[2].contains("no tool named spawn_subagent"));
    agent.shut_down().await;

    let (_, agent, _) = play([answer("ok")], |setup| setup.config.subagents.max_turns = 0).await;
    assert!(!agent.model.seen()[0].tools.as_ref().expect("tools").contains(&SPAWN.to_owned()));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn subagents_of_one_batch_work_side_by_side() {
    let script = [
        Scripted::calls([1, 2, 3].map(|n| (SPAWN, json!({ "task": format!("part {n}") })))),
        answer("x").after(Duration::from_secs(5)),
        answer("y").after(Duration::from_secs(5)),
        answer("z").after(Duration::from_secs(5)),
        answer("all"),
    ];
    let begun = Instant::now();
    let (setup, agent, run) = Box::pin(play(script, |_| {})).await;
    assert_eq!(begun.elapsed().as_secs(), 5, "three take the time of one");
    assert_eq!(endings(&setup, run).await, [(Termination::Goal, StopReason::FinalText, 1); 3]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_whole_run_ends_the_subagent_and_then_the_run() {
    let limits = RunLimits { model_calls: Some(3), ..RunLimits::default() };
    let script = [
        spawn(json!({"task": "x"})),
        Scripted::call("echo", json!({})),
        Scripted::call("echo", json!({"text": "2"})),
        answer("the best that I have"),
    ];
    let mut setup = Setup::new(ScriptedModel::new(script));
    setup.rules = Arc::new(StopRules::compile(&StopsConfig::default(), &limits));
    let agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::ModelCalls)));
    assert_eq!(endings(&setup, record.run_id).await, [(Termination::Error, StopReason::ModelCalls, 2)]);
    assert_eq!(record.usage.model_calls, 4, "three, and the closing turn");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_the_run_is_up_for_everyone_below_it_too() {
    for hanging in [Scripted::hang(), Scripted::call("wait", json!({}))] {
        let limits = RunLimits { active_s: 100, ..RunLimits::default() };
        let script = [spawn(json!({"task": "x"})), hanging, answer("the best that I have")];
        let mut setup = Setup::new(ScriptedModel::new(script)).tool(TestTool::named("wait").within(LONG));
        setup.rules = Arc::new(StopRules::compile(&StopsConfig::default(), &limits));
        let agent = setup.start().await;
        let begun = Instant::now();
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!((begun.elapsed().as_secs(), record.reason), (75, Some(StopReason::ActiveTime)), "{record:?}");
        assert_eq!(endings(&setup, record.run_id).await.len(), 1);
        assert!(saw(&agent.model, 3).last().expect("the closing turn").contains("last message"));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_closing_turn_is_a_stop() {
    let script = [spawn(json!({"task": "x", "max_time_s": 60})), Scripted::hang(), Scripted::hang()];
    let setup = Setup::new(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(3).await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    let run = end_of(accepted).await.run_id;
    assert_eq!(endings(&setup, run).await, [(Termination::Aborted, StopReason::ParentStopped, 1)]);
    assert_eq!(agent.model.seen().len(), 3);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_the_whole_tree_at_once() {
    let wait = TestTool::named("wait");
    let waiting = wait.calls.clone();
    // Two children, one of which has a child of its own: three live below the run, waiting for a model or for a tool.
    let script = [
        Scripted::calls([(SPAWN, json!({"task": "left"})), (SPAWN, json!({"task": "right"}))]),
        spawn(json!({"task": "below left"})),
        Scripted::hang(),
        Scripted::call("wait", json!({})),
    ];
    let setup = Setup::new(ScriptedModel::new(script)).tool(wait);
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(4).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waiting.load(Ordering::SeqCst), 1);

    let begun = Instant::now();
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert!(begun.elapsed() <= Duration::from_millis(100), "took {:?}", begun.elapsed());
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
    assert_eq!(agent.model.dropped_count(), 1);
    let ended = endings(&setup, record.run_id).await;
    assert_eq!(ended.len(), 3, "{ended:?}");
    for (termination, reason, _) in ended {
        assert_eq!((termination, reason), (Termination::Aborted, StopReason::ParentStopped));
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(agent.model.seen().len(), 4, "nobody asks the model any more");
    // Each call in the conversation has its result, so that it can go on.
    agent.model.push(answer("going on"));
    assert_eq!(agent.one.ask("alice", "go on").await, "going on");
    assert!(saw(&agent.model, 5)[2].starts_with("cancelled"), "{:?}", saw(&agent.model, 5));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_deep_tree_of_hanging_models_is_gone_within_the_grace() {
    let script = [
        Scripted::calls([(SPAWN, json!({"task": "a"})), (SPAWN, json!({"task": "b"}))]),
        spawn(json!({"task": "c"})),
        Scripted::hang(),
        Scripted::hang(),
    ];
    let setup = Setup::new(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(4).await;
    let begun = Instant::now();
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    end_of(accepted).await;
    assert!(begun.elapsed() <= Duration::from_millis(60), "took {:?}", begun.elapsed());
    assert_eq!((agent.model.dropped_count(), agent.model.seen().len()), (2, 4));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_leaves_a_call_whose_outcome_nobody_knows_and_it_is_not_started_again() {
    let setup = Setup::new(ScriptedModel::new([spawn(json!({"task": "x"})), Scripted::hang()]));
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "go").await.run_id;
    agent.asked(2).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([answer("I do not know what it did")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "I do not know what it did");
    let texts = saw(&agent.model, 1);
    assert!(texts[2].starts_with("outcome unknown"), "{texts:?}");
    assert_eq!(agent.model.seen().len(), 1);
    assert!(endings(&setup, run).await.is_empty(), "nobody saw it end");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_give_the_tree_its_caps_anew() {
    let mut setup = Setup::new(ScriptedModel::new([spawn(json!({"task": "x"})), answer("x"), Scripted::hang()]));
    setup.config.subagents.max_total = 1;
    let agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(3).await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([spawn(json!({"task": "y"})), answer("alone then")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "alone then");
    assert!(
        saw(&agent.model, 2)[4].contains("1 subagents have been started for this request"),
        "{:?}",
        saw(&agent.model, 2)
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_that_a_subagent_says_is_streamed_or_stays_in_the_conversation() {
    let script = [spawn(json!({"task": "x"})), Scripted::streamed(["sec", "ret"]), answer("done"), answer("next")];
    let setup = Setup::new(ScriptedModel::new(script));
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "done");
    assert_eq!(agent.one.ask("alice", "and now").await, "next");
    let texts = saw(&agent.model, 4);
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert!(texts[2].contains("\"termination\":\"GOAL\""), "{texts:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_subagent_is_judged_and_its_last_chance_is_not() {
    let opinion = |confidence: f64| {
        answer(&json!({"unproductive_state_analysis": "…", "unproductive_state_confidence": confidence}).to_string())
    };
    let work = |n: u32| Scripted::call("echo", json!({ "text": n.to_string() }));
    let every_step = "[judge]\nfirst_step = 2\nmin_interval = 1\nmax_interval = 1\nhistory = 7";
    let judge = |setup: &mut Setup| setup.rules = crate::support::rules(every_step);
    let opinions = |seen: Vec<SeenRequest>| {
        let asked = |request: &SeenRequest| request.prompt.starts_with("You examine the record");
        seen.iter().enumerate().filter(|(_, request)| asked(request)).map(|(n, _)| n + 1).collect::<Vec<_>>()
    };

    // The first verdict is a notice, the second one the end; the parent is judged by itself.
    let script = [
        spawn(json!({"task": "count"})),
        work(1),
        opinion(0.95),
        work(2),
        opinion(0.95),
        opinion(0.0),
        answer("it went in circles"),
    ];
    let (setup, agent, run) = play(script, judge).await;
    assert_eq!(endings(&setup, run).await, [(Termination::Error, StopReason::JudgedLoop, 3)]);
    assert_eq!(opinions(agent.model.seen()), [3, 5, 6]);
    assert!(saw(&agent.model, 3).concat().contains("count"), "the judge is shown the task");
    agent.shut_down().await;

    let script = [
        spawn(json!({"task": "count", "max_turns": 2})),
        work(1),
        opinion(0.0),
        work(2),
        Scripted::call("complete_task", json!({"result": "two"})),
        opinion(0.0),
        answer("two"),
    ];
    let (setup, agent, run) = play(script, judge).await;
    assert_eq!(endings(&setup, run).await, [(Termination::Goal, StopReason::Goal, 2)]);
    assert_eq!(opinions(agent.model.seen()), [3, 6]);
    agent.shut_down().await;
}
