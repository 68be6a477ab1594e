//! What a client has sent, within an error.

use serde_json::{Value, json};

use super::{FACES, Face};
use crate::harness::Harness;

/// Requests with something wrong that is long and has control characters.
fn wrong(face: Face) -> Vec<Value> {
    let long = format!("bell\u{7}\r\n{}", "x".repeat(50_000));
    let with = |name: &str, value: Value| {
        let mut body = face.asking("hi");
        body[name] = value;
        body
    };
    let message = |message: Value| with(face.list(), json!([message]));
    let mut requests = vec![
        with("model", json!(long)),
        with("stream", json!(long)),
        with("tool_choice", json!({"type": "function", "function": {"name": long}, "name": long})),
        message(json!({"role": long, "content": "hi"})),
    ];
    match face {
        Face::Chat => requests.extend([
            message(json!({"role": "user", "content": [{"type": long, "text": "hi"}]})),
            with("response_format", json!({"type": long})),
            with("response_format", json!({"type": "json_schema", "json_schema": long})),
            with("metadata", json!({"session": long})),
        ]),
        Face::Responses => requests.extend([
            with("text", json!({"format": {"type": long}})),
            with("previous_response_id", json!(long)),
            message(json!({"type": "function_call_output", "call_id": long, "output": {"a": 1}})),
        ]),
        Face::Messages => requests.extend([
            with("tool_choice", json!({"type": "tool", "name": long})),
            message(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": [long]}]})),
        ]),
    }
    requests
}

#[tokio::test]
async fn an_error_shows_little_of_what_the_client_has_sent_and_no_control_characters() {
    let harness = Harness::open().await;
    for face in FACES {
        for body in wrong(face) {
            let (status, answer) = harness.post(face.path(), body.clone()).await;
            let shown: String = body.to_string().chars().take(300).collect();
            assert!((400..500).contains(&status), "{face:?} {shown}: {answer}");
            let text = answer["error"]["message"].as_str().unwrap();
            assert!(text.chars().count() < 500, "{face:?} {shown}: {text}");
            let param = answer["error"]["param"].as_str().unwrap_or_default();
            assert!(param.chars().count() <= 200, "{face:?} {shown}: {param}");
            assert!(![text, param].concat().contains(char::is_control), "{face:?} {shown}: {text:?} {param:?}");
        }
    }
}
