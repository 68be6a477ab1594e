//! Responses that are continued: what the next one knows of them.

use belay_protocol::RunRecord;
use serde_json::{Value, json};

use super::{PATH, last, seen, shown};
use crate::harness::{Harness, blank, read};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

#[tokio::test]
async fn an_input_with_answers_of_its_own_goes_on_behind_the_response_that_it_names() {
    let harness = Harness::open().await;
    let first = harness.response("one").await;
    let session = last(&harness).session;
    for input in [json!([user("x"), assistant("y"), user("z")]), json!([assistant("y"), user("z")])] {
        harness.response_to(json!({"input": input, "previous_response_id": first["id"]})).await;
        let found = last(&harness);
        assert_ne!(found.session, session, "the stored conversation has no such answer");
        let expected = if input[0]["role"] == "user" {
            "z <- User:one|Assistant:one|User:x|Assistant:y"
        } else {
            "z <- User:one|Assistant:one|Assistant:y"
        };
        assert_eq!(shown(&found), expected);
    }
}

#[tokio::test]
async fn a_session_in_the_header_contradicts_an_earlier_response() {
    let harness = Harness::open().await;
    let first = harness.response("one").await;
    let body = json!({"input": "two", "previous_response_id": first["id"]});
    let request = harness.client.post(harness.url(PATH)).header("X-Belay-Session", "eve").json(&body);
    let (status, error) = read(request).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("previous_response_id")), "{error}");
    assert_eq!(seen(&harness).len(), 1);
}

#[tokio::test]
async fn a_response_that_its_conversation_does_not_have_any_more_is_not_continued() {
    let harness = Harness::open().await;
    let first = harness.response("one").await;
    let session = last(&harness).session;
    let later = |reply: &str| RunRecord { session: session.clone(), reply: Some(reply.into()), ..blank() };
    harness.store.put(later("later"));
    let next = json!({"input": "other", "previous_response_id": first["id"]});
    harness.response_to(next.clone()).await;
    assert!(!shown(&last(&harness)).contains("later"), "{}", shown(&last(&harness)));
    (0..500).for_each(|_| harness.store.put(later("later"))); // more than are read
    let (status, error) = harness.post(PATH, next).await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("previous_response_not_found")), "{error}");
}

#[tokio::test]
async fn a_text_of_ours_is_not_in_the_history_of_a_fork() {
    let harness = Harness::open().await;
    let first = harness.response_to(json!({"input": [assistant("Once upon")]})).await;
    assert!(shown(&last(&harness)).starts_with("continue <- "), "{}", shown(&last(&harness)));
    harness.response_to(json!({"input": "more", "previous_response_id": first["id"]})).await;
    harness.response_to(json!({"input": "other", "previous_response_id": first["id"]})).await;
    assert!(!shown(&last(&harness)).contains("User:continue"), "{}", shown(&last(&harness)));
}

#[tokio::test]
async fn references_are_no_way_around_the_limit_of_a_body() {
    let harness = Harness::open().await; // whose limit is 200,000 bytes
    let answer = harness.response(&"x".repeat(20_000)).await;
    let reference = json!({"type": "item_reference", "id": answer["output"][0]["id"]});
    let named = |times: usize| {
        let items = std::iter::repeat_n(reference.clone(), times).chain([user("again")]);
        json!({"input": items.collect::<Vec<Value>>()})
    };
    let (status, error) = harness.post(PATH, named(11)).await;
    assert_eq!((status, &error["error"]["code"]), (413, &json!("too_large")), "{error}");
    harness.response_to(named(9)).await;
    assert_eq!(last(&harness).history.len(), 9);
}
