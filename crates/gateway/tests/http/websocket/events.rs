//! What is heard of runs: once, in order, and without a gap where the past meets the present.

use belay_protocol::{EventKind, RunReader, StopReason, ToolStatus};
use serde_json::{Value, json};

use super::client::{End, Socket, message};
use crate::harness::Harness;
use crate::streams::events;

fn is_end(event: &Value) -> bool {
    event["stream"] == "lifecycle" && matches!(event["data"]["phase"].as_str(), Some("end" | "error"))
}

fn brief(events: &[Value]) -> Vec<String> {
    let line = |event: &Value| {
        let data = &event["data"];
        let what = data["phase"].as_str().or(data["delta"].as_str()).unwrap_or_default();
        format!("{} {} {what:?}", event["seq"], event["stream"].as_str().unwrap_or_default())
    };
    events.iter().map(line).collect()
}

#[tokio::test]
async fn who_begins_a_run_hears_its_course_from_the_first_fragment_to_one_end() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    socket.payload("agent", message("s", "hold", "k")).await;
    let run = harness.agent.seen.lock().unwrap().len();
    assert_eq!(run, 1);
    let begun = socket.events("agent", |event| event["data"]["phase"] == "start").await;
    assert_eq!(brief(&begun), [r#"1 queue "accepted""#, r#"2 lifecycle "start""#]);
    let id = begun[0]["runId"].as_str().unwrap().parse().unwrap();
    harness.agent.delta(id, 1, "Hel");
    let first = socket.event("agent").await;
    assert_eq!(
        (&first["data"], &first["seq"], first.get("cursor")),
        (&json!({ "text": "Hel", "delta": "Hel", "step": 1 }), &json!(3), None)
    );
    harness.agent.finish(id, StopReason::FinalText, "Hello");
    let rest = socket.events("agent", is_end).await;
    assert_eq!(brief(&rest), [r#"4 assistant "lo""#, r#"5 lifecycle "end""#]);
    assert_eq!((&rest[0]["data"]["text"], &rest[1]["cursor"]), (&json!("Hello"), &json!(3)));
    socket.payload("health", json!({})).await;
    assert!(socket.none_kept("agent"), "nothing follows the end");
}

#[tokio::test]
async fn a_session_is_followed_from_any_number_without_a_gap_or_a_double() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    harness.post("/api/v1/messages", json!({ "session": "s", "text": "old", "wait_ms": 1000 })).await;
    harness.post("/api/v1/messages", json!({ "session": "other", "text": "not ours", "wait_ms": 1000 })).await;
    let run = harness.hold("s").await;
    harness.agent.delta(run, 1, "nobody hears this");
    let subscribed = socket.payload("sessions.subscribe", json!({ "sessionKey": "s", "since": 0 })).await;
    assert_eq!(subscribed, json!({ "subscribed": true, "cursor": 0 }));
    // Its own message in a session that it follows already is heard once.
    let id = socket.ask("agent", message("s", "mine", "k")).await;
    let mine = socket.answer(&id).await["payload"]["runId"].clone();
    socket.answer(&id).await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    let heard = socket.events("agent", |event| is_end(event) && event["runId"] == json!(run)).await;
    let mut cursors: Vec<u64> = heard.iter().filter_map(|event| event["cursor"].as_u64()).collect();
    cursors.sort_unstable();
    assert_eq!(cursors, [1, 2, 3, 7, 8, 9, 10, 11, 12], "each fact of the session, once");
    for (one, ends) in [(mine, 1), (json!(run), 1)] {
        let of_one: Vec<_> = heard.iter().filter(|event| event["runId"] == one).collect();
        let numbers: Vec<_> = of_one.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{one}");
        assert_eq!(of_one.iter().filter(|event| is_end(event)).count(), ends, "{one}");
    }
    socket.payload("sessions.unsubscribe", json!({ "sessionKey": "s" })).await;
    harness.post("/api/v1/messages", json!({ "session": "s", "text": "unheard", "wait_ms": 1000 })).await;
    socket.payload("health", json!({})).await;
    assert!(socket.none_kept("agent"));
}

#[tokio::test]
async fn a_conversation_is_heard_as_deltas_and_one_end() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let mut watcher = Socket::open(&harness).await;
    watcher.payload("chat.subscribe", json!({ "sessionKey": "s" })).await;
    let sent = socket.payload("chat.send", message("s", "pieces I look./Found it.", "k")).await;
    assert_eq!(sent["status"], "started");
    for who in [&mut socket, &mut watcher] {
        let heard = who.events("chat", |event| event["state"] != "delta").await;
        let last = heard.last().unwrap();
        assert_eq!((&last["state"], &last["message"]["content"][0]["text"]), (&json!("final"), &json!("Found it.")));
        let numbers: Vec<_> = heard.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert_eq!(numbers, (1..=heard.len() as u64).collect::<Vec<_>>());
        let mut text = String::new();
        for event in heard.iter().filter(|event| event["state"] == "delta") {
            if event["replace"] == true {
                text.clear();
            }
            text.push_str(event["deltaText"].as_str().unwrap());
            assert_eq!(event["message"]["content"][0]["text"], json!(text), "a delta holds the whole");
        }
    }
    let again = socket.payload("chat.send", message("s", "pieces I look./Found it.", "k")).await;
    assert_eq!((&again["status"], &again["runId"]), (&json!("ok"), &sent["runId"]));
    let held = socket.payload("chat.send", message("s", "hold", "h")).await;
    harness.agent.delta(held["runId"].as_str().unwrap().parse().unwrap(), 1, "Once");
    assert_eq!(socket.event("chat").await["deltaText"], "Once", "while the run goes on");
    assert_eq!(socket.payload("chat.send", message("s", "hold", "h")).await["status"], "in_flight");
    socket.payload("chat.abort", json!({ "sessionKey": "s" })).await;
    let heard = socket.events("chat", |event| event["state"] != "delta").await;
    assert_eq!(heard.last().unwrap()["state"], "aborted");
    socket.payload("chat.send", message("s", "fail max_iterations", "f")).await;
    let heard = socket.events("chat", |event| event["state"] != "delta").await;
    assert_eq!(
        (&heard.last().unwrap()["state"], &heard.last().unwrap()["errorKind"]),
        (&json!("error"), &json!("unknown"))
    );
}

#[tokio::test]
async fn fragments_that_were_dropped_leave_a_gap_in_the_numbers_and_the_end_brings_the_whole() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    // 300 fragments at once through a window of 64.
    socket.payload("agent", message("s", "flood", "k")).await;
    let heard = socket.events("agent", is_end).await;
    let numbers: Vec<_> = heard.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert!(numbers.last() > Some(&(numbers.len() as u64)), "a gap: {numbers:?}");
    let whole = &heard[heard.len() - 2]["data"];
    assert_eq!((&whole["text"], &whole["final"]), (&json!("the whole flood"), &json!(true)));
}

