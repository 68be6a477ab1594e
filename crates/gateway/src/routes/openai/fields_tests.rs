//! Each field that OpenAI's package for Python sends is honoured, ignored, or refused by its name, as the guide says.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::error::OpenAiError;
use super::request::{ChatRequest, Conversation};
use super::sessions::Named;

const GUIDE: &str = include_str!("../../../../../docs/guide/programs.md");

/// The heading of the table.
const HEADING: &str = "### Fields of a chat completion";

/// The fields of `CompletionCreateParams` of openai 3.57.0, what the guide calls their treatment, and a value that is
/// not their default. `tests/clients/openai_client.py` compares the names with those of the installed package.
fn fields() -> Vec<(&'static str, &'static str, Value)> {
    let schema = json!({"type": "json_schema", "json_schema": {"name": "sum", "schema": {"type": "object"}}});
    let one = json!({"type": "function", "function": {"name": "weather"}});
    let two = json!({"type": "function", "function": {"name": "news", "parameters": {"type": "object"}}});
    let predicted = json!({"type": "content", "content": "hello"});
    let moderated = json!({"model": "omni-moderation-latest", "policy": {"input": {"mode": "block"}}});
    vec![
        ("messages", "honoured", json!([{"role": "user", "content": "another"}])),
        ("model", "honoured", json!("belay:text")),
        ("stream", "honoured", json!(true)),
        ("stream_options", "honoured", json!({"include_usage": true, "include_obfuscation": true})),
        ("max_completion_tokens", "honoured", json!(100)),
        ("max_tokens", "honoured", json!(100)),
        ("temperature", "honoured", json!(0.5)),
        ("top_p", "honoured", json!(0.5)),
        ("seed", "honoured", json!(7)),
        ("stop", "honoured", json!(["END"])),
        ("reasoning_effort", "honoured", json!("high")),
        ("response_format", "honoured", schema),
        ("tools", "honoured", json!([two])),
        ("tool_choice", "honoured", one),
        ("parallel_tool_calls", "honoured", json!(false)),
        ("metadata", "honoured", json!({"session": "ada", "ticket": "4711"})),
        ("n", "refused", json!(2)),
        ("logit_bias", "refused", json!({"50256": -100})),
        ("logprobs", "refused", json!(true)),
        ("top_logprobs", "refused", json!(5)),
        ("modalities", "refused", json!(["text", "audio"])),
        ("moderation", "refused", moderated),
        ("functions", "refused", json!([{"name": "weather"}])),
        ("function_call", "refused", json!({"name": "weather"})),
        ("audio", "ignored", json!({"format": "mp3", "voice": "alloy"})),
        ("frequency_penalty", "ignored", json!(0.5)),
        ("presence_penalty", "ignored", json!(-0.5)),
        ("prediction", "ignored", predicted),
        ("prompt_cache_key", "ignored", json!("key")),
        ("prompt_cache_options", "ignored", json!({"mode": "explicit", "ttl": "30m"})),
        ("prompt_cache_retention", "ignored", json!("24h")),
        ("safety_identifier", "ignored", json!("person-7")),
        ("user", "ignored", json!("person-7")),
        ("service_tier", "ignored", json!("priority")),
        ("store", "ignored", json!(true)),
        ("verbosity", "ignored", json!("low")),
        ("web_search_options", "ignored", json!({"search_context_size": "low"})),
    ]
}

/// A request with this field instead of its default.
fn with(field: &str, value: Value) -> Value {
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let mut body =
        json!({"model": "belay", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stream": false});
    body[field] = value;
    body
}

/// All that a request asks for, or the field that its error names.
fn meaning(body: &Value) -> Result<String, Value> {
    let request: ChatRequest = serde_json::from_value(body.clone()).unwrap();
    let read = || -> Result<String, OpenAiError> {
        let named = Named::of(&request, &HeaderMap::new())?;
        let session = named.as_ref().map(|named| named.session.clone());
        let read = request.conversation(request.lines()?, named)?;
        let Conversation { text, history, form, thinking, sampling, client_tools, .. } = read;
        let of_answer = (&request.model, request.streams(), request.wants_usage(), form, thinking, sampling);
        Ok(format!("{:?}", (session, text, history, client_tools, of_answer)))
    };
    read().map_err(|error| error.body()["error"]["param"].clone())
}

#[test]
fn each_field_of_a_chat_completion_is_treated_as_the_guide_says() {
    let plain = meaning(&with("stream", json!(false)));
    assert!(plain.is_ok(), "{plain:?}");
    for (field, treatment, value) in fields() {
        let body = with(field, value);
        let found = meaning(&body);
        match treatment {
            "honoured" => assert!(found.is_ok() && found != plain, "{field}: {found:?}"),
            "ignored" => assert_eq!(found, plain, "{field}"),
            _ => assert_eq!(found, Err(json!(field)), "{field}"),
        }
    }
}

#[test]
fn a_refused_field_that_asks_for_nothing_costs_no_request() {
    let plain = meaning(&with("stream", json!(false)));
    for (field, values) in [
        ("n", json!([1])),
        ("logit_bias", json!([{}])),
        ("logprobs", json!([false])),
        ("top_logprobs", json!([0])),
        ("modalities", json!([["text"], []])),
        ("moderation", json!([])),
        ("functions", json!([[]])),
        ("function_call", json!(["none", "auto"])),
    ] {
        for value in values.as_array().unwrap().iter().chain([&Value::Null]) {
            assert_eq!(meaning(&with(field, value.clone())), plain, "{field}: {value}");
        }
    }
    assert_eq!(meaning(&with("modalities", json!("text"))), Err(json!("modalities")), "it is a list");
}

#[test]
fn the_guide_has_a_row_for_each_field() {
    let (_, table) = GUIDE.split_once(HEADING).unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let mut listed = BTreeMap::new();
    for row in rows.skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        listed.extend(cells[1].split('`').skip(1).step_by(2).map(|field| (field, cells[2])));
        assert!(!cells[3].is_empty(), "a reason: {row}");
    }
    assert_eq!(listed, fields().into_iter().map(|(field, treatment, _)| (field, treatment)).collect());
}
