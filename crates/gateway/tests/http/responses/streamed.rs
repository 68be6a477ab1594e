//! Streams, and streams that are resumed.

use serde_json::{Value, json};

use super::{PATH, brief, data, path_of, pieces};
use crate::harness::Harness;

async fn stream(harness: &Harness, input: &str) -> Vec<Value> {
    let body = json!({"input": input, "stream": true});
    data(harness.client.post(harness.url(PATH)).json(&body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_stream_has_every_event_in_its_order_and_ends_with_the_whole() {
    let harness = Harness::open().await;
    let events = stream(&harness, "think first/Hello").await;
    assert_eq!(
        brief(&events),
        [
            "0 created",
            "1 in_progress",
            "2 output_item.added",
            "3 reasoning_summary_part.added",
            "4 reasoning_summary_text.delta",
            "5 reasoning_summary_text.done",
            "6 reasoning_summary_part.done",
            "7 output_item.done",
            "8 output_item.added",
            "9 content_part.added",
            "10 output_text.delta",
            "11 output_text.done",
            "12 content_part.done",
            "13 output_item.done",
            "14 completed",
        ]
    );
    let whole = &events[14]["response"];
    let kinds: Vec<_> = whole["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["reasoning", "message"]);
    assert_eq!((&events[12]["part"]["text"], &whole["output"][1]), (&json!("Hello"), &events[13]["item"]));
    assert_eq!((&events[8]["output_index"], &events[8]["item"]["status"]), (&json!(1), &json!("in_progress")));
    let (status, again) = harness.show(whole).await;
    assert_eq!((status, &again["output"][0], &again["usage"]), (200, &whole["output"][1], &whole["usage"]));
}

#[tokio::test]
async fn the_pieces_of_a_stream_are_its_text() {
    let harness = Harness::open().await;
    let events = stream(&harness, "pieces one two/three four").await;
    assert_eq!(pieces(&events), "one two\n\nthree four");
    let done = events.iter().find(|event| event["type"] == "response.output_text.done").unwrap();
    assert_eq!(done["text"], "one two\n\nthree four");
    let events = stream(&harness, "/ping").await;
    assert_eq!(
        (pieces(&events).as_str(), events.last().unwrap()["type"].as_str()),
        ("pong", Some("response.completed"))
    );
}

#[tokio::test]
async fn a_stream_ends_with_the_failure() {
    let harness = Harness::open().await;
    let events = stream(&harness, "fail unknown_model").await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "unknown_model");
    let (status, again) = harness.show(&last["response"]).await;
    assert_eq!((status, &again["status"], &again["error"]), (200, &json!("failed"), &last["response"]["error"]));
}

#[tokio::test]
async fn a_stream_that_is_closed_ends_its_run_unless_it_is_in_the_background() {
    let harness = Harness::open().await;
    for background in [false, true] {
        let body = json!({"input": "hold", "stream": true, "background": background});
        let response = harness.client.post(harness.url(PATH)).json(&body).send().await.unwrap();
        let run = response.headers()["x-belay-run"].to_str().unwrap().to_owned();
        drop(response);
        if background {
            // The stop of the other run came after its stream was closed; this one gets none.
            let (_, shown) = harness.get(&format!("/api/v1/runs/{run}")).await;
            assert_ne!(shown["status"], "stopped", "{shown}");
            harness.agent.finish(run.parse().unwrap(), belay_protocol::StopReason::FinalText, "done");
            continue;
        }
        let (_, ended) = harness.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=30000")).await;
        assert_eq!(ended["reason"], "client_gone", "{ended}");
    }
}

#[tokio::test]
async fn a_response_in_the_background_is_resumed_behind_any_number() {
    let harness = Harness::open().await;
    let body = json!({"input": "hold", "background": true});
    let begun = harness.response_to(body).await;
    assert!(["queued", "in_progress"].contains(&begun["status"].as_str().unwrap()), "{begun}");
    assert_eq!((&begun["output"], &begun["usage"]), (&json!([]), &Value::Null));
    let shown = harness.show(&begun).await.1;
    let run = shown["belay"]["run_id"].as_str().unwrap().parse().unwrap();
    harness.agent.delta(run, 1, "Grüße ");
    let follow =
        |after: &str| harness.client.get(harness.url(&path_of(&begun, &format!("?stream=true{after}")))).send();
    let live = follow("").await.unwrap();
    let resumed = follow("&starting_after=6").await.unwrap(); // in the middle: behind 3 of 8 bytes
    harness.agent.delta(run, 1, "an alle.");
    harness.agent.finish(run, belay_protocol::StopReason::FinalText, "Grüße an alle.");
    let live = data(live).await;
    assert_eq!(pieces(&live), "Grüße an alle.");
    let numbers: Vec<u64> = live.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let resumed = data(resumed).await;
    assert_eq!(pieces(&resumed), "üße an alle.", "a character is never cut");
    // After the end, from each number that the first stream had.
    for (at, event) in live.iter().enumerate() {
        let again = data(follow(&format!("&starting_after={}", event["sequence_number"])).await.unwrap()).await;
        let rest = &live[(at + 1).min(live.len() - 1)..];
        assert_eq!(pieces(&again), pieces(&live[at + 1..]), "{event}");
        let last = again.last().unwrap();
        assert_eq!(
            (&last["type"], &last["response"]["output"]),
            (&json!("response.completed"), &rest.last().unwrap()["response"]["output"])
        );
    }
}
