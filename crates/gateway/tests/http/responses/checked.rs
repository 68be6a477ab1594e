//! Texts that no hook has checked, where hooks check what is sent.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{PATH, data, path_of, pieces, text};
use crate::harness::Harness;

#[tokio::test]
async fn texts_before_tool_calls_are_not_in_answers_that_hooks_check() {
    for (are_checked, expected) in [(false, "the key is 7\n\nFound."), (true, "Found.")] {
        let harness = Harness::with(|parts| parts.texts.are_checked = are_checked).await;
        let input = "act, say the key is 7/Found.";
        let answer = harness.response(input).await;
        assert_eq!(text(&answer), expected, "{are_checked}");
        assert_eq!(text(&harness.show(&answer).await.1), expected, "{are_checked}");
        let again = harness.client.get(harness.url(&path_of(&answer, "?stream=true"))).send().await.unwrap();
        assert_eq!(pieces(&data(again).await), expected, "{are_checked}");
        let messages = json!([{"role": "user", "content": input}]);
        let (_, chat) = harness.post("/v1/chat/completions", json!({"messages": messages})).await;
        assert_eq!(chat["choices"][0]["message"]["content"], expected, "{are_checked}");
    }
}

#[tokio::test]
async fn an_answer_that_was_taken_is_answered_although_its_place_cannot_be_read() {
    let harness = Harness::open().await;
    let asked = harness.response("ask rm -r /tmp/x").await;
    harness.store.hides_questions.store(true, Ordering::Relaxed);
    let yes = json!({"input": "yes", "previous_response_id": asked["id"], "stream": true});
    let events = data(harness.client.post(harness.url(PATH)).json(&yes).send().await.unwrap()).await;
    assert_eq!(pieces(&events), "approved rm -r /tmp/x");
}

#[tokio::test]
async fn a_cancellation_stops_no_run_whose_response_has_ended() {
    let harness = Harness::open().await;
    let asked = harness.response("ask rm -r /tmp/x").await;
    let (status, shown) = harness.post(&path_of(&asked, "/cancel"), Value::Null).await;
    assert_eq!((status, &shown["status"], &shown["belay"]["status"]), (200, &json!("completed"), &json!("paused")));
    let yes = harness.response_to(json!({"input": "yes", "previous_response_id": asked["id"]})).await;
    assert_eq!(text(&yes), "approved rm -r /tmp/x");
}
