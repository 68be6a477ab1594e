//! Messages, runs, sessions, stops, status.

use std::sync::atomic::Ordering;

use belay_protocol::{Body, Control, EventKind, EventLog, PrincipalRole, RunId, RunReader, StopReason, ToolStatus};
use serde_json::json;

use crate::harness::{Harness, NOW, read};

#[tokio::test]
async fn a_message_is_accepted_and_its_run_can_be_read() {
    let harness = Harness::open().await;
    let (status, body) = harness.post("/api/v1/messages", json!({"session": "ключ 🗝", "text": "hello"})).await;
    assert_eq!(status, 202);
    let run = body["run_id"].as_str().unwrap().to_owned();
    let expected = json!({
        "run_id": run, "session": "ключ 🗝", "status": "accepted", "accepted_at": "2026-11-20T19:43:00.000Z"
    });
    assert_eq!(body, expected);
    let (status, shown) = harness.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=5000")).await;
    assert_eq!(status, 200);
    let whole = json!({
        "run_id": run, "session": "ключ 🗝", "status": "completed",
        "agent_state": "FINISHED", "reason": "final_text", "evidence": {},
        "reply": "hello", "usage": {"input": 8, "output": 3, "model_calls": 1, "tool_calls": 0}, "cost_micro_usd": 0,
        "attempt": 1, "accepted_at": "2026-11-20T19:43:00.000Z", "started_at": "2026-11-20T19:43:00.000Z",
        "ended_at": "2026-11-20T19:43:00.000Z",
    });
    assert_eq!(shown, whole);
    assert_eq!(harness.get(&format!("/api/v1/runs/{run}")).await, (200, whole.clone()));
    assert_eq!(harness.get("/api/v1/runs?status=completed&limit=5").await, (200, json!({"runs": [whole]})));
    assert_eq!(harness.get("/api/v1/runs?status=failed").await, (200, json!({"runs": []})));
    for both in ["status=failed,completed", "reason=user_stop,final_text", "status=completed&reason=final_text"] {
        assert_eq!(harness.get(&format!("/api/v1/runs?{both}")).await, (200, json!({"runs": [whole]})), "{both}");
    }
    for none in ["status=failed,running", "reason=user_stop,client_gone", "status=failed&reason=final_text"] {
        assert_eq!(harness.get(&format!("/api/v1/runs?{none}")).await, (200, json!({"runs": []})), "{none}");
    }
    for (wrong, valid) in [
        ("status=completed,asleep", "`asleep`, expected one of `accepted`, `queued`"),
        ("reason=final_text,", "``, expected one of `user_stop`"),
    ] {
        let (status, answer) = harness.get(&format!("/api/v1/runs?{wrong}")).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 422 && message.contains(valid), "{wrong}: {status} {message}");
    }
    let seen = harness.agent.seen.lock().unwrap()[0].clone();
    assert_eq!((seen.body, seen.channel.as_str()), (Body::Text("hello".into()), "http"));
    assert_eq!((seen.reply_to, seen.key, seen.principal.role), (None, None, PrincipalRole::Operator));
}

#[tokio::test]
async fn with_wait_the_answer_is_the_finished_run_whatever_its_status_or_202() {
    let harness = Harness::open().await;
    for (text, status, reason) in [
        ("hi", "completed", "final_text"),
        ("fail network", "failed", "network"),
        ("fail shutdown", "stopped", "shutdown"),
    ] {
        let (code, run) =
            harness.post("/api/v1/messages", json!({"session": "s", "text": text, "wait_ms": 5000})).await;
        assert_eq!((code, &run["status"], &run["reason"]), (200, &json!(status), &json!(reason)), "{text}");
    }
    let (code, body) = harness.post("/api/v1/messages", json!({"session": "s", "text": "hold", "wait_ms": 30})).await;
    assert_eq!((code, &body["status"]), (202, &json!("accepted")));
    let (code, body) = harness.post("/api/v1/messages", json!({"session": "s", "text": "hold", "wait_ms": 0})).await;
    assert_eq!((code, &body["status"]), (202, &json!("accepted")));
}

