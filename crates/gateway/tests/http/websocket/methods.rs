//! What can be asked, and how it is answered.

use belay_protocol::{Body, Control, RunId, SessionChange, StopReason};
use serde_json::{Value, json};

use super::client::{Socket, message};
use crate::harness::Harness;

fn run_of(answer: &Value) -> RunId {
    answer["runId"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
}

#[tokio::test]
async fn a_message_is_answered_when_it_is_accepted_and_again_when_its_run_has_ended() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "hold", "k")).await;
    let accepted = socket.answer(&id).await["payload"].clone();
    assert_eq!((&accepted["status"], &accepted["acceptedAt"]), (&json!("accepted"), &json!(crate::harness::NOW)));
    let run = run_of(&accepted);

    let again = socket.ask("agent", message("s", "hold", "k")).await;
    let joined = socket.answer(&again).await["payload"].clone();
    assert_eq!(
        (&joined["runId"], &joined["status"], &joined["duplicate"]),
        (&accepted["runId"], &json!("accepted"), &json!(true))
    );

    harness.agent.finish(run, StopReason::FinalText, "done");
    let expected = json!({
        "runId": run, "status": "ok", "summary": "completed", "reason": "final_text",
        "startedAt": crate::harness::NOW, "endedAt": crate::harness::NOW,
        "result": {
            "payloads": [{ "text": "done" }],
            "meta": {
                "durationMs": 0, "stopReason": "final_text",
                "agentMeta": {
                    "provider": "rehearsal", "model": "some-model", "costMicroUsd": 0,
                    "usage": { "input": 8, "output": 3, "model_calls": 1, "tool_calls": 0 },
                },
            },
        },
    });
    assert_eq!(socket.answer(&id).await["payload"], expected);
    assert_eq!(socket.answer(&again).await["payload"], expected);
    assert_eq!(socket.payload("agent", message("s", "hold", "k")).await, expected, "afterwards, from the store");
    assert_eq!(harness.agent.seen.lock().unwrap().iter().filter(|inbound| inbound.key.is_some()).count(), 3);
    assert_eq!(socket.refusal("agent", message("s", "other", "k")).await, "CONFLICT");
    let other_session = socket.payload("agent", message("t", "hi", "k")).await;
    assert_eq!(other_session["status"], "accepted", "keys belong to their session");
}

#[tokio::test]
async fn what_a_message_asks_of_its_run_reaches_the_agent() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let mut params = message("s", "hold", "k");
    for (key, value) in [
        ("thinking", json!("high")),
        ("reasoning", json!("stream")),
        ("verbose", json!(true)),
        ("model", json!("other")),
        ("timeout", json!(90)),
        ("queueMode", json!("collect")),
        ("extraSystemPrompt", json!("Be brief.")),
    ] {
        params[key] = value;
    }
    socket.payload("agent", params).await;
    let seen = harness.agent.seen.lock().unwrap();
    let options = serde_json::to_value(&seen[0].options).unwrap();
    let expected = json!({
        "queue": "collect", "thinking": "high", "reasoning": "stream", "verbose": true, "model": "other",
        "timeout_ms": 90_000, "extra_prompt": "Be brief.",
    });
    assert_eq!((options, seen[0].want_deltas), (expected, true));
}

#[tokio::test]
async fn a_command_is_answered_once_and_makes_no_run() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let answer = socket.payload("agent", message("s", "/ping", "k")).await;
    assert_eq!(
        (&answer["status"], &answer["summary"], &answer["command"]),
        (&json!("ok"), &json!("pong"), &json!("/ping"))
    );
    assert_eq!(socket.payload("sessions.reset", json!({ "sessionKey": "s" })).await["reply"], "pong");
    let patch = json!({ "sessionKey": "s", "queueMode": "followup", "verbose": false, "model": "m" });
    assert_eq!(socket.payload("sessions.patch", patch).await["replies"], json!(["pong", "pong", "pong"]));
    let said: Vec<_> = harness.agent.seen.lock().unwrap().iter().map(|inbound| format!("{:?}", inbound.body)).collect();
    let expected = ["/ping", "/new", "/queue followup", "/verbose off", "/model m"];
    assert_eq!(said, expected.map(|text| format!("Text({text:?})")));
}

