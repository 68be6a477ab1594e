//! Tests the Messages API over a real socket: answers as recorded, and servers that misbehave.

#![allow(clippy::unwrap_used)]

use belay_protocol::ModelErrorKind::*;
use belay_protocol::{
    Arguments, FinishReason, Message, ModelError, ModelProvider, ModelReply, ModelRequest, NoSink, Thinking, ToolCall,
    ToolStatus, Usage,
};
use serde_json::{Value, json};

use crate::testing::{Asked, RecordingSink, Script, Server, ask_once, provider, result};

fn event(body: Value) -> String {
    format!("event: {}\ndata: {body}\n\n", body["type"].as_str().unwrap())
}

fn stream(events: Vec<Value>) -> String {
    let head = json!({"type": "message_start", "message": {"id": "m", "content": [], "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}}});
    [head].into_iter().chain(events).map(event).collect()
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn end(reason: &str) -> [Value; 2] {
    let usage = json!({"output_tokens": 42});
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn whole_stream() -> String {
    let mut events = vec![
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "abc"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "ping"}),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "I look \n"})),
        delta(1, json!({"type": "text_delta", "text": "🕰"})),
        block(2, json!({"type": "tool_use", "id": "t1", "name": "clock", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"zone\":"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "\"UTC\"}"})),
        block(3, json!({"type": "tool_use", "id": "t2", "name": "clock", "input": {"zone": "CET"}})),
        json!({"type": "something_new", "index": 9}),
    ];
    events.extend(end("tool_use"));
    stream(events)
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "clock".into(), arguments: Arguments::parse(arguments) }
}

async fn answer(script: Script) -> Result<ModelReply, ModelError> {
    let server = Server::start(vec![script]).await;
    ask_once(&*provider(json!({"provider": "anthropic", "base_url": server.url(), "model": "m"})), &mut NoSink).await
}

#[tokio::test]
async fn an_answer_is_the_same_in_one_piece_and_byte_by_byte() {
    for slice in [usize::MAX, 7, 1] {
        let server = Server::start(vec![Script::sse(&whole_stream()).sliced(slice)]).await;
        let provider = provider(json!({"provider": "anthropic", "base_url": server.url(), "model": "m"}));
        let mut recorded = RecordingSink::default();
        let reply = ask_once(&*provider, &mut recorded).await.unwrap();
        assert_eq!(
            reply,
            ModelReply {
                text: "I look \n🕰".into(),
                tool_calls: vec![call("t1", "{\"zone\":\"UTC\"}"), call("t2", "{\"zone\":\"CET\"}")],
                finish: FinishReason::ToolCalls,
                usage: Some(Usage { input: 130, cached_input: 100, output: 42 }),
                attempts: 1,
                abandoned: 0,
                ..ModelReply::default()
            }
        );
        assert_eq!(recorded, RecordingSink { text: "I look \n🕰".into(), reasoning: "hm".into() });
        let request = server.requests()[0].to_lowercase();
        for part in ["post /v1/messages http", "\r\nx-api-key: sesame\r\n", "\r\nanthropic-version: 2023-06-01\r\n"] {
            assert!(request.contains(part), "{part} in {request}");
        }
    }
}

#[tokio::test]
async fn an_address_may_end_in_its_version() {
    let server = Server::start(vec![Script::sse(&whole_stream())]).await;
    let url = format!("{}/v1/", server.url());
    let provider = provider(json!({"provider": "anthropic", "base_url": url, "model": "m"}));
    ask_once(&*provider, &mut NoSink).await.unwrap();
    assert!(server.requests()[0].starts_with("POST /v1/messages "), "{:?}", server.requests());
}