#[tokio::test]
async fn what_is_said_behind_dropped_fragments_is_told_without_a_hole_while_the_run_goes_on() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    socket.payload("sessions.subscribe", json!({ "sessionKey": "s" })).await;
    let sent = socket.payload("chat.send", message("s", "hold", "k")).await;
    let run = sent["runId"].as_str().unwrap().parse().unwrap();
    socket.events("agent", |event| event["data"]["phase"] == "start").await;
    harness.agent.delta(run, 1, "Once");
    assert_eq!(socket.event("agent").await["data"]["text"], "Once");
    // More than the window of 64 holds, before anybody else can act.
    let words: Vec<String> = (0..300).map(|n| format!(" {n}")).collect();
    words.iter().for_each(|word| harness.agent.delta(run, 1, word));
    let whole = format!("Once{}", words.concat());
    let heard = socket.events("agent", |event| event["data"]["text"].as_str() >= Some(whole.as_str())).await;
    let last = &heard.last().unwrap()["data"];
    assert_eq!((&last["text"], last.get("replace")), (&json!(whole), None));
    let is_whole = |event: &Value| event["message"]["content"][0]["text"] == json!(whole);
    socket.events("chat", is_whole).await;
    harness.agent.delta(run, 1, ".");
    assert_eq!(socket.event("agent").await["data"]["text"], json!(format!("{whole}.")));
}

