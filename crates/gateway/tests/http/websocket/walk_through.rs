//! A walk through the RPC under paused time, with the real router on a real socket. What is behind it is walked in
//! `outer_loop::walk_through` of the agent.
//!
//! | line | proved by |
//! |---|---|
//! | `agent` is acknowledged at once, without the model | `a_message_is_acknowledged_while_the_clock_stands` |
//! | `agent.wait` of 100 ms on a long run is `timeout`, the run goes on, and a later wait is `ok` with both dates | `a_wait_of_100_ms_ends_alone_and_a_later_one_knows_both_dates` |
//! | two messages of a session are both acknowledged at once; each has its one end | `two_messages_of_a_session_are_acknowledged_at_once_and_each_has_one_end` |
//! | a compaction is `start`, then `end` with `willRetry` | `agent::what_goes_on_before_the_end_is_shown_and_what_is_no_part_of_it_is_not` |
//! | a run whose time is up has one `lifecycle` end, and waits answer `timeout` | `a_run_whose_time_is_up_has_one_end_and_every_wait_says_timeout`, `methods::a_wait_ends_with_the_run_or_with_its_time_and_says_which` |
//!
//! Paused time jumps to the next timer whenever nothing is ready, and bytes on their way through a socket are not ready. So
//! the clock is held by a task that always is, and is moved by hand.

use std::convert::Infallible;
use std::time::Duration;

use belay_protocol::{RunId, StopReason};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::client::{PATIENCE, Socket, message};
use crate::harness::Harness;

/// Keeps the clock where it is, and says so when that takes too long.
async fn hold_the_clock() -> Infallible {
    let begun = std::time::Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "it waits for time to pass");
        tokio::task::yield_now().await;
    }
}

/// Does something while the clock stands. What waits for a timer does not end; the limit only decides how long that takes
/// to fail.
pub(super) async fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased; // the work ends it
        done = work => done,
        never = hold_the_clock() => match never {},
    }
}

/// Lets the server take up what it was sent.
pub(super) async fn settle(socket: &mut Socket) {
    for _ in 0..3 {
        socket.payload("health", json!({})).await;
    }
}

fn run_of(answer: &Value) -> RunId {
    answer["payload"]["runId"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_acknowledged_while_the_clock_stands() {
    at_once(async {
        let harness = Harness::open().await;
        let mut socket = Socket::open(&harness).await;
        let begun = Instant::now();
        // The run never ends: nothing answers for it.
        let id = socket.ask("agent", message("s", "hold", "k")).await;
        let accepted = socket.answer(&id).await;
        assert_eq!((&accepted["ok"], &accepted["payload"]["status"]), (&json!(true), &json!("accepted")), "{accepted}");
        let (status, accepted) = harness.post("/api/v1/agent", message("s", "hold", "k2")).await;
        assert_eq!((status, &accepted["status"]), (202, &json!("accepted")));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_100_ms_ends_alone_and_a_later_one_knows_both_dates() {
    let (harness, mut socket, run, wait) = at_once(async {
        let harness = Harness::open().await;
        let mut socket = Socket::open(&harness).await;
        let id = socket.ask("agent", message("s", "hold", "k")).await;
        let run = run_of(&socket.answer(&id).await);
        let wait = socket.ask("agent.wait", json!({ "runId": run, "timeoutMs": 100 })).await;
        settle(&mut socket).await;
        (harness, socket, run, wait)
    })
    .await;
    advance(Duration::from_millis(99)).await;
    at_once(settle(&mut socket)).await;
    assert!(socket.is_unanswered(&wait), "not before its time");
    advance(Duration::from_millis(1)).await;
    at_once(async {
        let expired = socket.answer(&wait).await["payload"].clone();
        assert_eq!(
            (&expired["status"], &expired["reason"], &expired["runStatus"]),
            (&json!("timeout"), &json!("wait_expired"), &json!("running"))
        );
        harness.agent.finish(run, StopReason::FinalText, "done");
        let later = socket.payload("agent.wait", json!({ "runId": run })).await;
        let now = json!(crate::harness::NOW);
        assert_eq!((&later["status"], &later["startedAt"], &later["endedAt"]), (&json!("ok"), &now, &now), "{later}");
    })
    .await;
}

fn is_end(event: &Value) -> bool {
    event["stream"] == "lifecycle" && matches!(event["data"]["phase"].as_str(), Some("end" | "error"))
}

#[tokio::test(start_paused = true)]
async fn two_messages_of_a_session_are_acknowledged_at_once_and_each_has_one_end() {
    at_once(async {
        let harness = Harness::open().await;
        let mut socket = Socket::open(&harness).await;
        let first = socket.ask("agent", message("s", "hold", "k1")).await;
        let second = socket.ask("agent", message("s", "hold", "k2")).await;
        let runs = [run_of(&socket.answer(&first).await), run_of(&socket.answer(&second).await)];
        for run in runs {
            harness.agent.finish(run, StopReason::FinalText, "done");
        }
        let mut ended = Vec::new();
        for id in [first, second] {
            ended.push(socket.events("agent", is_end).await.pop().unwrap()["runId"].clone());
            assert_eq!(socket.answer(&id).await["payload"]["status"], "ok");
        }
        // Each run is followed by itself: which of two ends is told first is nobody's promise.
        assert!(runs.iter().all(|run| ended.contains(&json!(run))), "{ended:?}");
        settle(&mut socket).await;
        assert!(socket.none_kept("agent"), "nothing is told behind an end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_up_has_one_end_and_every_wait_says_timeout() {
    at_once(async {
        let harness = Harness::open().await;
        let mut socket = Socket::open(&harness).await;
        let id = socket.ask("agent", message("s", "hold", "k")).await;
        let run = run_of(&socket.answer(&id).await);
        let early = socket.ask("agent.wait", json!({ "runId": run, "timeoutMs": 600_000 })).await;
        settle(&mut socket).await;
        harness.agent.delta(run, 1, "Half of the answer");
        harness.agent.finish(run, StopReason::ActiveTime, StopReason::ActiveTime.user_line());
        let late = socket.ask("agent.wait", json!({ "runId": run, "timeoutMs": 0 })).await;
        for asked in [&id, &early, &late] {
            let answer = socket.answer(asked).await["payload"].clone();
            assert_eq!(
                (&answer["status"], &answer["reason"], &answer["error"]),
                (&json!("timeout"), &json!("run_timeout"), &json!("active_time")),
                "{answer}"
            );
        }
        let heard = socket.events("agent", is_end).await;
        assert!(heard.iter().any(|event| event["data"]["text"] == "Half of the answer"), "{heard:#?}");
        settle(&mut socket).await;
        assert!(socket.none_kept("agent"), "one end, and nothing behind it");
    })
    .await;
}
