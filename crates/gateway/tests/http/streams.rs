//! Event streams: replay, resume, fragments, ends and limits.

use std::time::Duration;

use belay_protocol::{EventKind, StopReason};
use futures_util::StreamExt;

use crate::harness::{Harness, PATIENCE};

/// Reads a stream's events as `id event data` until it ends or `enough` of them have come.
pub(crate) async fn events(response: reqwest::Response, enough: usize) -> Vec<(String, String, String)> {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut bytes = response.bytes_stream();
    let mut text = String::new();
    while text.matches("\n\n").count() < enough {
        match tokio::time::timeout(PATIENCE, bytes.next()).await.unwrap() {
            Some(piece) => text.push_str(&String::from_utf8_lossy(&piece.unwrap())),
            None => break,
        }
    }
    let field = |block: &str, name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned));
        lines.collect::<Vec<_>>().join("\n")
    };
    text.split_terminator("\n\n").map(|b| (field(b, "id"), field(b, "event"), field(b, "data"))).collect()
}

pub(crate) fn brief(events: &[(String, String, String)]) -> Vec<String> {
    events.iter().map(|(id, event, _)| format!("{id} {event}").trim().to_owned()).collect()
}

impl Harness {
    /// Opens a stream, after the event `last`.
    pub(crate) async fn follow(&self, path: &str, last: Option<&str>) -> reqwest::Response {
        let mut request = self.client.get(self.url(path));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        request.send().await.unwrap()
    }
}

#[tokio::test]
async fn a_runs_stream_replays_from_the_store_and_ends_after_its_end() {
    let harness = Harness::open().await;
    let other = harness.hold("other").await;
    let run = harness.hold("s").await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    harness.agent.finish(other, StopReason::FinalText, "done");
    let path = format!("/api/v1/runs/{run}/events");
    let all = events(harness.follow(&path, None).await, usize::MAX).await;
    assert_eq!(brief(&all), ["3 run_accepted", "4 run_started", "5 run_ended"]);
    let ended: serde_json::Value = serde_json::from_str(&all[2].2).unwrap();
    assert_eq!((ended["seq"].as_u64(), ended["type"].as_str()), (Some(5), Some("run_ended")));
    assert_eq!(
        (ended["status"].as_str(), ended["run_id"].as_str()),
        (Some("completed"), Some(run.to_string().as_str()))
    );
    let rest = events(harness.follow(&path, Some("4")).await, usize::MAX).await;
    assert_eq!(brief(&rest), ["5 run_ended"]);
    let since = events(harness.follow(&format!("{path}?since=3"), None).await, usize::MAX).await;
    assert_eq!(brief(&since), ["4 run_started", "5 run_ended"]);
    let nothing = events(harness.follow(&path, Some("5")).await, usize::MAX).await;
    assert_eq!(brief(&nothing), [""; 0], "a reader that has seen the end is not kept waiting");
}

#[tokio::test]
async fn a_living_runs_stream_shows_fragments_before_the_end_and_without_ids() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let response = harness.follow(&format!("/api/v1/runs/{run}/events"), None).await;
    harness.agent.delta(run, 1, "He");
    harness.agent.delta(run, 1, "llo");
    harness.agent.finish(run, StopReason::FinalText, "Hello");
    let all = events(response, usize::MAX).await;
    let (deltas, facts): (Vec<_>, Vec<_>) = brief(&all).into_iter().partition(|line| line == "delta");
    assert_eq!(facts, ["1 run_accepted", "2 run_started", "3 run_ended"]);
    let data = |at: usize| serde_json::from_str::<serde_json::Value>(&all[at].2).unwrap();
    let said: String = (2..2 + deltas.len()).map(|at| data(at)["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!((said.as_str(), data(2)["kind"].as_str(), data(2)["step"].as_u64()), ("Hello", Some("text"), Some(1)));
}

#[tokio::test]
async fn fragments_of_a_run_stand_between_the_facts_where_they_belong() {
    let harness = Harness::open().await;
    for _ in 0..16 {
        let run = harness.hold("s").await;
        let record = belay_protocol::RunReader::run(&*harness.store, run).await.unwrap().unwrap();
        let response = harness.follow(&format!("/api/v1/runs/{run}/events"), None).await;
        harness.agent.delta(run, 1, "I look.");
        harness.agent.delta(run, 2, "Found.");
        harness.store.fact(&record, EventKind::model_called(1, None, None));
        harness.agent.finish(run, StopReason::FinalText, "Found.");
        let all = events(response, usize::MAX).await;
        let course: Vec<_> = all.iter().map(|(_, event, _)| event.as_str()).collect();
        assert_eq!(course, ["run_accepted", "run_started", "delta", "model_called", "delta", "run_ended"]);
    }
}

#[tokio::test]
async fn the_global_stream_goes_on_from_any_number_and_without_one_from_now() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let now = harness.follow("/api/v1/events", None).await;
    let replay = harness.follow("/api/v1/events?since=0", None).await;
    let resumed = harness.follow("/api/v1/events?since=0", Some("1")).await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    let now = events(now, 2).await;
    assert_eq!(brief(&now), ["2 begin", "3 run_ended"], "a late reader is told where it begins");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&now[0].2).unwrap()["after"], 2);
    assert_eq!(brief(&events(replay, 3).await), ["1 run_accepted", "2 run_started", "3 run_ended"]);
    assert_eq!(brief(&events(resumed, 2).await), ["2 run_started", "3 run_ended"], "the header says it better");
}

