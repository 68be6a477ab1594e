//! `/mcp`: the tools, by the official SDK's client and by hand, with bad input, cancelled calls, and strangers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use belay_protocol::{Body, Control, RunId, StopTarget};
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, NumberOrString, ProgressNotificationParam};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::harness::{Harness, PATIENCE, SECRET, read};

/// A client that keeps what it is told of progress.
#[derive(Clone)]
pub(crate) struct Listener(mpsc::Sender<ProgressNotificationParam>);

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let _ = self.0.send(told).await; // nobody may listen any more
    }
}

pub(crate) type Client = RunningService<RoleClient, Listener>;

async fn open() -> Harness {
    Harness::with(|parts| parts.config.mcp = true).await
}

/// A client of the official SDK, and what it hears of progress.
pub(crate) async fn client(
    harness: &Harness,
    token: Option<&str>,
) -> (Client, mpsc::Receiver<ProgressNotificationParam>) {
    let mut config = StreamableHttpClientTransportConfig::with_uri(harness.url("/mcp"));
    config.auth_header = token.map(str::to_owned);
    let transport = StreamableHttpClientTransport::with_client(harness.client.clone(), config);
    let (told, heard) = mpsc::channel(64);
    (Listener(told).serve(transport).await.unwrap(), heard)
}

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

async fn ask(client: &Client, tool: &'static str, arguments: Value) -> CallToolResult {
    client.call_tool(call(tool, arguments)).await.unwrap()
}

/// The result of a call that worked.
async fn value(client: &Client, tool: &'static str, arguments: Value) -> Value {
    let result = ask(client, tool, arguments).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
    let value = result.structured_content.clone().unwrap();
    let text = result.content[0].as_text().unwrap().text.clone();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        value,
        "clients without structured results read the same"
    );
    value
}

