//! Finding, reading out and deleting, over HTTP.

use belay_protocol::{SessionChange, SessionKey};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, read};

#[tokio::test]
async fn what_was_said_is_found_by_its_words() {
    let harness = Harness::open().await;
    let (status, answer) = harness.get("/api/v1/search?q=tea&session=a%2Fb&limit=7").await;
    assert_eq!(status, 200);
    let hit = &answer["found"][0];
    let one_more_than_the_page = json!(8);
    assert_eq!(
        (&hit["session"], &hit["snippet"], &hit["id"]),
        (&json!("a/b"), &json!("a cup of tea"), &one_more_than_the_page)
    );
    assert_eq!(answer.get("next"), None);
    assert_eq!(harness.get("/api/v1/search?q=coffee").await, (200, json!({"found": []})));
    for bad in ["q=", "q=%22%2A", "", "q=tea&session=", "q=tea&limit=0", "q=tea&colour=1"] {
        let (status, answer) = harness.get(&format!("/api/v1/search?{bad}")).await;
        assert_eq!((status, &answer["error"]["code"]), (422, &json!("invalid")), "{bad}: {answer}");
    }
    let long = format!("/api/v1/search?q={}", "x".repeat(1001));
    assert_eq!(harness.get(&long).await.0, 422);
}

#[tokio::test]
async fn a_session_is_written_down_page_by_page() {
    let harness = Harness::open().await;
    let (status, text) = harness.get("/api/v1/sessions/kept/export").await;
    let text = text.as_str().expect("Markdown").to_owned();
    assert_eq!(status, 200);
    assert!(text.starts_with("# kept\n\n## Conversation "), "{text}");
    assert_eq!((text.matches("**user**").count(), text.ends_with("\n\nline 201\n")), (201, true));

    let response = harness.client.get(harness.url("/api/v1/sessions/kept/export?format=jsonl&threads=all"));
    let response = response.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/jsonl; charset=utf-8");
    let lines = response.text().await.unwrap();
    let ids = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone());
    assert_eq!(ids.collect::<Vec<_>>(), (1..=201).map(|id| json!(id)).collect::<Vec<_>>());

    assert_eq!(harness.get("/api/v1/sessions/kept/threads").await.1["threads"][0]["active"], json!(true));
    for path in ["export", "threads"] {
        assert_eq!(harness.get(&format!("/api/v1/sessions/nobody/{path}")).await.0, 404);
    }
    assert_eq!(harness.get("/api/v1/sessions/kept/export?format=pdf").await.0, 422);
}

#[tokio::test]
async fn an_operator_deletes_and_is_told_what() {
    let harness = Harness::open().await;
    harness.post("/api/v1/messages", json!({"session": "a/b", "text": "hi", "wait_ms": 1000})).await;
    let delete = async |path: &str| read(harness.client.request(Method::DELETE, harness.url(path))).await;
    let (status, answer) = delete("/api/v1/sessions/a%2Fb").await;
    assert_eq!((status, &answer["session"], &answer["removed"]["messages"]), (200, &json!("a/b"), &json!(2)));
    assert_eq!(delete("/api/v1/sessions/nobody").await.0, 404);
    assert_eq!(delete("/api/v1/sessions/s/secrets").await, (200, json!({"session": "s", "forgotten": 3})));
    assert_eq!(delete("/api/v1/sessions/s/secrets/mail").await.0, 200);
    assert_eq!(delete("/api/v1/sessions/s/secrets/none").await.0, 404);
    let (_, dry) = harness.post("/api/v1/prune?dry_run=true", json!({})).await;
    let (_, wet) = harness.post("/api/v1/prune", json!({})).await;
    assert_eq!((&dry["removed"]["runs"], &wet["removed"]["runs"]), (&json!(9), &json!(4)));
    assert_eq!((&dry["dry_run"], &wet["dry_run"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn an_operator_gives_a_conversation_a_title_and_hides_it() {
    let harness = Harness::locked().await;
    let say = harness
        .client
        .post(harness.url("/api/v1/messages"))
        .json(&json!({"session": "alice", "text": "hello", "wait_ms": 30_000}));
    assert_eq!(read(say.bearer_auth("operator")).await.0, 200);
    let rename = async |token: &str, session: &str, title: &str| {
        let request =
            harness.client.put(harness.url(&format!("/api/v1/sessions/{session}"))).json(&json!({"title": title}));
        read(request.bearer_auth(token)).await.0
    };
    let of_alice = |change: SessionChange| (SessionKey::new("alice"), change);
    let titled = || vec![of_alice(SessionChange::title("A title"))];
    for (token, session, title, status, expected) in [
        ("operator", "alice", " A title ", 200, titled()),
        ("operator", "alice", "A\u{2028}ti\u{200b}tle\u{202e}", 200, titled()),
        ("operator", "alice", " ", 200, vec![of_alice(SessionChange::title(""))]),
        ("client", "alice", "A title", 403, vec![]),
        ("operator", "nobody", "A title", 404, vec![]),
        ("operator", "alice", "two\nlines", 422, vec![]),
        ("operator", "alice", &"x".repeat(201), 422, vec![]),
    ] {
        assert_eq!(rename(token, session, title).await, status, "{token} {session} {title:?}");
        assert_eq!(harness.store.take_changes(), expected, "{token} {session} {title:?}");
    }
    let both = SessionChange { hidden: Some(true), ..SessionChange::title("A title") };
    for (body, status, expected) in [
        (json!({"hidden": false}), 200, Some(SessionChange::hidden(false))),
        (json!({"hidden": true, "title": "A title"}), 200, Some(both)),
        (json!({"hidden": true}), 200, Some(SessionChange::hidden(true))),
        (json!({"hidden": "yes"}), 422, None),
        (json!({"hidden": true, "title": "two\nlines"}), 422, None),
        (json!({}), 422, None),
    ] {
        let request = harness.client.put(harness.url("/api/v1/sessions/alice")).json(&body);
        assert_eq!(read(request.bearer_auth("operator")).await.0, status, "{body}");
        let expected: Vec<_> = expected.into_iter().map(of_alice).collect();
        assert_eq!(harness.store.take_changes(), expected, "{body}");
    }
}
