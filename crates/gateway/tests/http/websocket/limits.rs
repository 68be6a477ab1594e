//! Limits: places, requests under way, readers that do not read, and the end of the daemon.

use std::time::Duration;

use belay_protocol::{ApprovalId, EventKind, RunReader, StopReason};
use serde_json::json;

use super::client::{End, PATIENCE, Socket, connect, message};
use crate::harness::{Harness, NOW};

#[tokio::test]
async fn thousands_that_never_say_who_they_are_hold_few_places_and_others_are_served() {
    let harness = Harness::with(|parts| {
        parts.secrets.token = Some("client".to_owned().into());
        parts.config.max_unauthenticated = 64;
    })
    .await;
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..4000 {
        match Socket::raw(&harness, &[]).await {
            Ok(socket) => held.push(socket),
            Err(status) => {
                assert_eq!(status, 503);
                refused += 1;
            }
        }
    }
    // Places come back after 15 s, so that a slow machine lets in more than fit at one time.
    assert!(held.len() >= 64 && refused > 0, "{} held, {refused} refused", held.len());
    assert_eq!(harness.get("/livez").await.0, 200);
    let mut known = Socket::raw(&harness, &[("authorization", "Bearer client")]).await.unwrap();
    assert_eq!(known.call("connect", connect(json!({}))).await["ok"], true);
    assert_eq!(known.payload("health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn places_are_counted_and_come_back() {
    let harness = Harness::with(|parts| {
        parts.config.max_unauthenticated = 1;
        parts.config.max_streams = Some(1);
    })
    .await;
    let waiting = Socket::raw(&harness, &[]).await.unwrap();
    assert_eq!(Socket::raw(&harness, &[]).await.err(), Some(503));
    drop(waiting);
    let mut first = until_let_in(&harness).await;
    assert_eq!(first.call("connect", connect(json!({}))).await["ok"], true);
    let mut second = until_let_in(&harness).await;
    let answer = second.call("connect", connect(json!({}))).await;
    assert_eq!((&answer["error"]["code"], &answer["error"]["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
}

/// A connection, as soon as the server has learnt that another one has gone.
async fn until_let_in(harness: &Harness) -> Socket {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Socket::raw(harness, &[]).await {
            Ok(socket) => return socket,
            Err(status) => assert_eq!((status, tokio::time::Instant::now() < deadline), (503, true)),
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // it learns of a closed socket in real time
    }
}

#[tokio::test]
async fn sixty_four_requests_may_be_under_way_and_the_brakes_work_beyond() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let run = harness.hold("s").await;
    let mut waits = Vec::new();
    for _ in 0..64 {
        waits.push(socket.ask("agent.wait", json!({ "runId": run })).await);
    }
    let refused = socket.call("health", json!({})).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
    assert_eq!(socket.payload("chat.abort", json!({ "sessionKey": "s" })).await["aborted"], true);
    for wait in waits {
        assert_eq!(socket.answer(&wait).await["payload"]["error"], "aborted");
    }
    assert_eq!(socket.payload("health", json!({})).await["ok"], true, "there is room again");
}

#[tokio::test]
async fn a_reader_that_stops_reading_loses_its_connection_and_slows_nobody() {
    let harness = Harness::with(|parts| {
        parts.config.max_buffered_bytes = 256 * 1024;
        parts.config.max_streams = Some(2);
    })
    .await;
    let mut stuck = Socket::open(&harness).await;
    stuck.payload("sessions.subscribe", json!({ "sessionKey": "s" })).await;
    let mut reader = Socket::open(&harness).await;
    let id = reader.ask("agent", message("s", "hold", "k")).await;
    let run = reader.answer(&id).await["payload"]["runId"].as_str().unwrap().parse().unwrap();
    let record = harness.store.run(run).await.unwrap().unwrap();
    // 32 MB of facts: more than the kernel holds for a socket. Fed as the reader takes them, which never waits for the other.
    let words = "x".repeat(16 * 1024);
    for _ in 0..2000 {
        let asked = EventKind::ApprovalRequested {
            approval: ApprovalId::new(),
            call_id: "c".into(),
            name: "n".into(),
            kind: "approval".into(),
            summary: words.clone(),
            detail: String::new(),
        };
        harness.store.fact(&record, asked);
        reader.events("agent", |event| event["stream"] == "approval").await;
    }
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert_eq!(reader.answer(&id).await["payload"]["status"], "ok");
    let mut third = until_let_in(&harness).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while third.call("connect", connect(json!({}))).await["ok"] != true {
        assert!(tokio::time::Instant::now() < deadline, "the place of the one that does not read comes back");
        tokio::time::sleep(Duration::from_millis(50)).await; // it is given a moment to take the word of the end
        third = until_let_in(&harness).await;
    }
    assert!(matches!(stuck.end().await, End::Code(1008) | End::Broken));
}

#[tokio::test]
async fn a_connection_is_told_of_the_end_and_gets_what_ends_before_it() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "hold", "k")).await;
    let run = socket.answer(&id).await["payload"]["runId"].as_str().unwrap().parse().unwrap();
    harness.ready.send_replace(false);
    assert!(socket.event("shutdown").await["reason"].is_string());
    harness.agent.finish(run, StopReason::Shutdown, "Stopped: Belay is shutting down.");
    harness.stop.cancel();
    assert_eq!(socket.answer(&id).await["payload"]["result"]["meta"]["stopReason"], "shutdown");
    assert_eq!(socket.end().await, End::Code(1012));
    tokio::time::timeout(PATIENCE, harness.served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_tick_says_that_we_live() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    tokio::time::pause(); // fifteen seconds pass at once
    assert_eq!(socket.event("tick").await, json!({ "ts": NOW }));
}

#[tokio::test]
async fn who_goes_away_ends_its_waits_and_no_run() {
    let harness = Harness::with(|parts| parts.config.max_streams = Some(1)).await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "hold", "k")).await;
    let run: belay_protocol::RunId = socket.answer(&id).await["payload"]["runId"].as_str().unwrap().parse().unwrap();
    socket.ask("agent.wait", json!({ "runId": run })).await;
    drop(socket);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut next = until_let_in(&harness).await;
    while next.call("connect", connect(json!({}))).await["ok"] != true {
        assert!(tokio::time::Instant::now() < deadline);
        next = until_let_in(&harness).await;
    }
    let waited = next.payload("agent.wait", json!({ "runId": run, "timeoutMs": 0 })).await;
    assert_eq!(waited["runStatus"], "running");
    let again = next.ask("agent", message("s", "hold", "k")).await;
    assert_eq!(next.answer(&again).await["payload"]["duplicate"], true);
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert_eq!(next.answer(&again).await["payload"]["status"], "ok");
}