#[tokio::test]
async fn the_same_events_are_streamed_over_http_from_any_number() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let path = format!("/api/v1/runs/{run}/stream");
    let living = harness.client.get(harness.url(&path)).send().await.unwrap();
    let of_session = harness.client.get(harness.url("/api/v1/sessions/s/stream?since=0")).send().await.unwrap();
    harness.agent.delta(run, 1, "He");
    let record = harness.store.run(run).await.unwrap().unwrap();
    harness.store.fact(&record, EventKind::Delivered { outcome: "sent".into() });
    harness.agent.finish(run, StopReason::FinalText, "Hello");
    let shown = |all: &[(String, String, String)]| -> Vec<String> {
        let line = |(id, event, data): &(String, String, String)| {
            let data: Value = serde_json::from_str(data).unwrap();
            format!("{id} {event} {}", data["stream"].as_str().unwrap())
        };
        all.iter().map(line).filter(|line| line != " agent assistant").collect()
    };
    let facts = ["1 agent queue", "2 agent lifecycle", "4 agent lifecycle"];
    assert_eq!(shown(&events(living, usize::MAX).await), facts);
    let mut session = events(of_session, 4).await;
    session.truncate(5);
    assert_eq!(shown(&session)[..2], facts[..2]);
    let resumed = harness.client.get(harness.url(&path)).header("last-event-id", "2").send().await.unwrap();
    assert_eq!(shown(&events(resumed, usize::MAX).await), facts[2..]);
    let over = harness.client.get(harness.url(&format!("{path}?since=4"))).send().await.unwrap();
    assert_eq!(over.status().as_u16(), 200);
}

#[tokio::test]
async fn a_log_that_cannot_be_read_ends_the_connection_that_follows_a_session() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let run = harness.hold("s").await;
    socket.payload("sessions.subscribe", json!({ "sessionKey": "s", "since": 0 })).await;
    socket.events("agent", |event| event["data"]["phase"] == "start").await;
    harness.store.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert_eq!(socket.end().await, End::Code(1011));
}

#[tokio::test]
async fn fragments_and_facts_come_in_the_order_in_which_they_happened() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    socket.payload("sessions.subscribe", json!({ "sessionKey": "s" })).await;
    // Both are there when the reader looks: chance alone would get a few of them right.
    for _ in 0..16 {
        let run = harness.hold("s").await;
        socket.events("agent", |event| event["data"]["phase"] == "start" && event["runId"] == json!(run)).await;
        let record = harness.store.run(run).await.unwrap().unwrap();
        let (call_id, name) = (belay_protocol::CallId::from("c"), String::from("clock"));
        harness.agent.delta(run, 1, "I ");
        assert_eq!(socket.event("agent").await["data"]["text"], "I ", "it is listened to");
        harness.agent.delta(run, 1, "look.");
        harness.agent.delta(run, 2, "Found.");
        harness.store.fact(&record, EventKind::model_called(1, None, None));
        harness.store.fact(
            &record,
            EventKind::ToolStarted { call_id: call_id.clone(), name: name.clone(), arguments: "path: a".into() },
        );
        harness.store.fact(
            &record,
            EventKind::ToolFinished { call_id, name, status: ToolStatus::Success, took_ms: 1, result: "done".into() },
        );
        let heard = socket.events("agent", |event| event["data"]["step"] == 2).await;
        let course: Vec<_> = brief(&heard).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        assert_eq!(
            course,
            [
                r#"assistant "look.""#,
                r#"lifecycle "step""#,
                r#"tool "start""#,
                r#"tool "result""#,
                r#"assistant "Found.""#
            ]
        );
        harness.agent.finish(run, StopReason::FinalText, "Found.");
        socket.events("agent", is_end).await;
    }
}

