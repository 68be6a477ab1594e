//! Calls of the client's tools in chat completions, and their results.

use serde_json::{Value, json};

use crate::harness::Harness;

const CHAT: &str = "/v1/chat/completions";

fn asking(messages: &[Value], streams: bool) -> Value {
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    json!({"messages": messages, "tools": [tool], "stream": streams})
}

#[tokio::test]
async fn an_answer_to_results_begins_behind_them_and_has_an_id_of_its_own() {
    let harness = Harness::open().await;
    let asked = json!({"role": "user", "content": "use weather {\"city\":\"Oslo\"}; weather {}"});
    let (_, first) = harness.post(CHAT, asking(std::slice::from_ref(&asked), false)).await;
    let message = &first["choices"][0]["message"];
    assert_eq!((&first["choices"][0]["finish_reason"], &message["content"]), (&json!("tool_calls"), &json!("I look.")));
    let calls = message["tool_calls"].as_array().unwrap();
    let result = |call: &Value| json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"});
    let talk: Vec<_> = [asked, message.clone()].into_iter().chain(calls.iter().map(result)).collect();
    let (_, second) = harness.post(CHAT, asking(&talk, false)).await;
    assert_eq!(second["choices"][0]["message"]["content"], "rain and rain", "the text before the calls was said");
    let begin = format!("{}-", first["id"].as_str().unwrap());
    assert!(second["id"].as_str().unwrap().starts_with(&begin), "{second}");
}
