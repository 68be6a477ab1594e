//! Requests of OpenAI's clients that are sent again, clients that go away, and the statuses of ended runs.

use std::time::Duration;

use belay_protocol::{Body, Control, RunId, StopReason, StopTarget};
use serde_json::{Value, json};

use crate::harness::{Harness, PATIENCE, read};

const CHAT: &str = "/v1/chat/completions";
const COUNT: &str = "x-stainless-retry-count";

fn body(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn request(harness: &Harness, name: &str, value: &str, text: &str) -> reqwest::RequestBuilder {
    harness.client.post(harness.url(CHAT)).header(name, value).json(&body(text))
}

/// The runs of messages that reached the agent.
async fn runs(harness: &Harness) -> Vec<Value> {
    harness.get("/api/v1/runs").await.1["runs"].as_array().unwrap().clone()
}

/// Waits until the condition holds.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_key_is_answered_by_the_first_run_and_refused_for_another_text() {
    let harness = Harness::open().await;
    let (_, first) = read(request(&harness, "Idempotency-Key", "k-1", "hello")).await;
    let (status, again) = read(request(&harness, "Idempotency-Key", "k-1", "hello")).await;
    assert_eq!((status, &again["id"]), (200, &first["id"]), "{again}");
    let (status, other) = read(request(&harness, "Idempotency-Key", "k-1", "bye")).await;
    assert_eq!((status, &other["error"]["code"]), (409, &json!("conflict")), "{other}");
    let (status, refused) = read(request(&harness, "Idempotency-Key", &"k".repeat(300), "hello")).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("Idempotency-Key")));
    assert_eq!(runs(&harness).await.len(), 1);
}

#[tokio::test]
async fn a_marked_retry_joins_the_run_whose_client_has_gone() {
    let harness = Harness::open().await;
    gone(&harness, request(&harness, COUNT, "0", "hold")).await;
    let retry = tokio::spawn(request(&harness, COUNT, "1", "hold").send());
    until(async || texts(&harness) == 2).await;
    let known = runs(&harness).await;
    assert_eq!(known.len(), 1, "{known:#?}");
    let run: RunId = known[0]["run_id"].as_str().unwrap().parse().unwrap();
    harness.agent.finish(run, StopReason::FinalText, "there you are");
    let answer: Value = retry.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "there you are");
    assert_eq!(answer["id"], json!(format!("chatcmpl-{run}")));
    // Equal requests that are no retries are requests of their own, as is a retry whose first attempt never arrived.
    for (count, text) in [("0", "hello"), ("0", "hello"), ("2", "never seen")] {
        assert_eq!(read(request(&harness, COUNT, count, text)).await.0, 200);
    }
    assert_eq!(runs(&harness).await.len(), 4);
}

#[tokio::test]
async fn a_retried_yes_is_one_answer() {
    let harness = Harness::open().await;
    let (_, asked) = harness.post(CHAT, body("ask push")).await;
    let yes = json!({"messages": [{"role": "user", "content": "ask push"}, asked["choices"][0]["message"],
        {"role": "user", "content": "yes"}]});
    let send = async |count: &str| read(harness.client.post(harness.url(CHAT)).header(COUNT, count).json(&yes)).await;
    assert_eq!(send("0").await.1["choices"][0]["message"]["content"], "approved push");
    let before = runs(&harness).await.len();
    send("1").await;
    assert_eq!(runs(&harness).await.len(), before, "no run of its own");
}

/// Sends a request whose client goes away before the answer, and returns its run.
async fn gone(harness: &Harness, request: reqwest::RequestBuilder) -> RunId {
    let before = runs(harness).await.len();
    let waiting = tokio::spawn(request.send());
    until(async || runs(harness).await.len() > before).await;
    waiting.abort();
    let _ = waiting.await;
    newest(harness).await
}

async fn newest(harness: &Harness) -> RunId {
    runs(harness).await[0]["run_id"].as_str().unwrap().parse().unwrap()
}

/// The run that a request is answered by.
async fn answered_by(harness: &Harness, request: reqwest::RequestBuilder, run: RunId) -> Value {
    let waiting = tokio::spawn(request.send());
    until(async || texts(harness) >= 3).await;
    harness.agent.finish(run, StopReason::FinalText, "there you are");
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap().json().await.unwrap()
}

