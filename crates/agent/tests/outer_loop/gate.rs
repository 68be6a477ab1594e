//! One gate: the same calls have the same outcomes, whoever makes them.

use std::sync::Arc;

use belay_protocol::{Ack, EventKind, EventQuery, MessageBody, RunId, RunRecord, RunStatus, Tool, ToolStatus};
use belay_run::ApprovalRule;
use belay_run::ApprovalsConfig;
use belay_run::approvals::RuleAsk;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Setup, TestTool, end_of};
use crate::workers::{employ_here, hand_over};

/// The tool that a rule and a person are asked about.
const RING: &str = "ring";
/// The tool whose answers are of the outside.
const PAGE: &str = "page";

/// The tools of the table, and the names that a worker has for them.
const IN_WORKER: [(&str, &str); 5] = [
    ("echo", "read_file"),
    ("fail", "write_file"),
    (RING, "edit_file"),
    ("panic", "list_files"),
    (PAGE, "search_files"),
];

/// Calls of every kind: one that works, one whose arguments do not fit, one that fails, one that a rule refuses, one
/// whose answer is of the outside, and one that crashes.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("echo", json!({"text": "plain"})),
        ("echo", json!({"text": 7})),
        ("fail", json!({})),
        ("ring", json!({"text": "never"})),
        ("page", json!({"text": "a page"})),
        ("panic", json!({})),
    ]
}

/// What becomes of them: the result, and whether the call began.
fn outcomes() -> Vec<(String, ToolStatus, String, bool)> {
    use ToolStatus::{Denied, Error, Success};
    let refused = "denied: approvals.rules[0] of the configuration refuses this call. It was not executed.";
    let untrusted = "<untrusted source=\"page\" id=\"MARK\">\na page\n</untrusted id=\"MARK\">";
    [
        ("echo", Success, "plain", true),
        ("echo", Error, "invalid arguments: /text: 7 is not of type \"string\"", false),
        ("fail", Error, "it does not work", true),
        ("ring", Denied, refused, false),
        ("page", Success, untrusted, true),
        ("panic", Error, "the tool crashed; this is an error in the tool", true),
    ]
    .map(|(name, status, text, began)| (name.to_owned(), status, text.to_owned(), began))
    .into()
}

fn setup(script: impl IntoIterator<Item = Scripted>) -> Setup {
    let rule = ApprovalRule {
        tool: "ring".into(),
        arguments: [("text".to_owned(), "never".to_owned())].into(),
        ask: RuleAsk::Refuse,
        allow_untrusted: false,
        second: false,
    };
    let setup = Setup::new(ScriptedModel::new(script))
        .tool(TestTool::named("echo").called("ring").asking())
        .tool(TestTool::named("echo").called("page").of_outside());
    Setup { approvals: ApprovalsConfig { rules: vec![rule], ..ApprovalsConfig::default() }, ..setup }
}

