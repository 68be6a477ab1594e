//! Servers that ask a person during a call: by `input_required` in the new revision, by `elicitation/create` in the older
//! ones.

use std::sync::Arc;

use belay_protocol::{FormAnswer, ToolFailure};
use belay_tools::mcp::SurveyMode;
use serde_json::{Map, Value, json};

use super::support::{Bench, Person, Run, until};

/// A server of the older revisions that asks with these parameters, and says what it was answered.
const OLD: &str = r#"
def ask(message, params):
    send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})
    while True:
        answered = json.loads(sys.stdin.readline())
        if answered.get("id") == "q":
            return answered
        note(answered.get("method", "?"))
"#;

/// A server of the new revision that asks for `rounds` rounds.
const NEW: &str = r#"
def discover(message):
    answer(message, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                     "ttlMs": 0, "cacheScope": "private"})
def require(message, state, **requests):
    answer(message, {"resultType": "input_required", "requestState": state, "inputRequests": {
        name: {"method": "elicitation/create", "params": params} for name, params in requests.items()}})
"#;

const FORM: &str = r#"{"message": "How big?", "requestedSchema": {"type": "object", "properties": {
    "size": {"type": "string", "enum": ["s", "m"]}}, "required": ["size"]}}"#;

fn given(values: Value) -> FormAnswer {
    FormAnswer::Given(values.as_object().cloned().unwrap_or_default())
}

async fn asks(bench: &Bench, script: &str) -> Arc<dyn belay_protocol::Tool> {
    bench.one(script, json!({})).await.remove(0)
}

