//! Calls that ask a person and are interrupted: in the new revision they go on with the same round, and in no other
//! case is a call made twice.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{AskPerson, Form, FormAnswer, HandlePort, KeepHandle, PersonPort, ToolFailure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, Run, until};

/// A server of the new revision that asks for a size and then for an address, each for itself.
const TWO_ROUNDS: &str = r#"
def discover(message):
    answer(message, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                     "ttlMs": 0, "cacheScope": "private"})
def require(message, state, **requests):
    answer(message, {"resultType": "input_required", "requestState": state, "inputRequests": {
        name: {"method": "elicitation/create", "params": params} for name, params in requests.items()}})
FORM = {"message": "How big?", "requestedSchema": {"type": "object", "properties": {
    "size": {"type": "string", "enum": ["s", "m"]}}, "required": ["size"]}}
def call(message):
    params = message["params"]
    note(json.dumps([params.get("requestState"), params.get("inputResponses"), params["arguments"]], sort_keys=True))
    if params.get("requestState") is None:
        return require(message, "one", size=FORM)
    if params["requestState"] == "one":
        return require(message, "two", where={"mode": "url", "message": "Log in.", "url": "https://login.example.org/x"})
    say(message, "done", resultType="complete")
serve([tool("t", properties={"a": {"type": "integer"}}, annotations=HINTS)], call=call, on={"server/discover": discover})
"#;

/// The state of a run, which keeps handles.
#[derive(Default)]
struct Kept(Mutex<Vec<Value>>);

impl Kept {
    /// The stage of each handle.
    fn stages(&self) -> Vec<Value> {
        self.0.lock().unwrap().iter().map(|handle| handle["stage"].clone()).collect()
    }

    fn last(&self) -> Value {
        self.0.lock().unwrap().last().cloned().unwrap()
    }
}

#[async_trait]
impl KeepHandle for Kept {
    async fn keep(&self, handle: Value) -> bool {
        self.0.lock().unwrap().push(handle);
        true
    }
}

/// A person who gives these answers, and then none. Remembers the number of each question within its call.
struct Person {
    answers: Mutex<Vec<FormAnswer>>,
    asked: Mutex<Vec<u32>>,
}