/// A text without the mark that differs from call to call.
fn unmarked(text: &str) -> String {
    let mut parts = text.split(" id=\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += " id=\"MARK";
        out += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out
}

/// The outcomes of the calls that the model's request number `at` shows last, with what the events say of them.
async fn seen(setup: &Setup, run: RunId, at: usize) -> Vec<(String, ToolStatus, String, bool)> {
    let query = EventQuery { run: Some(run), limit: 1000, ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let began = |id: &belay_protocol::CallId| {
        events.iter().any(|event| matches!(&event.kind, EventKind::ToolStarted { call_id, .. } if call_id == id))
    };
    let finished = |id: &belay_protocol::CallId, said: ToolStatus| {
        let ends = events.iter().filter(|event| {
            matches!(&event.kind, EventKind::ToolFinished { call_id, status, .. } if call_id == id && *status == said)
        });
        ends.count()
    };
    let request = setup.model.seen()[at].clone();
    let results: Vec<_> = request
        .messages
        .iter()
        .filter_map(|message| match &message.body {
            MessageBody::Tool(result) => Some((message.untrusted, result.clone())),
            _ => None,
        })
        .collect();
    let mine = &results[results.len() - calls().len()..];
    for (untrusted, result) in mine {
        assert_eq!(*untrusted, [PAGE, IN_WORKER[4].1].contains(&&*result.name), "{result:?}");
        assert_eq!(finished(&result.call_id, result.status), 1, "one event tells the end of {result:?}");
    }
    mine.iter()
        .map(|(_, result)| (result.name.clone(), result.status, unmarked(&result.text), began(&result.call_id)))
        .collect()
}

async fn completed(setup: &Setup, text: &str, yes: bool) -> RunRecord {
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", text).await;
    if yes {
        agent.one.next().await;
        agent.one.command("alice", "yes").await;
    }
    let record = (*end_of(accepted).await).clone();
    assert_eq!(record.status, RunStatus::Completed, "{record:?}");
    agent.shut_down().await;
    record
}

#[tokio::test(start_paused = true)]
async fn a_conversation() {
    let setup = setup([Scripted::calls(calls()), Scripted::text("done")]);
    let record = completed(&setup, "go", false).await;
    assert_eq!(seen(&setup, record.run_id, 1).await, outcomes());
    assert_eq!(record.usage.tool_calls, 4, "what did not begin is not counted");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_goes_on_after_an_approval() {
    let all = [("ring", json!({"text": "once"}))].into_iter().chain(calls());
    let setup = setup([Scripted::calls(all.collect::<Vec<_>>()), Scripted::text("done")]);
    let record = completed(&setup, "go", true).await;
    assert_eq!(seen(&setup, record.run_id, 1).await, outcomes());
    assert_eq!(record.usage.tool_calls, 5);
}

#[tokio::test(start_paused = true)]
async fn a_subagent() {
    let spawn = Scripted::call("spawn_subagent", json!({"task": "do it"}));
    let setup = setup([spawn, Scripted::calls(calls()), Scripted::text("done"), Scripted::text("it is done")]);
    let record = completed(&setup, "go", false).await;
    assert_eq!(seen(&setup, record.run_id, 2).await, outcomes());
    assert_eq!(record.usage.tool_calls, 5);
    // What a subagent has read, its parent has: the result of the call that started it is of the outside.
    let parent = setup.model.seen()[3].messages.last().map(|message| message.untrusted);
    assert_eq!(parent, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_plan() {
    let plan = Scripted::call("planning", json!({"command": "create", "title": "It", "steps": ["do it"]}));
    let done = Scripted::call("terminate", json!({"status": "success", "summary": "done"}));
    let setup = setup([plan, Scripted::calls(calls()), done, Scripted::text("It is done.")]);
    let record = completed(&setup, "/plan it", false).await;
    assert_eq!(seen(&setup, record.run_id, 2).await, outcomes());
    assert_eq!(record.usage.tool_calls, 6);
}

/// What a worker's own tool of that name does.
fn in_worker(name: &str) -> TestTool {
    let does = match IN_WORKER.iter().find(|(_, own)| *own == name) {
        Some((RING | PAGE, _)) => "echo",
        Some((does, _)) => does,
        None => "wait",
    };
    TestTool::named(does).called(name)
}

/// A worker carries out its own tools alone: those of the table under the names that it knows.
#[tokio::test(start_paused = true)]
async fn a_worker() {
    let renamed = |name: &str| IN_WORKER.iter().find(|(known, _)| *known == name).map_or("", |(_, own)| own);
    let calls: Vec<_> = calls().into_iter().map(|(name, arguments)| (renamed(name), arguments)).collect();
    let task = hand_over(json!({"task": "do it"}));
    let mut setup = setup([task, Scripted::calls(calls), Scripted::text("done"), Scripted::text("it is done")]);
    setup.approvals.rules[0].tool = renamed("ring").into();
    setup.tools = IN_WORKER
        .iter()
        .map(|(does, name)| {
            // What is declared here is never called here.
            let tool = TestTool::named("deaf").called(name);
            let tool = if *does == RING { tool.asking() } else { tool };
            Arc::new(if *does == PAGE { tool.of_outside() } else { tool }) as Arc<dyn Tool>
        })
        .collect();
    employ_here(&mut setup, in_worker);
    let record = completed(&setup, "go", false).await;
    let expected: Vec<_> = outcomes()
        .into_iter()
        .map(|(name, status, text, began)| {
            (renamed(&name).to_owned(), status, text.replace("\"page\"", &format!("\"{}\"", renamed(PAGE))), began)
        })
        .collect();
    assert_eq!(seen(&setup, record.run_id, 2).await, expected);
    assert_eq!(record.usage.tool_calls, 5);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_run_whose_message_was_relayed_has_nobody_to_ask() {
    let ring = || Scripted::call("ring", json!({"text": "please"}));
    let spawn = Scripted::call("spawn_subagent", json!({"task": "ring"}));
    let setup = setup(vec![spawn, ring(), Scripted::text("no bell"), Scripted::text("no bell")]);
    let agent = setup.start().await;
    let Ack::Accepted(accepted) = agent.one.relayed("alice", "go").await else { panic!("accepted") };
    let record = end_of(accepted).await;
    agent.shut_down().await;
    let last = setup.model.seen()[2].messages.last().cloned().expect("a message");
    let MessageBody::Tool(result) = &last.body else { panic!("{last:?}") };
    assert_eq!(result.status, ToolStatus::Denied);
    assert!(result.text.contains("relayed by another bot, so nobody can be asked"), "{}", result.text);
    assert!(setup.store.approvals.approvals_of(record.run_id).await.expect("read").is_empty());
}
