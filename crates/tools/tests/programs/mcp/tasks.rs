//! Calls that run as tasks of their servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    CallId, FormAnswer, HandlePort, KeepHandle, Progress, ProgressSink, RunProcesses, ToolFailure, ToolOutput,
};
use belay_tools::RunEnds;
use belay_tools::mcp::Membership;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::support::{Bench, Person, Run, no_background, until};
use super::task_host::{TaskHost, said};

fn working(words: &str) -> Value {
    json!({ "status": "working", "statusMessage": words })
}

/// The end of a task in both protocols: in the older one the server has the result apart.
fn completed(is_new: bool) -> Value {
    let mut state = json!({ "status": "completed" });
    if is_new {
        state["result"] = said("done");
    }
    state
}

/// Keeps handles, and how much the server had been asked before.
struct Kept {
    host: Arc<TaskHost>,
    all: Mutex<Vec<(Value, usize)>>,
}

impl Kept {
    fn of(host: &Arc<TaskHost>) -> Arc<Self> {
        Arc::new(Self { host: host.clone(), all: Mutex::default() })
    }

    fn all(&self) -> Vec<(Value, usize)> {
        self.all.lock().unwrap().clone()
    }

    /// A run whose calls keep their handles here. `earlier`: the handle of an earlier attempt.
    fn run(self: &Arc<Self>, earlier: Option<Value>) -> Run {
        Run { handle: HandlePort::new(earlier, self.clone()), ..Run::new() }
    }
}