impl Person {
    fn new<const N: usize>(answers: [FormAnswer; N]) -> Arc<Self> {
        let answers = answers.into_iter().rev().collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<u32> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl AskPerson for Person {
    async fn fill_in(&self, _: Form, nth: u32, _: &CancellationToken) -> FormAnswer {
        self.asked.lock().unwrap().push(nth);
        let answer = self.answers.lock().unwrap().pop();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

fn run(person: &Arc<Person>, kept: &Arc<Kept>, earlier: Option<Value>) -> Run {
    let handle = HandlePort::new(earlier, kept.clone());
    Run { person: PersonPort::to(person.clone()), handle, ..Run::new() }
}

fn small() -> FormAnswer {
    FormAnswer::Given(json!({ "size": "s" }).as_object().cloned().unwrap())
}

fn script(hints: &str) -> String {
    format!("HINTS = {hints}\n{TWO_ROUNDS}")
}

/// Calls the tool until its second question waits, and interrupts it there. Returns the handles of the call.
async fn interrupted(bench: &Bench, tool: &Arc<dyn belay_protocol::Tool>) -> Arc<Kept> {
    let (kept, person) = (Arc::new(Kept::default()), Person::new([small()]));
    let run = run(&person, &kept, None);
    tokio::select! {
        output = run.call(tool, json!({ "a": 1 })) => panic!("nobody answers: {output:?}"),
        () = until("the second question waits", || person.asked() == [1, 2]) => {}
    }
    assert_eq!(bench.notes().len(), 2);
    kept
}

#[tokio::test]
async fn an_interrupted_call_goes_on_with_its_round_and_asks_the_same_question() {
    let bench = Bench::new();
    let tool = bench.one(&script("{}"), json!({})).await.remove(0);
    let kept = interrupted(&bench, &tool).await;
    let stages = kept.stages();
    assert!(stages[0]["asking"].is_object() && stages[1] == "sent" && stages[2]["asking"].is_object(), "{stages:?}");
    assert_eq!(stages.len(), 3, "each round is kept before its question, and noted before its answers are sent");
    let person = Person::new([FormAnswer::Given(serde_json::Map::new())]);
    assert_eq!(run(&person, &kept, Some(kept.last())).text(&tool, json!({ "a": 1 })).await, "done");
    assert_eq!(person.asked(), [2], "the number of the question is that of before");
    assert_eq!(
        bench.notes(),
        [
            r#"[null, null, {"a": 1}]"#,
            r#"["one", {"size": {"action": "accept", "content": {"size": "s"}}}, {"a": 1}]"#,
            r#"["two", {"where": {"action": "accept"}}, {"a": 1}]"#,
        ]
    );
    assert_eq!(kept.stages().last(), Some(&json!("sent")));
    bench.sessions.close().await;
}

#[tokio::test]
async fn answers_that_may_have_been_sent_are_never_sent_again_unless_the_call_may_be_repeated() {
    for (hints, is_repeated) in [("{}", false), (r#"{"readOnlyHint": True}"#, true)] {
        let bench = Bench::new();
        let tool = bench.one(&script(hints), json!({})).await.remove(0);
        let kept = interrupted(&bench, &tool).await;
        let sent = kept.0.lock().unwrap()[1].clone();
        let person = Person::new([small(), FormAnswer::Given(serde_json::Map::new())]);
        let output = run(&person, &kept, Some(sent.clone())).call(&tool, json!({ "a": 1 })).await;
        if is_repeated {
            assert_eq!(output.unwrap().text, "done");
            assert_eq!((person.asked(), bench.notes().len()), (vec![1, 2], 5), "from its beginning");
        } else {
            let Err(ToolFailure::Unknown(text)) = output else { panic!("{output:?}") };
            assert!(text.contains("outcome of the call is unknown"), "{text}");
            assert_eq!((person.asked().len(), bench.notes().len()), (0, 2));
        }
        assert!(
            tool.abandon(&sent).await,
            "no request is left that could be cancelled, whether or not the server still works"
        );
        bench.sessions.close().await;
    }
}

#[tokio::test]
async fn a_server_that_speaks_an_older_revision_after_the_interruption_gets_no_answer() {
    let bench = Bench::new();
    let tool = bench.one(&script("{}"), json!({})).await.remove(0);
    let kept = interrupted(&bench, &tool).await;
    bench.sessions.close().await;
    let bench = Bench::new();
    let tool = bench.one("serve([tool('t')], call=lambda message: note('called'))", json!({})).await.remove(0);
    let person = Person::new([]);
    let failure = run(&person, &kept, Some(kept.last())).failure(&tool, json!({ "a": 1 })).await;
    assert!(failure.contains("an older revision of MCP now"), "{failure}");
    assert_eq!((person.asked().len(), bench.notes().len()), (0, 0));
    bench.sessions.close().await;
}

#[tokio::test]
async fn a_round_that_is_too_large_to_keep_is_asked_and_noted_nowhere() {
    let bench = Bench::new();
    let large = script("{}").replace("\"one\", size=FORM", "\"one\" + \"x\" * 5000, size=FORM");
    let large = large.replace("== \"one\"", "!= \"two\"");
    let tool = bench.one(&large, json!({})).await.remove(0);
    let kept = Arc::new(Kept::default());
    let person = Person::new([small(), FormAnswer::Given(serde_json::Map::new())]);
    assert_eq!(run(&person, &kept, None).text(&tool, json!({ "a": 1 })).await, "done");
    let stages = kept.stages();
    assert!(stages.len() == 2 && stages[0]["asking"]["before"] == 1 && stages[1] == "sent", "{stages:?}");
    bench.sessions.close().await;
}