#[tokio::test]
async fn a_wait_ends_with_the_run_or_with_its_time_and_says_which() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let run = harness.hold("s").await;
    for timeout in [0, 50] {
        let expired = socket.payload("agent.wait", json!({ "runId": run, "timeoutMs": timeout })).await;
        assert_eq!(
            (&expired["status"], &expired["reason"], &expired["runStatus"]),
            (&json!("timeout"), &json!("wait_expired"), &json!("running"))
        );
    }
    let id = socket.ask("agent.wait", json!({ "runId": run })).await;
    socket.payload("health", json!({})).await; // answered while the other waits
    harness.agent.finish(run, StopReason::WallClock, "late");
    let waited = socket.answer(&id).await["payload"].clone();
    assert_eq!(
        (&waited["status"], &waited["reason"], &waited["error"]),
        (&json!("timeout"), &json!("run_timeout"), &json!("wall_clock"))
    );
    let peek = socket.payload("agent.wait", json!({ "runId": run, "timeoutMs": 0 })).await;
    assert_eq!(peek, waited, "known afterwards as well");
    assert_eq!(socket.refusal("agent.wait", json!({ "runId": RunId::new() })).await, "NOT_FOUND");
    assert_eq!(socket.refusal("agent.wait", json!({ "runId": run, "timeoutMs": 600_001 })).await, "INVALID_REQUEST");
}

#[tokio::test]
async fn a_run_that_rests_on_a_question_is_waited_for_beyond_its_answer() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "ask deploy", "k")).await;
    let run = run_of(&socket.answer(&id).await["payload"]);
    let asked = socket.events("agent", |event| event["stream"] == "approval").await.pop().unwrap();
    assert_eq!((&asked["data"]["phase"], &asked["data"]["summary"]), (&json!("requested"), &json!("deploy")));
    let waited = socket.payload("agent.wait", json!({ "runId": run, "timeoutMs": 20 })).await;
    assert_eq!((&waited["reason"], &waited["runStatus"]), (&json!("wait_expired"), &json!("paused")));
    let list = socket.payload("approvals.list", json!({ "sessionKey": "s" })).await;
    assert_eq!(list["approvals"][0]["id"], asked["data"]["approvalId"]);
    let decision = json!({ "id": asked["data"]["approvalId"], "decision": "approve" });
    assert_eq!(socket.payload("approvals.decide", decision.clone()).await["approval"]["state"], "approved");
    assert_eq!(socket.answer(&id).await["payload"]["result"]["payloads"], json!([{ "text": "approved deploy" }]));
    assert_eq!(socket.refusal("approvals.decide", decision).await, "CONFLICT");
}

#[tokio::test]
async fn an_abort_stops_what_it_names_and_nothing_of_another_session() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "hold", "k")).await;
    let run = run_of(&socket.answer(&id).await["payload"]);
    let elsewhere = harness.hold("t").await;
    let mismatch = json!({ "sessionKey": "s", "runId": elsewhere });
    assert_eq!(socket.refusal("chat.abort", mismatch).await, "INVALID_REQUEST");
    let aborted = socket.payload("chat.abort", json!({ "sessionKey": "s" })).await;
    assert_eq!(aborted, json!({ "ok": true, "aborted": true, "runIds": [run], "stillRunning": [] }));
    let end = socket.answer(&id).await["payload"].clone();
    assert_eq!(
        (&end["status"], &end["error"], &end["result"]["meta"]["aborted"]),
        (&json!("error"), &json!("aborted"), &json!(true))
    );
    let nothing = socket.payload("chat.abort", json!({ "sessionKey": "s" })).await;
    assert_eq!((&nothing["aborted"], &nothing["runIds"]), (&json!(false), &json!([])));
    assert_eq!(socket.payload("sessions.stop", json!({ "sessionKey": "t" })).await["runIds"], json!([elsewhere]));
}

