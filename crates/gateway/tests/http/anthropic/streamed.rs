//! Streams.

use serde_json::{Value, json};

use super::{PATH, asking, user};
use crate::harness::Harness;
use crate::responses::data;

async fn stream(harness: &Harness, text: &str, more: Value) -> Vec<Value> {
    let mut body = asking([user(text)]);
    body["stream"] = json!(true);
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let response = harness.client.post(harness.url(PATH)).json(&body).send().await.unwrap();
    data(response).await
}

/// The types of events, each with the type of its block or piece.
fn brief(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| {
        let part = event["content_block"]["type"].as_str().or(event["delta"]["type"].as_str()).unwrap_or_default();
        format!("{} {part}", event["type"].as_str().unwrap()).trim().to_owned()
    };
    events.iter().map(name).collect()
}

const TEXT: [&str; 7] = [
    "message_start",
    "ping",
    "content_block_start text",
    "content_block_delta text_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

#[tokio::test]
async fn a_stream_has_the_events_of_the_api_in_their_order() {
    let harness = Harness::open().await;
    let events = stream(&harness, "think first/Hello", json!({})).await;
    assert_eq!(brief(&events), TEXT, "reasoning is shown where it was asked for");
    let start = &events[0]["message"];
    assert_eq!(
        (&start["role"], &start["content"], &start["stop_reason"]),
        (&json!("assistant"), &json!([]), &Value::Null)
    );
    assert_eq!(events[3]["delta"]["text"], "Hello");
    let end = &events[5];
    assert_eq!((&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]), (&json!("end_turn"), &json!(3)));

    let thinking = json!({"thinking": {"type": "adaptive"}});
    let events = stream(&harness, "think first/Hello", thinking).await;
    let expected =
        [&TEXT[..2], &["content_block_start thinking", "content_block_delta thinking_delta", "content_block_stop"]];
    assert_eq!(brief(&events), [&expected.concat()[..], &TEXT[2..]].concat());
    assert_eq!((&events[3]["delta"]["thinking"], &events[5]["index"]), (&json!("first"), &json!(1)));
    let omitted = json!({"thinking": {"type": "adaptive", "display": "omitted"}});
    assert_eq!(brief(&stream(&harness, "think first/Hello", omitted).await), TEXT);
}

#[tokio::test]
async fn calls_are_blocks_of_a_stream() {
    let harness = Harness::open().await;
    let tools = json!({"tools": [{"name": "weather", "input_schema": {"type": "object"}}]});
    let events = stream(&harness, "use weather {\"city\":\"Oslo\"}", tools).await;
    let call = ["content_block_start tool_use", "content_block_delta input_json_delta", "content_block_stop"];
    assert_eq!(brief(&events), [&TEXT[..5], &call, &TEXT[5..]].concat());
    assert_eq!((&events[5]["content_block"]["input"], &events[5]["index"]), (&json!({}), &json!(1)));
    assert_eq!(events[6]["delta"]["partial_json"], "{\"city\":\"Oslo\"}");
    assert_eq!(events[8]["delta"]["stop_reason"], "tool_use");
}

#[tokio::test]
async fn a_stream_ends_with_the_failure_and_a_command_is_one_too() {
    let harness = Harness::open().await;
    let events = stream(&harness, "fail unknown_model", json!({})).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("not_found_error")), "{last}");
    assert_eq!(last["error"]["details"]["error_code"], "unknown_model");
    let events = stream(&harness, "/ping", json!({})).await;
    assert_eq!((brief(&events), &events[3]["delta"]["text"]), (TEXT.map(str::to_owned).to_vec(), &json!("pong")));
    let pieces = stream(&harness, "pieces one two/three four", json!({})).await;
    let text: String = pieces.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "one two\n\nthree four");
}

#[tokio::test]
async fn a_stream_that_is_closed_ends_its_run() {
    let harness = Harness::open().await;
    let mut body = asking([user("hold")]);
    body["stream"] = json!(true);
    let response = harness.client.post(harness.url(PATH)).json(&body).send().await.unwrap();
    let run = response.headers()["x-belay-run"].to_str().unwrap().to_owned();
    drop(response);
    let (_, ended) = harness.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=30000")).await;
    assert_eq!(ended["reason"], "client_gone", "{ended}");
}