#[tokio::test]
async fn reasons_to_stop_are_told_apart() {
    use FinishReason::*;
    for (reason, finish) in [
        ("end_turn", Stop),
        ("stop_sequence", Stop),
        ("pause_turn", Stop),
        ("max_tokens", Length),
        ("model_context_window_exceeded", Length),
        ("refusal", ContentFilter),
        ("tool_use", Stop), // without any call
        ("of_the_future", Stop),
    ] {
        let reply = answer(Script::sse(&stream(end(reason).to_vec()))).await.unwrap();
        assert_eq!(reply.finish, finish, "{reason}");
    }
}

/// The beginning of a stream counts about one token of the answer.
#[tokio::test]
async fn a_stream_that_does_not_tell_its_output_at_its_end_says_nothing_of_its_use() {
    let usage = |output| Some(Usage { input: 130, cached_input: 100, output });
    for (told, expected) in [
        (json!({"output_tokens": 70}), usage(70)),
        (json!({"output_tokens": "many"}), None),
        (json!({"input_tokens": 3}), None),
        (json!("odd"), None),
        (json!(null), None),
    ] {
        let finish = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": told});
        let pieces = vec![delta(0, json!({"type": "text_delta", "text": "noon"})), finish];
        let script = stream(pieces.into_iter().chain([json!({"type": "message_stop"})]).collect());
        let reply = answer(Script::sse(&script)).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage), ("noon", expected), "{told}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = json!({"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "I look"}, {"type": "tool_use", "id": "t", "name": "clock", "input": {"a": 1}},
    ], "usage": {"input_tokens": 3, "output_tokens": 4}});
    let reply = answer(Script::json(200, &body.to_string())).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls), ("I look", vec![call("t", "{\"a\":1}")]));
    assert_eq!(reply.usage, Some(Usage { input: 3, cached_input: 0, output: 4 }));
}

#[tokio::test]
async fn a_lying_server_gives_a_typed_error() {
    let error = |kind: &str| stream(vec![json!({"type": "error", "error": {"type": kind, "message": "m"}})]);
    let text = || delta(0, json!({"type": "text_delta", "text": "a"}));
    let stray = stream(vec![delta(u64::MAX, json!({"type": "input_json_delta", "partial_json": "{"})), text()]);
    for (what, script, kind, started) in [
        ("half a stream", Script::sse(&stream(vec![text()])), Network, true),
        ("no reason to stop", Script::sse(&stream(vec![text()])), Network, true),
        ("a stray piece", Script::sse(&stray), Network, true),
        ("overloaded", Script::sse(&error("overloaded_error")), Overloaded { retry_after: None }, true),
        ("limited", Script::sse(&error("rate_limit_error")), RateLimited { retry_after: None }, true),
        ("refused", Script::sse(&error("authentication_error")), Auth, true),
        ("bad", Script::sse(&error("invalid_request_error")), BadRequest, true),
        ("not JSON", Script::sse("data: hello\n\n"), Network, false),
        ("another format", Script::json(200, "{\"choices\":[]}"), Network, false),
        (
            "an error in a success",
            Script::json(200, "{\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}"),
            { Overloaded { retry_after: None } },
            false,
        ),
        (
            "too long",
            Script::json(400, "{\"type\":\"error\",\"error\":{\"message\":\"prompt is too long: 9\"}}"),
            { ContextTooLong },
            false,
        ),
    ] {
        let error = answer(script).await.expect_err(what);
        assert_eq!((error.kind, error.abandoned > 0), (kind, started), "{what}: {error}");
    }
}

#[tokio::test]
async fn an_answer_with_its_reason_to_stop_is_complete_without_a_terminal_event() {
    let call = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c", "name": "clock", "input": null}});
    let reply = answer(Script::sse(&stream(vec![call, end("tool_use")[0].clone()]))).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(reply.tool_calls[0].arguments, Arguments::Object(serde_json::Map::new()), "null means none");
}