#[tokio::test]
async fn a_goal_becomes_the_message_that_a_person_would_write() {
    let harness = Harness::open().await;
    let send = |goal| harness.post("/api/v1/messages", json!({"session": "s", "text": "fix it", "goal": goal}));
    let goal = json!({
        "until": {"command": ["make", "test it"], "outputs": ["n:integer"], "judge": "it is short"},
        "budget": {"attempts": 3, "usd": 0.25, "seconds": 90},
    });
    assert_eq!(send(goal).await.0, 200, "this stand-in of an agent answers every text of that form at once");
    let text = "/goal --attempts 3 --usd 0.250000 --seconds 90 fix it until `make 'test it'` and outputs n:integer and judge \
                \"it is short\"";
    assert_eq!(harness.agent.seen.lock().unwrap()[0].body, Body::Text(text.into()));
    for (goal, part) in [
        (json!({"until": {}}), "goal: `until CHECK` is missing"),
        (json!({"until": {"command": ["echo", "`"]}}), "goal: "),
        (json!({"until": {"judge": "ok"}, "budget": {"usd": 0}}), "goal: budget.usd"),
        (json!({"until": {"judge": "ok"}, "budget": {"attempts": 0}}), "--attempts 1 to 100"),
        (json!({"until": {"shell": "true"}}), "shell"),
        (json!({}), "until"),
    ] {
        let (status, answer) = send(goal.clone()).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 422 && message.contains(part), "{goal}: {status} {message}");
    }
}

#[tokio::test]
async fn a_command_is_answered_and_makes_no_run() {
    let harness = Harness::open().await;
    let answer = harness.post("/api/v1/messages", json!({"session": "s", "text": "/ping", "wait_ms": 100})).await;
    assert_eq!(answer, (200, json!({"status": "command", "command": "/ping", "reply": "pong"})));
}

#[tokio::test]
async fn the_same_key_gives_the_same_run_in_flight_and_after_its_end() {
    let harness = Harness::open().await;
    let body = json!({"session": "s", "text": "hold", "idempotency_key": "k", "wait_ms": 0});
    let (first_status, first) = harness.post("/api/v1/messages", body.clone()).await;
    let (again_status, again) = harness.post("/api/v1/messages", body.clone()).await;
    assert_eq!((first_status, again_status), (202, 202));
    assert_eq!((&first["run_id"], first.get("duplicate")), (&again["run_id"], None));
    assert_eq!(again["duplicate"], json!(true));
    let run = first["run_id"].as_str().unwrap();
    harness.agent.finish(run.parse().unwrap(), StopReason::FinalText, "done");
    let waiting = json!({"session": "s", "text": "hold", "idempotency_key": "k", "wait_ms": 1000});
    let (status, ended) = harness.post("/api/v1/messages", waiting).await;
    assert_eq!((status, &ended["run_id"], &ended["reply"]), (200, &json!(run), &json!("done")));
    let other = json!({"session": "s", "text": "another", "idempotency_key": "k"});
    assert_eq!(harness.post("/api/v1/messages", other).await.0, 409);
    let elsewhere = json!({"session": "t", "text": "another", "idempotency_key": "k"});
    assert_eq!(harness.post("/api/v1/messages", elsewhere).await.0, 202, "the scope of a key is its session");
}

#[tokio::test]
async fn a_wait_ends_with_the_run_or_with_its_time_and_never_ends_the_run() {
    let harness = Harness::open().await;
    let run = harness.hold("s").await;
    let (status, body) = harness.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=30")).await;
    assert_eq!((status, &body["status"]), (200, &json!("running")));
    let path = format!("/api/v1/runs/{run}/wait");
    let (waited, ()) = tokio::join!(harness.get(&path), async {
        tokio::task::yield_now().await;
        harness.agent.finish(run, StopReason::FinalText, "late");
    });
    assert_eq!((waited.0, &waited.1["reply"]), (200, &json!("late")));
}

