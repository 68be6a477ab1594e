//! Requests, and what they become.

use belay_protocol::{SessionLifetime, Thinking};
use serde_json::{Value, json};

use super::{PATH, asking, assistant, last, shown, user};
use crate::harness::{Harness, read};

#[tokio::test]
async fn a_message_is_answered_in_the_form_of_the_api() {
    let harness = Harness::open().await;
    let mut body = asking([user("hello")]);
    for (name, value) in [
        ("system", json!("be brief")),
        ("temperature", json!(0.5)),
        ("stop_sequences", json!(["END"])),
        ("metadata", json!({"user_id": "ada"})),
        ("thinking", json!({"type": "enabled", "budget_tokens": 2048})),
        ("service_tier", json!("auto")),
        ("container", json!("unknown")),
    ] {
        body[name] = value;
    }
    let answer = harness.message(body).await;
    assert_eq!(
        (&answer["role"], &answer["model"], &answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("assistant"), &json!("belay"), &json!("end_turn"), &Value::Null)
    );
    assert_eq!(answer["content"], json!([{"type": "text", "text": "hello"}]));
    assert_eq!((&answer["usage"]["input_tokens"], &answer["usage"]["output_tokens"]), (&json!(8), &json!(3)));
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"), "{answer}");
    let sent = last(&harness);
    assert_eq!(shown(&sent), "hello <- System:be brief");
    assert_eq!((sent.options.thinking, sent.lifetime), (Some(Thinking::Low), SessionLifetime::Ephemeral));
    let sampling = sent.options.sampling.unwrap();
    assert_eq!(
        (sampling.max_tokens, sampling.temperature_milli, sampling.stop),
        (Some(1024), Some(500), vec!["END".into()])
    );
}

#[tokio::test]
async fn a_conversation_that_is_sent_again_is_the_history() {
    let harness = Harness::open().await;
    let system =
        json!([{"type": "text", "text": "in French"}, {"type": "text", "text": "kindly", "cache_control": {}}]);
    let mut body = asking([
        user("one"),
        assistant(json!([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "1"}])),
        user(json!([{"type": "text", "text": "weather?"}, {"type": "video"}])),
        assistant(json!([{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}])),
        user(json!([
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}], "is_error": true},
            {"type": "text", "text": "two"},
        ])),
    ]);
    body["system"] = system;
    harness.message(body).await;
    let found = shown(&last(&harness));
    assert!(found.starts_with("two <- System:in French\nkindly|User:one|Assistant:1|User:weather?|Calls:"), "{found}");
    assert!(found.contains("Oslo") && found.contains("The tool has failed:\\nrain"), "{found}");
    harness.message(asking([user("one"), assistant("Once upon")])).await;
    assert!(shown(&last(&harness)).starts_with("continue <- "), "{}", shown(&last(&harness)));
}

#[tokio::test]
async fn pictures_and_documents_reach_the_place_where_files_are_taken() {
    let harness = Harness::open().await;
    for block in [
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YQ=="}}),
        json!({"type": "image", "source": {"type": "file", "file_id": "f1"}}),
        json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}}),
        json!({"type": "document", "source": {"type": "content", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YQ=="}}]}}),
    ] {
        let (status, refused) = harness.post(PATH, asking([user(json!([block]))])).await;
        let error = &refused["error"];
        assert_eq!((status, &error["type"]), (403, &json!("permission_error")), "no files are taken here: {refused}");
    }
    let document =
        json!({"type": "document", "context": "of 2026", "source": {"type": "content", "content": "all of it"}});
    let found = json!({"type": "search_result", "title": "A page", "source": "https://example.com", "content": [
        {"type": "text", "text": "what it says"}]});
    harness.message(asking([user(json!([document, found, {"type": "text", "text": "so?"}]))])).await;
    let expected = "of 2026\nall of it\nA page (https://example.com)\nwhat it says\nso? <- ";
    assert_eq!(shown(&last(&harness)), expected);
}

#[tokio::test]
async fn the_session_is_named_as_at_the_other_faces() {
    let harness = Harness::open().await;
    let request = harness.client.post(harness.url(PATH)).header("X-Belay-Session", "eve");
    let (status, _) = read(request.json(&asking([user("hi")]))).await;
    assert_eq!((status, last(&harness).session.as_str()), (200, "eve"));
    let mut body = asking([user("hi")]);
    body["metadata"] = json!({"session": "ada", "user_id": "person-7"});
    harness.message(body).await;
    assert_eq!(last(&harness).session.as_str(), "ada");
}

#[tokio::test]
async fn a_form_is_asked_for_and_the_text_is_its_value() {
    let harness = Harness::open().await;
    let mut body = asking([user("reach {\"answer\":{\"n\":391}}")]);
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "high"});
    let answer = harness.message(body).await;
    assert_eq!(answer["content"], json!([{"type": "text", "text": "{\"n\":391}"}]));
    let sent = last(&harness);
    assert_eq!((sent.outputs[0].name.as_str(), sent.options.thinking), ("answer", Some(Thinking::High)));
}

