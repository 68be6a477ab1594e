//! Responses that are read again, cancelled and deleted.

use serde_json::{Value, json};

use super::{PATH, last, path_of, text};
use crate::harness::{Harness, read};

#[tokio::test]
async fn a_response_is_that_of_its_principal_alone() {
    let harness = Harness::locked().await;
    let send = |token: &'static str, request: reqwest::RequestBuilder| read(request.bearer_auth(token));
    let body = json!({"input": "hello"});
    let (status, own) = send("client", harness.client.post(harness.url(PATH)).json(&body)).await;
    assert_eq!(status, 200, "{own}");
    for (token, expected) in [("client", 200), ("operator", 404)] {
        for path in ["", "/input_items"] {
            let found = send(token, harness.client.get(harness.url(&path_of(&own, path)))).await;
            assert_eq!(found.0, expected, "{token} {path}: {}", found.1);
        }
        let next = json!({"input": "more", "previous_response_id": own["id"]});
        let found = send(token, harness.client.post(harness.url(PATH)).json(&next)).await;
        assert_eq!(found.0, expected, "{token}: {}", found.1);
    }
    for request in [
        harness.client.post(harness.url(&path_of(&own, "/cancel"))),
        harness.client.delete(harness.url(&path_of(&own, ""))),
    ] {
        assert_eq!(send("operator", request).await.0, 404);
    }
}

#[tokio::test]
async fn a_response_that_is_not_stored_cannot_be_read() {
    let harness = Harness::open().await;
    let answer = harness.response_to(json!({"input": "hello", "store": false})).await;
    assert_eq!((text(&answer).as_str(), &answer["store"]), ("hello", &json!(false)));
    assert_eq!(harness.show(&answer).await.0, 404);
}

#[tokio::test]
async fn a_response_in_the_background_is_cancelled() {
    let harness = Harness::open().await;
    let begun = harness.response_to(json!({"input": "hold", "background": true})).await;
    assert!(!last(&harness).only_now, "a freeze keeps it");
    let (status, shown) = harness.show(&begun).await;
    assert!(status == 200 && ["queued", "in_progress"].contains(&shown["status"].as_str().unwrap()), "{shown}");
    let (status, cancelled) = harness.post(&path_of(&begun, "/cancel"), Value::Null).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")), "{cancelled}");
    assert_eq!(harness.show(&begun).await.1["status"], "cancelled");
    let (status, again) = harness.post(&path_of(&begun, "/cancel"), Value::Null).await;
    assert_eq!((status, &again["status"]), (200, &json!("cancelled")));
}

#[tokio::test]
async fn a_response_is_deleted_with_its_conversation_if_that_has_no_other() {
    let harness = Harness::open().await;
    let alone = harness.response("hello").await;
    let (status, deleted) = harness.remove(&alone).await;
    assert_eq!((status, &deleted["deleted"], &deleted["id"]), (200, &json!(true), &alone["id"]), "{deleted}");
    let first = harness.response("one").await;
    harness.response_to(json!({"input": "two", "previous_response_id": first["id"]})).await;
    let (status, error) = harness.remove(&first).await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")), "{error}");
    let named = harness.response_to(json!({"input": "hi", "conversation": "ada"})).await;
    assert_eq!(harness.remove(&named).await.0, 409, "a named session outlives its responses");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_in_the_form_of_this_api() {
    let harness = Harness::open().await;
    let (status, error) = harness.get("/v1/responses/a/b/c").await;
    assert_eq!((status, &error["error"]["type"]), (404, &json!("invalid_request_error")), "{error}");
    let (status, error) = harness.get(PATH).await;
    assert_eq!((status, error["error"]["message"].is_string()), (405, true), "{error}");
}
