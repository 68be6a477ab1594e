//! Tools: listed for whoever may ask, switched by operators.

use serde_json::json;

use crate::harness::{Harness, read};

const TOOLS: &str = "/api/v1/tools";

#[tokio::test]
async fn tools_are_listed_and_switched() {
    let harness = Harness::open().await;
    let off = json!({
        "name": "web_search", "description": "Searches.", "state": "off", "calls": 0, "failed": 0, "failures": 0, "runs": 0,
        "detail": "it failed",
    });
    assert_eq!(harness.get(TOOLS).await, (200, json!({ "tools": [off] })));
    let path = format!("{TOOLS}/web_search");
    let (status, tool) = harness.post(&format!("{path}/disable"), json!({ "detail": "it lies" })).await;
    assert_eq!((status, &tool["state"], &tool["detail"]), (200, &json!("off"), &json!("it lies")));
    let (status, tool) = harness.post(&format!("{path}/enable"), json!({})).await;
    assert_eq!((status, &tool["state"]), (200, &json!("ok")));
    for (path, body, expected) in [
        (format!("{path}/disable"), json!({}), 422),
        (format!("{path}/disable"), json!({ "detail": "x", "for": 3 }), 422),
        (format!("{path}/enable"), json!({ "detail": "x" }), 422),
        (format!("{TOOLS}/mcp:files/enable"), json!({}), 404),
        (path, json!({}), 404),
    ] {
        assert_eq!(harness.post(&path, body.clone()).await.0, expected, "{path} {body}");
    }
}

#[tokio::test]
async fn a_client_lists_tools_and_switches_none() {
    let harness = Harness::locked().await;
    let as_client = |request: reqwest::RequestBuilder| read(request.bearer_auth("client"));
    assert_eq!(as_client(harness.client.get(harness.url(TOOLS))).await.0, 200);
    for (verb, body) in [("disable", json!({ "detail": "it lies" })), ("enable", json!({}))] {
        let url = harness.url(&format!("{TOOLS}/web_search/{verb}"));
        assert_eq!(as_client(harness.client.post(&url).json(&body)).await.0, 403, "{verb}");
        assert_eq!(read(harness.client.post(&url).json(&body)).await.0, 401, "{verb}");
    }
    assert!(harness.agent.seen.lock().unwrap().len() == 1, "what a client may not ask never comes to the agent");
}
