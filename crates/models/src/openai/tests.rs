//! Tests Chat Completions over a real socket: answers as recorded, and servers that misbehave.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use belay_protocol::ModelErrorKind::{self, *};
use belay_protocol::{Arguments, FinishReason, Message, ModelError, ModelReply, NoSink, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::response::OpenAiDecoder;
use crate::bounds;
use crate::sse::SseReader;
use crate::stream::{Decoder, Flow};
use crate::testing::{Asked, RecordingSink, Script, Server, ask_once, history_with_pictures, provider};

/// A stream as OpenAI sends it: a role, pieces, a stop reason, the usage, the end.
const TEXT: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"It is \"}}]}\n\n\
    : keep-alive\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"noon \\ud83d\\udd70 é\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n\
    data: [DONE]\n\n";

/// Two calls with their arguments in pieces.
const CALLS: &str = "data: {\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"clock\",\"arguments\":\"\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"zone\\\":\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"UTC\\\"}\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"c2\",\"function\":{\"name\":\"clock\",\"arguments\":\"{}\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n\
    data: [DONE]\n\n";

async fn answer(script: Script) -> Result<ModelReply, ModelError> {
    let server = Server::start(vec![script]).await;
    ask_once(&*provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"})), &mut NoSink).await
}

fn event(delta: Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse(arguments) }
}

fn text_reply() -> ModelReply {
    ModelReply {
        text: "It is noon 🕰 é".into(),
        tool_calls: vec![],
        finish: FinishReason::Stop,
        usage: Some(Usage { input: 12, cached_input: 8, output: 5 }),
        attempts: 1,
        abandoned: 0,
        ..ModelReply::default()
    }
}

#[tokio::test]
async fn an_answer_is_the_same_in_one_piece_and_byte_by_byte() {
    for slice in [usize::MAX, 7, 1] {
        let server = Server::start(vec![Script::sse(TEXT).sliced(slice)]).await;
        let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
        let mut recorded = RecordingSink::default();
        assert_eq!(ask_once(&*provider, &mut recorded).await.unwrap(), text_reply());
        assert_eq!((recorded.text.as_str(), recorded.reasoning.as_str()), ("It is noon 🕰 é", "hm"));
        let request = &server.requests()[0];
        assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nauthorization: Bearer sesame\r\n"), "{request}");
    }
}

#[tokio::test]
async fn calls_are_put_together_from_their_pieces() {
    let reply = answer(Script::sse(CALLS)).await.unwrap();
    assert_eq!(reply.tool_calls, [call("c1", "clock", "{\"zone\":\"UTC\"}"), call("c2", "clock", "{}")]);
    assert_eq!((reply.text.as_str(), reply.finish, reply.usage), ("", FinishReason::ToolCalls, None));
}

#[tokio::test]
async fn one_connection_serves_call_after_call() {
    let server = Server::start(vec![Script::sse(TEXT), Script::sse(CALLS), Script::sse(TEXT).sliced(9)]).await;
    let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
    for _ in 0..3 {
        ask_once(&*provider, &mut NoSink).await.unwrap();
    }
    assert_eq!((server.requests().len(), server.hung_up()), (3, 0));
}

#[tokio::test]
async fn careless_servers_are_understood() {
    let finish = || event(json!({}), Some("stop"));
    let calls = |pieces: Vec<Value>| {
        let pieces: String = pieces.into_iter().map(|piece| event(json!({"tool_calls": [piece]}), None)).collect();
        pieces + &finish()
    };
    let whole = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "whole", "tool_calls": null}}], "usage": {"prompt_tokens": 1}});
    for (what, script, text, tool_calls) in [
        ("no [DONE]", Script::sse(&(event(json!({"content": "a"}), None) + &finish())), "a", vec![]),
        ("no stream", Script::json(200, &whole.to_string()), "whole", vec![]),
        ("no type", Script::http(200, "text/plain", &event(json!({"content": "a"}), Some("stop"))), "a", vec![]),
        ("reason with the last piece", Script::sse(&event(json!({"content": "a"}), Some("x"))), "a", vec![]),
        ("a refusal", Script::sse(&event(json!({"refusal": "I may not"}), Some("stop"))), "I may not", vec![]),
        (
            "pseudo calls",
            Script::sse(&event(json!({"content": "<tool_call>{}"}), Some("stop"))),
            "<tool_call>{}",
            vec![],
        ),
        ("a whole message as an event", Script::sse(&format!("data: {whole}\n\n")), "whole", vec![]),
        (
            "no index, named anew",
            Script::sse(&calls(vec![
                json!({"id": "a", "function": {"name": "x", "arguments": "{\"n\""}}),
                json!({"function": {"arguments": ":1}"}}),
                json!({"id": "b", "function": {"name": "y", "arguments": "{}"}}),
            ])),
            "",
            vec![call("a", "x", "{\"n\":1}"), call("b", "y", "{}")],
        ),
        (
            "one index for all",
            Script::sse(&calls(vec![
                json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}),
                json!({"index": 0, "id": "b", "function": {"name": "y", "arguments": "{}"}}),
            ])),
            "",
            vec![call("a", "x", "{}"), call("b", "y", "{}")],
        ),
        (
            "an id with each piece, a huge index, an object",
            Script::sse(&calls(vec![
                json!({"index": u64::MAX, "id": "a", "function": {"name": "x"}}),
                json!({"index": u64::MAX, "id": "z", "function": {"arguments": {"n": 1}}}),
            ])),
            "",
            vec![call("a", "x", "{\"n\":1}")],
        ),
        (
            "cut arguments, an empty name",
            Script::sse(&calls(vec![json!({"index": 0, "id": "a", "function": {"name": "", "arguments": "{\"n"}})])),
            "",
            vec![call("a", "", "{\"n")],
        ),
    ] {
        let reply = answer(script).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((reply.text.as_str(), reply.tool_calls), (text, tool_calls), "{what}");
    }
}

