//! `/plan`: the plan is made, its steps are carried out by executors, and whatever happens the run has one honest end.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_agent::Agent;

use belay_protocol::{Ack, EventKind, EventQuery, ModelErrorKind, Price, RunId, RunRecord, RunStatus, StopReason};
use belay_run::ExecutorConfig;
use belay_testkit::assert_golden;
use belay_testkit::golden;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use belay_testkit::seen_request::SeenRequest;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Running, Setup, TestTool, end_of, saw};

/// A summary, and the line that a plan with blocked steps ends with.
fn but_blocked(summary: &str) -> String {
    format!("{summary}\n\n{}", StopReason::PlanBlocked.user_line())
}

fn planned(steps: &[&str]) -> Scripted {
    Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": steps}))
}

fn success(summary: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "success", "summary": summary}))
}

fn failure(summary: &str) -> Scripted {
    Scripted::call("terminate", json!({"status": "failure", "summary": summary}))
}

fn executor(description: &str, tools: &[&str]) -> ExecutorConfig {
    ExecutorConfig {
        description: description.into(),
        tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
        ..ExecutorConfig::default()
    }
}

async fn run(agent: &Running, text: &str) -> RunRecord {
    (*end_of(agent.one.accepted("alice", text).await).await).clone()
}

/// The plan's events of a run, a line for each.
async fn progress(setup: &Setup, run: RunId) -> Vec<String> {
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let line = |kind| match kind {
        EventKind::PlanCreated { title, steps, .. } => Some(format!("{title}: {}", steps.join(" | "))),
        EventKind::PlanStep { index, status, executor, note } => Some(
            format!("{index} {status} by {executor}: {}", note.unwrap_or_default()).trim_end_matches(": ").to_owned(),
        ),
        _ => None,
    };
    events.into_iter().filter_map(|event| line(event.kind)).collect()
}

/// Figures of the evidence: completed, blocked, executions.
fn figures(record: &RunRecord) -> [u64; 3] {
    ["completed", "blocked", "executions"].map(|key| record.evidence[key].as_u64().expect("a figure"))
}

