//! Errors, keys, and the other routes of the API.

use serde_json::{Value, json};

use super::{PATH, asking, seen, user};
use crate::harness::{Harness, read};

#[tokio::test]
async fn both_headers_take_the_key_and_any_version() {
    let harness = Harness::locked().await;
    let send = |headers: &[(&'static str, &'static str)]| {
        let request = harness.client.post(harness.url(PATH)).json(&asking([user("hi")]));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        async move { request.send().await.unwrap() }
    };
    for headers in [
        &[("x-api-key", "client"), ("anthropic-version", "2023-06-01")][..],
        &[("Authorization", "Bearer client"), ("anthropic-version", "2026-10-21")],
        &[("Authorization", "Bearer client"), ("x-api-key", "client"), ("anthropic-version", "9999")],
    ] {
        let answer = send(headers).await;
        assert_eq!((answer.status().as_u16(), answer.headers().contains_key("request-id")), (200, true), "{headers:?}");
    }
    for headers in [&[][..], &[("x-api-key", "wrong")], &[("Authorization", "Bearer wrong"), ("x-api-key", "client")]] {
        let answer = send(headers).await;
        let id = answer.headers()["request-id"].to_str().unwrap().to_owned();
        assert_eq!(answer.status().as_u16(), 401, "{headers:?}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!("authentication_error")),
            "{body}"
        );
        assert_eq!(body["request_id"], *id);
    }
    let twice = harness.client.post(harness.url(PATH)).header("x-api-key", "client").header("x-api-key", "wrong");
    let (status, error) = read(twice.json(&asking([user("hi")]))).await;
    assert_eq!((status, &error["error"]["details"]["error_code"]), (400, &json!("duplicate_header")), "{error}");
    assert_eq!(seen(&harness).len(), 3);
}

#[tokio::test]
async fn failures_have_their_types_and_permanent_ones_a_status_that_no_client_repeats() {
    let harness = Harness::open().await;
    for (text, status, kind, code) in [
        ("fail unknown_model", 404, "not_found_error", "unknown_model"),
        ("fail provider_auth", 403, "permission_error", "provider_auth"),
        ("fail provider_quota", 402, "billing_error", "insufficient_quota"),
        ("fail context_too_long", 400, "invalid_request_error", "context_length_exceeded"),
        ("fail rate_limited", 429, "rate_limit_error", "rate_limited"),
        ("fail overloaded", 503, "overloaded_error", "overloaded"),
        ("fail network", 502, "api_error", "network"),
        ("act, fail network", 400, "api_error", "network"),
        ("busy", 429, "rate_limit_error", "busy"),
        ("conflict", 409, "conflict_error", "conflict"),
        ("draining", 503, "api_error", "shutting_down"),
    ] {
        let request = harness.client.post(harness.url(PATH)).json(&asking([user(text)]));
        let answer = request.send().await.unwrap();
        let (found, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body: Value = answer.json().await.unwrap();
        assert_eq!((found, &body["error"]["type"]), (status, &json!(kind)), "{text}: {body}");
        assert_eq!(body["error"]["details"]["error_code"], code, "{text}");
        assert_eq!(headers.contains_key("x-should-retry"), text.contains("fail"), "{text}");
        assert_eq!(body["request_id"].as_str(), headers["request-id"].to_str().ok());
    }
}

#[tokio::test]
async fn other_routes_say_what_exists_in_the_form_of_their_api() {
    let harness = Harness::open().await;
    for (method, path, status, part) in [
        ("GET", PATH, 405, "POST /v1/messages"),
        ("POST", "/v1/messages/batches", 404, "batches"),
        ("GET", "/v1/messages/count_tokens", 405, "count_tokens"),
    ] {
        let (found, error) = read(harness.client.request(method.parse().unwrap(), harness.url(path))).await;
        let kind = if status == 404 { "not_found_error" } else { "invalid_request_error" };
        assert_eq!(
            (found, &error["type"], &error["error"]["type"]),
            (status, &json!("error"), &json!(kind)),
            "{error}"
        );
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
    let (status, error) = harness.post(PATH, json!({"model": "claude-9", "messages": [user("x")]})).await;
    assert_eq!((status, &error["error"]["type"]), (404, &json!("not_found_error")), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().starts_with("model: "), "{error}");
}

#[tokio::test]
async fn the_models_have_the_form_of_the_client_that_asks() {
    let harness = Harness::open().await;
    let ask = |path: &str| harness.client.get(harness.url(path)).header("anthropic-version", "2023-06-01");
    let (_, listed) = read(ask("/v1/models")).await;
    let (one, last) = (&listed["data"][0], listed["data"].as_array().unwrap().last().unwrap());
    assert_eq!((&one["id"], &one["type"], &listed["has_more"]), (&json!("belay"), &json!("model"), &json!(false)));
    assert_eq!((&listed["first_id"], &listed["last_id"]), (&one["id"], &last["id"]));
    assert_eq!(&read(ask("/v1/models/belay")).await.1, one);
    let (_, plain) = harness.get("/v1/models").await;
    assert_eq!((&plain["object"], &plain["data"][0]["object"]), (&json!("list"), &json!("model")));
}
