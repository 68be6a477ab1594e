//! Notes over HTTP: whose they are, and who may read and change them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Harness, read};

async fn ask(harness: &Harness, token: &str, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = harness.client.request(method, harness.url(path)).bearer_auth(token);
    read(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

fn ids(answer: &Value) -> Vec<u64> {
    let notes = answer["notes"].as_array().cloned().unwrap_or_default();
    notes.iter().filter_map(|note| note["id"].as_u64()).collect()
}

#[tokio::test]
async fn an_operator_reads_every_note_and_others_their_own() {
    let harness = Harness::locked().await;
    for (token, path, expected) in [
        ("operator", "/api/v1/memory", Ok(vec![1, 2])),
        ("operator", "/api/v1/memory?person=telegram:42", Ok(vec![2])),
        ("operator", "/api/v1/memory?q=telegram", Ok(vec![2])),
        ("operator", "/api/v1/memory?group=telegram:-100", Ok(vec![])),
        ("client", "/api/v1/memory", Ok(vec![1])),
        ("client", "/api/v1/memory?person=http:token", Ok(vec![1])),
        ("client", "/api/v1/memory?person=telegram:42", Err(403)),
        ("client", "/api/v1/memory?group=s", Err(403)),
        ("operator", "/api/v1/memory?person=42", Err(422)),
        ("operator", "/api/v1/memory?person=a:b&group=s", Err(422)),
        ("operator", "/api/v1/memory?limit=0", Err(422)),
        ("operator", "/api/v1/memory?colour=1", Err(422)),
    ] {
        let (status, answer) = ask(&harness, token, Method::GET, path, None).await;
        let got = if status == 200 { Ok(ids(&answer)) } else { Err(status) };
        assert_eq!(got, expected, "{token} {path}: {answer}");
    }
    let (_, note) = ask(&harness, "operator", Method::GET, "/api/v1/memory/2", None).await;
    let owner = json!({"kind": "person", "channel": "telegram", "id": "42"});
    assert_eq!(
        (&note["owner"], &note["text"], &note["untrusted"]),
        (&owner, &json!("a note of telegram:42"), &json!(false))
    );
}

#[tokio::test]
async fn only_own_notes_are_changed_and_deleted() {
    let harness = Harness::locked().await;
    let put = |token: &'static str, id: u64, text: String| {
        let path = format!("/api/v1/memory/{id}");
        let harness = &harness;
        async move { ask(harness, token, Method::PUT, &path, Some(json!({ "text": text }))).await }
    };
    assert_eq!(put("client", 2, "x".into()).await.0, 404);
    assert_eq!(put("client", 1, " ".into()).await.0, 422);
    let (status, answer) = put("client", 1, "x".repeat(101)).await;
    assert!(status == 422 && answer["error"]["message"].as_str().unwrap().contains("100 bytes"), "{answer}");
    let (status, answer) = put("client", 1, "new".into()).await;
    assert_eq!((status, &answer["text"]), (200, &json!("new")), "{answer}");

    let delete = |token: &'static str, rest: &'static str| {
        let path = format!("/api/v1/memory{rest}");
        let harness = &harness;
        async move { ask(harness, token, Method::DELETE, &path, None).await }
    };
    assert_eq!(delete("operator", "").await.0, 422, "it must be said whose");
    assert_eq!(delete("client", "/2").await.0, 404);
    assert_eq!(delete("client", "/x").await.0, 404);
    assert_eq!(delete("client", "?person=telegram:42").await.0, 403);
    assert_eq!(delete("client", "/1").await, (200, json!({"deleted": 1})));
    assert_eq!(delete("operator", "?person=telegram:42").await, (200, json!({"deleted": 1})));
    assert_eq!(ask(&harness, "operator", Method::GET, "/api/v1/memory", None).await.1, json!({"notes": []}));
}