/// The task that an executor was given in request number `n`.
fn task(agent: &Running, n: usize) -> String {
    saw(&agent.model, n)[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_made_carried_out_step_by_step_and_summed_up() {
    let model = ScriptedModel::new([
        Scripted::text("hello"),
        planned(&["look", "work"]),
        Scripted::call("echo", json!({"text": "seen"})),
        success("two rooms\nand a hall"),
        Scripted::text("The task is complete. All is clean."),
        Scripted::text("Everything is tidy."),
        Scripted::text("You are welcome."),
    ])
    .with_usage(10, 1);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    agent.one.ask("alice", "hi").await;
    let record = run(&agent, "/plan tidy the house").await;
    assert_eq!(agent.one.next().await, "Everything is tidy.");
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::PlanCompleted)));
    assert_eq!(figures(&record), [2, 0, 2]);
    assert_eq!((record.usage.model_calls, record.usage.tool_calls, record.usage.input), (5, 3, 50));
    let expected = [
        "The work: look | work",
        "0 in_progress by general",
        "0 completed by general: two rooms",
        "1 in_progress by general",
        "1 completed by general: The task is complete. All is clean.",
    ];
    assert_eq!(progress(&setup, record.run_id).await, expected);
    let second = task(&agent, 5);
    assert!(second.contains("0. [✓] look\n   Note: two rooms") && second.contains("1. [→] work"), "{second}");
    assert!(second.contains("- step 0: two rooms\n  and a hall") && second.contains("Your step is number 1: work"));

    // The thread has what the person said and what they were told, and nothing of the steps.
    agent.one.ask("alice", "thanks").await;
    assert_eq!(saw(&agent.model, 7), ["hi", "hello", "/plan tidy the house", "Everything is tidy.", "thanks"]);
    agent.shut_down().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("yes")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "still there?").await;
    assert_eq!(saw(&agent.model, 1)[2..4], ["/plan tidy the house", "Everything is tidy."]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_planner_executor_and_summary_see_is_as_agreed() {
    let model = ScriptedModel::new([
        Scripted::text("The house is small."),
        Scripted::calls([
            ("planning", json!({"command": "create", "title": "Nothing", "steps": []})),
            ("planning", json!({"command": "create", "title": "Tidy", "steps": ["[LOOK] see what is there", "clean"]})),
            ("planning", json!({"command": "create", "title": "Too late", "steps": ["x"]})),
        ]),
        Scripted::text("I see two rooms."),
        Scripted::call("echo", json!({"text": "two"})),
        success("two rooms"),
        failure("there is no broom"),
        Scripted::text("Two rooms, and no broom."),
    ]);
    let mut setup = Setup::new(model);
    setup.config.executors = BTreeMap::from([("look".into(), executor("sees what there is", &["echo"]))]);
    let mut agent = setup.start().await;
    agent.one.ask("alice", "How is the house?").await;
    let record = run(&agent, "/plan tidy it").await;
    agent.one.next().await;
    let end =
        format!("{} {}", record.reason.expect("ended").word(), belay_protocol::canonical_json(&record.evidence.into()));
    let seen: Vec<SeenRequest> = agent.model.seen().into_iter().skip(1).collect();
    assert_golden!("plan", golden::render(&seen, &[], &end));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_tag_chooses_the_executor_with_its_prompt_and_tools() {
    let model = ScriptedModel::new([
        planned(&["[web] look", "[ASKS_NOBODY] work", "check"]),
        success("a"),
        success("b"),
        success("c"),
        Scripted::text("done"),
    ]);
    let mut setup = Setup::new(model);
    let web = ExecutorConfig { prompt: Some("You look things up.".into()), ..executor("looks things up", &["echo"]) };
    setup.config.executors = BTreeMap::from([("Web".into(), web)]);
    let agent = setup.start().await;
    let record = run(&agent, "/plan find it").await;
    let seen = agent.model.seen();
    let tools = |n: usize| seen[n - 1].tools.clone().unwrap_or_default().join(" ");
    assert!(seen[0].prompt.contains("- GENERAL: ") && seen[0].prompt.contains("- WEB: looks things up"));
    assert_eq!((tools(1).as_str(), tools(2).as_str()), ("planning", "echo terminate"));
    assert!(seen[1].prompt.starts_with("You look things up.") && seen[1].prompt.contains("terminate"));
    assert_eq!((tools(3).as_str(), tools(5).as_str()), ("echo fail panic spawn_subagent terminate", ""));
    let who: Vec<String> = progress(&setup, record.run_id).await.into_iter().skip(1).step_by(2).collect();
    assert_eq!(who, ["0 in_progress by Web", "1 in_progress by general", "2 in_progress by general"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_executor_with_a_tool_that_is_not_there_keeps_the_agent_from_starting() {
    let mut setup = Setup::new(ScriptedModel::new([]));
    setup.config.executors = BTreeMap::from([("look".into(), executor("looks", &["ecko"]))]);
    let refused = Agent::start(setup.parts()).await.err().expect("refused").to_string();
    assert_eq!(refused, "agent.executors.look.tools: there is no tool ecko; did you mean echo?");
}

#[tokio::test(start_paused = true)]
async fn a_failing_step_is_tried_again_then_blocked_and_the_plan_goes_on() {
    let model = ScriptedModel::new([
        planned(&["look", "work"]),
        Scripted::error(ModelErrorKind::ContextTooLong),
        Scripted::error(ModelErrorKind::BadRequest),
        success("worked"),
        Scripted::text("One step could not be done."),
    ]);
    let setup = Setup::new(model);
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::PlanBlocked)));
    assert_eq!(record.reply, Some(but_blocked("One step could not be done.")));
    assert_eq!(figures(&record), [1, 1, 3]);
    assert!(task(&agent, 3).contains(&format!(
        "This is attempt 2. What went wrong in the previous attempt: {}",
        StopReason::ContextTooLong.user_line()
    )));
    let expected = [
        "The work: look | work",
        "0 in_progress by general",
        &format!("0 in_progress by general: {}", StopReason::ContextTooLong.user_line()),
        "0 blocked by general: The model provider refused the request.",
        "1 in_progress by general",
        "1 completed by general: worked",
    ];
    assert_eq!(progress(&setup, record.run_id).await, expected);
    let report = task(&agent, 5);
    assert!(report.contains("Completed steps and their results:\n- step 1, work:\n  worked"), "{report}");
    assert!(
        report.contains("Blocked steps and why:\n- step 0, look:\n  The model provider refused the request."),
        "{report}"
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn each_way_for_a_step_to_fail_is_told_to_its_next_attempt() {
    let loops = || Scripted::call("fail", json!({}));
    for (name, first, told) in [
        (
            "its own limit of steps",
            vec![loops(), Scripted::call("echo", json!({}))],
            "did not finish within its 2 steps",
        ),
        ("nothing at all, twice", vec![Scripted::text(""), Scripted::text(" ")], "without an answer"),
    ] {
        let calls = first.len();
        let script = [planned(&["work"])].into_iter().chain(first).chain([success("ok"), Scripted::text("done")]);
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.config.plan.max_steps_per_execution = 2;
        let agent = setup.start().await;
        let record = run(&agent, "/plan tidy").await;
        assert_eq!((record.reason, figures(&record)), (Some(StopReason::PlanCompleted), [1, 0, 2]), "{name}");
        let second = task(&agent, 2 + calls);
        assert!(second.contains(told), "{name}: {second}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn terminate_with_failure_blocks_the_step_at_once() {
    let model = ScriptedModel::new([
        planned(&["look", "work"]),
        Scripted::calls([("terminate", json!({"status": "failure", "summary": "locked"})), ("echo", json!({}))]),
        failure("no broom"),
        Scripted::text("Nothing could be done."),
    ]);
    let setup = Setup::new(model);
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.reason, figures(&record)), (Some(StopReason::PlanBlocked), [0, 2, 2]));
    let progress = progress(&setup, record.run_id).await;
    assert_eq!(progress[2], "0 blocked by general: locked");
    assert_eq!(progress[4], "1 blocked by general: no broom");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_text_ends_a_step_when_it_says_so_or_after_one_notice() {
    let model = ScriptedModel::new([
        planned(&["look", "work"]),
        Scripted::text("I see two rooms."),
        Scripted::text("Two rooms, as I said."),
        Scripted::text("The rooms are dirty."),
        Scripted::call("echo", json!({})),
        Scripted::text("Now they are clean."),
        Scripted::text("I have finished the step."),
        Scripted::text("done"),
    ]);
    let setup = Setup::new(model);
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.reason, figures(&record)), (Some(StopReason::PlanCompleted), [2, 0, 2]));
    let notices = |n: usize| saw(&agent.model, n).iter().filter(|text| text.contains("call `terminate` now")).count();
    assert_eq!([2, 3, 4, 5, 6, 7].map(notices), [0, 1, 0, 1, 1, 2]);
    let kept: Vec<String> = progress(&setup, record.run_id).await.into_iter().skip(2).step_by(2).collect();
    assert_eq!(
        kept,
        ["0 completed by general: Two rooms, as I said.", "1 completed by general: I have finished the step."]
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_opinion_may_send_an_executor_back_to_work_and_is_charged() {
    let model = ScriptedModel::new([
        planned(&["look"]),
        Scripted::text("The task is complete."),
        Scripted::text(r#"{"met": false, "missing": "the number of rooms"}"#),
        Scripted::text("Two rooms. The task is complete."),
        Scripted::error(ModelErrorKind::Network),
        Scripted::text("done"),
    ]);
    let mut setup = Setup::new(model);
    setup.config.completion_check = true;
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.reason, record.usage.model_calls), (Some(StopReason::PlanCompleted), 6));
    let asked = &agent.model.seen()[2];
    assert_eq!((asked.tools.clone(), asked.max_attempts), (None, 1));
    assert!(asked.messages[0].text().ends_with("Answer of the agent:\nThe task is complete."));
    let told = saw(&agent.model, 4);
    assert!(told[2].contains("this answer is incomplete: the number of rooms"), "{told:#?}");
    assert_eq!(progress(&setup, record.run_id).await[2], "0 completed by general: Two rooms. The task is complete.");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_usable_plan_the_default_one_is_worked_through() {
    let bad = || Scripted::call("planning", json!({"command": "create", "title": "", "steps": ["a"]}));
    for planning in [vec![Scripted::text("I would first look around.")], vec![bad(), bad(), bad()]] {
        let calls = planning.len();
        let rest = [success("a"), success("b"), success("c"), Scripted::text("done")];
        let setup = Setup::new(ScriptedModel::new(planning.into_iter().chain(rest)));
        let agent = setup.start().await;
        let record = run(&agent, &format!("/plan {}", "tidy the whole house ".repeat(10))).await;
        assert_eq!((record.reason, figures(&record)), (Some(StopReason::PlanCompleted), [3, 0, 3]));
        let made = &progress(&setup, record.run_id).await[0];
        let title = "tidy the whole house tidy the whole house tidy th…";
        assert_eq!(*made, format!("{title}: Analyse the request | Execute the task | Verify the result"));
        assert!(task(&agent, calls + 1).contains("0. [→] Analyse the request"));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_cannot_be_asked_ends_the_run_and_one_without_room_is_asked_without_the_history() {
    let model = ScriptedModel::new([
        Scripted::error(ModelErrorKind::Auth),
        Scripted::text("hello"),
        Scripted::error(ModelErrorKind::ContextTooLong),
        planned(&["look"]),
        success("a"),
        Scripted::text("done"),
        planned(&["look"]),
        Scripted::error(ModelErrorKind::Auth),
    ]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!(
        (record.reason, record.reply.as_deref()),
        (Some(StopReason::ProviderAuth), Some(StopReason::ProviderAuth.user_line()))
    );
    agent.one.next().await;
    agent.one.ask("alice", "hi").await;
    assert_eq!(run(&agent, "/plan tidy").await.reason, Some(StopReason::PlanCompleted));
    assert_eq!(saw(&agent.model, 3), ["/plan tidy", "hi", "hello", "tidy"]);
    assert_eq!(saw(&agent.model, 4), ["tidy"]);
    // In the middle of a plan a refused key ends it too, with an account of what was done.
    let record = run(&agent, "/plan tidy").await;
    assert_eq!(record.reason, Some(StopReason::ProviderAuth));
    let reply = record.reply.unwrap_or_default();
    assert!(reply.starts_with("The work: 0 of 1 steps are completed.") && reply.ends_with("must check it."), "{reply}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_answer_ends_the_plan_for_that_reason_and_is_not_asked_for_every_step() {
    for (kind, reason) in [
        (ModelErrorKind::Network, StopReason::Network),
        (ModelErrorKind::Overloaded { retry_after: None }, StopReason::Overloaded),
        (ModelErrorKind::RateLimited { retry_after: None }, StopReason::RateLimited),
        (ModelErrorKind::Auth, StopReason::ProviderAuth),
    ] {
        // Whatever is asked after the error would be answered, so that another request would show itself.
        let model = ScriptedModel::new([
            planned(&["a", "b", "c"]),
            success("A"),
            Scripted::error(kind),
            success("B"),
            success("C"),
            Scripted::text("done"),
        ]);
        let setup = Setup::new(model);
        let agent = setup.start().await;
        let record = run(&agent, "/plan tidy").await;
        assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(reason)));
        assert_eq!((figures(&record), record.evidence["open"].as_u64()), ([1, 0, 2], Some(2)), "{reason:?}");
        assert_eq!(agent.model.seen().len(), 3, "{reason:?}");
        let progress = progress(&setup, record.run_id).await;
        assert_eq!(progress.last().map(String::as_str), Some("1 in_progress by general"), "{reason:?}");
        let account = "The work: 1 of 3 steps is completed.\n\n- a (done): A\n- b (not finished)\n- c (not begun)";
        assert_eq!(record.reply, Some(format!("{account}\n\n{}", reason.user_line())), "{reason:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_executions_is_limited_over_the_whole_plan() {
    let model = ScriptedModel::new([
        planned(&["a", "b", "c"]),
        success("A"),
        Scripted::error(ModelErrorKind::BadRequest),
        success("B"),
        Scripted::text("I got to b."),
    ]);
    let mut setup = Setup::new(model);
    setup.config.plan.max_executions = 3;
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::PlanLimit)));
    assert_eq!(figures(&record), [2, 0, 3]);
    let evidence =
        json!({"completed": 2, "blocked": 0, "open": 1, "executions": 3, "max_executions": 3, "closing": "answered"});
    assert_eq!(serde_json::Value::from(record.evidence), evidence);
    let line = StopReason::PlanLimit.user_line();
    assert_eq!(record.reply, Some(format!("I got to b.\n\n{line}")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_a_step_ends_the_whole_plan_at_once() {
    for tool in [true, false] {
        let working = if tool { Scripted::call("wait", json!({})) } else { Scripted::hang() };
        let model = ScriptedModel::new([planned(&["a", "b"]), working, Scripted::text("hello again")]);
        let setup = Setup::new(model).tool(TestTool::named("wait"));
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "/plan tidy").await;
        agent.asked(2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
        assert!(begun.elapsed() <= Duration::from_millis(100), "took {:?}", begun.elapsed());
        let record = end_of(accepted).await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
        assert_eq!(figures(&record), [0, 0, 1]);
        assert_eq!(agent.one.ask("alice", "hi").await, "hello again", "nothing else was said or asked in between");
        assert_eq!(saw(&agent.model, 3), ["/plan tidy", "hi"]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_plan_is_made_or_summed_up_ends_it_too() {
    for before in [vec![], vec![planned(&["a"]), success("A")]] {
        let calls = before.len() + 1;
        let setup = Setup::new(ScriptedModel::new(before.into_iter().chain([Scripted::hang()])));
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "/plan tidy").await;
        agent.asked(calls).await;
        assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
        assert_eq!(end_of(accepted).await.reason, Some(StopReason::UserStop));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_the_run_ends_the_plan_with_what_is_done() {
    let model = ScriptedModel::new([planned(&["a", "b"]), success("A"), success("B")])
        .with_usage(1000, 0)
        .with_info(|info| info.price = Some(Price { input: 1_000_000, cached_input: None, output: 0 }));
    let mut setup = Setup::new(model);
    // The plan costs 1000, and so does the first step; the second would go beyond.
    setup.limits.usd_per_day = Some(0.002_500);
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::CostRefused)));
    assert_eq!(figures(&record), [1, 0, 2]);
    let reply = record.reply.unwrap_or_default();
    assert!(reply.starts_with("The work: 1 of 2 steps is completed.\n\n- a (done): A\n- b (not finished)"), "{reply}");
    assert!(reply.ends_with(StopReason::CostRefused.user_line()), "{reply}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_or_rule_about_the_whole_run_ends_the_plan_for_its_reason_with_a_closing_turn() {
    let echo = || Scripted::call("echo", json!({}));
    let steps = "[[rules]]\nname = \"three_steps\"\nwhen = { steps = 3 }";
    use StopReason::{ActiveTime, ModelCalls, OperatorRule, ToolCalls};
    for (name, toml, script, reason, done) in [
        // A call beyond which there is none is heard, and what it asks for is not done any more.
        (
            "calls, in the second step",
            "[limits]\nmodel_calls = 3",
            vec![success("A"), success("B")],
            ModelCalls,
            [1, 0, 2],
        ),
        ("calls, in the first step", "[limits]\nmodel_calls = 3", vec![echo(), echo()], ModelCalls, [0, 0, 1]),
        ("calls of tools", "[limits]\ntool_calls = 3", vec![echo(), echo()], ToolCalls, [0, 0, 1]),
        (
            "time, in the second step",
            "[limits]\nactive_s = 60",
            vec![success("A"), Scripted::hang()],
            ActiveTime,
            [1, 0, 2],
        ),
        ("a plan and two steps", steps, vec![success("A"), success("B")], OperatorRule, [1, 0, 1]),
    ] {
        let closing = if name.starts_with("a plan") { 2 } else { script.len() + 1 };
        let mut script: Vec<_> = [planned(&["a", "b"])].into_iter().chain(script).collect();
        script.truncate(closing);
        script.push(Scripted::text("As far as I got."));
        let mut setup = Setup::new(ScriptedModel::new(script));
        setup.rules = crate::support::rules(toml);
        let agent = setup.start().await;
        let record = run(&agent, "/plan tidy").await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(reason)), "{name}: {record:#?}");
        assert_eq!(figures(&record), done, "{name}");
        assert!(
            record.evidence["threshold"].as_u64() > Some(1),
            "the run's own limit is told, not a child's: {record:?}"
        );
        assert_eq!(record.reply, Some(format!("As far as I got.\n\n{}", reason.user_line())), "{name}");
        let seen = agent.model.seen();
        let last = seen.last().expect("asked");
        assert!(last.tools.is_none() && last.messages[0].text().starts_with("This is the outcome"), "{name}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_for_which_the_runs_money_does_not_suffice_ends_the_plan_and_not_only_its_step() {
    let model = ScriptedModel::new([planned(&["a", "b"])])
        .with_usage(1000, 0)
        .with_info(|info| info.price = Some(Price { input: 1_000_000, cached_input: None, output: 0 }));
    let mut setup = Setup::new(model);
    // After the plan 200 millionths are left: less than any call is estimated at, and yet no limit is reached.
    setup.rules = crate::support::rules("[limits]\nusd_per_run = 0.0012");
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    assert_eq!((record.reason, figures(&record)), (Some(StopReason::RunCost), [0, 0, 1]));
    assert_eq!(record.evidence["closing"], "no_reserve");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_closing_turn_our_own_words_say_what_was_done() {
    let mut setup = Setup::new(ScriptedModel::new([planned(&["a", "b"]), success("A"), success("B")]));
    setup.rules = crate::support::rules("closing_turn_s = 0\n[limits]\nmodel_calls = 3");
    let agent = setup.start().await;
    let record = run(&agent, "/plan tidy").await;
    let line = StopReason::ModelCalls.user_line();
    let words = "The work: 1 of 2 steps is completed.\n\n- a (done): A\n- b (not finished)";
    assert_eq!(record.reply, Some(format!("{words}\n\n{line}")));
    assert_eq!((record.evidence["closing"].as_str(), record.evidence["open"].as_u64()), (Some("off"), Some(1)));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_executor_may_have_a_subagent_work_for_it() {
    let model = ScriptedModel::new([
        planned(&["a"]),
        Scripted::call("spawn_subagent", json!({"task": "count the rooms"})),
        Scripted::text("two rooms"),
        success("two"),
        Scripted::text("Two rooms."),
    ]);
    let setup = Setup::new(model);
    let agent = setup.start().await;
    let record = run(&agent, "/plan count").await;
    assert_eq!((record.reason, record.usage.model_calls), (Some(StopReason::PlanCompleted), 5));
    assert!(saw(&agent.model, 4)[2].contains("two rooms"), "{:?}", saw(&agent.model, 4));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_fails_is_replaced_by_our_own_words() {
    for failed in [Scripted::error(ModelErrorKind::Overloaded { retry_after: None }), Scripted::text(" ")] {
        let model = ScriptedModel::new([planned(&["a", "b"]), success("A"), failure("no"), failed]);
        let setup = Setup::new(model);
        let agent = setup.start().await;
        let record = run(&agent, "/plan tidy").await;
        assert_eq!(record.reason, Some(StopReason::PlanBlocked));
        let expected = "The work: 1 of 2 steps is completed, 1 is blocked.\n\n- a (done): A\n- b (blocked): no";
        assert_eq!(record.reply, Some(but_blocked(expected)));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_at_the_step_that_was_in_progress_and_says_so() {
    let setup = Setup::new(ScriptedModel::new([planned(&["a", "b", "c"]), success("A"), Scripted::hang()]));
    let agent = setup.start().await;
    let id = agent.one.accepted("alice", "/plan tidy").await.run_id;
    agent.asked(3).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
    let agent = next.start().await;
    agent.asked(1).await;
    let resumed = task(&agent, 1);
    assert!(resumed.contains("Your step is number 1: b") && resumed.contains("0. [✓] a\n   Note: A"), "{resumed}");
    assert!(
        resumed.contains(
            "This is attempt 2. What went wrong in the previous attempt: a restart of Belay \
                              interrupted it"
        ),
        "{resumed}"
    );
    agent.crash().await;

    // Interrupted twice, it has no attempt left: it is blocked, and the plan goes on.
    let next = setup.next_boot(ScriptedModel::new([success("C"), Scripted::text("All but b.")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, but_blocked("All but b."));
    let record = setup.store.runs.run(id).await.expect("readable").expect("known");
    assert_eq!((record.reason, record.attempt), (Some(StopReason::PlanBlocked), 3));
    assert_eq!(figures(&record), [2, 1, 4]);
    let progress = progress(&setup, id).await;
    assert_eq!(progress.len(), 8, "{progress:#?}");
    assert!(progress[5].starts_with("1 blocked by general: a restart of Belay interrupted it"), "{progress:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_waits_its_turn_and_a_repeated_key_joins_it() {
    let model = ScriptedModel::new([
        Scripted::text("hello").after(Duration::from_secs(5)),
        planned(&["a"]),
        success("A"),
        Scripted::text("done"),
    ]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "hi").await;
    let Ack::Accepted(first) = agent.one.keyed("alice", "/plan tidy", "k").await else { panic!("accepted") };
    let Ack::Accepted(again) = agent.one.keyed("alice", "/plan tidy", "k").await else { panic!("joined") };
    assert_eq!((again.run_id, again.duplicate), (first.run_id, true));
    assert_eq!((agent.one.next().await.as_str(), agent.one.next().await.as_str()), ("hello", "done"));
    let usage = agent.one.command("alice", "/plan").await;
    assert!(usage.starts_with("No plan is being carried out here. /plan TEXT makes one"), "{usage}");
    agent.shut_down().await;
}
