//! The end: what is open ends well, what is new is refused, and it does not take for ever.

use std::time::Duration;

use belay_protocol::{
    Body, Channel, Control, DeliverError, Outbound, OutboxId, ReplyRoute, RunId, StopReason, StopTarget,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::harness::{Harness, PATIENCE, fresh_client, parts, read, start};

#[tokio::test]
async fn open_requests_end_with_their_runs_and_new_messages_are_refused() {
    let harness = Harness::open().await;
    let body = json!({"session": "s", "text": "hold", "wait_ms": 60_000});
    let waiting = tokio::spawn(read(harness.client.post(harness.url("/api/v1/messages")).json(&body)));
    let global = harness.client.get(harness.url("/api/v1/events?since=0")).send().await.unwrap();
    let run = first_run(&harness).await;
    harness.stop.cancel();
    // Idle connections are being closed; a request on a new one is answered.
    while read(fresh_client().get(harness.url("/readyz"))).await.0 != 503 {
        tokio::task::yield_now().await;
    }
    let client = fresh_client();
    let new = client.post(harness.url("/api/v1/messages")).json(&json!({"session": "s", "text": "new"}));
    let (status, refused) = read(new).await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("shutting_down")));
    let ready = read(client.get(harness.url("/readyz"))).await;
    assert_eq!(ready, (503, json!({"ready": false, "reason": "shutting down"})));
    assert!(global.text().await.unwrap().contains("run_accepted"), "the global stream ends");
    harness.agent.finish(run, StopReason::FinalText, "in time");
    let (status, ended) = waiting.await.unwrap();
    assert_eq!((status, &ended["reply"]), (200, &json!("in time")));
    tokio::time::timeout(PATIENCE, harness.served).await.unwrap().unwrap().unwrap();
}

async fn first_run(harness: &Harness) -> RunId {
    loop {
        let (_, list) = harness.get("/api/v1/runs").await;
        if let Some(Value::String(id)) = list["runs"].get(0).map(|run| run["run_id"].clone()) {
            return id.parse().unwrap();
        }
    }
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut() {
    let harness = Harness::with(|parts| parts.config.drain_s = 0).await;
    let body = json!({"session": "s", "text": "hold", "wait_ms": 60_000});
    let waiting = harness.client.post(harness.url("/api/v1/messages")).json(&body).send();
    let waiting = tokio::spawn(waiting);
    first_run(&harness).await;
    harness.stop.cancel();
    tokio::time::timeout(PATIENCE, harness.served).await.unwrap().unwrap().unwrap();
    assert!(waiting.await.unwrap().is_err());
}

#[tokio::test]
async fn a_gateway_that_nobody_uses_ends_at_once_though_a_connection_is_idle() {
    let harness = Harness::open().await;
    assert_eq!(harness.get("/livez").await.0, 200); // the client keeps its connection
    harness.stop.cancel();
    tokio::time::timeout(PATIENCE, harness.served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn once_the_intake_is_over_messages_are_refused_and_runs_are_still_read() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    harness.intake.cancel();
    let refused = harness.post("/api/v1/messages", json!({"session": "s", "text": "new"})).await;
    assert_eq!((refused.0, &refused.1["error"]["code"]), (503, &json!("shutting_down")));
    let path = format!("/api/v1/runs/{run}/wait?timeout_ms=5000");
    let (waited, ()) = tokio::join!(harness.get(&path), async {
        harness.agent.until_watched(run).await; // the wait is on its way
        harness.agent.finish(run, StopReason::FinalText, "read from the store");
    });
    assert_eq!((waited.0, &waited.1["reply"]), (200, &json!("read from the store")));
}

#[tokio::test]
async fn the_brakes_and_the_status_work_until_the_agent_lets_go_and_are_then_refused_at_once() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    harness.intake.cancel();
    assert_eq!(harness.get("/api/v1/status").await.0, 200);
    let (status, stopped) = harness.post(&format!("/api/v1/runs/{run}/stop"), json!({})).await;
    assert_eq!((status, &stopped["stopped"]), (200, &json!([run])));

    harness.working.abort();
    let late = tokio::time::timeout(PATIENCE, harness.get("/api/v1/status")).await.expect("an answer");
    assert_eq!(late.0, 503);
    harness.stop.cancel();
    tokio::time::timeout(PATIENCE, harness.served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_full_intake_answers_503_at_once() {
    let harness = Harness::open().await;
    let (_ready, seen) = tokio::sync::watch::channel(true);
    let (gateway, channel) = belay_gateway::Gateway::bind(parts(&harness.store, &harness.clock, seen)).await.unwrap();
    let url = format!("http://{}/api/v1/messages", gateway.addr().unwrap());
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tokio::spawn(gateway.serve(stop.clone()));
    // Nobody reads the channel: 1024 messages wait in it, and the next one is told so.
    let body = json!({"session": "s", "text": "hi"});
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1040 {
        waiting.spawn(harness.client.post(&url).json(&body).send());
    }
    let refused = loop {
        let response = waiting.join_next().await.unwrap().unwrap().unwrap();
        if response.status().as_u16() == 503 {
            break response;
        }
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["code"], "busy");
    // A stop still gets into the queue.
    let mut stop_all = tokio::spawn(harness.client.post(url.replace("messages", "stop")).json(&json!({})).send());
    let refused = tokio::time::timeout(Duration::from_millis(500), &mut stop_all).await;
    assert!(refused.is_err(), "{refused:?}");
    let mut stream = start(&channel, stop.clone()).await;
    let mut texts = 0;
    while let Some(envelope) = stream.next().await {
        match envelope.inbound.body {
            Body::Text(_) => texts += 1,
            Body::Control(Control::Stop(StopTarget::All)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(texts, 1024);
    stop_all.abort();
    waiting.shutdown().await;
    drop(channel);
    stop.cancel();
    tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_channel_delivers_nothing_and_starts_once() {
    let harness = Harness::open().await;
    let (_ready, seen) = tokio::sync::watch::channel(true);
    let (_gateway, channel) = belay_gateway::Gateway::bind(parts(&harness.store, &harness.clock, seen)).await.unwrap();
    assert_eq!(channel.id().as_str(), "http");
    let stop = tokio_util::sync::CancellationToken::new();
    assert!(channel.start(stop.clone()).await.is_ok());
    assert!(channel.start(stop).await.is_err());
    let route = ReplyRoute { channel: "http".into(), conversation: "s".into(), reply_to: None };
    let message = Outbound {
        id: OutboxId::new(),
        run_id: None,
        route,
        text: "hi".into(),
        pieces_sent: 0,
        question: None,
        preview: None,
        callback: None,
        unchecked: None,
        file: None,
    };
    assert!(matches!(channel.deliver(&message).await, Err(DeliverError::Refused { .. })));
}
