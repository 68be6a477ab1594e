//! Calls: what comes back, and what happens when nothing does.

use belay_protocol::ToolFailure;
use serde_json::json;

use super::support::{Bench, Run, until};

#[tokio::test]
async fn a_call_brings_the_arguments_there_and_the_answer_back() {
    let bench = Bench::new();
    let script = r#"
def call(message):
    params = message["params"]
    say(message, params["name"] + " " + json.dumps(params["arguments"], sort_keys=True))
serve([tool("Echo it".replace(" ", "-"), "", {"a": {}, "b": {}})], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let text = Run::new().text(&tools[0], json!({ "b": [1, null], "a": "ß\n" })).await;
    assert_eq!(text, r#"Echo-it {"a": "\u00df\n", "b": [1, null]}"#);
}

#[tokio::test]
async fn a_tools_own_failure_is_read_by_the_model() {
    let bench = Bench::new();
    let script = r#"
def call(message):
    if message["params"]["name"] == "fails":
        say(message, "no such city", isError=True)
    else:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "city\u200b is\n missing"}})
serve([tool("fails"), tool("refuses")], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    assert_eq!(run.failure(&tools[0], json!({})).await, "no such city");
    assert_eq!(run.failure(&tools[1], json!({})).await, "The MCP server s answered with an error: city is missing.");
}

/// Notes that it was called, and answers nothing.
const DEAF: &str = r#"
serve([tool("t")], lambda message: note("called"))
"#;

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_limit_and_the_server_is_told() {
    let bench = Bench::new();
    let tools = bench.one(DEAF, json!({ "timeout_s": 1 })).await;
    let failure = Run::new().failure(&tools[0], json!({})).await;
    assert!(failure.starts_with("t of the MCP server s gave no answer within 1 s and was stopped."), "{failure}");
    until("the server is told", || bench.notes() == ["called", "cancelled"]).await;
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told() {
    let bench = Bench::new();
    let tools = bench.one(DEAF, json!({})).await;
    let run = Run::new();
    let cancel = async {
        until("the call is at work", || bench.notes() == ["called"]).await;
        run.cancel.cancel();
    };
    let (output, ()) = tokio::join!(run.call(&tools[0], json!({})), cancel);
    assert_eq!(output, Err(ToolFailure::Cancelled));
    until("the server is told", || bench.notes() == ["called", "cancelled"]).await;
    // The connection serves the run until its end.
    assert_eq!(bench.sessions.open(), 1);
}

#[tokio::test]
async fn calls_side_by_side_share_a_connection_and_get_their_own_answers() {
    let bench = Bench::new();
    let script = r#"
waiting = []
def call(message):
    waiting.append(message)
    if len(waiting) == 4:
        for message in reversed(waiting):
            say(message, f'{os.getpid()} {message["params"]["arguments"]["n"]}')
serve([tool("t", "", {"n": {}})], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    let call = async |n: u32| run.text(&tools[0], json!({ "n": n })).await;
    let (a, b, c, d) = tokio::join!(call(1), call(2), call(3), call(4));
    let (pid, _) = a.split_once(' ').unwrap();
    assert_eq!([&a, &b, &c, &d], [1, 2, 3, 4].map(|n| format!("{pid} {n}")).each_ref());
    assert_eq!(bench.sessions.open(), 1);
}

#[tokio::test]
async fn a_server_that_asks_for_a_model_a_person_or_directories_is_refused() {
    let bench = Bench::new();
    let script = r#"
def ask(id, method, params):
    send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    while True:
        reply = json.loads(sys.stdin.readline())
        if reply.get("id") == id:
            return reply["error"]["code"] if "error" in reply else "granted"
def call(message):
    question = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    form = {"message": "your password?", "requestedSchema": {"type": "object", "properties": {}}}
    codes = [ask("q1", "sampling/createMessage", question), ask("q2", "roots/list", {}),
             ask("q3", "elicitation/create", form), ask("q4", "made/up", {}), ask("q5", "ping", {})]
    say(message, json.dumps(codes))
serve([tool("t")], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let codes = Run::new().text(&tools[0], json!({})).await;
    assert!(codes.ends_with("\n[-32601, -32601, -32602, -32601, \"granted\"]"), "{codes}");
}

#[tokio::test]
async fn a_program_gets_the_environment_it_is_given_and_nothing_else() {
    let bench = Bench::new();
    let script = r#"serve([tool("t")], lambda message: say(message, json.dumps(sorted(os.environ))))"#;
    let tools = bench.one(script, json!({ "env": { "GIVEN": "1" } })).await;
    let names: Vec<String> = serde_json::from_str(&Run::new().text(&tools[0], json!({})).await).unwrap();
    let expected = ["BELAY_RUN", "GIVEN", "HOME", "LANG", "LC_CTYPE", "PATH", "TMPDIR", "TZ"];
    assert!(names.contains(&"GIVEN".to_owned()), "{names:?}");
    // The process tree is marked by BELAY_RUN; CPython sets LC_CTYPE for itself where no language is set.
    assert!(names.iter().all(|name| expected.contains(&name.as_str())), "{names:?}");
}
