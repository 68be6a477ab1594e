//! What other nodes commit: this node's tip follows their events later, and nothing of their runs is live here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use belay_protocol::{BootId, EventKind, RunReader, SignInStore, StopReason};
use futures_util::StreamExt;
use reqwest::Method;
use reqwest::header::COOKIE;
use serde_json::json;

use crate::console::{page, sign_in, tokens};
use crate::harness::{FakeSignIns, Harness};
use crate::nodes::{FakeHints, view};
use crate::streams::{brief, events};

/// The id of the first event of a stream that has one.
async fn first_number(mut stream: reqwest::Response) -> String {
    let mut text = String::new();
    loop {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream goes on")));
        if let Some((number, _)) = text.split_once("id: ").and_then(|(_, rest)| rest.split_once('\n')) {
            return number.to_owned();
        }
    }
}

#[tokio::test]
async fn a_cursor_that_another_node_has_given_is_accepted_before_the_tip_has_reached_it() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let record = harness.store.run(run).await.unwrap().unwrap();
    harness.store.lags.store(true, Ordering::Relaxed);
    harness.store.fact(&record, EventKind::model_called(1, None, None));
    let paths = ["/api/v1/events".to_owned(), "/api/v1/sessions/s/stream".to_owned()];
    let paths = paths.into_iter().chain(["events", "stream"].map(|which| format!("/api/v1/runs/{run}/{which}")));
    let mut streams = Vec::new();
    for path in paths {
        let known = harness.follow(&format!("{path}?since=2"), None).await;
        let reads = harness.store.newest_reads.load(Ordering::Relaxed);
        assert_eq!((known.status().as_u16(), reads), (200, 0), "{path}");
        drop(known);
        let beyond = harness.get(&format!("{path}?since=4")).await;
        assert_eq!(beyond.1["error"]["message"], "since: there is no event 4 yet; the newest is 3", "{path}");
        let reset = events(harness.follow(&path, Some("4")).await, 1).await;
        assert_eq!(brief(&reset[..1]), ["3 reset"], "{path}");
        for (path, last) in [(format!("{path}?since=3"), None), (path.clone(), Some("3"))] {
            let stream = harness.follow(&path, last).await;
            assert_eq!(stream.status(), 200, "{path}");
            streams.push((path, stream));
        }
        let reads = harness.store.newest_reads.swap(0, Ordering::Relaxed);
        assert_eq!(reads, 4, "{path}: one read for each cursor beyond the tip");
    }
    harness.store.catch_up();
    harness.agent.finish(run, StopReason::FinalText, "done");
    for (path, stream) in streams {
        assert_eq!(first_number(stream).await, "4", "{path}");
    }
}

#[tokio::test]
async fn the_stream_of_a_run_that_has_ended_on_another_node_shows_its_end_before_the_tip_has_reached_it() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    harness.store.lags.store(true, Ordering::Relaxed);
    harness.agent.finish(run, StopReason::FinalText, "done");
    let all = events(harness.follow(&format!("/api/v1/runs/{run}/events"), None).await, usize::MAX).await;
    assert_eq!(brief(&all), ["1 run_accepted", "2 run_started", "3 run_ended"]);
    let rest = events(harness.follow(&format!("/api/v1/runs/{run}/events"), Some("2")).await, usize::MAX).await;
    assert_eq!(brief(&rest), ["3 run_ended"]);
}

#[tokio::test]
async fn a_stream_ends_with_a_sign_in_that_another_node_has_ended() {
    let (sign_ins, hints) = (Arc::new(FakeSignIns::default()), Arc::new(FakeHints::default()));
    let harness = Harness::with(|parts| {
        tokens(parts);
        parts.sign_ins = sign_ins.clone();
        parts.cluster = Some(view([BootId::new(), BootId::new()], hints.clone()));
    })
    .await;
    let cookie = sign_in(&harness, json!({"token": "tee"})).await.unwrap();
    let mut stream = page(&harness, Method::GET, "/api/v1/events").header(COOKIE, &cookie).send().await.unwrap();
    assert!(String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()).contains("begin"));
    hints.0.send_modify(|changes| *changes += 1);
    harness.store.notice("s", "still there");
    let mut stream = stream.bytes_stream();
    assert!(String::from_utf8_lossy(&stream.next().await.unwrap().unwrap()).contains("still there"));

    let ids = sign_ins.sign_ins().await.unwrap().into_iter().map(|sign_in| sign_in.id).collect();
    sign_ins.end_sign_ins(ids).await.unwrap();
    hints.0.send_modify(|changes| *changes += 1);
    assert!(stream.next().await.is_none());
}