/// The words of a call that did not.
pub(crate) async fn refusal(client: &Client, tool: &'static str, arguments: Value) -> String {
    let result = ask(client, tool, arguments).await;
    assert_eq!(result.is_error, Some(true), "{result:?}");
    result.content[0].as_text().unwrap().text.clone()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn status_of(harness: &Harness, run: &str) -> (String, Value) {
    let (_, run) = harness.get(&format!("/api/v1/runs/{run}")).await;
    (run["status"].as_str().unwrap_or_default().to_owned(), run["reason"].clone())
}

/// The run that has begun last.
async fn newest_run(harness: &Harness) -> Option<String> {
    let (_, list) = harness.get("/api/v1/runs?limit=1").await;
    list["runs"][0]["run_id"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn the_five_tools_begin_show_and_stop_runs_and_read_conversations() {
    let harness = open().await;
    let (client, _heard) = client(&harness, None).await;
    let server = client.peer_info().unwrap().server_info.clone().unwrap();
    assert_eq!((&*server.name, &*server.version), ("belay", "0.0.0"));
    let names: Vec<_> = client.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, ["send_message", "run_status", "stop_run", "list_sessions", "read_conversation"]);

    let run = value(&client, "send_message", json!({ "session": "s", "text": "hello", "wait_ms": 30_000 })).await;
    assert_eq!((&run["status"], &run["reply"], run.get("next")), (&json!("completed"), &json!("hello"), None), "{run}");
    assert_eq!(value(&client, "run_status", json!({ "run_id": run["run_id"] })).await, run);

    let sent = value(&client, "send_message", json!({ "session": "t", "text": "hold" })).await;
    assert_eq!((&sent["status"], &sent["session"]), (&json!("accepted"), &json!("t")));
    assert!(sent["next"].as_str().unwrap().contains("run_status"), "{sent}");
    let run_id = sent["run_id"].as_str().unwrap().to_owned();
    let still = value(&client, "run_status", json!({ "run_id": run_id, "wait_ms": 10 })).await;
    assert_eq!((&still["status"], still["next"].is_string()), (&json!("running"), true), "{still}");
    let stopped = value(&client, "stop_run", json!({ "run_id": run_id })).await;
    assert_eq!(stopped, json!({ "stopped": [run_id], "still_running": [] }));
    let again = value(&client, "stop_run", json!({ "run_id": run_id })).await;
    assert!(again["next"].as_str().unwrap().starts_with("There was nothing to stop"), "{again}");
    assert_eq!(value(&client, "run_status", json!({ "run_id": run_id })).await["status"], "stopped");

    let sessions = value(&client, "list_sessions", json!({})).await;
    let keys: Vec<_> = sessions["sessions"].as_array().unwrap().iter().map(|one| one["session"].clone()).collect();
    assert_eq!(keys, [json!("s"), json!("t")]);
    for text in ["one", "two", "three"] {
        value(&client, "send_message", json!({ "session": "s", "text": text, "wait_ms": 30_000 })).await;
    }
    let talk = value(&client, "read_conversation", json!({ "session": "s", "limit": 2 })).await;
    let texts: Vec<_> = talk["messages"].as_array().unwrap().iter().map(|line| line["text"].clone()).collect();
    assert_eq!((texts, &talk["earlier"]), (vec![json!("two"), json!("three")], &json!(2)));

    let command = value(&client, "send_message", json!({ "session": "s", "text": "/ping", "wait_ms": 1000 })).await;
    assert_eq!(command, json!({ "status": "answered", "command": "/ping", "reply": "pong" }));
    let paused = value(&client, "send_message", json!({ "session": "q", "text": "ask ls", "wait_ms": 30_000 })).await;
    assert_eq!((&paused["status"], &paused["waiting_for"]["summary"]), (&json!("paused"), &json!("ls")));
    assert!(paused["next"].as_str().unwrap().contains("belay approvals"), "{paused}");
}

#[tokio::test]
async fn the_same_key_is_the_same_run_and_another_text_a_conflict() {
    let harness = open().await;
    let (client, _heard) = client(&harness, None).await;
    let message = |text: &str| json!({ "session": "s", "text": text, "idempotency_key": "k" });
    let first = value(&client, "send_message", message("hold")).await;
    let again = value(&client, "send_message", message("hold")).await;
    assert_eq!((&again["run_id"], &again["duplicate"], first.get("duplicate")), (&first["run_id"], &json!(true), None));
    let words = refusal(&client, "send_message", message("other")).await;
    assert!(words.contains("was used for another message") && words.ends_with("for another message."), "{words}");
}

#[tokio::test]
async fn bad_input_is_an_error_of_the_tool_that_says_what_would_work() {
    let harness = open().await;
    let (client, _heard) = client(&harness, None).await;
    let nobody = RunId::new();
    for (tool, arguments, part) in [
        ("send_message", json!({}), "missing field `session`"),
        ("send_message", json!({ "session": "", "text": "x" }), "session: "),
        ("send_message", json!({ "session": "s", "text": " " }), "text: must not be empty"),
        ("send_message", json!({ "session": "s", "text": "x".repeat(100_001) }), "text: must be at most 100000 bytes"),
        ("send_message", json!({ "session": "s", "text": "x", "wait_ms": 600_001 }), "wait_ms: at most 600000"),
        ("send_message", json!({ "session": "s", "text": "x", "wait_ms": "1" }), "wait_ms: invalid type"),
        (
            "send_message",
            json!({ "session": "s", "text": "x", "idempotency_key": "" }),
            "idempotency_key: must be 1 to 256",
        ),
        ("send_message", json!({ "session": "s", "text": "x", "attachments": [] }), "unknown field `attachments`"),
        ("send_message", json!({ "session": "s", "text": "busy" }), "Try again in a few seconds."),
        ("send_message", json!({ "session": "s", "text": "draining" }), "shutting down"),
        ("run_status", json!({ "run_id": "7" }), "run_id: must be the id"),
        ("run_status", json!({ "run_id": nobody }), "no such run"),
        ("run_status", json!({ "run_id": nobody, "wait_ms": 600_001 }), "wait_ms: at most 600000"),
        ("stop_run", json!({ "run_id": nobody }), "no such run"),
        ("stop_run", json!({ "run_id": nobody, "force": true }), "unknown field `force`"),
        ("list_sessions", json!({ "limit": 0 }), "limit: must be 1 to 500, not 0"),
        ("read_conversation", json!({ "session": "nowhere" }), "no such session: nowhere"),
        ("read_conversation", json!({ "session": "s", "limit": 201 }), "limit: must be 1 to 200, not 201"),
        ("dance", json!({}), "there is no tool named \"dance\"; there are send_message, "),
    ] {
        let words = refusal(&client, tool, arguments.clone()).await;
        assert!(words.contains(part), "{tool} {arguments}: {words}");
    }
}

#[tokio::test]
async fn a_cancelled_call_leaves_its_run_alone_unless_it_asked_for_the_opposite() {
    let harness = open().await;
    let (client, _heard) = client(&harness, None).await;
    for (session, stop_on_cancel) in [("stays", false), ("goes", true)] {
        let before = newest_run(&harness).await;
        let message =
            json!({ "session": session, "text": "hold", "wait_ms": 600_000, "stop_on_cancel": stop_on_cancel });
        let request =
            rmcp::model::ClientRequest::CallToolRequest(rmcp::model::Request::new(call("send_message", message)));
        let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
        until("the run begins", async || newest_run(&harness).await != before).await;
        let run = newest_run(&harness).await.unwrap();
        handle.cancel(Some("enough".into())).await.unwrap();
        if stop_on_cancel {
            until("the run is stopped", async || status_of(&harness, &run).await.0 == "stopped").await;
            assert_eq!(status_of(&harness, &run).await.1, "client_gone");
        } else {
            // A later call on the same session is answered: the cancelled one has been dealt with by then.
            value(&client, "list_sessions", json!({})).await;
            assert_eq!(status_of(&harness, &run).await.0, "running");
        }
    }
    let stops = |seen: &belay_protocol::Inbound| {
        matches!(seen.body, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(_))))
    };
    assert_eq!(harness.agent.seen.lock().unwrap().iter().filter(|seen| stops(seen)).count(), 1);
}