fn texts(harness: &Harness) -> usize {
    let seen = harness.agent.seen.lock().unwrap();
    seen.iter().filter(|message| matches!(message.body, Body::Text(_))).count()
}

#[tokio::test]
async fn of_equal_requests_a_retry_repeats_the_newest_that_has_no_answer() {
    for first_is_answered in [true, false] {
        let harness = Harness::open().await;
        let first = gone(&harness, request(&harness, COUNT, "0", "hold")).await;
        if first_is_answered {
            harness.agent.finish(first, StopReason::FinalText, "of yesterday");
        }
        let second = gone(&harness, request(&harness, COUNT, "0", "hold")).await;
        assert_ne!(first, second);
        let answer = answered_by(&harness, request(&harness, COUNT, "1", "hold"), second).await;
        assert_eq!(answer["id"], json!(format!("chatcmpl-{second}")));
    }
}

#[tokio::test]
async fn an_answer_that_was_sent_is_repeated_only_if_nobody_waits_for_another() {
    let harness = Harness::open().await;
    let (_, first) = read(request(&harness, COUNT, "0", "hello")).await;
    let (_, again) = read(request(&harness, COUNT, "1", "hello")).await;
    assert_eq!(again["id"], first["id"], "the answer may have been lost");
}

#[tokio::test]
async fn a_retry_stays_in_the_session_of_its_headers() {
    for name in ["X-Belay-Session", "X-OpenWebUI-Chat-Id"] {
        let harness = Harness::open().await;
        let of = |count: &str, session: &str| request(&harness, COUNT, count, "hold").header(name, session);
        let first = gone(&harness, of("0", "a")).await;
        let other = gone(&harness, of("1", "b")).await;
        assert_ne!(first, other, "{name}");
        let answer = answered_by(&harness, of("1", "a"), first).await;
        assert_eq!(answer["id"], json!(format!("chatcmpl-{first}")), "{name}");
    }
}

#[tokio::test]
async fn a_retry_does_not_join_a_stream_that_is_read() {
    let harness = Harness::open().await;
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "hold"}]});
    let send = async |count: &str| {
        harness.client.post(harness.url(CHAT)).header(COUNT, count).json(&body).send().await.unwrap()
    };
    let (read, other) = (send("0").await, send("1").await);
    let run = |response: &reqwest::Response| response.headers()["x-belay-run"].to_str().unwrap().to_owned();
    assert_ne!(run(&read), run(&other));
}

#[tokio::test]
async fn a_retried_yes_with_a_key_is_one_answer() {
    let harness = Harness::open().await;
    let (_, asked) = harness.post(CHAT, body("ask push")).await;
    let history = |word: &str| {
        json!({"messages": [{"role": "user", "content": "ask push"}, asked["choices"][0]["message"],
            {"role": "user", "content": word}]})
    };
    let send = async |word: &str| {
        read(harness.client.post(harness.url(CHAT)).header("Idempotency-Key", "k-1").json(&history(word))).await
    };
    assert_eq!(send("yes").await.1["choices"][0]["message"]["content"], "approved push");
    send("yes").await;
    assert_eq!(texts(&harness), 3, "the question and each answer reached the agent");
    assert_eq!(runs(&harness).await.len(), 1, "no run of its own");
    // Another text with this key is not taken for the yes.
    send("no").await;
    let seen = harness.agent.seen.lock().unwrap();
    assert!(matches!(&seen.last().unwrap().body, Body::Text(text) if text == "no"));
}

#[tokio::test]
async fn the_run_of_a_client_that_went_away_ends_after_the_setting() {
    for (seconds, stops) in [(1, 1), (0, 0)] {
        let harness = Harness::with(|parts| parts.config.openai_client_gone_s = seconds).await;
        gone(&harness, request(&harness, "x-other", "1", "hold")).await;
        let stopped = || {
            let seen = harness.agent.seen.lock().unwrap();
            let is_stop = |body: &Body| matches!(body, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(_))));
            seen.iter().filter(|message| is_stop(&message.body)).count()
        };
        if stops > 0 {
            until(async || stopped() == stops).await;
            until(async || runs(&harness).await[0]["reason"] == "client_gone").await;
        } else {
            tokio::time::sleep(Duration::from_millis(300)).await; // nothing tells that something will not happen
            assert_eq!(stopped(), 0);
        }
    }
}