#[tokio::test]
async fn sessions_history_models_and_the_status_are_read() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    for n in 0..3 {
        socket.payload("chat.send", message("s", &format!("line {n}"), &format!("k{n}"))).await;
        socket.events("chat", |event| event["state"] == "final").await;
    }
    let history = socket.payload("chat.history", json!({ "sessionKey": "s", "limit": 2 })).await;
    let texts: Vec<_> = history["messages"].as_array().unwrap().iter().map(|m| &m["content"][0]["text"]).collect();
    assert_eq!((texts, &history["cursor"]), (vec![&json!("line 1"), &json!("line 2")], &json!(3)));
    let rest = socket.payload("chat.history", json!({ "sessionKey": "s", "cursor": 2 })).await;
    assert_eq!((rest["messages"].as_array().unwrap().len(), &rest["cursor"]), (1, &json!(3)));
    let running = harness.hold("s").await;
    let history = socket.payload("chat.history", json!({ "sessionKey": "s" })).await;
    assert_eq!(history["inFlightRun"], json!({ "runId": running, "text": "" }));
    assert_eq!(socket.payload("sessions.list", json!({})).await["sessions"][0]["sessionKey"], "s");
    assert_eq!(socket.payload("sessions.list", json!({ "hidden": true })).await, json!({ "sessions": [] }));
    harness.store.change(&"s".into(), SessionChange::hidden(true));
    assert_eq!(socket.payload("sessions.list", json!({})).await, json!({ "sessions": [] }));
    let hidden = socket.payload("sessions.list", json!({ "hidden": true })).await;
    assert_eq!((&hidden["sessions"][0]["sessionKey"], &hidden["sessions"][0]["hidden"]), (&json!("s"), &json!(true)));
    assert_eq!(socket.payload("sessions.get", json!({ "sessionKey": "s" })).await["state"], "idle");
    assert_eq!(socket.payload("sessions.create", json!({ "sessionKey": "new" })).await["state"], "new");
    assert_eq!(socket.refusal("sessions.get", json!({ "sessionKey": "new" })).await, "NOT_FOUND");
    assert_eq!(socket.payload("models.list", json!({})).await["models"][0]["id"], "some-model");
    assert_eq!(socket.payload("status", json!({})).await["version"], "0.0.0");
}

#[tokio::test]
async fn http_takes_and_waits_in_the_same_words() {
    let harness = Harness::open().await;
    let (status, accepted) = harness.post("/api/v1/agent", message("s", "hold", "k")).await;
    assert_eq!((status, &accepted["status"]), (202, &json!("accepted")));
    let run = run_of(&accepted);
    let (status, waited) = harness.post("/api/v1/agent/wait", json!({ "runId": run, "timeoutMs": 10 })).await;
    assert_eq!((status, &waited["reason"]), (200, &json!("wait_expired")));
    harness.agent.finish(run, StopReason::UserStop, "Interrupted.");
    let (status, end) = harness.post("/api/v1/agent", message("s", "hold", "k")).await;
    assert_eq!(
        (status, &end["status"], &end["error"], &end["summary"]),
        (200, &json!("error"), &json!("aborted"), &json!("Interrupted."))
    );
    assert_eq!(harness.post("/api/v1/agent", message("s", "other", "k")).await.0, 409);
    let (status, error) = harness.post("/api/v1/agent", json!({ "sessionKey": "s", "message": "hi" })).await;
    assert_eq!((status, error["error"]["message"].as_str().unwrap().contains("idempotencyKey")), (422, true));
    let body =
        json!({ "session": "s", "text": "hold", "thinking": "low", "queue": "steer", "timeout_ms": 5, "model": "m" });
    assert_eq!(harness.post("/api/v1/messages", body).await.0, 202);
    let seen = harness.agent.seen.lock().unwrap().last().unwrap().options.clone();
    assert_eq!((seen.timeout_ms, seen.model.as_deref()), (Some(5), Some("m")));
    let locked = Harness::locked().await;
    let send = locked.client.post(locked.url("/api/v1/messages")).bearer_auth("client");
    let (status, _) = crate::harness::read(send.json(&json!({ "session": "s", "text": "hi", "model": "m" }))).await;
    assert_eq!(status, 403, "a model is an operator's to choose");
}

/// On several threads, where tasks that are begun in order do not run in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_asked_in_order_reaches_the_agent_in_order() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let mut expected = Vec::new();
    let mut asked = Vec::new();
    for n in 0..15 {
        let text = format!("message {n}");
        asked.push(socket.ask("chat.send", message("s", &text, &text)).await);
        asked.push(socket.ask("chat.abort", json!({ "sessionKey": "s" })).await);
        let change = json!({ "sessionKey": "s", "queueMode": "collect", "thinking": "high", "verbose": true });
        asked.push(socket.ask("sessions.patch", change).await);
        expected.extend([text.as_str(), "stop", "/queue collect", "/think high", "/verbose on"].map(String::from));
    }
    for id in asked {
        assert_eq!(socket.answer(&id).await["ok"], true);
    }
    let seen = harness.agent.seen.lock().unwrap();
    let order: Vec<_> = seen
        .iter()
        .filter_map(|inbound| match &inbound.body {
            Body::Text(text) | Body::Edit(text) => Some(text.clone()),
            Body::Control(Control::Stop(_)) => Some("stop".to_owned()),
            Body::Control(_) => None,
        })
        .collect();
    assert_eq!(order, expected);
}

