//! Requests that cannot be answered.

use serde_json::{Value, json};

use super::{PATH, asking, assistant, seen, user};
use crate::harness::Harness;

fn tool(name: &str) -> Value {
    json!({"name": name, "input_schema": {"type": "object"}})
}

/// Requests with a message that is wrong, and the name of what is.
fn messages() -> Vec<(Value, &'static str)> {
    let block = |block: Value| asking([user(json!([block]))]);
    let url = json!({"type": "url", "url": "https://example.com/a.png"});
    vec![
        (json!({}), "messages"),
        (asking(json!([])), "messages"),
        (asking(7), "messages"),
        (asking("hi"), "messages"),
        (asking([json!("hi")]), "messages.0"),
        (asking([json!({"content": "hi"})]), "messages.0.role"),
        (asking([json!({"role": 7, "content": "hi"})]), "messages.0.role"),
        (asking([json!({"role": "robot", "content": "hi"}), user("x")]), "messages.0.role"),
        (asking([user("  ")]), "messages"),
        (asking([user(7)]), "messages.0.content"),
        (asking([user(Value::Null)]), "messages.0.content"),
        (asking([user(json!([]))]), "messages"),
        (block(json!("hi")), "messages.0.content.0"),
        (block(json!({"text": "hi"})), "messages.0.content.0.type"),
        (block(json!({"type": 7})), "messages.0.content.0.type"),
        (block(json!({"type": "video"})), "messages"),
        (block(json!({"type": "text", "text": 7})), "messages.0.content.0.text"),
        (block(json!({"type": "image"})), "messages.0.content.0.source"),
        (block(json!({"type": "image", "source": url})), "messages.0.content.0.source"),
        (
            block(json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": 7}})),
            "messages.0.content.0.source.data",
        ),
        (block(json!({"type": "document", "source": {"type": "text", "data": 7}})), "messages.0.content.0.source.data"),
        (
            block(json!({"type": "document", "source": {"type": "content", "content": 7}})),
            "messages.0.content.0.source.content",
        ),
        (block(json!({"type": "tool_result", "content": "x"})), "messages.0.content.0.tool_use_id"),
        (block(json!({"type": "tool_result", "tool_use_id": 7})), "messages.0.content.0.tool_use_id"),
        (block(json!({"type": "tool_result", "tool_use_id": "t", "content": 7})), "messages.0.content.0.content"),
        (block(json!({"type": "tool_result", "tool_use_id": "t", "content": [7]})), "messages.0.content.0.content.0"),
        (asking([assistant(json!([{"type": "tool_use", "id": 7}])), user("x")]), "messages.0.content.0.id"),
        (
            asking([assistant(json!([{"type": "tool_use", "id": "t", "name": "a", "input": 7}])), user("x")]),
            "messages.0.content.0.input",
        ),
    ]
}

/// Fields that are wrong, and the name of what is.
fn fields() -> Vec<(&'static str, Value, &'static str)> {
    let huge = json!({"name": "a", "description": "x".repeat(100_000), "input_schema": {"type": "object"}});
    let many: Vec<Value> = (0..600).map(|n| tool(&format!("t{n}"))).collect();
    vec![
        ("system", json!(7), "system"),
        ("system", json!([7]), "system.0"),
        ("system", json!([{"type": "text", "text": 7}]), "system.0.text"),
        ("stream", json!("yes"), "stream"),
        ("max_tokens", json!("many"), "max_tokens"),
        ("temperature", json!(3), "temperature"),
        ("top_p", json!("all"), "top_p"),
        ("stop_sequences", json!(["a", "b", "c", "d", "e"]), "stop_sequences"),
        ("stop_sequences", json!({}), "stop_sequences"),
        ("metadata", json!("ada"), "metadata"),
        ("metadata", json!({"session": "y".repeat(300)}), "metadata.session"),
        ("thinking", json!(true), "thinking"),
        ("thinking", json!({"type": 7}), "thinking.type"),
        ("output_config", json!([]), "output_config"),
        ("output_config", json!({"effort": 7}), "output_config.effort"),
        ("output_config", json!({"format": {"type": "grammar"}}), "output_config.format.type"),
        ("output_config", json!({"format": {"type": "json_schema"}}), "output_config.format.schema"),
        ("tools", json!({}), "tools"),
        ("tools", json!([7]), "tools.0.name"),
        ("tools", json!([tool("a"), {"type": "web_search_20260209", "name": "b"}, tool("a")]), "tools.2.name"),
        ("tools", json!([tool("a b")]), "tools.0.name"),
        ("tools", json!([huge, tool(&"n".repeat(200))]), "tools.1.name"),
        ("tools", json!([{"name": "a", "input_schema": []}]), "tools.0.input_schema"),
        ("tools", json!(many), "tools"),
        ("tool_choice", json!("auto"), "tool_choice"),
        ("tool_choice", json!({"type": "sometimes"}), "tool_choice.type"),
        ("tool_choice", json!({"type": "tool"}), "tool_choice.name"),
        ("tool_choice", json!({"type": "tool", "name": "b"}), "tool_choice"),
    ]
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_name_and_starts_nothing() {
    let harness = Harness::open().await;
    let with = |(name, value, wrong): (&'static str, Value, &'static str)| {
        let mut body = asking([user("hi")]);
        body["tools"] = json!([tool("a")]);
        body[name] = value;
        (body, wrong)
    };
    for (body, wrong) in messages().into_iter().chain(fields().into_iter().map(with)) {
        let (status, answer) = harness.post(PATH, body.clone()).await;
        let (error, shown) = (&answer["error"], body.to_string().chars().take(200).collect::<String>());
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!(
            (status, &answer["type"], &error["type"]),
            (400, &json!("error"), &json!("invalid_request_error")),
            "{shown}: {answer}"
        );
        let rest = message.strip_prefix(wrong).unwrap_or_else(|| panic!("{shown}: {message}"));
        assert!(
            rest.starts_with(": ") && rest.len() > 7 && !rest.contains(&format!("{wrong}: ")),
            "{shown}: {message}"
        );
    }
    assert!(seen(&harness).is_empty(), "nothing was sent to the agent");
}

#[tokio::test]
async fn what_is_not_known_costs_only_itself() {
    let harness = Harness::open().await;
    let mut body =
        asking([user(json!([{"type": "hologram", "data": [1]}, {"type": "text", "text": "hi", "citations": 7}]))]);
    body["betas"] = json!(["x"]);
    body["context_management"] = json!({"edits": 7});
    body["mcp_servers"] = json!("many");
    let answer = harness.message(body).await;
    assert_eq!(answer["content"][0]["text"], "hi");
    let large = json!({"name": "a", "input_schema": {"type": "object", "description": "x".repeat(1_000_000)}});
    let mut body = asking([user("hi")]);
    body["tools"] = json!([large]);
    let (status, error) = harness.post(PATH, body).await;
    assert_eq!((status, &error["error"]["type"]), (413, &json!("request_too_large")), "{error}");
}