/// The pieces of tool calls, each in an event of its own, and a reason to stop.
fn routed(pieces: &[Value]) -> Script {
    let pieces: String = pieces.iter().map(|piece| event(json!({"tool_calls": [piece]}), None)).collect();
    Script::sse(&(pieces + &event(json!({}), Some("tool_calls"))))
}

#[tokio::test]
async fn pieces_of_calls_are_routed_by_id_then_by_index_then_to_the_last_call() {
    let head = |index: Value, id: &str, name: &str, arguments: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
    let two = || vec![call("a", "x", "{\"n\":1}"), call("b", "y", "{\"n\":2}")];
    for (what, pieces, expected) in [
        (
            "heads with one index, pieces by id",
            vec![
                head(json!(0), "a", "x", ""),
                head(json!(0), "b", "y", ""),
                head(json!(0), "a", "", "{\"n\":1}"),
                head(json!(0), "b", "", "{\"n\":2}"),
            ],
            two(),
        ),
        (
            "the id and the name in every piece, without an index",
            vec![
                head(json!(null), "a", "x", "{\"n\""),
                head(json!(null), "a", "x", ":1}"),
                head(json!(null), "b", "y", "{\"n\""),
                head(json!(null), "b", "y", ":2}"),
            ],
            two(),
        ),
        (
            "the id and the name in every piece, interleaved",
            vec![
                head(json!(0), "a", "x", "{\"n\""),
                head(json!(1), "b", "y", "{\"n\""),
                head(json!(0), "a", "x", ":1}"),
                head(json!(1), "b", "y", ":2}"),
            ],
            two(),
        ),
        (
            "arguments before the name",
            vec![
                head(json!(0), "", "", "{\"n\""),
                head(json!(0), "a", "x", ":1}"),
                head(json!(1), "", "", "{\"n\":2}"),
                head(json!(1), "b", "y", ""),
            ],
            two(),
        ),
        (
            "arguments before the name, without an index",
            vec![head(json!(null), "", "", "{\"n\":1}"), head(json!(null), "a", "x", "")],
            vec![call("a", "x", "{\"n\":1}")],
        ),
        (
            "an unknown id without a name continues its index",
            vec![
                head(json!(0), "a", "x", "{\"n\""),
                head(json!(1), "b", "y", "{\"n\""),
                head(json!(0), "new", "", ":1}"),
                head(json!(1), "newer", "", ":2}"),
            ],
            two(),
        ),
        (
            "an unknown id without a name and an index continues the last call",
            vec![head(json!(null), "a", "x", "{\"n\""), head(json!(null), "new", "", ":1}")],
            vec![call("a", "x", "{\"n\":1}")],
        ),
        ("null arguments", vec![head(json!(0), "a", "x", "null")], vec![call("a", "x", "")]),
    ] {
        let reply = answer(routed(&pieces)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(reply.tool_calls, expected, "{what}");
    }
    let unnamed = [head(json!(0), "", "x", "{\"n\":1}"), head(json!(0), "", "y", "{\"n\":2}")];
    let same_id = [head(json!(0), "a", "x", "{\"n\":1}"), head(json!(1), "a", "x", "{\"n\":2}")];
    for (pieces, names) in [(unnamed, ["x", "y"]), (same_id, ["x", "x"])] {
        let calls = answer(routed(&pieces)).await.unwrap().tool_calls;
        let seen: Vec<_> = calls.iter().map(|call| (&*call.name, call.arguments.clone())).collect();
        let expected: Vec<_> = names.into_iter().zip(["{\"n\":1}", "{\"n\":2}"]).collect();
        let expected: Vec<_> = expected.into_iter().map(|(name, raw)| (name, Arguments::parse(raw))).collect();
        assert_eq!(seen, expected, "two calls with one index, and two with one id");
    }
}

#[tokio::test]
async fn an_empty_reason_is_none_and_the_end_of_an_answer_without_one_is_told() {
    let done = "data: [DONE]\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
    let text = |reason| event(json!({"content": "a"}), reason);
    let cut =
        event(json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]}), Some(""));
    let whole = |reason: Value| {
        Script::json(200, &json!({"choices": [{"message": {"content": "a"}, "finish_reason": reason}]}).to_string())
    };
    let whole_call = json!({"choices": [{"finish_reason": "", "message": {"tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "{}"}}]}}]});
    let hollow = event(json!({"role": "assistant"}), Some("stop"))
        + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0}}\n\n"
        + done;
    for (what, script, expected) in [
        ("an empty reason and no end", Script::sse(&text(Some(""))), Err("before its terminal event")),
        ("an empty reason and an end", Script::sse(&(text(Some("")) + done)), Ok(FinishReason::Unsaid)),
        ("no reason and an end", Script::sse(&(text(None) + done)), Ok(FinishReason::Unsaid)),
        ("no reason, usage and an end", Script::sse(&(text(None) + usage + done)), Ok(FinishReason::Stop)),
        ("no reason, usage and no end", Script::sse(&(text(None) + usage)), Err("before its terminal event")),
        (
            "length, then an empty one",
            Script::sse(&(text(Some("length")) + &text(Some("")) + done)),
            Ok(FinishReason::Length),
        ),
        ("length, then null", Script::sse(&(text(Some("length")) + &text(None) + done)), Ok(FinishReason::Length)),
        (
            "length, then stop",
            Script::sse(&(text(Some("length")) + &text(Some("stop")) + done)),
            Ok(FinishReason::Length),
        ),
        ("a call without a reason", Script::sse(&(cut.clone() + done)), Err("without a reason to stop")),
        ("a counted call without a reason", Script::sse(&(cut + usage + done)), Err("without a reason to stop")),
        ("a whole one without a reason", whole(json!("")), Ok(FinishReason::Unsaid)),
        ("a whole call without a reason", Script::json(200, &whole_call.to_string()), Err("no completion")),
        ("an empty answer without output", Script::sse(&hollow), Err("a proxy may have hidden an error")),
    ] {
        match (answer(script).await, expected) {
            (Ok(reply), Ok(finish)) => assert_eq!(reply.finish, finish, "{what}"),
            (Err(error), Err(says)) => assert!(error.detail.contains(says), "{what}: {error}"),
            (got, _) => panic!("{what}: {got:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_without_output_and_with_a_full_context_is_a_full_context() {
    let usage = json!({"prompt_tokens": 36_000, "completion_tokens": 0});
    let stream = event(json!({"role": "assistant"}), Some("stop")) + &format!("data: {}\n\n", json!({"usage": usage}));
    for (context_tokens, kind) in [(32_768, ContextTooLong), (131_072, Network)] {
        let server = Server::start(vec![Script::sse(&(stream.clone() + "data: [DONE]\n\n"))]).await;
        let settings =
            json!({"provider": "openai", "base_url": server.url(), "model": "m", "context_tokens": context_tokens});
        assert_eq!(ask_once(&*provider(settings), &mut NoSink).await.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn a_lying_server_gives_a_typed_error() {
    let half = &TEXT[..TEXT.len() / 2];
    let ids = event(json!({"tool_calls": [{"index": -1, "id": "a"}]}), None);
    let in_stream = |error: Value| Script::sse(&format!("{half}\n\ndata: {}\n\n", json!({"error": error})));
    let many = |count: usize| {
        let calls: Vec<_> = (0..count).map(|n| json!({"index": n, "function": {"name": "x"}})).collect();
        event(json!({"tool_calls": calls}), Some("stop"))
    };
    let mut endless = b"data: ".to_vec();
    endless.resize(bounds::EVENT_MAX_BYTES + 100, b'x');
    let mut not_utf8 = b"data: {\"choices\":[{\"delta\":{\"content\":\"".to_vec();
    not_utf8.extend_from_slice(b"\xff\xfe\"}}]}\n\n");
    let huge =
        event(json!({"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": "y".repeat(900_000)}}]}), None);
    for (what, script, kind, says) in [
        ("nothing", Script::sse(""), Network, "before its terminal event"),
        ("half a stream", Script::sse(half), Network, "before its terminal event"),
        ("a closed connection", Script::sse(half).then_close(), Network, "broke"),
        ("a polite end without an answer", Script::sse("data: [DONE]\n\n"), Network, "without a reason to stop"),
        ("not JSON", Script::sse("data: hello\n\n"), Network, "not a chunk of a completion"),
        ("other JSON", Script::sse("data: {\"a\":1}\n\ndata: [DONE]\n\n"), Network, "without a reason"),
        ("a list", Script::sse("data: [1]\n\n"), Network, "not a chunk"),
        ("a call and no end", Script::sse(&ids), Network, "before its terminal event"),
        ("deep JSON", Script::sse(&format!("data: {}\n\n", "[".repeat(100_000))), Network, "not a chunk"),
        ("a web page", Script::http(200, "text/html", "<html>log in</html>"), Network, "log in"),
        ("JSON of another kind", Script::json(200, "{\"ok\":true}"), Network, "no completion"),
        ("cut JSON", Script::json(200, "{\"choices\":["), Network, "not a chunk"),
        (
            "an error in a success",
            Script::json(200, "{\"error\":{\"code\":500,\"message\":\"oh\"}}"),
            { Overloaded { retry_after: None } },
            "oh",
        ),
        ("a line without end", Script::sse("").bytes(endless), Network, "line or event"),
        ("bytes that are no text", Script::sse("").bytes(not_utf8), Network, "not a chunk"),
        ("huge arguments", Script::sse(&huge.repeat(2)), Network, "arguments of a tool call are longer"),
        ("hundreds of calls", Script::sse(&many(500)), Network, "more than 128 tool calls"),
        ("a list without end", Script::sse(&many(5000)), Network, "at most 1024 items"),
        (
            "deep JSON inside",
            Script::sse(&format!("data: {{\"x\":{}\n\n", "[".repeat(900_000))),
            Network,
            "not a chunk",
        ),
        (
            "an overloaded server",
            in_stream(json!({"type": "overloaded_error", "message": "m"})),
            { Overloaded { retry_after: None } },
            "m",
        ),
        ("a full context", in_stream(json!({"code": 400, "type": "exceed_context_size_error"})), ContextTooLong, ""),
        ("an old llama.cpp", Script::sse("error: {\"code\":401,\"message\":\"key\"}\n\n"), Auth, "key"),
        (
            "a named error event",
            Script::sse("event: error\ndata: {\"type\":\"server_error\"}\n\n"),
            { Overloaded { retry_after: None } },
            "",
        ),
    ] {
        let error = answer(script).await.expect_err(what);
        assert_eq!(error.kind, kind, "{what}: {error}");
        assert!(error.detail.contains(says), "{what}: {error}");
        assert!(error.detail.chars().count() <= bounds::DETAIL_MAX_CHARS, "{what}: {error}");
    }
}

#[tokio::test]
async fn a_broken_answer_tells_whether_it_had_begun() {
    for (body, started) in [("", false), ("data: {\"choices\":[]}\n\n", false), (&TEXT[..TEXT.len() / 2], true)] {
        assert_eq!(answer(Script::sse(body)).await.unwrap_err().abandoned > 0, started, "{body}");
    }
}

#[tokio::test]
async fn statuses_come_with_their_delay_and_without_the_key() {
    let limited = "application/json\r\nretry-after: 7";
    let echo = r#"{"error":{"message":"the key sesame is wrong"}}"#;
    for (status, kind, body, expected) in [
        (429, limited, "{}", RateLimited { retry_after: Some(Duration::from_secs(7)) }),
        (529, limited, "{}", Overloaded { retry_after: Some(Duration::from_secs(7)) }),
        (401, "application/json", echo, Auth),
        (400, "text/html", "<p>no</p>", BadRequest),
        (307, "text/html\r\nlocation: http://127.0.0.2:1/elsewhere", "", BadRequest),
    ] {
        let error = answer(Script::http(status, kind, body)).await.unwrap_err();
        assert_eq!(error.kind, expected, "{error}");
        assert!(!error.detail.contains("sesame") && error.detail.contains(&status.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_failed_call_is_sent_again_and_its_requests_are_counted() {
    let busy = || Script::http(503, "text/plain\r\nretry-after-ms: 1", "busy");
    let server = Server::start(vec![busy(), Script::sse("data: junk\n\n"), Script::sse(TEXT)]).await;
    let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
    let asked = Asked::new("", false, vec![]);
    let reply = provider.call(asked.request(), &mut NoSink).await.unwrap();
    assert_eq!(reply, ModelReply { attempts: 3, ..text_reply() });
    let requests = server.requests();
    let bodies: Vec<_> = requests.iter().map(|request| request.split("\r\n\r\n").nth(1).unwrap()).collect();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2], "{bodies:?}");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    for script in [Script::hang(), Script::sse(&TEXT[..200]).then_hang()] {
        let mut server = Server::start(vec![script]).await;
        let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
        let mut sink = NoSink;
        let call = ask_once(&*provider, &mut sink);
        assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err(), "it answered");
        server.wait_hung_up(1).await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_is_away_or_silent_is_a_network_error() {
    let away = provider(json!({"provider": "openai", "base_url": "http://127.0.0.1:9", "model": "m"}));
    let error = ask_once(&*away, &mut NoSink).await.unwrap_err();
    assert!(error.kind == Network && error.detail.starts_with("cannot connect"), "{error}");

    // Takes one real second: the clock of the client cannot be paused while it waits for a socket.
    let server = Server::start(vec![Script::hang()]).await;
    let silent = provider(json!({
        "provider": "openai", "base_url": server.url(), "model": "m", "idle_timeout_s": 1,
    }));
    let error = ask_once(&*silent, &mut NoSink).await.unwrap_err();
    assert!(error.kind == Network && error.detail.contains("no answer"), "{error}");
}

#[tokio::test]
async fn the_sessions_own_model_is_asked_for() {
    let server = Server::start(vec![Script::sse(TEXT)]).await;
    let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
    let asked = Asked::new("", false, vec![]);
    provider.call(belay_protocol::ModelRequest { model: Some("other"), ..asked.request() }, &mut NoSink).await.unwrap();
    assert!(server.requests()[0].contains("{\"model\":\"other\",\"stream\":true"), "{:?}", server.requests());
}

/// Decodes a stream that comes in these pieces, without a socket.
fn decode(chunks: &[&[u8]]) -> Result<ModelReply, ModelErrorKind> {
    let mut reader = SseReader::default();
    let mut decoder = OpenAiDecoder::default();
    for chunk in chunks {
        reader.push(chunk);
        while let Some(event) = reader.next().map_err(|_| Network)? {
            if decoder.event(&event, &mut NoSink).map_err(|error| error.kind)? == Flow::Done {
                return Ok(decoder.into_reply());
            }
        }
    }
    if decoder.may_end() { Ok(decoder.into_reply()) } else { Err(Network) }
}

fn slices<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_slicing_gives_the_same_reply(cuts in proptest::collection::vec(any::<usize>(), 0..40)) {
        for stream in [TEXT, CALLS, &TEXT.replace('\n', "\r\n")] {
            prop_assert_eq!(decode(&slices(stream.as_bytes(), &cuts)), decode(&[stream.as_bytes()]));
        }
        prop_assert_eq!(decode(&slices(TEXT.as_bytes(), &cuts)), Ok(text_reply()));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(noise in proptest::collection::vec(any::<u8>(), 0..300), at in any::<usize>()) {
        let mut bytes = TEXT.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes.splice(at..at, noise);
        // Every result must be a value and not a panic.
        let _ = decode(&[&bytes]);
        let _ = decode(&[&bytes[..at]]);
    }
}

#[tokio::test]
async fn pictures_are_sent_to_a_model_that_sees_by_its_name_or_by_the_settings() {
    for (model, vision, sent) in [
        ("gpt-4o", json!("auto"), true),
        ("m", json!("auto"), false),
        ("m", json!(true), true),
        ("gpt-4o", json!(false), false),
    ] {
        let server = Server::start(vec![Script::sse(TEXT)]).await;
        let settings = json!({"provider": "openai", "base_url": server.url(), "model": model, "vision": vision});
        let provider = provider(settings);
        assert_eq!(provider.info().vision, sent, "{model} {vision}");
        let asked = Asked::new("", false, history_with_pictures());
        provider.call(asked.request(), &mut NoSink).await.unwrap();
        let request = &server.requests()[0];
        assert_eq!(request.contains("data:image/png;base64,UE5H"), sent, "{model} {vision}: {request}");
        assert_eq!(
            request.contains("not shown: this model does not accept pictures"),
            !sent,
            "{model} {vision}: {request}"
        );
    }
}

#[tokio::test]
async fn a_conversation_whose_picture_was_refused_gets_a_line_instead_from_then_on() {
    let refused = |words: &str| Script::json(400, &json!({"error": {"message": words}}).to_string());
    for words in [
        "this model does not support image input",
        "unknown variant `image_url`, expected `text`",
        "Model does not support images. Please use a model that does.",
    ] {
        let scripts = vec![refused(words), Script::sse(TEXT), Script::sse(TEXT), Script::sse(TEXT)];
        let server = Server::start(scripts).await;
        let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m", "vision": true}));
        let asked = Asked::new("", false, history_with_pictures());
        let mut other = history_with_pictures();
        other.iter_mut().flat_map(|message| &mut message.pictures).for_each(|it| it.base64 = "bmV3".into());
        let other = Asked::new("", false, other);
        for (asked, attempts) in [(&asked, 2), (&asked, 1), (&other, 1)] {
            let reply = provider.call(asked.request(), &mut NoSink).await.unwrap();
            assert_eq!((&*reply.text, reply.attempts), (&*text_reply().text, attempts), "{words}");
        }
        let sent: Vec<_> = server.requests().iter().map(|request| request.contains("image_url")).collect();
        assert_eq!(sent, [true, false, false, true], "{words}");
        assert!(server.requests()[2].contains("picture not shown"), "{words}");
    }
    // Without words about pictures nothing is asked again, and nothing is remembered.
    let server = Server::start(vec![refused("bad tool schema"), Script::sse(TEXT)]).await;
    let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m", "vision": true}));
    let asked = Asked::new("", false, history_with_pictures());
    assert_eq!(provider.call(asked.request(), &mut NoSink).await.unwrap_err().kind, BadRequest);
    provider.call(asked.request(), &mut NoSink).await.unwrap();
    assert!(server.requests().iter().all(|request| request.contains("image_url")));
}

#[tokio::test]
async fn a_model_whose_template_loses_later_system_messages_gets_them_as_notices_from_the_beginning() {
    for (model, lost) in [("openai/gpt-oss-20b", true), ("MiniMax-M2.5", true), ("DeepSeek-V3.1", true), ("m", false)] {
        let server = Server::start(vec![Script::sse(TEXT)]).await;
        let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": model}));
        let history = vec![Message::user("hi"), Message::assistant("yes"), Message::system("two steps are left")];
        let asked = Asked::new("Be brief.", false, history);
        provider.call(asked.request(), &mut NoSink).await.unwrap();
        let request = &server.requests()[0];
        let body: Value = serde_json::from_str(&request[request.find("{\"").unwrap()..]).unwrap();
        let roles: Vec<&str> =
            body["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", if lost { "user" } else { "system" }], "{model}");
    }
}

#[tokio::test]
async fn a_server_that_wants_system_messages_first_gets_later_ones_as_notices_from_then_on() {
    let vllm = r#"{"error": {"message": "System message must be at the beginning.", "code": 400}}"#;
    let llama = r#"{"error":{"code":500,"message":"Jinja Exception: System message must be at the beginning."}}"#;
    let mistral = r#"{"object":"error","message":"Unexpected role 'system' after role 'tool'","code":"3230"}"#;
    let nemo = r#"{"error":"After the optional system message, conversation roles must alternate user/assistant"}"#;
    let ministral = r#"{"error":"Only user, assistant and tool roles are supported, got system."}"#;
    let apertus = r#"{"error":{"code":500,"message":"Invalid message role"}}"#;
    let refusals =
        [(400, vllm), (500, llama), (400, mistral), (400, nemo), (500, nemo), (400, ministral), (500, apertus)];
    for (status, body) in refusals {
        let scripts = vec![Script::json(status, body), Script::sse(TEXT), Script::sse(TEXT)];
        let server = Server::start(scripts).await;
        let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
        let history = || vec![Message::system("in short"), Message::user("hi"), Message::system("two steps are left")];
        let asked = Asked::new("Be brief.", false, history());
        for attempts in [2, 1] {
            let reply = provider.call(asked.request(), &mut NoSink).await.unwrap();
            assert_eq!((&*reply.text, reply.attempts), (&*text_reply().text, attempts), "{status} {body}");
        }
        let roles = |at: usize| -> Vec<String> {
            let request = &server.requests()[at];
            let body: Value = serde_json::from_str(&request[request.find("{\"").unwrap()..]).unwrap();
            let said = |it: &Value| format!("{}: {}", it["role"].as_str().unwrap(), it["content"].as_str().unwrap());
            body["messages"].as_array().unwrap().iter().map(said).collect()
        };
        assert_eq!(roles(0), ["system: Be brief.\n\nin short", "user: hi", "system: two steps are left"]);
        let notice = "This is a notice from Belay, not a message of the user. two steps are left";
        assert_eq!(roles(1), ["system: Be brief.\n\nin short".to_owned(), format!("user: hi\n\n{notice}")]);
        assert_eq!(roles(2), roles(1), "{body}");
    }
}
