//! Streams that begin when their run has said something already.

use belay_protocol::{RunId, StopReason};
use serde_json::{Value, json};

use super::{PATH, data, path_of, pieces};
use crate::harness::Harness;

/// A response in the background, and its run, which holds.
async fn held(harness: &Harness) -> (Value, RunId) {
    let begun = harness.response_to(json!({"input": "hold", "background": true})).await;
    let run = harness.show(&begun).await.1["belay"]["run_id"].as_str().unwrap().parse().unwrap();
    (begun, run)
}

async fn follow(harness: &Harness, begun: &Value, after: &str) -> reqwest::Response {
    harness.client.get(harness.url(&path_of(begun, &format!("?stream=true{after}")))).send().await.unwrap()
}

#[tokio::test]
async fn a_step_that_begins_like_the_one_before_hides_no_text() {
    let harness = Harness::open().await;
    let (begun, run) = held(&harness).await;
    harness.store.said_before(run, "Let me look.");
    harness.agent.delta(run, 2, "Let me");
    let live = follow(&harness, &begun, "").await;
    harness.agent.delta(run, 2, " see.");
    harness.agent.finish(run, StopReason::FinalText, "Let me see.");
    let events = data(live).await;
    assert_eq!(pieces(&events), "Let me look.\n\nLet me see.");
    assert_eq!(events.last().unwrap()["response"]["output"], harness.show(&begun).await.1["output"]);
}

#[tokio::test]
async fn a_step_that_is_stored_while_the_stream_begins_is_said_once() {
    for so_far in ["", "I "] {
        let harness = Harness::open().await;
        let (begun, run) = held(&harness).await;
        harness.agent.delta(run, 1, so_far);
        // As if it had been stored between the watch and the read.
        harness.store.said_before(run, "I look.");
        let live = follow(&harness, &begun, "").await;
        harness.agent.delta(run, 1, &"I look."[so_far.len()..]);
        harness.agent.finish(run, StopReason::FinalText, "Found.");
        assert_eq!(pieces(&data(live).await), "I look.\n\nFound.", "{so_far:?}");
    }
}

#[tokio::test]
async fn a_retry_of_a_stream_in_the_background_has_the_numbers_of_its_resume() {
    let harness = Harness::open().await;
    let body = json!({"input": "hold", "background": true, "stream": true});
    let send = || harness.client.post(harness.url(PATH)).header("Idempotency-Key", "k-1").json(&body).send();
    let first = send().await.unwrap();
    let run: RunId = first.headers()["x-belay-run"].to_str().unwrap().parse().unwrap();
    harness.agent.delta(run, 1, "I look.");
    harness.store.said_before(run, "I look.");
    harness.agent.delta(run, 2, "Now");
    let again = send().await.unwrap();
    harness.agent.delta(run, 2, " I know.");
    harness.agent.finish(run, StopReason::FinalText, "Now I know.");
    let (first, again) = (data(first).await, data(again).await);
    assert_eq!(pieces(&again), "I look.\n\nNow I know.");
    let end = |events: &[Value]| (events.last().unwrap()["sequence_number"].clone(), pieces(events));
    assert_eq!(end(&again), end(&first));
    let late = data(send().await.unwrap()).await;
    assert_eq!(end(&late), end(&first), "after the end");
}

#[tokio::test]
async fn a_resumed_stream_ends_with_its_error_wherever_it_begins() {
    let harness = Harness::open().await;
    let (begun, run) = held(&harness).await;
    let live = follow(&harness, &begun, "&starting_after=50").await;
    harness.agent.vanish(run);
    let events = data(live).await;
    assert_eq!((events.len(), &events[0]["type"], &events[0]["sequence_number"]), (1, &json!("error"), &json!(51)));
}