#[tokio::test]
async fn the_end_of_a_run_is_answered_behind_its_last_events() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    socket.payload("chat.subscribe", json!({ "sessionKey": "s" })).await;
    harness.store.slow.store(true, std::sync::atomic::Ordering::Relaxed);
    for number in 0..16 {
        let id = socket.ask("agent", message("s", "hold", &number.to_string())).await;
        let run = socket.answer(&id).await["payload"]["runId"].clone();
        let wait = socket.ask("agent.wait", json!({ "runId": run })).await;
        socket.payload("health", json!({})).await; // by now the wait has been handed over
        harness.agent.finish(run.as_str().unwrap().parse().unwrap(), StopReason::FinalText, "done");
        for id in [&id, &wait] {
            let answer = socket.answer(id).await;
            assert_eq!((&answer["payload"]["status"], socket.none_kept("agent")), (&json!("ok"), false), "{answer}");
            let heard: Vec<_> = socket.kept("agent").chain(socket.kept("chat")).collect();
            assert!(heard.iter().any(|event| is_end(event) && event["runId"] == run), "{answer} after {heard:#?}");
            assert!(heard.iter().any(|event| event["state"] == "final" && event["runId"] == run), "{heard:#?}");
        }
    }
}

#[tokio::test]
async fn a_message_that_is_sent_again_repeats_no_fact_before_the_cursor_of_the_subscription() {
    let harness = Harness::open().await;
    let mut first = Socket::open(&harness).await;
    first.payload("agent", message("s", "hold", "k")).await;
    let begun = first.events("agent", |event| event["data"]["phase"] == "start").await;
    let last = begun.last().unwrap()["cursor"].clone();
    let run = begun[0]["runId"].as_str().unwrap().parse().unwrap();
    // A client that has lost its connection: it continues after the last fact, and sends again what had no answer.
    let mut second = Socket::open(&harness).await;
    second.payload("sessions.subscribe", json!({ "sessionKey": "s", "since": last })).await;
    second.payload("agent", message("s", "hold", "k")).await;
    second.payload("health", json!({})).await;
    harness.agent.finish(run, StopReason::FinalText, "done");
    let heard = second.events("agent", is_end).await;
    let cursors: Vec<_> = heard.iter().filter_map(|event| event["cursor"].as_u64()).collect();
    assert_eq!(cursors, [last.as_u64().unwrap() + 1], "{heard:?}");
}

#[tokio::test]
async fn a_run_that_was_begun_here_is_followed_on_when_its_session_is_left() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    for (subscribe, unsubscribe, last) in
        [("sessions.subscribe", "sessions.unsubscribe", 2), ("chat.subscribe", "chat.unsubscribe", 5)]
    {
        socket.payload(subscribe, json!({ "sessionKey": "s" })).await;
        let (method, name) = if subscribe.starts_with("chat") { ("chat.send", "chat") } else { ("agent", "agent") };
        let answer = socket.payload(method, message("s", "hold", subscribe)).await;
        let run = answer["runId"].as_str().unwrap().parse().unwrap();
        if name == "agent" {
            let begun = socket.events(name, |event| event["data"]["phase"] == "start").await;
            assert_eq!(brief(&begun), [r#"1 queue "accepted""#, r#"2 lifecycle "start""#]);
        }
        // Also after the subscription has begun anew.
        socket.payload(subscribe, json!({ "sessionKey": "s", "since": last })).await;
        socket.payload(unsubscribe, json!({ "sessionKey": "s" })).await;
        harness.agent.finish(run, StopReason::FinalText, "done");
        let rest = socket.events(name, |event| is_end(event) || event["state"] == "final").await;
        assert!(rest.iter().all(|event| event["data"]["phase"] != "start"), "nothing comes twice: {rest:?}");
        assert_eq!(rest.last().unwrap()["runId"], answer["runId"]);
    }
}

#[tokio::test]
async fn going_on_behind_an_event_that_is_not_there_is_refused_and_what_is_followed_goes_on() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let run = harness.hold("s").await;
    for method in ["sessions.subscribe", "chat.subscribe"] {
        socket.payload(method, json!({ "sessionKey": "s", "since": 2 })).await;
        let refused = socket.call(method, json!({ "sessionKey": "s", "since": 3 })).await;
        let error = &refused["error"];
        assert_eq!(
            (&error["code"], &error["details"]["reason"], &error["message"]),
            (
                &json!("INVALID_REQUEST"),
                &json!("invalid_cursor"),
                &json!("since: there is no event 3 yet; the newest is 2")
            )
        );
    }
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert_eq!(socket.events("agent", is_end).await.last().unwrap()["cursor"], 3);
    let last = socket.events("chat", |event| event["state"] == "final").await.pop().unwrap();
    assert_eq!(last["cursor"], 3, "a reader of the conversation goes on behind it");
    socket.payload("chat.subscribe", json!({ "sessionKey": "s", "since": last["cursor"] })).await;
    socket.payload("health", json!({})).await;
    assert!(socket.none_kept("chat"), "nothing is said twice");
}

