//! The signed webhook.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Harness, NOW, SECRET, read};

fn sign(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().iter().fold("sha256=".into(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

async fn deliver(harness: &Harness, body: &str, signature: &str, kind: &str) -> (u16, Value) {
    let request = harness.client.post(harness.url("/webhook")).header("x-hub-signature-256", signature);
    read(request.header("content-type", kind).body(body.to_owned())).await
}

/// Sends a signed message, each a delivery of its own.
pub(crate) async fn signed(harness: &Harness, session: &str, text: &str) -> (u16, Value) {
    let body = json!({"session": session, "text": text, "delivery_id": format!("{session}-{text}"), "sent_at": NOW});
    let body = body.to_string();
    deliver(harness, &body, &sign(SECRET, &body), "application/json").await
}

fn delivery(id: &str, sent_at: Value) -> String {
    json!({"session": "ci", "text": "build is red", "delivery_id": id, "sent_at": sent_at, "extra": [1]}).to_string()
}

#[tokio::test]
async fn a_signed_delivery_is_accepted_once_and_a_repetition_gets_the_same_run() {
    let harness = Harness::locked().await;
    let body = delivery("d1", json!("2026-11-20T19:43:00Z"));
    let (status, first) = deliver(&harness, &body, &sign(SECRET, &body), "application/json").await;
    assert_eq!((status, first.get("duplicate")), (202, None));
    let (status, again) = deliver(&harness, &body, &sign(SECRET, &body), "application/json").await;
    assert_eq!((status, &again["duplicate"], &again["run_id"]), (200, &json!(true), &first["run_id"]));
    let seen = harness.agent.seen.lock().unwrap()[0].clone();
    let key = seen.key.unwrap();
    assert_eq!((key.channel.as_str(), &*key.account, &*key.message_id), ("webhook", "webhook", "d1"));
    assert!(!seen.principal.is_operator());
}

#[tokio::test]
async fn a_delivery_that_proves_nothing_or_too_late_is_refused() {
    let harness = Harness::locked().await;
    let good = delivery("d2", json!(NOW));
    let json = "application/json";
    let signed = |body: &str| sign(SECRET, body);
    let minutes = |n: i64| NOW + n * 60_000;
    let rows: Vec<(String, String, &str, u16, &str)> = vec![
        (good.clone(), sign("wrong", &good), json, 401, "unauthorized"),
        (good.clone(), signed(&good).replace("sha256=", ""), json, 401, "unauthorized"),
        (good.clone(), signed(&good)[..70].into(), json, 401, "unauthorized"),
        (good.clone(), "sha256=zz".into(), json, 401, "unauthorized"),
        (good.replace("red", "green"), signed(&good), json, 401, "unauthorized"),
        ("{ not json".into(), sign("wrong", "{ not json"), json, 401, "unauthorized"),
        ("{ not json".into(), signed("{ not json"), json, 400, "not_json"),
        ("{}".into(), signed("{}"), json, 422, "invalid"),
        (good.clone(), signed(&good), "text/plain", 415, "unsupported_media_type"),
        (delivery("", json!(NOW)), signed(&delivery("", json!(NOW))), json, 422, "invalid"),
        (delivery("d3", json!("soon")), signed(&delivery("d3", json!("soon"))), json, 422, "invalid"),
        (delivery("d3", json!(minutes(-6))), signed(&delivery("d3", json!(minutes(-6)))), json, 422, "stale"),
        (delivery("d3", json!(minutes(6))), signed(&delivery("d3", json!(minutes(6)))), json, 422, "stale"),
        (delivery("d4", json!(minutes(-5))), signed(&delivery("d4", json!(minutes(-5)))), json, 202, ""),
        (delivery("d5", json!(NOW / 1000)), signed(&delivery("d5", json!(NOW / 1000))), json, 202, ""),
        ("x".repeat(200_001), signed("x"), json, 413, "too_large"),
    ];
    for (body, signature, kind, status, code) in rows {
        let (got, answer) = deliver(&harness, &body, &signature, kind).await;
        let shown = &body[..body.len().min(100)];
        assert_eq!((got, answer["error"]["code"].as_str().unwrap_or_default()), (status, code), "{shown} {answer}");
    }
    let late = signed(&good);
    harness.clock.0.store(minutes(10), Ordering::Relaxed);
    assert_eq!(deliver(&harness, &good, &late, json).await.0, 422, "what was signed once cannot be sent later");
}