#[tokio::test]
async fn what_a_command_refuses_is_the_answer_to_the_request_that_needs_it() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let answer =
        socket.call("sessions.patch", json!({ "sessionKey": "s", "thinking": "low", "model": "nosuch" })).await;
    assert_eq!(
        (&answer["ok"], &answer["error"]["code"], &answer["error"]["message"]),
        (&json!(false), &json!("INVALID_REQUEST"), &json!("model: I know no nosuch. (changed all the same: thinking)"))
    );
    let said = socket.payload("agent", message("s", "/model nosuch", "k")).await;
    assert_eq!((&said["status"], &said["error"]), (&json!("error"), &json!("refused")));
    let (status, said) = harness.post("/api/v1/messages", json!({ "session": "s", "text": "/model nosuch" })).await;
    assert_eq!((status, &said["refused"], &said["reply"]), (200, &json!(true), &json!("I know no nosuch.")));
    let (_, said) = harness.post("/api/v1/messages", json!({ "session": "s", "text": "/ping" })).await;
    assert_eq!(said.get("refused"), None);
}

#[tokio::test]
async fn an_id_is_one_requests_until_its_last_answer() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let id = socket.ask("agent", message("s", "hold", "k")).await;
    let run = run_of(&socket.answer(&id).await["payload"]);
    for (method, params) in [
        ("agent", message("s", "hold", "another")),
        ("health", json!({})),
        ("sessions.subscribe", json!({ "sessionKey": "s" })),
    ] {
        socket.say(json!({ "type": "req", "id": id, "method": method, "params": params }).to_string()).await;
        let refused = socket.answer(&id).await;
        let error = &refused["error"];
        assert_eq!(
            (&error["code"], &error["details"]["reason"]),
            (&json!("INVALID_REQUEST"), &json!("id_in_use")),
            "{refused}"
        );
    }
    assert_eq!(harness.agent.seen.lock().unwrap().iter().filter(|inbound| inbound.key.is_some()).count(), 1);
    harness.agent.finish(run, StopReason::FinalText, "done");
    assert_eq!(socket.answer(&id).await["payload"]["status"], "ok", "the first one was not disturbed");
    // And is free the moment its answer is there.
    for _ in 0..100 {
        socket.say(json!({ "type": "req", "id": id, "method": "models.list" }).to_string()).await;
        assert_eq!(socket.answer(&id).await["ok"], true);
    }
}

#[tokio::test]
async fn a_time_that_nobody_may_ask_for_is_refused_everywhere() {
    let harness = Harness::open().await;
    let mut socket = Socket::open(&harness).await;
    let with = |field: &str, value: u64| {
        let mut params = message("s", "hold", "k");
        params[field] = json!(value);
        params
    };
    for (method, params) in [
        ("agent", with("timeout", 604_801)),
        ("agent", with("timeout", u64::MAX)),
        ("chat.send", with("timeoutMs", 604_800_001)),
        ("chat.send", with("timeoutMs", u64::MAX)),
    ] {
        let answer = socket.call(method, params).await;
        let field = if method == "agent" { "timeout" } else { "timeoutMs" };
        assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{answer}");
        assert_eq!(answer["error"]["details"]["param"], field, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: at most 604800 s")), "{answer}");
    }
    let body = json!({ "session": "s", "text": "hold", "timeout_ms": 604_800_001 });
    assert_eq!(harness.post("/api/v1/messages", body).await.0, 422);
    assert!(harness.agent.seen.lock().unwrap().is_empty(), "nothing of it reached the agent");
    socket.payload("chat.send", with("timeoutMs", 604_800_000)).await;
    assert_eq!(harness.agent.seen.lock().unwrap()[0].options.timeout_ms, Some(604_800_000));
}