#[tokio::test]
async fn each_answer_of_a_person_reaches_a_server_of_an_older_revision() {
    let bench = Bench::new();
    let script = format!(
        "{OLD}\nserve([tool('t')], call=lambda message: say(message, json.dumps(ask(message, {FORM}).get('result'), sort_keys=True)))"
    );
    let tool = asks(&bench, &script).await;
    let answers = [given(json!({ "size": "m" })), FormAnswer::Declined, FormAnswer::Expired];
    let person = Person::new(answers);
    let run = Run::with_person(&person);
    for expected in
        [r#"{"action": "accept", "content": {"size": "m"}}"#, r#"{"action": "decline"}"#, r#"{"action": "cancel"}"#]
    {
        assert_eq!(run.text(&tool, json!({})).await, expected);
    }
    let asked = person.asked();
    assert_eq!((asked.len(), asked[0].server.as_str(), asked[0].message.as_str()), (3, "s", "How big?"));
    assert_eq!(asked[0].fields[0].name, "size");
    bench.sessions.close().await;
}

#[tokio::test]
async fn a_call_of_the_new_revision_is_sent_again_with_the_answers_and_its_state() {
    let bench = Bench::new();
    let script = format!(
        r#"{NEW}
def call(message):
    params = message["params"]
    note(json.dumps([params.get("requestState"), params.get("inputResponses"), params["arguments"]], sort_keys=True))
    if params.get("requestState") is None:
        return require(message, "one", size={FORM})
    if params["requestState"] == "one":
        return require(message, "two", where={{"mode": "url", "message": "Log in.", "url": "https://login.example.org/x"}})
    say(message, "done", resultType="complete")
serve([tool("t", properties={{"a": {{"type": "integer"}}}})], call=call, on={{"server/discover": discover}})
"#
    );
    let tool = asks(&bench, &script).await;
    let person = Person::new([given(json!({ "size": "s" })), FormAnswer::Given(Map::new())]);
    assert_eq!(Run::with_person(&person).text(&tool, json!({ "a": 1 })).await, "done");
    assert_eq!(
        bench.notes(),
        [
            r#"[null, null, {"a": 1}]"#,
            r#"["one", {"size": {"action": "accept", "content": {"size": "s"}}}, {"a": 1}]"#,
            r#"["two", {"where": {"action": "accept"}}, {"a": 1}]"#,
        ]
    );
    assert_eq!(person.asked()[1].url.as_ref().unwrap().host, "login.example.org");
    bench.sessions.close().await;
}

#[tokio::test]
async fn a_server_that_asks_without_an_end_is_ended() {
    let bench = Bench::new();
    let script = format!(
        r#"{NEW}
def call(message):
    note("call")
    require(message, "again", size={FORM})
serve([tool("t")], call=call, on={{"server/discover": discover}})
"#
    );
    let tool = asks(&bench, &script).await;
    let person = Person::new(std::iter::repeat_n(given(json!({ "size": "s" })), 100));
    let failure = Run::with_person(&person).failure(&tool, json!({})).await;
    assert!(failure.contains("has asked for more 10 times in this call"), "{failure}");
    assert_eq!((bench.notes().len(), person.asked().len()), (10, 10));
    bench.sessions.close().await;
    // Within one request of an older revision.
    let bench = Bench::new();
    let script = format!(
        "{OLD}\ndef call(message):\n    for n in range(50):\n        last = ask(message, {FORM})\n    say(message, json.dumps(last.get('error', {{}}).get('message')))\nserve([tool('t')], call=call)"
    );
    let tool = asks(&bench, &script).await;
    let text = Run::with_person(&person).text(&tool, json!({})).await;
    assert!(text.contains("10 questions in this call, which is the limit"), "{text}");
    assert_eq!(person.asked().len(), 20);
    bench.sessions.close().await;
}

#[tokio::test]
async fn a_run_that_can_ask_nobody_and_a_form_that_nobody_can_read_are_said() {
    for (script, person, expected) in [
        (FORM, None, "this run cannot ask anybody"),
        (
            r#"{"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}}"#,
            Some(()),
            "the field a has the type object",
        ),
        (
            r#"{"mode": "url", "message": "m", "url": "http://evil.example/"}"#,
            Some(()),
            "neither https nor on this machine",
        ),
    ] {
        let bench = Bench::new();
        let old = format!(
            "{OLD}\nserve([tool('t')], call=lambda message: say(message, ask(message, {script})['error']['message']))"
        );
        let new = format!(
            r#"{NEW}
def call(message):
    answers = message["params"].get("inputResponses")
    if answers: say(message, json.dumps(answers), resultType="complete")
    else: require(message, "x", q={script})
serve([tool("t")], call=call, on={{"server/discover": discover}})
"#
        );
        let asks_nobody = Person::new([]);
        let run = || if person.is_some() { Run::with_person(&asks_nobody) } else { Run::new() };
        let text = run().text(&asks(&bench, &old).await, json!({})).await;
        assert!(text.contains(expected), "{text}");
        bench.sessions.close().await;
        let bench = Bench::new();
        let text = run().text(&asks(&bench, &new).await, json!({})).await;
        assert!(text.contains(expected) && text.contains(r#"{"action": "cancel"}"#), "{text}");
        assert!(asks_nobody.asked().is_empty());
        bench.sessions.close().await;
    }
}

#[tokio::test]
async fn a_stop_ends_the_question_and_the_call() {
    let bench = Bench::new();
    let script = format!("{OLD}\nserve([tool('t')], call=lambda message: say(message, str(ask(message, {FORM}))))");
    let tool = asks(&bench, &script).await;
    let person = Person::new([]);
    let run = Run::with_person(&person);
    let stop = async {
        until("it asks", || !person.asked().is_empty()).await;
        run.cancel.cancel();
    };
    let (output, ()) = tokio::join!(run.call(&tool, json!({})), stop);
    assert_eq!(output, Err(ToolFailure::Cancelled));
    bench.sessions.close().await;
}

#[tokio::test]
async fn the_time_of_a_call_stands_still_while_its_person_thinks() {
    let bench = Bench::new();
    let script = format!(
        "{OLD}\nserve([tool('t')], call=lambda message: say(message, ask(message, {FORM})['result']['action']))"
    );
    let tool = bench.one(&script, json!({ "timeout_s": 1 })).await.remove(0);
    let person = Thinks;
    let run = Run { person: belay_protocol::PersonPort::to(Arc::new(person)), ..Run::new() };
    assert_eq!(run.text(&tool, json!({})).await, "decline");
    bench.sessions.close().await;
}

/// A person who needs twice the time of the call.
struct Thinks;

#[async_trait::async_trait]
impl belay_protocol::AskPerson for Thinks {
    async fn fill_in(&self, _: belay_protocol::Form, _: u32, _: &tokio_util::sync::CancellationToken) -> FormAnswer {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        FormAnswer::Declined
    }
}

#[tokio::test]
async fn a_server_that_asks_only_in_an_older_revision_is_asked_in_that_one_from_then_on() {
    let bench = Bench::new();
    let script = format!(
        r#"{NEW}{OLD}
def call(message):
    if "io.modelcontextprotocol/protocolVersion" in message["params"].get("_meta", {{}}):
        return send({{"jsonrpc": "2.0", "id": message["id"], "error": {{"code": -32600, "message":
            "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."}}}})
    say(message, ask(message, {FORM})["result"]["action"])
serve([tool("t")], call=call, on={{"server/discover": discover}})
"#
    );
    let tool = asks(&bench, &script).await;
    let person = Person::new([FormAnswer::Declined]);
    let run = Run::with_person(&person);
    let failure = run.failure(&tool, json!({})).await;
    assert!(failure.contains("only in an older revision of MCP"), "{failure}");
    assert_eq!(run.text(&tool, json!({})).await, "decline");
    assert_eq!((tool.revision().as_deref(), person.asked().len()), (Some("2025-11-25"), 1));
    bench.sessions.close().await;
}

/// A server of an older revision that works on its calls side by side. `asks` asks for one call, and the answer to that is
/// the result of the call.
const SIDE_BY_SIDE: &str = r#"
waiting, asked = [], {}
def asks(one):
    name = "q%s" % one["id"]
    asked[name] = one
    send({"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": FORM})
def answered(message):
    note("answered")
    one, result = asked.pop(message["id"]), message.get("result", {})
    say(one, json.dumps(result.get("content", message.get("error", {}).get("message"))), isError="error" in message)
"#;

/// A person who leaves the first question alone, and answers the others.
struct Later(std::sync::Mutex<usize>);

#[async_trait::async_trait]
impl belay_protocol::AskPerson for Later {
    async fn fill_in(&self, _: belay_protocol::Form, _: u32, _: &tokio_util::sync::CancellationToken) -> FormAnswer {
        let nth = {
            let mut asked = self.0.lock().unwrap();
            *asked += 1;
            *asked
        };
        match nth {
            1 => std::future::pending().await,
            _ => given(json!({ "size": "m" })),
        }
    }
}

#[tokio::test]
async fn a_question_outlives_a_call_that_it_was_not_of() {
    let bench = Bench::new();
    let script = format!(
        r#"FORM = {FORM}
{SIDE_BY_SIDE}
def call(message):
    waiting.append(message)
    if len(waiting) == 2:
        asks(waiting[1])
        while not os.path.exists(os.path.join(here, "go")):
            time.sleep(0.02)
        say(waiting[0], "without a question")
serve([tool("t")], call=call, on={{None: answered}})
"#
    );
    let tool = asks(&bench, &script).await;
    let person = Arc::new(Later(std::sync::Mutex::default()));
    let run = Run { person: belay_protocol::PersonPort::to(person.clone()), ..Run::new() };
    let first_ends = async {
        until("it asks", || *person.0.lock().unwrap() == 1).await;
        std::fs::write(bench.path("s").join("go"), "").unwrap();
    };
    let (one, two, ()) = tokio::join!(run.text(&tool, json!({})), run.text(&tool, json!({})), first_ends);
    let mut texts = [one, two];
    texts.sort_unstable();
    assert_eq!(texts, ["without a question", r#"{"size": "m"}"#]);
    bench.sessions.close().await;
}

#[tokio::test]
async fn calls_of_a_server_that_asks_without_saying_for_which_run_one_at_a_time_from_then_on() {
    let bench = Bench::new();
    let script = format!(
        r#"FORM, together = {FORM}, 2
{SIDE_BY_SIDE}
def call(message):
    global together
    note(message["params"]["name"])
    waiting.append(message)
    if len(waiting) == together:
        together = 1
        while waiting:
            asks(waiting.pop())
serve([tool("a"), tool("b")], call=call, on={{None: answered}})
"#
    );
    let tools = bench.one(&script, json!({})).await;
    let person = Person::new([given(json!({ "size": "s" })), given(json!({ "size": "m" }))]);
    let run = Run::with_person(&person);
    let call = |at: usize| run.call(&tools[at], json!({}));
    // Nobody is asked for a call that is not known.
    let (one, two) = tokio::join!(call(0), call(1));
    for output in [one, two] {
        let Err(ToolFailure::Failed(text)) = output else { panic!("{output:?}") };
        assert!(text.contains("several tools are running") && text.contains("a repeated call can ask"), "{text}");
    }
    assert!(person.asked().is_empty());
    let (one, two) = tokio::join!(call(0), call(1));
    let mut texts = [one.unwrap().text, two.unwrap().text];
    texts.sort_unstable();
    assert_eq!(texts, [r#"{"size": "m"}"#, r#"{"size": "s"}"#]);
    assert_eq!(person.asked().len(), 2);
    let notes = bench.notes();
    assert_eq!((&notes[2..4], notes[5].as_str()), (&["answered".to_owned(), "answered".to_owned()][..], "answered"));
    assert_eq!(notes.len(), 8, "no call runs twice: {notes:?}");
    bench.sessions.close().await;
}

/// Asks, waits for the answer to that, and notes it.
const EARLY: &str = r#"
def early():
    send({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM})
    while True:
        answered = json.loads(sys.stdin.readline())
        if answered.get("id") == "q":
            return note(answered["error"]["message"])
def initialized(message):
    answer(message, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                     "serverInfo": {"name": "test", "version": "1"}})
"#;

#[tokio::test]
async fn a_question_before_the_first_call_is_refused_at_once_and_a_server_that_fails_then_is_told_with_it() {
    const ASKED: &str = "asked for an answer of a person (elicitation/create) while none of its tools was called, which Belay \
                         refuses to servers. Then it ";
    let at_start = "def begin(message):\n    early()\n    ";
    let listing = "def listing(message):\n    early()\n    ";
    for (script, then) in [
        (format!("{at_start}initialized(message)\nserve([tool('t')], on={{'initialize': begin}})"), None),
        (
            format!("{at_start}sys.exit(3)\nserve([tool('t')], on={{'initialize': begin}})"),
            Some("has ended: exit code 3"),
        ),
        (format!("{listing}answer(message, {{'tools': [tool('t')]}})\nserve([], on={{'tools/list': listing}})"), None),
        (
            format!(
                "{listing}send({{'jsonrpc': '2.0', 'id': message['id'], 'error': {{'code': -32603, 'message': 'no size'}}}})\n\
                 serve([], on={{'tools/list': listing}})"
            ),
            Some("answered with an error: no size"),
        ),
    ] {
        let bench = Bench::new();
        let mcp = bench.mcp(&[bench.script("s", &format!("FORM = {FORM}\n{EARLY}\n{script}"), json!({}))]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        let notes = bench.notes();
        assert!(
            !notes.is_empty() && notes.iter().all(|note| note.contains("no call of a tool is in progress")),
            "{notes:?}"
        );
        let trouble = survey.reports[0].trouble.clone();
        match then {
            None => {
                assert_eq!(trouble, None);
                let person = Person::new([]);
                assert_eq!(Run::with_person(&person).text(&mcp.tools(&survey)[0], json!({})).await, "ok");
                assert!(person.asked().is_empty());
            }
            Some(then) => {
                let trouble = trouble.unwrap_or_default();
                assert!(trouble.contains(&format!("{ASKED}{then}")), "{trouble}");
            }
        }
        bench.sessions.close().await;
    }
}

#[tokio::test]
async fn a_question_between_two_calls_is_refused_and_told_with_a_call_that_fails_later() {
    let bench = Bench::new();
    let script = format!(
        r#"FORM = {FORM}
count = 0
def call(message):
    global count
    count += 1
    if count == 1:
        say(message, "first")
        while not os.path.exists(os.path.join(here, "go")):
            time.sleep(0.02)
        send({{"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}})
    else:
        say(message, "no size", isError=count in (2, 3))
serve([tool("t")], call=call, on={{None: lambda message: note(message["error"]["message"])}})
"#
    );
    let tool = asks(&bench, &script).await;
    let person = Person::new([given(json!({ "size": "s" }))]);
    let run = Run::with_person(&person);
    assert_eq!(run.text(&tool, json!({})).await, "first");
    std::fs::write(bench.path("s").join("go"), "").unwrap();
    until("it is refused", || !bench.notes().is_empty()).await;
    assert_eq!(bench.notes(), ["nobody can be asked: no call of a tool is in progress"]);
    let failure = run.failure(&tool, json!({})).await;
    assert!(
        failure.contains("(elicitation/create) while none of its tools was called") && failure.contains("no size"),
        "{failure}"
    );
    let failure = run.failure(&tool, json!({})).await;
    assert!(!failure.contains("asked for") && failure.contains("no size"), "it was told before: {failure}");
    assert_eq!(run.text(&tool, json!({})).await, "no size", "a call that works needs no word of it");
    assert!(person.asked().is_empty());
    bench.sessions.close().await;
}
