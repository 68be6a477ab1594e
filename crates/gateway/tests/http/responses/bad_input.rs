//! Requests that cannot be answered.

use serde_json::{Value, json};

use super::{PATH, seen};
use crate::harness::Harness;

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_name_and_starts_nothing() {
    let harness = Harness::open().await;
    let tool = |name: &str| json!({"type": "function", "name": name});
    let many: Vec<Value> = (0..600).map(|n| tool(&format!("t{n}"))).collect();
    let huge =
        json!({"type": "function", "name": "a", "description": "x".repeat(100_000), "parameters": {"type": "object"}});
    for (body, status, param) in [
        (json!({}), 400, "input"),
        (json!({"input": []}), 400, "input"),
        (json!({"input": 7}), 400, "input"),
        (json!({"input": "  "}), 400, "input"),
        (json!({"input": [{"type": "reasoning"}]}), 400, "input"),
        (json!({"input": [{"role": "user", "content": 7}]}), 400, "input[0].content"),
        (
            json!({"input": [{"type": "web_search_call"}, {"role": "user", "content": [
                {"type": "input_image", "image_url": "https://example.com/a.png"}]}]}),
            400,
            "input[1].content",
        ),
        (json!({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}), 400, "input[0].content"),
        (json!({"input": "x", "model": "gpt-9"}), 404, "model"),
        (json!({"input": "x", "tools": {}}), 400, "tools"),
        (json!({"input": "x", "tools": [tool("a"), {"type": "web_search"}, tool("a")]}), 400, "tools[2].name"),
        (json!({"input": "x", "tools": [tool("a b")]}), 400, "tools[0].name"),
        (json!({"input": "x", "tools": many}), 400, "tools"),
        (json!({"input": "x", "tools": [huge, tool(&"n".repeat(200))]}), 400, "tools[1].name"),
        (
            json!({"input": "x", "tools": [tool("a")], "tool_choice": {"type": "function", "name": "b"}}),
            400,
            "tool_choice",
        ),
        (json!({"input": "x", "text": {"format": {"type": "grammar"}}}), 400, "text.format.type"),
        (json!({"input": "x", "text": {"format": {"type": "json_schema", "schema": {}}}}), 400, "text.format"),
        (json!({"input": "x", "max_output_tokens": "many"}), 400, "max_output_tokens"),
        (json!({"input": "x", "temperature": 3}), 400, "temperature"),
        (json!({"input": "x", "background": true, "store": false}), 400, "background"),
        (json!({"input": "x", "previous_response_id": "resp_1", "conversation": "ada"}), 400, "previous_response_id"),
        (json!({"input": "x", "previous_response_id": "resp_1"}), 404, "previous_response_id"),
        (json!({"input": "x", "conversation": "y".repeat(300)}), 400, "conversation"),
        (json!({"input": "x", "text": "json", "reasoning": "much", "top_p": "all"}), 400, "top_p"),
        (json!({"input": [{"role": "user", "content": ["text"]}]}), 400, "input"),
    ] {
        let (found, answer) = harness.post(PATH, body.clone()).await;
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!((found, &answer["error"]["param"]), (status, &json!(param)), "{shown}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| text.len() > 5), "{answer}");
    }
    assert!(seen(&harness).is_empty(), "nothing was sent to the agent");
}

#[tokio::test]
async fn ids_of_nothing_are_not_found() {
    let harness = Harness::open().await;
    let answer = harness.response("hello").await;
    let id = answer["id"].as_str().unwrap();
    let forged = format!("{}{}", &id[..id.len() - 1], if id.ends_with('0') { '1' } else { '0' });
    let message = answer["output"][0]["id"].as_str().unwrap();
    for id in ["resp_1", "nothing", &forged, message, &id.to_uppercase(), &"x".repeat(3000)] {
        let (status, error) = harness.get(&format!("{PATH}/{id}")).await;
        assert_eq!((status, &error["error"]["code"]), (404, &json!("not_found")), "{id}");
    }
    let (status, error) = harness.get(&format!("{PATH}/{id}?stream=true&starting_after=1")).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("starting_after")), "{error}");
}

#[tokio::test]
async fn routes_that_are_not_here_say_what_is() {
    let harness = Harness::open().await;
    for (method, path, status, part) in [
        ("POST", "/v1/responses/compact", 404, "compacts its conversations itself"),
        ("POST", "/v1/responses/input_tokens", 404, "tokens"),
        ("GET", "/v1/responses", 405, "/v1/responses"),
        ("DELETE", "/v1/chat/completions", 405, "/v1/chat/completions"),
        ("POST", "/v1/conversations", 404, "field conversation"),
        ("GET", "/v1/fine_tuning/jobs", 404, "/v1/fine_tuning/jobs"),
    ] {
        let request = harness.client.request(method.parse().unwrap(), harness.url(path)).json(&json!({}));
        let (found, answer) = crate::harness::read(request).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((found, &answer["error"]["type"]), (status, &json!("invalid_request_error")), "{path}: {answer}");
        assert!(message.contains(part) && message.contains("This API has POST /v1/"), "{path}: {message}");
    }
}