#[tokio::test]
async fn a_reader_that_comes_late_or_slowly_misses_no_fact() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let record = belay_protocol::RunReader::run(&*harness.store, run).await.unwrap().unwrap();
    let response = harness.follow(&format!("/api/v1/runs/{run}/events"), None).await;
    for step in 0..1000 {
        let kind = EventKind::model_called(step, None, None);
        harness.store.fact(&record, kind);
    }
    harness.agent.finish(run, StopReason::FinalText, "done");
    let all = events(response, usize::MAX).await;
    let ids: Vec<u64> = all.iter().filter_map(|(id, _, _)| id.parse().ok()).collect();
    assert_eq!(ids, (1..=1003).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_from_beyond_the_end_is_told_so_and_goes_on_from_now() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let paths = ["/api/v1/events", "/api/v1/sessions/s/stream"];
    let runs = [format!("/api/v1/runs/{run}/events"), format!("/api/v1/runs/{run}/stream")];
    let mut came_again = Vec::new();
    for path in paths.into_iter().chain(runs.iter().map(String::as_str)) {
        let (status, refused) = harness.get(&format!("{path}?since=99")).await;
        assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("invalid_cursor")), "{path}");
        assert_eq!(refused["error"]["message"], "since: there is no event 99 yet; the newest is 2");
        came_again.push((path, harness.follow(path, Some("99")).await));
    }
    harness.agent.finish(run, StopReason::FinalText, "done");
    for (path, response) in came_again {
        let heard = events(response, 2).await;
        assert_eq!(brief(&heard[..1]), ["2 reset"], "{path}");
        let data: serde_json::Value = serde_json::from_str(&heard[0].2).unwrap();
        assert_eq!((data["asked"].as_u64(), data["newest"].as_u64()), (Some(99), Some(2)), "{path}");
        assert!(heard[1..].iter().all(|(id, ..)| ["", "3"].contains(&id.as_str())), "nothing is replayed: {heard:?}");
    }
}

#[tokio::test]
async fn a_stream_of_an_ended_run_ends_wherever_it_is_taken_up() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    harness.hold("other").await;
    for stream in ["events", "stream"] {
        let path = format!("/api/v1/runs/{run}/{stream}");
        for (last, tells_the_end) in
            [(None, true), (Some("2"), true), (Some("3"), false), (Some("5"), false), (Some("99"), false)]
        {
            let heard = events(harness.follow(&path, last).await, usize::MAX).await;
            assert_eq!(heard.iter().any(|(id, ..)| id == "3"), tells_the_end, "{stream} behind {last:?}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_of_a_run_that_vanishes_ends() {
    for stream in ["events", "stream"] {
        let harness = Harness::open().await;
        let run = harness.hold("s").await;
        let response = harness.follow(&format!("/api/v1/runs/{run}/{stream}"), None).await;
        harness.agent.delta(run, 1, "Once");
        harness.agent.vanish(run);
        let heard = events(response, usize::MAX).await;
        assert!(heard.iter().any(|(_, _, data)| data.contains("Once")), "{stream}: {heard:?}");
    }
}

#[tokio::test]
async fn what_is_stored_when_the_daemon_ends_is_told_to_the_last() {
    for _ in 0..8 {
        let harness = Harness::open().await;
        let run = harness.hold("s").await;
        let record = belay_protocol::RunReader::run(&*harness.store, run).await.unwrap().unwrap();
        let response = harness.follow(&format!("/api/v1/runs/{run}/stream"), None).await;
        harness.agent.until_watched(run).await; // the reader has come to where it waits
        harness.stop.cancel();
        for step in 0..600 {
            harness.store.fact(&record, EventKind::model_called(step, None, None));
        }
        harness.agent.finish(run, StopReason::FinalText, "done");
        let all = events(response, usize::MAX).await;
        assert!(all.iter().any(|(id, ..)| id == "603"), "it stops at {:?}", all.last());
    }
}

#[tokio::test]
async fn one_stream_too_many_is_refused_and_a_closed_one_makes_room() {
    let harness = Harness::with(|parts| parts.config.max_streams = Some(1)).await;
    let first = harness.follow("/api/v1/events", None).await;
    let second = harness.follow("/api/v1/events", None).await;
    assert_eq!((second.status().as_u16(), second.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    drop(first);
    let admitted = async {
        while harness.follow("/api/v1/events", None).await.status().as_u16() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await; // the server learns of a closed socket in real time
        }
    };
    tokio::time::timeout(PATIENCE, admitted).await.expect("the closed stream makes room");
}

#[tokio::test]
async fn a_sessions_stream_carries_its_notices_with_a_cursor() {
    let harness = Harness::open().await;
    harness.store.notice("s", "it is 42");
    harness.store.notice("other", "it is 43");
    harness.store.notice("s", "it is 44");
    let path = "/api/v1/sessions/s/stream?since=0";
    let told: Vec<_> = events(harness.follow(path, None).await, 2)
        .await
        .into_iter()
        .map(|(id, event, data)| {
            let data: serde_json::Value = serde_json::from_str(&data).unwrap();
            assert_eq!((&data["stream"], data.get("runId")), (&"notice".into(), None), "{data}");
            (id, event, data["data"]["text"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [("1", "agent", "it is 42"), ("3", "agent", "it is 44")];
    assert_eq!(told, expected.map(|(id, event, text)| (id.to_owned(), event.to_owned(), text.to_owned())));
    let rest = events(harness.follow(path, Some("1")).await, 1).await;
    assert_eq!(brief(&rest), ["3 agent"]);
}
