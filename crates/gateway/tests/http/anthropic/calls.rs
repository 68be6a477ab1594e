//! Calls of the client's tools, and their results.

use serde_json::{Value, json};

use super::{PATH, asking, assistant, last, seen, user};
use crate::harness::Harness;

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Says.", "input_schema": {"type": "object"}})
}

fn result(id: &Value, text: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": text})
}

/// A request that makes the model call two tools.
fn calling() -> Value {
    let mut body = asking([user("use weather {\"city\":\"Oslo\"}; weather {}")]);
    body["tools"] = json!([tool("weather")]);
    body
}

#[tokio::test]
async fn calls_end_the_message_and_their_results_resume_the_run_once() {
    let harness = Harness::open().await;
    let mut body = calling();
    let first = harness.message(body.clone()).await;
    assert_eq!(first["stop_reason"], "tool_use");
    let content = first["content"].as_array().unwrap();
    assert_eq!((content.len(), &content[0]["text"]), (3, &json!("I look.")), "{first}");
    assert_eq!((&content[1]["name"], &content[1]["input"]), (&json!("weather"), &json!({"city": "Oslo"})));
    let ids = [&content[1]["id"], &content[2]["id"]];
    let results = json!([result(ids[0], "rain"), result(ids[1], "snow"), result(ids[1], "hail")]);
    body["messages"] = json!([body["messages"][0], assistant(first["content"].clone()), user(results)]);
    let second = harness.message(body.clone()).await;
    assert_eq!(
        second["content"],
        json!([{"type": "text", "text": "rain and snow"}]),
        "of two results the first counts"
    );
    assert_ne!(second["id"], first["id"]);
    let again = harness.message(body.clone()).await;
    assert_eq!((&again["id"], seen(&harness).len()), (&second["id"], 1), "nothing runs twice");
    // Other words behind the results: a history, and another run.
    body["messages"][2]["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "and now?"}));
    harness.message(body).await;
    assert_eq!(seen(&harness).len(), 2);
}

#[tokio::test]
async fn results_that_fit_no_open_call_are_refused_by_id_and_nothing_is_taken() {
    let harness = Harness::open().await;
    let mut body = calling();
    let first = harness.message(body.clone()).await;
    let ids: Vec<Value> = (1..3).map(|at| first["content"][at]["id"].clone()).collect();
    for (results, named) in [
        (vec![result(&json!("toolu_unknown"), "x")], "toolu_unknown"),
        (vec![result(&ids[0], "x")], ids[1].as_str().unwrap()),
        (vec![result(&ids[0], "x"), result(&ids[1], "y"), result(&json!("toolu_unknown"), "z")], "toolu_unknown"),
    ] {
        let messages = json!([user("use"), assistant(first["content"].clone()), user(results)]);
        body["messages"] = messages;
        let (status, error) = harness.post(PATH, body.clone()).await;
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")), "{error}");
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(seen(&harness).len(), 1);
}

#[tokio::test]
async fn tools_are_those_of_the_client_and_others_are_ignored() {
    let harness = Harness::open().await;
    let hosted = json!({"type": "web_search_20260209", "name": "web_search", "max_uses": 3});
    for (choice, expected) in [
        (Value::Null, Some("Auto")),
        (json!({"type": "auto", "disable_parallel_tool_use": true}), Some("Auto")),
        (json!({"type": "any"}), Some("Required")),
        (json!({"type": "tool", "name": "weather"}), Some("Tool(\"weather\")")),
        (json!({"type": "tool", "name": "web_search"}), Some("Auto")),
        (json!({"type": "none"}), None),
    ] {
        let mut body = asking([user("hi")]);
        body["tools"] = json!([hosted, tool("weather")]);
        body["tool_choice"] = choice.clone();
        harness.message(body).await;
        let offered = last(&harness).options.client_tools;
        assert_eq!(offered.as_ref().map(|offered| format!("{:?}", offered.choice)).as_deref(), expected, "{choice}");
        let alone = offered.map(|offered| (offered.tools.len(), offered.one_at_a_time));
        let is_alone = choice["disable_parallel_tool_use"] == true;
        assert_eq!(alone, expected.map(|_| (1, is_alone)), "{choice}");
    }
    let mut body = asking([user("hi")]);
    body["tools"] = json!([hosted]);
    harness.message(body).await;
    assert!(last(&harness).options.client_tools.is_none());
}
