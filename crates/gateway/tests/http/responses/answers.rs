//! What a response is when its run asks, ends early, or does not begin.

use belay_protocol::StopReason;
use serde_json::{Value, json};

use super::{PATH, last, path_of, seen, text};
use crate::harness::{Harness, read};

#[tokio::test]
async fn a_question_is_the_answer_and_a_yes_to_it_continues_the_run() {
    let harness = Harness::open().await;
    let asked = harness.response("ask rm -r /tmp/x").await;
    assert!(text(&asked).contains("May I rm -r /tmp/x?"), "{asked}");
    assert_eq!((&asked["status"], &asked["belay"]["status"]), (&json!("completed"), &json!("paused")));
    assert!(asked["belay"]["approval"]["id"].is_string(), "{asked}");
    let yes = harness.response_to(json!({"input": "yes", "previous_response_id": asked["id"]})).await;
    assert_eq!((text(&yes).as_str(), &yes["belay"]["run_id"]), ("approved rm -r /tmp/x", &asked["belay"]["run_id"]));
    assert_ne!(yes["id"], asked["id"]);
    assert_eq!(harness.show(&yes).await.1["output"], yes["output"]);
}

#[tokio::test]
async fn a_command_is_answered_without_a_run_and_plain_text_has_no_tools() {
    let harness = Harness::open().await;
    let answer = harness.response("/ping").await;
    assert_eq!((text(&answer).as_str(), &answer["belay"]), ("pong", &Value::Null));
    assert_eq!(harness.show(&answer).await.0, 404);
    let answer = harness.response_to(json!({"input": "/ping", "model": "belay:text"})).await;
    assert_eq!((&answer["model"], last(&harness).options.text_only), (&json!("belay:text"), true));
    assert_eq!(harness.show(&answer).await.1["model"], "belay:text");
}

#[tokio::test]
async fn ends_have_the_statuses_of_this_api() {
    let harness = Harness::open().await;
    let (status, error) = harness.post(PATH, json!({"input": "fail unknown_model"})).await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("unknown_model")));
    let cut_off = harness.response("fail wall_clock").await;
    assert_eq!((&cut_off["status"], text(&cut_off).as_str()), (&json!("completed"), StopReason::WallClock.user_line()));
    assert_eq!((&cut_off["belay"]["reason"], &cut_off["belay"]["status"]), (&json!("wall_clock"), &json!("stopped")));
    let length = harness.response("fail length_limit").await;
    assert_eq!(
        (&length["status"], &length["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[tokio::test]
async fn a_key_that_is_sent_again_gets_the_response_that_is_there() {
    let harness = Harness::open().await;
    let send = || {
        let request = harness.client.post(harness.url(PATH)).header("Idempotency-Key", "k-1");
        read(request.json(&json!({"input": "hello"})))
    };
    let (first, again) = (send().await, send().await);
    assert_eq!((first.0, again.0, &again.1["id"]), (200, 200, &first.1["id"]));
    assert_eq!(seen(&harness).len(), 2, "the agent recognises the second one");
    assert_eq!(harness.get(&path_of(&first.1, "")).await.0, 200);
}
