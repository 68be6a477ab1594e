//! The webhooks of routines: who may, what is a second delivery, and strangers.

use serde_json::{Value, json};

use crate::harness::{Harness, read};
use crate::routines::spec;

/// The SHA-256 of `open sesame`.
const DIGEST: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";
const SECRET: &str = "open sesame";

async fn harness() -> Harness {
    let harness = Harness::locked().await;
    let hook = spec("build", json!({ "kind": "webhook", "path": "ci", "secret_sha256": DIGEST }));
    let made = harness.client.post(harness.url("/api/v1/routines")).bearer_auth("client").json(&hook);
    assert_eq!(read(made).await.0, 201);
    harness
}

/// Calls a webhook with this secret and these headers.
async fn call(harness: &Harness, path: &str, secret: Option<&str>, id: Option<&str>, body: &[u8]) -> (u16, Value) {
    let mut request = harness.client.post(harness.url(&format!("/hooks/{path}"))).body(body.to_vec());
    for (name, value) in [("x-webhook-secret", secret), ("x-delivery-id", id)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    read(request).await
}

#[tokio::test]
async fn a_caller_with_the_secret_sets_the_routine_off_and_sees_no_more_than_that() {
    let harness = harness().await;
    let (status, fired) = call(&harness, "ci", Some(SECRET), None, b"the build is red").await;
    let expected = json!({"routine_run_id": fired["routine_run_id"], "routine": "build", "status": "running"});
    assert_eq!((status, fired), (200, expected));
    assert_eq!(harness.work.told().as_deref(), Some("the build is red"));
    let seen = harness.agent.seen.lock().unwrap().last().unwrap().clone();
    assert_eq!((&*seen.principal.id, seen.principal.is_operator()), ("routine-webhook", false));
}

#[tokio::test]
async fn a_second_delivery_is_answered_with_the_same_routine_run() {
    let harness = harness().await;
    let routine_run = async |id: Option<&str>, body: &str| {
        let (status, fired) = call(&harness, "ci", Some(SECRET), id, body.as_bytes()).await;
        assert_eq!(status, 200, "{fired}");
        fired["routine_run_id"].clone()
    };
    let first = routine_run(Some("d1"), "red").await;
    assert_eq!(routine_run(Some("d1"), "sent again, in other words").await, first);
    assert_ne!(routine_run(Some("d2"), "red").await, first);
    // Without an id it is the body that is recognised, for as long as the agent says.
    let unnamed = routine_run(None, "red").await;
    assert_ne!(unnamed, first);
    assert_eq!(routine_run(None, "red").await, unnamed);
    assert_ne!(routine_run(None, "green").await, unnamed);
}

#[tokio::test]
async fn a_call_that_proves_nothing_or_cannot_be_used_is_refused() {
    /// Path, secret, delivery, body; status and code of the answer.
    type Row<'a> = (&'a str, Option<&'a str>, Option<&'a str>, &'a [u8], u16, &'a str);
    let harness = harness().await;
    let long = "x".repeat(64 * 1024 + 1);
    let rows: &[Row<'_>] = &[
        ("ci", None, None, b"x", 403, "forbidden"),
        ("nobody", None, None, b"x", 403, "forbidden"),
        ("ci", Some("open sesam"), None, b"x", 401, "unauthorized"),
        ("ci", Some(DIGEST), None, b"x", 401, "unauthorized"),
        ("nobody", Some(SECRET), None, b"x", 404, "not_found"),
        ("ci", Some(SECRET), Some(""), b"x", 422, "invalid"),
        ("ci", Some(SECRET), None, long.as_bytes(), 413, "too_large"),
        ("ci", Some(SECRET), None, b"\xff", 400, "not_utf8"),
        ("ci", Some(SECRET), None, b"a\0b", 422, "invalid"),
        ("ci", Some(SECRET), None, b"", 200, ""),
        ("ci", Some(SECRET), None, &long.as_bytes()[1..], 200, ""),
    ];
    for (path, secret, id, body, status, code) in rows {
        let (got, answer) = call(&harness, path, *secret, *id, body).await;
        let said = answer["error"]["code"].as_str().unwrap_or_default();
        assert_eq!((got, said), (*status, *code), "{path} {secret:?} {id:?}: {answer}");
    }
    assert_eq!(read(harness.client.get(harness.url("/hooks/ci"))).await.0, 405);
}

#[tokio::test]
async fn a_guardrail_says_when_to_come_again_and_a_routine_that_is_off_says_so() {
    let harness = harness().await;
    let request = harness.client.post(harness.url("/hooks/ci")).header("x-webhook-secret", SECRET).body("too soon");
    let response = request.send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()), (429, "90"));
    harness.work.routines.lock().unwrap()[0].enabled = false;
    let (status, off) = call(&harness, "ci", Some(SECRET), None, b"x").await;
    assert_eq!((status, &off["error"]["code"]), (409, &json!("decided")));
}

#[tokio::test]
async fn strangers_are_sent_away_after_ten_attempts_and_a_real_caller_of_the_same_address_is_served() {
    let harness = harness().await;
    for attempt in 0..10 {
        let path = if attempt % 2 == 0 { "ci" } else { "nobody" };
        let (status, _) = call(&harness, path, Some("guess"), None, b"x").await;
        assert_eq!(status, if path == "ci" { 401 } else { 404 });
    }
    for path in ["ci", "nobody"] {
        let (status, refused) = call(&harness, path, Some("guess"), None, b"x").await;
        assert_eq!((status, &refused["error"]["code"]), (429, &json!("too_many_attempts")));
    }
    assert_eq!(call(&harness, "ci", Some(SECRET), None, b"x").await.0, 200);
    let token = harness.client.get(harness.url("/api/v1/jobs")).bearer_auth("client");
    assert_eq!(read(token).await.0, 200, "tokens are another matter");
}