#[tokio::test]
async fn only_a_run_without_effects_ends_with_a_status_that_clients_repeat() {
    let harness = Harness::open().await;
    for (reason, passing, after_work) in [
        ("rate_limited", 429, 400),
        ("overloaded", 503, 400),
        ("network", 502, 400),
        ("provider_error", 502, 400),
        ("internal", 500, 400),
        ("cost_refused", 402, 402),
        ("provider_quota", 402, 402),
        ("provider_auth", 403, 403),
        ("hook_refused", 403, 403),
        ("approval_unavailable", 403, 403),
        ("unknown_model", 404, 404),
        ("context_too_long", 400, 400),
        ("bad_request", 400, 400),
        ("missing_outputs", 400, 400),
        ("gave_up", 400, 400),
        ("stuck", 400, 400),
        ("restart_limit", 400, 400),
    ] {
        for (words, expected) in [("fail", passing), ("act, fail", after_work)] {
            let sent = harness.client.post(harness.url(CHAT)).json(&body(&format!("{words} {reason}")));
            let response = sent.send().await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{words} {reason}");
            assert_eq!(response.headers()["x-should-retry"], "false");
        }
    }
}

#[tokio::test]
async fn a_path_that_does_not_exist_names_what_does() {
    let harness = Harness::open().await;
    for (path, named) in [
        ("/v1/responses/resp_1/more", "POST /v1/responses"),
        ("/v1/message", "/v1/messages"),
        ("/v1/embeddings", "no embeddings"),
        ("/v1/chat", "/v1/chat/completions"),
        ("/v1/nothing", "GET /v1/models"),
    ] {
        let (status, answer) = harness.post(path, json!({})).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(status, 404, "{path}");
        assert!(message.contains(path) && message.contains(named), "{path}: {message}");
    }
}

#[tokio::test]
async fn a_text_is_completed_whole_and_streamed() {
    let harness = Harness::open().await;
    for prompt in [json!("hello"), json!(["hello"])] {
        let asked = json!({"model": "belay", "prompt": prompt, "max_tokens": 16, "logprobs": null, "echo": false});
        let (status, answer) = harness.post("/v1/completions", asked).await;
        assert_eq!((status, &answer["object"]), (200, &json!("text_completion")), "{answer}");
        assert_eq!(
            answer["choices"][0],
            json!({"index": 0, "text": "hello", "logprobs": null, "finish_reason": "stop"})
        );
        assert_eq!(answer["usage"]["total_tokens"], 11);
    }
    let streamed = json!({"prompt": "pieces Hello you", "stream": true});
    let response = harness.client.post(harness.url("/v1/completions")).json(&streamed).send().await.unwrap();
    let events = crate::streams::events(response, usize::MAX).await;
    let chunks: Vec<Value> = events.iter().filter_map(|(_, _, data)| serde_json::from_str(data).ok()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "text_completion"), "{chunks:?}");
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!((text.as_str(), events.last().unwrap().2.as_str()), ("Hello you", "[DONE]"));
    for prompt in [json!([1, 2]), json!(["a", "b"]), Value::Null] {
        let (status, answer) = harness.post("/v1/completions", json!({ "prompt": prompt })).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt")));
    }
}

#[tokio::test]
async fn reasoning_is_streamed_beside_the_answer() {
    let harness = Harness::open().await;
    let streamed = json!({"messages": [{"role": "user", "content": "think Let me see./42"}], "stream": true});
    let response = harness.client.post(harness.url(CHAT)).json(&streamed).send().await.unwrap();
    let events = crate::streams::events(response, usize::MAX).await;
    let chunks: Vec<Value> = events.iter().filter_map(|(_, _, data)| serde_json::from_str(data).ok()).collect();
    let all = |field: &str| -> String {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str()).collect()
    };
    assert_eq!((all("reasoning_content").as_str(), all("content").as_str()), ("Let me see.", "42"));
}

#[tokio::test]
async fn a_whole_answer_has_the_texts_before_tool_calls_as_a_stream_has_them() {
    let harness = Harness::open().await;
    let (_, answer) = harness.post(CHAT, body("act, say I look./Found.")).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "I look.\n\nFound.");
}
