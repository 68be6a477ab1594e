//! Tests answers with odd metadata, in both formats with hand-written clients, streamed and complete. Odd metadata
//! never loses the answer.

#![allow(clippy::unwrap_used)]

use belay_protocol::{Arguments, DeltaSink, FinishReason, Heard, ModelReply, NoSink, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::{Asked, Script, Server, provider};

/// Values that servers send instead of a number of tokens, and worse.
const ODD: [&str; 16] = [
    "1.5",
    "\"12\"",
    "\"1.5e1\"",
    "-3",
    "NaN",
    "-Infinity",
    "null",
    "1e999",
    "123456789012345678901234567890",
    "true",
    "[]",
    "[1]",
    "{}",
    "{\"tokens\":1}",
    "\"\"",
    "\"many\"",
];

/// Placeholder for a piece of metadata in the answers below.
const PLACEHOLDER: &str = "@odd@";

/// The metadata fields of an answer. Each is tested alone.
const OPENAI: [&str; 16] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "logprobs",
    "index",
    "call_index",
    "call_id",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "cached_tokens",
];
const ANTHROPIC: [&str; 9] = [
    "id",
    "model",
    "index",
    "call_id",
    "usage",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "stop_sequence",
];

fn field(odd: &str, name: &str, usual: Value) -> Value {
    if odd == name { json!(PLACEHOLDER) } else { usual }
}

/// The pieces of an answer with a text and a call. The field `odd` contains the placeholder.
fn openai_usage(odd: &str) -> Value {
    let details = json!({"cached_tokens": field(odd, "cached_tokens", json!(8))});
    let usage = json!({
        "prompt_tokens": field(odd, "prompt_tokens", json!(12)), "completion_tokens": field(odd, "completion_tokens", json!(5)),
        "total_tokens": field(odd, "total_tokens", json!(17)),
        "prompt_tokens_details": field(odd, "prompt_tokens_details", details),
    });
    field(odd, "usage", usage)
}

fn openai_body(odd: &str, choices: Value) -> Value {
    json!({
        "id": field(odd, "id", json!("x")), "object": field(odd, "object", json!("chat.completion")),
        "created": field(odd, "created", json!(1)), "model": field(odd, "model", json!("m")),
        "system_fingerprint": field(odd, "system_fingerprint", json!(null)),
        "service_tier": field(odd, "service_tier", json!(null)), "choices": choices,
    })
}

fn openai_choice(odd: &str, name: &str, piece: Value, finish: Value) -> Value {
    json!({"index": field(odd, "index", json!(0)), name: piece, "finish_reason": finish,
        "logprobs": field(odd, "logprobs", json!(null))})
}

fn openai_call(odd: &str) -> Value {
    json!({"index": field(odd, "call_index", json!(0)), "id": field(odd, "call_id", json!("c")), "type": "function",
        "function": {"name": "clock", "arguments": "{}"}})
}

fn openai_stream(odd: &str) -> String {
    let chunks = [
        openai_choice(odd, "delta", json!({"content": "it is "}), json!(null)),
        openai_choice(odd, "delta", json!({"content": "noon", "tool_calls": [openai_call(odd)]}), json!(null)),
        openai_choice(odd, "delta", json!({}), json!("tool_calls")),
    ];
    let mut last = openai_body(odd, json!([]));
    last["usage"] = openai_usage(odd);
    let events = chunks.map(|choice| openai_body(odd, json!([choice]))).into_iter().chain([last]);
    events.map(|event| format!("data: {event}\n\n")).collect::<String>() + "data: [DONE]\n\n"
}

fn openai_whole(odd: &str) -> String {
    let message = json!({"role": "assistant", "content": "it is noon", "tool_calls": [openai_call(odd)]});
    let mut body = openai_body(odd, json!([openai_choice(odd, "message", message, json!("tool_calls"))]));
    body["usage"] = openai_usage(odd);
    body.to_string()
}

fn anthropic_usage(odd: &str) -> Value {
    let usage = json!({
        "input_tokens": field(odd, "input_tokens", json!(4)), "output_tokens": field(odd, "output_tokens", json!(5)),
        "cache_read_input_tokens": field(odd, "cache_read_input_tokens", json!(8)),
    });
    field(odd, "usage", usage)
}