/// Waits for real until progress is due: 2 s.
#[tokio::test]
async fn a_word_of_progress_that_is_stuck_holds_up_no_cancelled_call() {
    let harness = open().await;
    let (client, _heard) = client(&harness, None).await;
    let message = json!({ "session": "s", "text": "hold", "wait_ms": 600_000, "stop_on_cancel": true });
    let request = rmcp::model::ClientRequest::CallToolRequest(rmcp::model::Request::new(call("send_message", message)));
    let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    until("the run begins", async || newest_run(&harness).await.is_some()).await;
    harness.store.stalled.store(true, Ordering::Relaxed);
    until("progress is stuck", async || harness.store.stuck.load(Ordering::Relaxed) > 0).await;
    handle.cancel(Some("enough".into())).await.unwrap();
    until("the run is stopped", async || {
        let seen = harness.agent.seen.lock().unwrap();
        seen.iter().any(|seen| matches!(seen.body, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(_)))))
    })
    .await;
}

#[tokio::test]
async fn a_client_that_asks_for_it_hears_that_the_wait_goes_on() {
    let harness = open().await;
    let (client, mut heard) = client(&harness, None).await;
    // The SDK's client asks for progress with every request, under a number of its own.
    let waiting = ask(&client, "send_message", json!({ "session": "s", "text": "hold", "wait_ms": 600_000 }));
    let told = async {
        let first = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
        let second = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
        let run: RunId = newest_run(&harness).await.unwrap().parse().unwrap();
        harness.agent.finish(run, belay_protocol::StopReason::FinalText, "at last");
        (first, second)
    };
    let (result, (first, second)) = tokio::join!(waiting, told);
    assert_eq!(result.structured_content.unwrap()["reply"], "at last");
    assert!(matches!(first.progress_token.0, NumberOrString::Number(_) | NumberOrString::String(_)));
    assert!(first.progress > 0.0 && second.progress > first.progress, "{first:?} {second:?}");
    assert_eq!((first.total, first.message.as_deref()), (Some(600.0), Some("running: 0 model calls, 0 tool calls")));
}

