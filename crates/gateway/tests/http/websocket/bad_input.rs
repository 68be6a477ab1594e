//! What no client should send: each is answered, or ends its own connection, and nobody else notices.

use futures_util::SinkExt;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::client::{End, Socket, connect, message};
use crate::harness::Harness;

#[tokio::test]
async fn unknown_methods_and_unknown_or_wrong_parameters_are_refused_by_name() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    for (method, params, word) in [
        ("no.such", json!({}), "no such method"),
        ("", json!({}), "no such method"),
        ("connect", connect(json!({})), "connected already"),
        ("health", json!({ "colour": 1 }), "colour"),
        ("health", json!([]), "object"),
        ("agent", json!({ "sessionKey": "s", "message": "hi" }), "idempotencyKey"),
        ("agent", json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "" }), "idempotencyKey"),
        ("agent", json!({ "sessionKey": "s", "message": "", "idempotencyKey": "k" }), "message"),
        ("agent", json!({ "sessionKey": "s", "message": "a\u{0}b", "idempotencyKey": "k" }), "NUL"),
        ("agent", json!({ "sessionKey": "", "message": "hi", "idempotencyKey": "k" }), "sessionKey"),
        ("agent", json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "k", "deliver": true }), "deliver"),
        ("agent", json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "k", "thinking": "hard" }), "thinking"),
        ("agent", json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "k", "timeout": -1 }), "timeout"),
        ("agent", json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "k", "timeout": 604_801 }), "timeout"),
        (
            "agent",
            json!({ "sessionKey": "s", "message": "hi", "idempotencyKey": "k", "extraSystemPrompt": "x".repeat(20_001) }),
            "extraSystemPrompt",
        ),
        ("agent.wait", json!({ "runId": "17" }), "runId"),
        ("chat.history", json!({ "sessionKey": "s", "limit": 1001 }), "limit"),
        ("sessions.subscribe", json!({ "sessionKey": "s", "since": "now" }), "since"),
        ("sessions.patch", json!({ "sessionKey": "s" }), "at least one"),
        ("approvals.decide", json!({ "id": "17", "decision": "approve" }), "id"),
    ] {
        let answer = socket.call(method, params.clone()).await;
        let error = &answer["error"];
        assert_eq!(error["code"], "INVALID_REQUEST", "{method} {params}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(word), "{method} {params}: {answer}");
    }
    socket.say(r#"{"type":"req","id":"x","method":"health","token":"t"}"#).await;
    assert_eq!(socket.answer("x").await["error"]["code"], "INVALID_REQUEST");
    assert_eq!(socket.payload("health", json!({})).await["ok"], true, "it is still served");
    assert!(harness.agent.seen.lock().unwrap().is_empty(), "nothing of it reached the agent");
}

#[tokio::test]
async fn a_frame_that_nobody_can_be_told_about_ends_its_connection_alone() {
    let harness = Harness::open().await;
    let mut bystander = Socket::open(&harness).await;
    for (frame, end) in [
        (Message::text("hello"), 1002),
        (Message::text("[]"), 1002),
        (Message::text(r#"{"type":"req","id":7,"method":"health"}"#), 1002),
        (Message::text(r#"{"type":"res","ok":true}"#), 1002),
        (Message::binary(vec![1, 2, 3]), 1003),
        (Message::text("x".repeat(1024 * 1024 + 1)), 1009),
    ] {
        let mut socket = Socket::open(&harness).await;
        let shown: String = frame.to_string().chars().take(60).collect();
        let sent = socket.io.send(frame).await;
        let ended = socket.end().await;
        // A frame that is refused before all of it was sent can cost the word of the end.
        assert!(ended == End::Code(end) || (end == 1009 && ended == End::Broken), "{shown}: {sent:?} {ended:?}");
    }
    assert_eq!(bystander.payload("health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn a_request_that_panics_the_agent_or_is_dropped_is_answered() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    for (text, code, retryable) in [
        ("drop", "UNAVAILABLE", true),
        ("busy", "UNAVAILABLE", true),
        ("unstored", "UNAVAILABLE", true),
        ("forbidden", "FORBIDDEN", false),
    ] {
        let answer = socket.call("agent", message("s", text, text)).await;
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["retryable"]),
            (&json!(code), &json!(retryable)),
            "{text}"
        );
    }
    let busy = socket.call("agent", message("s", "busy", "b")).await;
    assert_eq!(busy["error"]["retryAfterMs"], 1500);
}