fn anthropic_call(odd: &str) -> Value {
    json!({"type": "tool_use", "id": field(odd, "call_id", json!("c")), "name": "clock", "input": {}})
}

fn anthropic_stream(odd: &str) -> String {
    let index = |usual: u64| field(odd, "index", json!(usual));
    let events = [
        json!({"type": "message_start", "message": {"id": field(odd, "id", json!("m")), "model": field(odd, "model", json!("m")),
            "content": [], "usage": anthropic_usage(odd)}}),
        json!({"type": "content_block_start", "index": index(0), "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": index(0), "delta": {"type": "text_delta", "text": "it is noon"}}),
        json!({"type": "content_block_stop", "index": index(0)}),
        json!({"type": "content_block_start", "index": index(1), "content_block": anthropic_call(odd)}),
        json!({"type": "content_block_delta", "index": index(1), "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "message_delta", "usage": anthropic_usage(odd),
            "delta": {"stop_reason": "tool_use", "stop_sequence": field(odd, "stop_sequence", json!(null))}}),
        json!({"type": "message_stop"}),
    ];
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn anthropic_whole(odd: &str) -> String {
    let content = json!([{"type": "text", "text": "it is noon"}, anthropic_call(odd)]);
    json!({"type": "message", "id": field(odd, "id", json!("m")), "model": field(odd, "model", json!("m")),
        "content": content, "stop_reason": "tool_use", "stop_sequence": field(odd, "stop_sequence", json!(null)),
        "usage": anthropic_usage(odd)})
    .to_string()
}

/// Records the reports about a call other than its text.
#[derive(Default)]
struct Counter {
    call_bytes: usize,
    reported: Vec<Usage>,
}

impl DeltaSink for Counter {
    fn text(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }

    fn reasoning(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }

    fn call_bytes(&mut self, bytes: usize) {
        self.call_bytes += bytes;
    }

    fn reported(&mut self, usage: &Usage) {
        self.reported.push(*usage);
    }
}

/// Asks a server that gives this answer once, with as many requests as the provider likes. A second request would get
/// no answer.
async fn ask(format: &str, script: Script, counter: &mut Counter) -> Result<ModelReply, String> {
    let server = Server::start(vec![script]).await;
    let provider = provider(json!({"provider": format, "base_url": server.url(), "model": "m"}));
    let asked = Asked::new("", false, vec![]);
    let reply = provider.call(asked.request(), counter).await;
    assert_eq!(server.requests().len(), 1, "it was paid for once");
    reply.map_err(|error| error.to_string())
}

/// Tests each answer, streamed and complete, with one piece of metadata replaced by each of the values.
async fn is_answered(values: &[String]) {
    type Make = fn(&str) -> String;
    let formats: [(&str, &[&str], Make, Make); 2] = [
        ("openai", &OPENAI, openai_stream, openai_whole),
        ("anthropic", &ANTHROPIC, anthropic_stream, anthropic_whole),
    ];
    for (format, names, stream, whole) in formats {
        let (mut scripts, mut rows) = (Vec::new(), Vec::new());
        for (name, value) in names.iter().flat_map(|name| values.iter().map(move |value| (name, value))) {
            let odd = |body: String| body.replace(&format!("\"{PLACEHOLDER}\""), value);
            scripts.extend([Script::sse(&odd(stream(name))), Script::json(200, &odd(whole(name)))]);
            rows.extend([(name, value, "streamed"), (name, value, "whole")]);
        }
        let server = Server::start(scripts).await;
        let provider = provider(json!({"provider": format, "base_url": server.url(), "model": "m"}));
        let asked = Asked::new("", false, vec![]);
        for (at, row) in rows.iter().enumerate() {
            let reply = provider.call(asked.request(), &mut NoSink).await;
            let reply = reply.unwrap_or_else(|error| panic!("{format} {row:?}: {error}"));
            assert_eq!(server.requests().len(), at + 1, "{format} {row:?} was paid for once");
            let calls: Vec<_> = reply.tool_calls.iter().map(|call| (&*call.name, call.arguments.clone())).collect();
            let expected = [("clock", Arguments::Object(serde_json::Map::new()))];
            assert_eq!((&*reply.text, reply.finish), ("it is noon", FinishReason::ToolCalls), "{format} {row:?}");
            assert_eq!(calls, expected, "{format} {row:?}");
        }
    }
}

#[tokio::test]
async fn odd_bookkeeping_never_costs_an_answer() {
    is_answered(&ODD.map(str::to_owned)).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_bookkeeping_is_the_answer_is_the_same(value in any_json()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(is_answered(&[value.to_string()]));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(|number| json!(number)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<bool>().prop_map(|flag| json!(flag)),
        ".{0,12}".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((".{0,4}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[tokio::test]
async fn usage_that_can_be_read_is_read_and_of_the_rest_the_answer_says_nothing() {
    let usage = |input, cached_input, output| Some(Usage { input, cached_input, output });
    for (format, name, value, expected) in [
        ("openai", "", "", usage(12, 8, 5)),
        ("openai", "prompt_tokens", "\"13\"", usage(13, 8, 5)),
        ("openai", "completion_tokens", "6.6", usage(12, 8, 7)),
        ("openai", "cached_tokens", "-1", usage(12, 0, 5)),
        ("openai", "prompt_tokens_details", "7", usage(12, 0, 5)),
        ("openai", "completion_tokens", "NaN", None),
        ("openai", "prompt_tokens", "1e300", None),
        ("openai", "usage", "\"12\"", None),
        ("anthropic", "", "", usage(12, 8, 5)),
        ("anthropic", "input_tokens", "\"5\"", usage(13, 8, 5)),
        ("anthropic", "cache_read_input_tokens", "{}", usage(4, 0, 5)),
        ("anthropic", "output_tokens", "-1", None),
        ("anthropic", "usage", "[]", None),
    ] {
        let (stream, whole) = match format {
            "openai" => (openai_stream(name), openai_whole(name)),
            _ => (anthropic_stream(name), anthropic_whole(name)),
        };
        let odd = |body: String| body.replace(&format!("\"{PLACEHOLDER}\""), value);
        for script in [Script::sse(&odd(stream)), Script::json(200, &odd(whole))] {
            let reply = ask(format, script, &mut Counter::default()).await.unwrap();
            assert_eq!(reply.usage, expected, "{format} {name} {value}");
        }
    }
}

/// The sink gets the usage while the answer arrives, because a dropped call is charged too.
#[tokio::test]
async fn calls_and_usage_are_told_while_they_come() {
    for (format, stream, reports) in [("openai", openai_stream(""), 1), ("anthropic", anthropic_stream(""), 2)] {
        let mut counter = Counter::default();
        ask(format, Script::sse(&stream), &mut counter).await.unwrap();
        assert_eq!((counter.call_bytes, counter.reported.len()), ("clock{}".len(), reports), "{format}");
        assert_eq!(counter.reported[0], Usage { input: 12, cached_input: 8, output: 5 }, "{format}");
    }
}

/// Mistral's reasoning models, and other servers that send content as parts.
#[tokio::test]
async fn a_content_of_parts_is_read_as_text_and_reasoning() {
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    let text = json!({"type": "text", "text": "noon"});
    for (what, content, said, thought) in [
        ("text", json!("noon"), "noon", ""),
        ("nothing", json!(null), "", ""),
        ("no parts", json!([]), "", ""),
        ("thinking and text", json!([thinking, text]), "noon", "hm"),
        ("texts", json!([text, {"type": "text", "text": " sharp"}]), "noon sharp", ""),
        ("plain thinking", json!([{"type": "thinking", "thinking": "hm"}, text]), "noon", "hm"),
        ("reasoning", json!([{"type": "reasoning", "text": "hm"}, text]), "noon", "hm"),
        ("strings", json!(["no", "on"]), "noon", ""),
        ("one part", json!({"type": "text", "text": "noon"}), "noon", ""),
        (
            "parts of other kinds",
            json!([{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": {"a": 1}}, 7, null, text]),
            "noon",
            "",
        ),
    ] {
        let stream = format!(
            "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": content}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}),
        );
        let whole = json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).to_string();
        for script in [Script::sse(&stream), Script::json(200, &whole)] {
            let server = Server::start(vec![script]).await;
            let provider = provider(json!({"provider": "openai", "base_url": server.url(), "model": "m"}));
            let mut recorded = crate::testing::RecordingSink::default();
            let reply = crate::testing::ask_once(&*provider, &mut recorded).await;
            let reply = reply.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((&*reply.text, &*recorded.text, &*recorded.reasoning), (said, said, thought), "{what}");
        }
    }
}