#[tokio::test]
async fn a_model_that_thinks_reads_its_thoughts_again_within_a_chain_of_calls() {
    let script = || vec![Script::sse(&whole_stream()); 2];
    let (first, second) = (Server::start(script()).await, Server::start(script()).await);
    let build = |server: &Server| provider(json!({"provider": "anthropic", "base_url": server.url(), "model": "m"}));
    let ask = async |provider: &dyn ModelProvider, history: Vec<Message>| {
        let asked = Asked::new("", true, history);
        let request = ModelRequest { thinking: Some(Thinking::Medium), max_attempts: 1, ..asked.request() };
        provider.call(request, &mut NoSink).await.unwrap()
    };
    let model = build(&first);
    let question = Message::user("what time is it?");
    let reply = ask(&*model, vec![question.clone()]).await;
    let results = ["t1", "t2"].map(|id| result(id, "clock", ToolStatus::Success, "12:00"));
    let mut history = vec![question, Message::assistant_calls(reply.text, reply.tool_calls)];
    history.extend(results);
    ask(&*model, history.clone()).await;
    // A restart loses the thoughts. The next request is sent without thinking.
    ask(&*build(&second), history).await;

    let body = |server: &Server, at: usize| -> Value {
        let request = &server.requests()[at];
        serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let kinds = |body: &Value| -> Vec<String> {
        let blocks = body["messages"][1]["content"].as_array().unwrap();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    let (begun, again, lost) = (body(&first, 0), body(&first, 1), body(&second, 0));
    assert_eq!(begun["thinking"], json!({"type": "enabled", "budget_tokens": 8192}));
    assert_eq!((&again["thinking"], &again["max_tokens"]), (&begun["thinking"], &json!(8292)));
    assert_eq!(kinds(&again), ["thinking", "text", "tool_use", "tool_use"]);
    let thoughts = json!({"type": "thinking", "thinking": "hm", "signature": "abc"});
    assert_eq!(again["messages"][1]["content"][0], thoughts);
    assert_eq!((lost.get("thinking"), &lost["max_tokens"]), (None, &json!(100)));
    assert_eq!(kinds(&lost), ["text", "tool_use", "tool_use"]);
}

/// A status 400 with these words.
fn refusal(message: &str) -> Script {
    let error = json!({"type": "invalid_request_error", "message": message});
    Script::json(400, &json!({"type": "error", "error": error}).to_string())
}

/// The cache marks in each request that the server has got.
fn marks(server: &Server) -> Vec<usize> {
    server.requests().iter().map(|request| request.matches("cache_control").count()).collect()
}

#[tokio::test]
async fn a_server_that_refuses_cache_marks_is_asked_again_without_them_and_gets_none_from_then_on() {
    let whole = || Script::sse(&whole_stream());
    let scripts = vec![refusal("tools.0.cache_control: Extra inputs are not permitted"), whole(), whole()];
    let server = Server::start(scripts).await;
    let provider = provider(json!({"provider": "anthropic", "base_url": server.url(), "model": "m"}));
    let replies = [ask_once(&*provider, &mut NoSink).await.unwrap(), ask_once(&*provider, &mut NoSink).await.unwrap()];
    assert_eq!(replies.map(|reply| (reply.attempts, reply.abandoned)), [(2, 0), (1, 0)]);
    assert_eq!(marks(&server), [3, 0, 0], "the tools, the prompt, and the last message");

    // Too many of them is no refusal of all.
    let error =
        answer(refusal("A maximum of 4 blocks with cache_control may be provided. Found 5.")).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (BadRequest, 1));
}

#[tokio::test]
async fn a_refusal_that_the_marks_did_not_cause_does_not_end_them() {
    let unknown = || refusal("unknown parameter: metadata, beside cache_control");
    let server = Server::start(vec![unknown(), unknown(), Script::sse(&whole_stream())]).await;
    let provider = provider(json!({"provider": "anthropic", "base_url": server.url(), "model": "m"}));
    let error = ask_once(&*provider, &mut NoSink).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (BadRequest, 2));
    ask_once(&*provider, &mut NoSink).await.unwrap();
    assert_eq!(marks(&server), [3, 0, 3]);
}