#[tokio::test]
async fn a_question_is_the_answer_and_a_yes_below_it_continues_the_run() {
    let harness = Harness::open().await;
    let mut body = asking([user("ask rm -r /tmp/x")]);
    body["metadata"] = json!({"session": "ada"});
    let asked = harness.message(body.clone()).await;
    assert!(asked["content"][0]["text"].as_str().unwrap().contains("May I rm -r /tmp/x?"), "{asked}");
    assert_eq!((&asked["stop_reason"], &asked["belay"]["status"]), (&json!("end_turn"), &json!("paused")));
    body["messages"] = json!([user("yes")]);
    let yes = harness.message(body).await;
    assert_eq!(yes["content"][0]["text"], "approved rm -r /tmp/x");
    assert_ne!(yes["id"], asked["id"], "clients take two messages with one id for the same");
}

#[tokio::test]
async fn ends_have_the_reasons_of_the_api() {
    let harness = Harness::open().await;
    for (text, stop) in [
        ("fail length_limit", "max_tokens"),
        ("fail content_filter", "refusal"),
        ("fail wall_clock", "end_turn"),
        ("/ping", "end_turn"),
    ] {
        assert_eq!(harness.message(asking([user(text)])).await["stop_reason"], stop, "{text}");
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_gets_the_message_that_is_there() {
    let harness = Harness::open().await;
    for (name, values) in [("Idempotency-Key", ["k-1", "k-1"]), ("x-stainless-retry-count", ["0", "1"])] {
        let body = asking([user(format!("hello {name}"))]);
        let send = |value: &'static str| read(harness.client.post(harness.url(PATH)).header(name, value).json(&body));
        let (first, again) = (send(values[0]).await, send(values[1]).await);
        assert_eq!((first.0, again.0), (200, 200), "{} {}", first.1, again.1);
        if name == "Idempotency-Key" {
            assert_eq!(first.1["id"], again.1["id"]);
        }
    }
}

async fn count(harness: &Harness, body: Value) -> u64 {
    let (status, answer) = harness.post("/v1/messages/count_tokens", body).await;
    assert_eq!(status, 200, "{answer}");
    answer["input_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn tokens_are_estimated_without_a_run() {
    let harness = Harness::open().await;
    let small = count(&harness, asking([user("hello")])).await;
    let large = count(&harness, asking([user("x".repeat(4000))])).await;
    assert!(small < 20 && (1000..1100).contains(&large), "{small} {large}");
    let mut body = asking([user("hello")]);
    body["tools"] = json!([{"name": "a", "description": "y".repeat(400), "input_schema": {"type": "object"}}]);
    assert!((100..200).contains(&(count(&harness, body).await - small)));
    let (status, error) =
        harness.post("/v1/messages/count_tokens", json!({"model": "gpt-9", "messages": [user("x")]})).await;
    assert_eq!((status, &error["error"]["type"]), (404, &json!("not_found_error")), "{error}");
    let (status, error) = harness.post("/v1/messages/count_tokens", json!({"messages": 7})).await;
    assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")), "{error}");
    assert!(super::seen(&harness).is_empty(), "nothing was sent to the agent");
}