#[tokio::test]
async fn a_stop_names_what_it_stopped_and_a_second_one_nothing() {
    let harness = Harness::open().await;
    let (a, b) = (harness.hold("a").await, harness.hold("b/ä").await);
    let path = format!("/api/v1/runs/{a}/stop?wait_ms=100");
    assert_eq!(harness.post(&path, json!({})).await, (200, json!({"stopped": [a], "still_running": []})));
    assert_eq!(harness.post(&path, json!({})).await, (200, json!({"stopped": [], "still_running": []})));
    let (_, run) = harness.get(&format!("/api/v1/runs/{a}")).await;
    assert_eq!((&run["status"], &run["reason"]), (&json!("stopped"), &json!("operator_stop")));
    let (status, body) = read(harness.client.post(harness.url("/api/v1/sessions/b%2F%C3%A4/stop"))).await;
    assert_eq!((status, &body["stopped"]), (200, &json!([b])));
    let c = harness.hold("c").await;
    assert_eq!(harness.post("/api/v1/stop", json!({})).await.1["stopped"], json!([c]));
}

/// The end of a run on a slow disk is recorded after the first answer, and the repeated stop finds nothing of it.
#[tokio::test]
async fn a_stop_that_waits_names_a_run_whose_end_was_recorded_late() {
    let harness = Harness::open().await;
    let run = harness.hold("a").await;
    harness.agent.late_ends.store(1, Ordering::Relaxed);
    let path = "/api/v1/sessions/a/stop?wait_ms=10000";
    assert_eq!(harness.post(path, json!({})).await, (200, json!({"stopped": [run], "still_running": []})));
    assert_eq!(harness.post(path, json!({})).await, (200, json!({"stopped": [], "still_running": []})));
}

#[tokio::test]
async fn a_stop_that_waits_repeats_one_order_and_two_stops_are_two() {
    let harness = Harness::open().await;
    let run = harness.hold("a").await;
    let keys = || {
        let seen = std::mem::take(&mut *harness.agent.seen.lock().unwrap());
        let stops = seen.into_iter().filter(|seen| matches!(seen.body, Body::Control(Control::Stop(_))));
        stops.map(|stop| stop.key.map(|key| key.message_id)).collect::<Vec<_>>()
    };
    harness.agent.slow_stops.store(3, Ordering::Relaxed);
    let path = format!("/api/v1/runs/{run}/stop");
    assert_eq!(harness.post(&path, json!({})).await.1["pending_nodes"], json!(["b"]));
    assert_eq!(keys(), [None], "it is not repeated");
    let waiting = format!("{path}?wait_ms=10000");
    assert_eq!(harness.post(&waiting, json!({})).await, (200, json!({"stopped": [run], "still_running": []})));
    let first = keys();
    assert!(first.len() == 3 && first[0].is_some() && first.iter().all(|key| *key == first[0]), "{first:?}");
    harness.post(&waiting, json!({})).await;
    let second = keys();
    assert!(second.len() == 1 && second[0].is_some() && second[0] != first[0], "{second:?}");
}

#[tokio::test]
async fn sessions_and_their_messages_come_in_pages() {
    let harness = Harness::open().await;
    for text in ["one", "two", "three"] {
        harness.post("/api/v1/messages", json!({"session": "a/b", "text": text, "wait_ms": 1000})).await;
    }
    let (_, list) = harness.get("/api/v1/sessions").await;
    assert_eq!(list["sessions"][0]["session"], json!("a/b"));
    assert_eq!(harness.get("/api/v1/sessions/a%2Fb").await, (200, list["sessions"][0].clone()));
    let (_, page) = harness.get("/api/v1/sessions/a%2Fb/messages?limit=2").await;
    let mut keys: Vec<_> = page["messages"][0].as_object().unwrap().keys().cloned().collect();
    keys.sort(); // whether a JSON object keeps its order depends on what else is built along
    assert_eq!(keys, ["at", "id", "role", "run_id", "text"]);
    assert_eq!((&page["messages"][1]["text"], &page["next"]), (&json!("two"), &json!(2)));
    let (_, rest) = harness.get("/api/v1/sessions/a%2Fb/messages?limit=2&after=2").await;
    assert_eq!((&rest["messages"][0]["text"], rest.get("next")), (&json!("three"), None));
    let (_, all) = harness.get("/api/v1/sessions/a%2Fb/messages?limit=3").await;
    assert_eq!(all.get("next"), None, "a page that is just full is the last one");
}

