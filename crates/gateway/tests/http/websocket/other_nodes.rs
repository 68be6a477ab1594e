//! Runs that another node executes: subscriptions go on from its cursors, and waits and streams follow the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_protocol::{BootId, EventKind, RunReader, RunStatus, StopReason};
use serde_json::{Map, json};
use tokio::time::advance;

use super::client::Socket;
use super::walk_through::{at_once, settle};
use crate::harness::{Harness, blank};
use crate::nodes::view;
use crate::streams::{brief, events};

#[tokio::test]
async fn a_subscription_goes_on_from_a_cursor_that_the_tip_has_not_reached() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let record = harness.store.run(run).await.unwrap().unwrap();
    harness.store.lags.store(true, Ordering::Relaxed);
    harness.store.fact(&record, EventKind::model_called(1, None, None));
    let mut socket = Socket::open(&harness).await;
    for method in ["sessions.subscribe", "chat.subscribe"] {
        let refused = socket.call(method, json!({ "sessionKey": "s", "since": 4 })).await;
        assert_eq!(refused["error"]["message"], "since: there is no event 4 yet; the newest is 3");
        let subscribed = socket.payload(method, json!({ "sessionKey": "s", "since": 3 })).await;
        assert_eq!(subscribed["cursor"], 3);
    }
    assert_eq!(harness.store.newest_reads.load(Ordering::Relaxed), 4);
    harness.store.catch_up();
    harness.agent.finish(run, StopReason::FinalText, "done");
    let last = socket.events("agent", |event| event["data"]["phase"] == "end").await.pop().unwrap();
    assert_eq!(last["cursor"], 4);
    socket.events("chat", |event| event["state"] == "final").await;
}

#[tokio::test]
async fn the_end_of_a_run_is_answered_after_its_last_event_although_the_tip_lags() {
    let boots = [BootId::new(), BootId::new()];
    let harness = Harness::with(|parts| parts.cluster = Some(view(boots, Arc::default()))).await;
    let run = harness.hold("s").await;
    let mut socket = Socket::open(&harness).await;
    socket.payload("sessions.subscribe", json!({ "sessionKey": "s", "since": 2 })).await;
    harness.store.lags.store(true, Ordering::Relaxed);
    harness.agent.finish(run, StopReason::FinalText, "done");
    let wait = socket.ask("agent.wait", json!({ "runId": run })).await;
    settle(&mut socket).await;
    assert!(socket.is_unanswered(&wait));
    harness.store.catch_up();
    socket.answer(&wait).await;
    assert!(socket.kept("agent").any(|event| event["data"]["phase"] == "end"), "it was sent before");
}

/// The pause between two reads of a run that is not live.
const POLL: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_live_here_is_read_once_for_many_commits() {
    let run = blank();
    let path = format!("/api/v1/runs/{}", run.run_id);
    let (harness, mut socket, wait, streams) = at_once(async {
        let harness = Harness::open().await;
        harness.store.put(run.clone());
        harness.store.fact(&run, EventKind::RunAccepted);
        let mut socket = Socket::open(&harness).await;
        let wait = socket.ask("agent.wait", json!({ "runId": run.run_id, "timeoutMs": 60_000 })).await;
        let streams = [
            harness.follow(&format!("{path}/stream"), None).await,
            harness.follow(&format!("{path}/events"), None).await,
        ];
        settle(&mut socket).await;
        (harness, socket, wait, streams)
    })
    .await;
    let reads = |of: &AtomicU64| of.swap(0, Ordering::Relaxed);
    let store = harness.store.clone();
    for round in 0..3 {
        reads(&store.run_reads);
        reads(&store.run_fact_reads);
        at_once(async {
            for n in 0..30 {
                store.notice("another", &format!("{n}"));
                settle(&mut socket).await;
            }
        })
        .await;
        let at_once_reads = (reads(&store.run_reads), reads(&store.run_fact_reads));
        assert_eq!(at_once_reads, (0, 0), "round {round}: not before the pause is over");
        advance(POLL).await;
        at_once(settle(&mut socket)).await;
        let later = (reads(&store.run_reads), reads(&store.run_fact_reads));
        assert_eq!(later, (2, 2), "round {round}: the wait and the stream read the run, both streams read its facts");
    }
    store.put(belay_protocol::RunRecord {
        status: RunStatus::Completed,
        reason: Some(StopReason::FinalText),
        ended_at: Some(run.accepted_at),
        ..run.clone()
    });
    let ended =
        EventKind::RunEnded { status: RunStatus::Completed, reason: StopReason::FinalText, evidence: Map::new() };
    store.fact(&run, ended);
    at_once(settle(&mut socket)).await;
    advance(POLL).await;
    at_once(async {
        assert_eq!(socket.answer(&wait).await["payload"]["status"], "ok");
        for stream in streams {
            let last = brief(&events(stream, usize::MAX).await).pop().unwrap();
            assert!(last.starts_with(&format!("{} ", 3 * 30 + 2)), "{last}");
        }
    })
    .await;
}