#[tokio::test]
async fn only_whoever_may_use_the_api_gets_in_and_only_where_it_is_switched_on() {
    let off = Harness::open().await;
    let (status, body) = off.post("/mcp", hello()).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("not_found")), "{body}");

    let locked = Harness::with(|parts| {
        parts.config.mcp = true;
        parts.secrets.token = Some("client".to_owned().into());
        parts.secrets.webhook_secret = Some(SECRET.to_owned().into());
    })
    .await;
    let post = |harness: &Harness| {
        harness.client.post(harness.url("/mcp")).header("accept", "application/json, text/event-stream").json(&hello())
    };
    assert_eq!(read(post(&locked)).await.0, 401);
    assert_eq!(read(post(&locked).bearer_auth("wrong")).await.0, 401);
    assert_eq!(read(post(&locked).bearer_auth("client").header("origin", "http://evil.example")).await.0, 403);
    assert_eq!(read(locked.client.get(locked.url("/mcp"))).await.0, 401);
    let (client, _heard) = client(&locked, Some("client")).await;
    value(&client, "send_message", json!({ "session": "s", "text": "hello", "wait_ms": 30_000 })).await;
    let principal = locked.agent.seen.lock().unwrap().last().unwrap().principal.clone();
    assert_eq!(&*principal.id, "token", "each call is made by whoever the guard has found");
}

fn hello() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    })
}