/// The cursors of these events, and the texts of their deltas.
fn heard(events: &[Value]) -> (Vec<u64>, Vec<String>) {
    let cursors = events.iter().filter_map(|event| event["cursor"].as_u64()).collect();
    let texts = events.iter().filter(|event| event["stream"] == "assistant");
    (cursors, texts.map(|event| event["data"]["delta"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test]
async fn a_subscription_takes_over_a_run_that_was_begun_before_it() {
    let harness = Harness::open().await;
    harness.post("/api/v1/messages", json!({ "session": "s", "text": "old", "wait_ms": 1000 })).await; // the facts 1 to 3
    let mut socket = Socket::open(&harness).await;
    let run = socket.payload("agent", message("s", "hold", "k")).await["runId"].as_str().unwrap().parse().unwrap();
    let begun = socket.events("agent", |event| event["data"]["phase"] == "start").await;
    assert_eq!(heard(&begun).0, [4, 5]);
    harness.agent.delta(run, 1, "Hel");
    assert_eq!(socket.event("agent").await["data"]["text"], "Hel");

    let reads = harness.store.hold_reads().await; // the replay waits, and the run continues
    let subscribe = socket.ask("sessions.subscribe", json!({ "sessionKey": "s", "since": 0 })).await;
    assert_eq!(socket.answer(&subscribe).await["payload"]["cursor"], 0);
    harness.agent.delta(run, 1, "lo");
    let record = harness.store.run(run).await.unwrap().unwrap();
    harness.store.fact(&record, EventKind::model_called(1, None, None));
    socket.payload("health", json!({})).await;
    assert!(socket.none_kept("agent"), "live events wait for the replay");
    drop(reads);
    let replayed = socket.events("agent", |event| event["stream"] == "assistant" && event["runId"] == json!(run)).await;
    let (cursors, texts) = heard(&replayed);
    assert_eq!(cursors, [1, 2, 3, 6], "in order, and nothing of the run twice: {replayed:?}");
    assert_eq!(texts, ["old", "Hello"]);
    harness.agent.finish(run, StopReason::FinalText, "Hello, you");
    let rest = socket.events("agent", is_end).await;
    assert_eq!(heard(&rest), (vec![7], vec![", you".to_owned()]), "{rest:?}");
    let of_run = begun.iter().chain(&replayed).chain(&rest).filter(|event| event["runId"] == json!(run));
    let numbers: Vec<_> = of_run.map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[tokio::test]
async fn a_subscription_without_a_cursor_loses_nothing_of_a_run_that_was_begun_before_it() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let reads = harness.store.hold_reads().await;
    let run = socket.payload("agent", message("s", "hold", "k")).await["runId"].as_str().unwrap().parse().unwrap();
    let subscribe = socket.ask("sessions.subscribe", json!({ "sessionKey": "s" })).await;
    drop(reads);
    assert_eq!(socket.answer(&subscribe).await["payload"]["cursor"], 2);
    harness.agent.finish(run, StopReason::FinalText, "done");
    let all = socket.events("agent", is_end).await;
    assert_eq!(heard(&all).0, [1, 2, 3], "{all:?}");
}