#[async_trait]
impl KeepHandle for Kept {
    async fn keep(&self, handle: Value) -> bool {
        let asked = self.host.asked("tasks/get").len();
        self.all.lock().unwrap().push((handle, asked));
        true
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl ProgressSink for Heard {
    fn progress(&self, _: &CallId, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

fn unknown(output: ToolOutput) -> String {
    match output {
        Err(ToolFailure::Unknown(text)) => text,
        other => panic!("expected an unknown outcome, got {other:?}"),
    }
}

#[tokio::test]
async fn a_call_runs_as_a_task_in_both_protocols_and_its_handle_is_kept_before_it_is_polled() {
    for is_new in [false, true] {
        let (mut tasks, bench) = (JoinSet::new(), Bench::new());
        let states = vec![working("begun"), working("half"), working("half"), completed(is_new)];
        let host = TaskHost::new(is_new, states);
        let tool = host.tool(&mut tasks, &bench).await;
        let (kept, heard) = (Kept::of(&host), Arc::new(Heard::default()));
        let run = Run { progress: Progress::to(heard.clone()), ..kept.run(None) };
        assert_eq!(run.text(&tool, json!({})).await, "done");
        assert_eq!(*heard.0.lock().unwrap(), ["begun", "half"]);
        let kept = kept.all();
        assert_eq!((kept.len(), kept[0].1), (1, 0), "{kept:?}");
        assert_eq!((host.asked("tools/call").len(), host.asked("tasks/get").len()), (1, 3));
        assert_eq!(host.asked("tasks/result").len(), usize::from(!is_new), "an end is fetched once");
        bench.sessions.close().await;
        assert_eq!(host.asked("tasks/cancel"), [] as [Value; 0], "a task that has ended is not cancelled");
    }
}

#[tokio::test]
async fn a_call_continues_with_its_handle_and_is_not_made_again() {
    for is_new in [false, true] {
        let mut tasks = JoinSet::new();
        let host = TaskHost::new(is_new, vec![working(""), working("")]);
        let kept = Kept::of(&host);
        {
            // A kill leaves the task and the handle.
            let bench = Bench::new();
            let tool = host.tool(&mut tasks, &bench).await;
            let run = kept.run(None);
            let polled = until("it is polled", || host.asked("tasks/get").len() > 1);
            tokio::select! {
                output = run.call(&tool, json!({})) => panic!("{output:?}"),
                () = polled => {}
            }
        }
        host.change(|seen| seen.tasks.insert("task-0".into(), [completed(is_new)].into()));
        let bench = Bench::new();
        let tool = host.tool(&mut tasks, &bench).await;
        let handle = kept.all()[0].0.clone();
        let again = kept.run(Some(handle.clone()));
        assert_eq!(again.text(&tool, json!({})).await, "done");
        assert_eq!(host.asked("tools/call").len(), 1);
        assert_eq!(kept.all().len(), 1, "the handle is the same");

        // The server has been restarted too, or is another one.
        host.change(|seen| seen.tasks.clear());
        let text = unknown(kept.run(Some(handle.clone())).call(&tool, json!({})).await);
        assert!(text.contains("Task not found") && text.contains("outcome is unknown"), "{text}");
        let mut other = handle;
        other["server"] = "x".into();
        let text = unknown(kept.run(Some(other)).call(&tool, json!({})).await);
        assert!(text.contains("begun at another server"), "{text}");
        unknown(kept.run(Some(json!("nonsense"))).call(&tool, json!({})).await);
        assert_eq!(host.asked("tools/call").len(), 1, "nothing is called again");
    }
}

#[tokio::test]
async fn a_stop_cancels_the_task_at_the_server() {
    for is_new in [false, true] {
        let (mut tasks, bench) = (JoinSet::new(), Bench::new());
        let host = TaskHost::new(is_new, vec![working(""), working("")]);
        let (tool, run) = (host.tool(&mut tasks, &bench).await, Run::new());
        let stop = async {
            until("it is polled", || !host.asked("tasks/get").is_empty()).await;
            run.cancel.cancel();
        };
        let (output, ()) = tokio::join!(run.call(&tool, json!({})), stop);
        assert_eq!(output, Err(ToolFailure::Cancelled));
        RunEnds::new(bench.processes.clone(), bench.sessions.clone(), no_background()).end(run.id).await;
        until("the server knows", || !host.asked("tasks/cancel").is_empty()).await;
        assert_eq!(host.asked("tasks/cancel").len(), 1);
        assert_eq!(host.asked("tasks/cancel")[0]["taskId"], "task-0");
    }
}

#[tokio::test]
async fn a_node_whose_lease_does_not_hold_leaves_the_task_to_the_new_owner() {
    for is_new in [false, true] {
        let (mut tasks, holds) = (JoinSet::new(), Arc::new(AtomicBool::new(true)));
        let asked = holds.clone();
        let membership = Membership::by(Arc::new(move || asked.load(Ordering::SeqCst)));
        let bench = Bench::with(|sessions| sessions.of_node(membership));
        let host = TaskHost::new(is_new, vec![working(""), working("")]);
        let (tool, kept) = (host.tool(&mut tasks, &bench).await, Kept::of(&host));
        let run = kept.run(None);
        let wakes = async {
            until("it is polled", || !host.asked("tasks/get").is_empty()).await;
            holds.store(false, Ordering::SeqCst);
            run.cancel.cancel();
        };
        let (output, ()) = tokio::join!(run.call(&tool, json!({})), wakes);
        assert_eq!(output, Err(ToolFailure::Cancelled));
        RunEnds::new(bench.processes.clone(), bench.sessions.clone(), no_background()).end(run.id).await;
        host.change(|seen| seen.tasks.insert("task-0".into(), [completed(is_new)].into()));
        let other = Bench::new();
        let tool = host.tool(&mut tasks, &other).await;
        assert_eq!(kept.run(Some(kept.all()[0].0.clone())).text(&tool, json!({})).await, "done");
        assert_eq!(host.asked("tasks/cancel"), [] as [Value; 0]);
        other.sessions.close().await;
    }
}

#[tokio::test]
async fn the_task_of_a_call_that_never_continues_is_cancelled() {
    for is_new in [false, true] {
        let mut tasks = JoinSet::new();
        let host = TaskHost::new(is_new, vec![working(""), working("")]);
        let kept = Kept::of(&host);
        {
            // What a kill leaves: the task, and the handle.
            let bench = Bench::with(|sessions| sessions.of_node(Membership::by(Arc::new(|| false))));
            let tool = host.tool(&mut tasks, &bench).await;
            let run = kept.run(None);
            let polled = until("it is polled", || host.asked("tasks/get").len() > 1);
            tokio::select! {
                output = run.call(&tool, json!({})) => panic!("{output:?}"),
                () = polled => {}
            }
        }
        host.change(|seen| seen.asked.clear());
        let bench = Bench::new();
        let tool = host.tool(&mut tasks, &bench).await;
        let handle = kept.all()[0].0.clone();
        let mut other = handle.clone();
        other["server"] = "x".into();
        assert!(!tool.abandon(&other).await && !tool.abandon(&json!("nonsense")).await);
        assert_eq!(host.asked("tasks/cancel"), [] as [Value; 0]);
        assert!(tool.abandon(&handle).await);
        let cancelled: Vec<_> = host.asked("tasks/cancel").iter().map(|with| with["taskId"].clone()).collect();
        assert_eq!((cancelled, host.asked("tools/call").len()), (vec![json!("task-0")], 0));
        assert_eq!(bench.sessions.open(), 0);
        // A server that is away costs a line of the log.
        host.change(|seen| seen.is_away = true);
        assert!(tool.abandon(&handle).await);
    }
}

#[tokio::test]
async fn a_question_of_a_task_reaches_the_person_once() {
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let form = json!({ "message": "How big?", "requestedSchema": { "type": "object", "properties": {
        "size": { "type": "string", "enum": ["s", "m"] } }, "required": ["size"] } });
    let asks = json!({ "status": "input_required", "inputRequests": {
        "q": { "method": "elicitation/create", "params": form } } });
    let host = TaskHost::new(true, vec![working(""), asks.clone(), asks, working(""), completed(true)]);
    let tool = host.tool(&mut tasks, &bench).await;
    let person = Person::new([FormAnswer::Given(json!({ "size": "m" }).as_object().cloned().unwrap())]);
    assert_eq!(Run::with_person(&person).text(&tool, json!({})).await, "done");
    assert_eq!(person.asked().len(), 1);
    let answers: Vec<_> = host.asked("tasks/update").iter().map(|update| update["inputResponses"].clone()).collect();
    assert_eq!(answers, [json!({ "q": { "action": "accept", "content": { "size": "m" } } })]);

    // Nobody else is asked: the call ends, and so does the task.
    let asks = json!({ "status": "input_required", "inputRequests": { "q": { "method": "sampling/createMessage" } } });
    host.change(|seen| seen.next = vec![working(""), asks]);
    let run = Run::new();
    let text = run.failure(&tool, json!({})).await;
    assert!(text.contains("asks for a model"), "{text}");
    bench.sessions.end_run(run.id).await;
    until("the server knows", || !host.asked("tasks/cancel").is_empty()).await;
}

#[tokio::test]
async fn a_question_of_an_older_task_comes_with_the_wait_for_its_end() {
    let bench = Bench::new();
    let script = r#"
def call(message):
    params = message["params"]
    note(json.dumps(params.get("task")))
    answer(message, {"task": {"taskId": "a", "status": "working", "pollInterval": 10}})
def get(message):
    answer(message, {"taskId": "a", "status": "input_required"})
def result(message):
    send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Go?",
          "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}})
    while True:
        answered = json.loads(sys.stdin.readline())
        if answered.get("id") == "q":
            meta = {"io.modelcontextprotocol/related-task": {"taskId": "a"}}
            say(message, json.dumps(answered["result"], sort_keys=True), _meta=meta)
            return say(message, "a second answer")
def initialize(message):
    answer(message, {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"},
                     "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}})
serve([tool("must", execution={"taskSupport": "required"}), tool("may", execution={"taskSupport": "optional"})], call=call,
      on={"initialize": initialize, "tasks/get": get, "tasks/result": result})
"#;
    let tools = bench.one(script, json!({})).await;
    let given = || FormAnswer::Given(json!({ "ok": true }).as_object().cloned().unwrap());
    let run = Run::with_person(&Person::new([given(), given()]));
    let expected = r#"{"action": "accept", "content": {"ok": true}}"#;
    assert_eq!(run.text(&tools[0], json!({})).await, expected);
    // A program ends with its run, so its call is a task only if it must be; one that becomes a task is followed anyway.
    assert_eq!(run.text(&tools[1], json!({})).await, expected);
    assert_eq!(bench.notes(), [r#"{"ttl": 3600000}"#, "null"]);
    bench.sessions.close().await;
}

#[tokio::test]
async fn an_end_without_a_result_says_what_is_known() {
    let error = json!({ "status": "failed", "error": { "code": -32603, "message": "no disk" } });
    let of_another = json!({ "status": "completed", "taskId": "task-9", "result": said("of another") });
    let row = |state: Value, is_unknown: bool, words: &'static str| (state, is_unknown, words);
    for (end, is_unknown, words) in [
        row(error, false, "answered with an error: no disk"),
        row(json!({ "status": "failed", "statusMessage": "it broke" }), false, "it broke"),
        row(
            json!({ "status": "cancelled", "statusMessage": "by hand" }),
            false,
            "has cancelled the task of the call: by hand",
        ),
        row(json!({ "status": "completed", "result": { "x": 1 } }), true, "not the result of a tool"),
        row(json!({ "status": "completed" }), true, "Method not found"),
        row(json!({ "status": "completed", "result": { "isError": true, "content": [] } }), false, "did not say why"),
    ] {
        let (mut tasks, bench) = (JoinSet::new(), Bench::new());
        let host = TaskHost::new(true, vec![working(""), end.clone()]);
        let tool = host.tool(&mut tasks, &bench).await;
        let text = match (Run::new().call(&tool, json!({})).await, is_unknown) {
            (Err(ToolFailure::Failed(text)), false) | (Err(ToolFailure::Unknown(text)), true) => text,
            (other, _) => panic!("{end}: {other:?}"),
        };
        assert!(text.contains(words), "{end}: {text}");
    }
    // An answer about another task is none: the next one counts.
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let host = TaskHost::new(true, vec![working(""), of_another, completed(true)]);
    let tool = host.tool(&mut tasks, &bench).await;
    assert_eq!(Run::new().text(&tool, json!({})).await, "done");
}

#[tokio::test]
async fn a_task_belongs_to_the_call_that_has_got_it() {
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let host = TaskHost::new(false, vec![working(""), working("")]);
    let tool = host.tool(&mut tasks, &bench).await;
    let odd = "../\u{202e}\n\"{}";
    host.change(|seen| seen.ids = [odd.to_owned(), odd.to_owned(), "x".repeat(1025)].into());
    let first = Run::new();
    let second = Run { id: first.id, ..Run::new() };
    let others = async {
        until("the first is polled", || !host.asked("tasks/get").is_empty()).await;
        let text = unknown(second.call(&tool, json!({})).await);
        assert!(text.contains("the task of another call"), "{text}");
        let text = unknown(second.call(&tool, json!({})).await);
        assert!(text.contains("longer than 1024 bytes") && text.len() < 500, "{text}");
        until("it is cancelled", || !host.asked("tasks/cancel").is_empty()).await;
        assert_eq!(host.asked("tasks/cancel")[0]["taskId"], "x".repeat(1025));
        host.change(|seen| seen.tasks.insert(odd.into(), [completed(false)].into()));
    };
    let (text, ()) = tokio::join!(first.text(&tool, json!({})), others);
    assert_eq!(text, "done");
    assert!(host.asked("tasks/get").iter().all(|get| get["taskId"] == odd));
}

#[tokio::test]
async fn two_runs_may_have_a_task_of_the_same_id() {
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let host = TaskHost::new(false, vec![working(""), working("")]);
    let tool = host.tool(&mut tasks, &bench).await;
    host.change(|seen| seen.ids = ["1".to_owned(), "1".to_owned()].into());
    let (first, second) = (Run::new(), Run::new());
    let other = async {
        until("the first is polled", || !host.asked("tasks/get").is_empty()).await;
        host.change(|seen| seen.next = vec![working(""), completed(false)]);
        second.text(&tool, json!({})).await
    };
    let texts = tokio::join!(first.text(&tool, json!({})), other);
    assert_eq!(texts, ("done".to_owned(), "done".to_owned()));
}

#[tokio::test]
async fn a_server_that_is_away_is_not_one_that_has_ended_too_often() {
    for is_new in [false, true] {
        let (mut tasks, bench) = (JoinSet::new(), Bench::new());
        let host = TaskHost::new(is_new, vec![working(""), working("")]);
        let tool = host.tool(&mut tasks, &bench).await;
        let run = Run::new();
        host.change(|seen| seen.is_away = true);
        for _ in 0..4 {
            let text = run.failure(&tool, json!({})).await;
            assert!(text.contains("cannot be reached"), "{text}");
        }
        host.change(|seen| {
            seen.is_away = false;
            seen.tasks.insert("task-0".into(), [completed(is_new)].into())
        });
        // The call whose task a restart has found begins with the same connection.
        let handle = json!({ "server": "s", "tool": "t", "id": "task-0", "limit_ms": 60_000 });
        let continued = Run { id: run.id, ..Kept::of(&host).run(Some(handle)) };
        assert_eq!(continued.text(&tool, json!({})).await, "done");
    }
}

#[tokio::test]
async fn a_task_without_questions_waits_for_no_end_in_the_newer_protocol() {
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let asks = json!({ "status": "input_required" });
    let odd = json!({ "status": "input_required", "inputRequests": [] });
    let host = TaskHost::new(true, vec![working(""), asks, odd, completed(true)]);
    let tool = host.tool(&mut tasks, &bench).await;
    assert_eq!(Run::new().text(&tool, json!({})).await, "done");
    assert_eq!(host.asked("tasks/result"), [] as [Value; 0]);
}

#[tokio::test]
async fn an_error_of_the_wait_for_the_end_is_that_of_the_call_if_the_task_has_failed() {
    let (mut tasks, bench) = (JoinSet::new(), Bench::new());
    let asks = json!({ "status": "input_required" });
    let host = TaskHost::new(false, vec![working(""), asks, json!({ "status": "failed" })]);
    host.change(|seen| seen.result = json!({ "error": { "code": -32602, "message": "Size 5 is too big" } }));
    let tool = host.tool(&mut tasks, &bench).await;
    let text = Run::new().failure(&tool, json!({})).await;
    assert!(text.contains("answered with an error: Size 5 is too big"), "{text}");
}

#[tokio::test]
async fn the_words_of_a_server_do_not_show_the_id_of_a_task() {
    let id = "bearer-of-all";
    let failed = json!({ "status": "failed", "error": { "code": -32603, "message": format!("{id} has no disk") } });
    for (is_new, end) in [(true, failed), (false, json!({ "status": "failed" }))] {
        let (mut tasks, bench) = (JoinSet::new(), Bench::new());
        let host = TaskHost::new(is_new, vec![working(&format!("begun: {id}")), end]);
        host.change(|seen| {
            seen.ids = [id.to_owned()].into();
            seen.result = json!({ "error": { "code": -32603, "message": format!("{id} has no disk") } });
        });
        let tool = host.tool(&mut tasks, &bench).await;
        let heard = Arc::new(Heard::default());
        let run = Run { progress: Progress::to(heard.clone()), ..Run::new() };
        let text = run.failure(&tool, json!({})).await;
        assert!(text.contains("[task] has no disk") && !text.contains(id), "{text}");
        assert_eq!(*heard.0.lock().unwrap(), ["begun: [task]"]);
    }
}