#[tokio::test]
async fn what_is_no_request_is_refused_before_anything_is_kept() {
    let harness = open().await;
    let post = |body: String| {
        harness.client.post(harness.url("/mcp")).header("accept", "application/json, text/event-stream").body(body)
    };
    let json = |body: &str| post(body.to_owned()).header("content-type", "application/json");
    let (url, session) = (harness.url("/mcp"), "mcp-session-id");
    let bytes = |body: &'static [u8]| harness.client.post(&url).header("content-type", "application/json").body(body);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (request, status, code, id) in [
        // What is no JSON, whatever its type.
        (json("{"), 400, -32700, Value::Null),
        (json(""), 400, -32700, Value::Null),
        (post("hello".into()), 400, -32700, Value::Null),
        (post("a=b".into()).header("content-type", "application/x-www-form-urlencoded"), 400, -32700, Value::Null),
        (bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"), 400, -32700, Value::Null),
        (bytes(b"\xff\xfe{\0}\0"), 400, -32700, Value::Null),
        // JSON that is no message.
        (json("[]"), 400, -32600, Value::Null),
        (json(&format!("[{list},{list}]")), 400, -32600, Value::Null),
        (json("null"), 400, -32600, Value::Null),
        (json("7"), 400, -32600, Value::Null),
        (json("{}"), 400, -32600, Value::Null),
        (json(r#"{"jsonrpc":"1.0","id":5,"method":"tools/list"}"#), 400, -32600, json!(5)),
        (json(r#"{"jsonrpc":"2.0","id":"a"}"#), 400, -32600, json!("a")),
        (json(r#"{"jsonrpc":"2.0","id":5,"method":7}"#), 400, -32600, json!(5)),
        (json(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[1]}"#), 400, -32600, json!(5)),
        (json(r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#), 400, -32600, Value::Null),
        (json(r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#), 400, -32600, Value::Null),
        (json(r#"{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}"#), 400, -32600, Value::Null),
        (json(r#"{"jsonrpc":"2.0","id":true,"method":"tools/list"}"#), 400, -32600, Value::Null),
        // A message in a request that cannot be served.
        (post(hello().to_string()), 415, -32000, Value::Null),
        (post(hello().to_string()).header("content-type", "text/plain"), 415, -32000, Value::Null),
        (json(&hello().to_string()).header("content-encoding", "gzip"), 415, -32000, Value::Null),
        (json(&"x".repeat(200_001)), 413, -32000, Value::Null),
        (json(&hello().to_string()).header(session, "no-such-session"), 404, -32001, json!(1)),
        (json(list), 400, -32000, json!(1)),
        (harness.client.post(&url).json(&hello()), 406, -32000, json!(1)),
        (harness.client.get(&url).header("accept", "text/event-stream"), 400, -32000, Value::Null),
        (harness.client.get(&url), 406, -32000, Value::Null),
        (
            harness.client.get(&url).header("accept", "text/event-stream").header(session, "no-such-session"),
            404,
            -32001,
            Value::Null,
        ),
        (harness.client.delete(&url), 400, -32000, Value::Null),
    ] {
        let asked = format!("{request:?}");
        let (found, body) = read(request).await;
        let expected = (status, &json!("2.0"), &id, &json!(code));
        assert_eq!((found, &body["jsonrpc"], &body["id"], &body["error"]["code"]), expected, "{asked}: {body}");
        assert!(body["error"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{asked}: {body}");
    }
    assert_eq!(read(harness.client.put(&url).json(&hello())).await.0, 405);
    assert!(harness.agent.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_slash_at_the_end_of_the_path_is_the_same_endpoint() {
    let harness = open().await;
    let begin = harness.client.post(harness.url("/mcp/")).header("accept", "application/json, text/event-stream");
    let begun = begin.json(&hello()).send().await.unwrap();
    assert_eq!(begun.status(), 200);
    let session = begun.headers()["mcp-session-id"].clone();
    // A session belongs to the endpoint, not to the spelling of its path.
    let ended = harness.client.delete(harness.url("/mcp")).header("mcp-session-id", session).send().await.unwrap();
    assert!(ended.status().is_success(), "{ended:?}");
    let off = Harness::open().await;
    assert_eq!(off.post("/mcp/", hello()).await.0, 404);
}

#[tokio::test]
async fn a_session_that_is_full_or_gone_is_said_and_an_open_stream_does_not_hold_up_the_end() {
    let harness = Harness::with(|parts| {
        parts.config.mcp = true;
        parts.config.drain_s = 600;
    })
    .await;
    let begin = async || {
        let request = harness.client.post(harness.url("/mcp")).header("accept", "application/json, text/event-stream");
        request.json(&hello()).send().await.unwrap()
    };
    let first = begin().await;
    assert_eq!(first.status(), 200);
    let session = first.headers()["mcp-session-id"].clone();
    drop(first);
    for _ in 1..256 {
        assert_eq!(begin().await.status(), 200);
    }
    let full = begin().await;
    assert_eq!((full.status().as_u16(), full.headers().contains_key("retry-after")), (503, true));
    let ended =
        harness.client.delete(harness.url("/mcp")).header("mcp-session-id", session.clone()).send().await.unwrap();
    assert!(ended.status().is_success(), "{ended:?}");
    let next = begin().await;
    assert_eq!(next.status(), 200, "one place is free again");

    let open = harness.client.get(harness.url("/mcp")).header("accept", "text/event-stream");
    let open = open.header("mcp-session-id", next.headers()["mcp-session-id"].clone()).send().await.unwrap();
    assert_eq!(open.status(), 200);
    harness.stop.cancel();
    tokio::time::timeout(PATIENCE, harness.served).await.expect("long before the drain is over").unwrap().unwrap();
    let _ = open.bytes().await; // its end, or that it broke off
}