#[tokio::test]
async fn the_context_of_a_session_is_shown_with_its_texts_where_they_are_wanted() {
    let harness = Harness::open().await;
    let (status, report) = harness.get("/api/v1/sessions/a%2Fb/context").await;
    assert_eq!((status, &report["session"], &report["used_tokens"]), (200, &json!("a/b"), &json!(4)));
    assert_eq!(report["prompt"], json!([{"name": "identity", "chars": 8, "tokens": 2}]));
    let (_, report) = harness.get("/api/v1/sessions/a%2Fb/context?full=true").await;
    assert_eq!(report["prompt"][0]["text"], "the text");
    let (status, refusal) = harness.get("/api/v1/sessions/nobody/context").await;
    assert_eq!((status, &refusal["error"]["code"]), (404, &json!("not_found")));
    assert_eq!(harness.get("/api/v1/sessions/a/context?fill=true").await.0, 422);
}

#[tokio::test]
async fn status_and_health_answer_and_every_answer_has_a_request_id() {
    let harness = Harness::open().await;
    let (status, report) = harness.get("/api/v1/status").await;
    assert_eq!(
        (status, &report["model"]["rehearsal"], &report["started_at"]),
        (200, &json!(true), &json!("2026-11-20T19:43:00.000Z"))
    );
    assert_eq!(harness.get("/livez").await, (200, json!({"live": true, "version": "0.0.0"})));
    let metrics = harness.client.get(harness.url("/metrics")).send().await.unwrap();
    assert_eq!(metrics.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(metrics.text().await.unwrap(), "belay_test 1\n");
    let response = harness.client.get(harness.url("/livez")).header("x-request-id", "mine").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine");
    let response = harness.client.get(harness.url("/api/nowhere")).send().await.unwrap();
    assert!(response.headers().contains_key("x-request-id"));
    assert_eq!(harness.clock.0.load(std::sync::atomic::Ordering::Relaxed), NOW);
}

#[tokio::test]
async fn a_run_is_given_as_a_recording() {
    let harness = Harness::open().await;
    let (_, run) = harness.post("/api/v1/messages", json!({"session": "a", "text": "hello", "wait_ms": 5000})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let response = harness.client.get(harness.url(&format!("/api/v1/runs/{run}/trajectory"))).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/jsonl; charset=utf-8");
    assert_eq!(response.text().await.unwrap(), "hello\n");
    // Each compaction comes with the end of the newest call before it. Both are looked for in all facts of the run.
    let record = harness.store.run(run.parse().unwrap()).await.unwrap().unwrap();
    let finished = |id: &str| EventKind::ToolFinished {
        call_id: id.into(),
        name: "f".into(),
        status: ToolStatus::Success,
        took_ms: 1,
        result: String::new(),
    };
    let compacted =
        || EventKind::Compacted { messages: 3, before: 9, after: 1, source: "model".into(), will_retry: false };
    let first = harness.store.newest().await.unwrap().0 + 1;
    (0..300).for_each(|n| harness.store.fact(&record, finished(&n.to_string())));
    (0..2).for_each(|_| harness.store.fact(&record, compacted()));
    let response = harness.client.get(harness.url(&format!("/api/v1/runs/{run}/trajectory"))).send().await.unwrap();
    let expected = format!("hello\nfact {}\nfact {}\nfact {}\n", first + 299, first + 300, first + 301);
    assert_eq!(response.text().await.unwrap(), expected);
    let nobody = format!("/api/v1/runs/{}/trajectory", RunId::new());
    assert_eq!(harness.get(&nobody).await.0, 404);
}
