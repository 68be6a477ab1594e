//! Questions over the API, and runs that rest on them.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalState, ApprovalStore, Body, Control, Decided, Decision, StopReason, UnixMillis,
};
use serde_json::{Value, json};

use crate::harness::{Harness, NOW, read};
use crate::streams::events;
use crate::webhook::signed;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn who_signs_messages_answers_its_own_questions_and_not_those_of_the_token() {
    let harness = Harness::locked().await;
    let asked = json!({"session": "alice", "text": "ask push", "wait_ms": 30_000});
    let (_, run) = read(harness.client.post(harness.url("/api/v1/messages")).bearer_auth("client").json(&asked)).await;
    let approval: ApprovalId = run["waiting_for"]["approval"].as_str().unwrap().parse().unwrap();
    let state = async |approval| harness.store.approval(approval).await.unwrap().unwrap().state;

    assert_eq!(signed(&harness, "alice", "yes").await.0, 403);
    assert_eq!(state(approval).await, ApprovalState::Waiting);
    let answer = json!({"decision": "approve"});
    let by_token = harness.client.post(harness.url(&format!("/api/v1/approvals/{approval}"))).bearer_auth("client");
    assert_eq!(read(by_token.json(&answer)).await.0, 200);
    assert_eq!(state(approval).await, ApprovalState::Approved);

    assert_eq!(signed(&harness, "ci", "ask deploy").await.0, 202);
    let own = harness.store.approvals(ApprovalFilter { limit: 9, ..ApprovalFilter::default() }).await.unwrap();
    let own = own.iter().find(|approval| approval.session.as_str() == "ci").unwrap().id;
    assert_eq!(signed(&harness, "elsewhere", "yes").await.0, 202, "a message of another session");
    assert_eq!(state(own).await, ApprovalState::Waiting);
    assert_eq!(signed(&harness, "ci", "yes").await.0, 200);
    assert_eq!(state(own).await, ApprovalState::Approved);
}

/// A message of user and session, as OpenAI's clients send it.
fn chat(session: Option<&str>, text: &str, stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "conversation": session, "stream": stream})
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The texts of a streamed answer in one, and the field `belay` of its last chunk.
async fn streamed(harness: &Harness, body: Value) -> (String, Value) {
    let response = harness.client.post(harness.url(CHAT)).json(&body).send().await.unwrap();
    let events = events(response, usize::MAX).await;
    assert_eq!(events.last().unwrap().2, "[DONE]");
    let chunks: Vec<Value> = events.iter().filter_map(|(_, _, data)| serde_json::from_str(data).ok()).collect();
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let text = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    (text, chunks.last().unwrap()["belay"].clone())
}

#[tokio::test]
async fn a_question_is_shown_whole_but_for_its_digest_and_listed_while_it_waits() {
    let harness = Harness::open().await;
    let (run, approval) = harness.ask("s", "ask ls").await;
    let (_, other) = harness.ask("t", "login").await;
    let shown = json!({
        "id": approval, "run_id": run["run_id"], "session": "s", "call_id": "call-1", "tool": "run_command", "kind": "approval",
        "summary": "ls", "arguments": {"argv": ["ls"]}, "detail": "run_command asks before it acts", "bound": [["argv", "ls"]],
        "covers": null, "asker": {"principal": "loopback", "authority": "operator", "relayed": false},
        "asked_in": "s", "asked_at": "2026-11-20T19:43:00.000Z", "expires_at": "2026-11-20T20:13:00.000Z", "state": "waiting",
        "decided_by": null, "decided_at": null,
    });
    let (status, mut found) = harness.get(&format!("/api/v1/approvals/{approval}")).await;
    let question = found.as_object_mut().and_then(|found| found.remove("question")).expect("the text of the question");
    assert!(question.as_str().is_some_and(|text| text.contains("ls")), "{question}");
    assert_eq!((status, found), (200, shown.clone()));
    let ids = async |path: &str| {
        let (status, list) = harness.get(path).await;
        assert_eq!(status, 200, "{path}: {list}");
        list["approvals"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/api/v1/approvals").await, [json!(other), json!(approval)], "newest first");
    assert_eq!(ids("/api/v1/approvals?session=s").await, [json!(approval)]);
    assert_eq!(ids("/api/v1/approvals?limit=1").await, [json!(other)]);
    harness.post(&format!("/api/v1/approvals/{approval}"), json!({"decision": "deny"})).await;
    assert_eq!(ids("/api/v1/approvals?session=s").await, [Value::Null; 0]);
    assert_eq!(ids("/api/v1/approvals?session=s&all=true").await, [json!(approval)]);
    let (_, secret) = harness.get(&format!("/api/v1/approvals/{other}")).await;
    assert_eq!((&secret["kind"], &secret["name"]), (&json!("credential"), &json!("github")));
}

#[tokio::test]
async fn the_first_answer_counts_and_every_other_one_is_told_how_it_was_decided() {
    let harness = Harness::open().await;
    for (decision, state, told) in [
        ("approve", "approved", "This was approved before."),
        ("always", "approved", "This was approved before."),
        ("deny", "denied", "This was denied before."),
    ] {
        let (run, approval) = harness.ask("s", "ask ls").await;
        let path = format!("/api/v1/approvals/{approval}");
        let (status, body) = harness.post(&path, json!({"decision": decision})).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!((&body["run_id"], &body["approval"]["state"]), (&run["run_id"], &json!(state)));
        assert_eq!(body["approval"]["decided_by"], "loopback");
        let seen = harness.agent.seen.lock().unwrap().last().unwrap().body.clone();
        let decision: Decision = serde_json::from_value(json!(decision)).unwrap();
        assert_eq!(seen, Body::Control(Control::Decide { approval, decision }));
        let (status, body) = harness.post(&path, json!({"decision": "approve"})).await;
        assert_eq!((status, &body["error"]["code"]), (409, &json!("decided")));
        assert_eq!(body["error"]["message"], told);
    }
}

#[tokio::test]
async fn an_answer_that_cannot_count_says_why() {
    let harness = Harness::locked().await;
    let bearer = |token: &str, path: &str, body: Value| {
        read(harness.client.post(harness.url(path)).bearer_auth(token).json(&body))
    };
    let message = json!({"session": "s", "text": "ask ls", "wait_ms": 30_000});
    let (_, run) = bearer("operator", "/api/v1/messages", message).await;
    let approval = run["waiting_for"]["approval"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/approvals/{approval}");
    let yes = json!({"decision": "approve"});
    for (token, path, body, status, code) in [
        ("client", &path, yes.clone(), 403, "forbidden"), // an operator asked
        ("nobody", &path, yes.clone(), 401, "unauthorized"),
        ("client", &format!("/api/v1/approvals/{}", ApprovalId::new()), yes.clone(), 404, "not_found"),
        ("client", &"/api/v1/approvals/7".to_owned(), yes.clone(), 404, "not_found"),
        ("operator", &path, json!({"decision": "perhaps"}), 422, "invalid"),
        ("operator", &path, json!({"decision": "approve", "why": "x"}), 422, "invalid"),
        ("operator", &path, json!({}), 422, "invalid"),
    ] {
        let (got, body) = bearer(token, path, body).await;
        assert_eq!((got, &body["error"]["code"]), (status, &json!(code)), "{token} {path}: {body}");
    }
    let get = |path: &str| read(harness.client.get(harness.url(path)).bearer_auth("client"));
    assert_eq!(get(&format!("/api/v1/approvals/{}", ApprovalId::new())).await.0, 404);
    assert_eq!(get("/api/v1/approvals?all=perhaps").await.0, 422);
    assert_eq!(get("/api/v1/approvals?limit=0").await.0, 422);
    assert_eq!(bearer("operator", &path, yes).await.0, 200, "none of these was an answer");
}

#[tokio::test]
async fn a_question_whose_time_is_up_is_told_so() {
    let harness = Harness::open().await;
    let (_, approval) = harness.ask("s", "ask ls").await;
    let expired = harness.store.decide(approval, ApprovalState::Expired, None, "belay", UnixMillis(NOW)).await;
    assert!(matches!(expired, Ok(Decided::Now(_))));
    let (status, body) = harness.post(&format!("/api/v1/approvals/{approval}"), json!({"decision": "approve"})).await;
    assert_eq!((status, &body["error"]["message"]), (409, &json!("This has expired: nobody answered in time.")));
}

#[tokio::test]
async fn a_question_whose_time_is_up_is_shown_as_expired_before_its_lane_has_noticed() {
    let harness = Harness::open().await;
    let (_, approval) = harness.ask("s", "ask ls").await;
    let path = format!("/api/v1/approvals/{approval}");
    let stored = harness.store.approval(approval).await.unwrap().unwrap();
    harness.clock.0.store(stored.expires_at.0 - 1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(harness.get(&path).await.1["state"], "waiting");

    harness.clock.0.store(stored.expires_at.0, std::sync::atomic::Ordering::SeqCst);
    let (_, shown) = harness.get(&path).await;
    assert_eq!((&shown["state"], &shown["decided_at"]), (&json!("expired"), &Value::Null));
    let (_, waiting) = harness.get("/api/v1/approvals").await;
    assert_eq!(waiting["approvals"], json!([]));
    let (_, all) = harness.get("/api/v1/approvals?all=true").await;
    assert_eq!(all["approvals"][0]["state"], "expired");
}

#[tokio::test]
async fn a_wait_returns_a_run_that_rests_at_once_and_after_the_answer_waits_for_its_end() {
    let harness = Harness::open().await;
    let (run, approval) = harness.ask("s", "ask slowly").await;
    let wait = format!("/api/v1/runs/{}/wait?timeout_ms=30000", run["run_id"].as_str().unwrap());
    let (_, rests) = harness.get(&wait).await;
    let waiting_for = json!({
        "approval": approval, "kind": "approval", "tool": "run_command", "summary": "slowly",
        "expires_at": "2026-11-20T20:13:00.000Z",
    });
    assert_eq!(
        (&rests["status"], &rests["agent_state"], &rests["waiting_for"]),
        (&json!("paused"), &json!("IDLE"), &waiting_for)
    );
    harness.post(&format!("/api/v1/approvals/{approval}"), json!({"decision": "approve"})).await;
    // The record that watchers hold still says that it rests.
    let short = wait.replace("30000", "100");
    assert_eq!(harness.get(&short).await.1["status"], "running");
    let id = run["run_id"].as_str().unwrap().parse().unwrap();
    let (ended, ()) = tokio::join!(harness.get(&wait), async {
        tokio::task::yield_now().await;
        harness.agent.finish(id, StopReason::FinalText, "done");
    });
    assert_eq!((&ended.1["status"], &ended.1["reply"]), (&json!("completed"), &json!("done")));
}

#[tokio::test]
async fn an_answer_in_words_names_the_run_that_goes_on() {
    let harness = Harness::open().await;
    let (run, _) = harness.ask("s", "ask ls").await;
    let (status, answer) = harness.post("/api/v1/messages", json!({"session": "s", "text": "yes"})).await;
    let expected = json!({"status": "command", "command": "/approve", "reply": "Approved.", "resumes": run["run_id"]});
    assert_eq!((status, answer), (200, expected));
}

#[tokio::test]
async fn a_stream_of_a_run_goes_on_over_its_question_to_its_end() {
    let harness = Harness::open().await;
    let (run, approval) = harness.ask("s", "ask slowly").await;
    let id = run["run_id"].as_str().unwrap();
    let response = harness.client.get(harness.url(&format!("/api/v1/runs/{id}/events"))).send().await.unwrap();
    harness.post(&format!("/api/v1/approvals/{approval}"), json!({"decision": "approve"})).await;
    harness.agent.finish(id.parse().unwrap(), StopReason::FinalText, "done");
    let facts: Vec<Value> =
        events(response, usize::MAX).await.iter().filter_map(|(_, _, data)| serde_json::from_str(data).ok()).collect();
    let kinds: Vec<_> = facts.iter().filter_map(|fact| fact["type"].as_str()).collect();
    assert_eq!(kinds, ["run_accepted", "run_started", "approval_requested", "approval_resolved", "run_ended"]);
    assert_eq!((&facts[2]["approval"], &facts[2]["summary"]), (&json!(approval), &json!("slowly")));
    assert_eq!((&facts[3]["state"], &facts[3]["actor"]), (&json!("approved"), &json!("loopback")));
}

#[tokio::test]
async fn a_chat_completion_ends_with_the_question_and_the_next_message_answers_it() {
    let harness = Harness::open().await;
    for (said, expected) in [("yes", "approved ls"), ("no", "denied ls")] {
        let (status, asked) = harness.post(CHAT, chat(Some("ada"), "ask ls", false)).await;
        assert_eq!((status, content(&asked)), (200, "Let me look.\n\nMay I ls?"));
        assert_eq!(asked["choices"][0]["finish_reason"], "stop");
        assert_eq!(
            (&asked["belay"]["status"], &asked["belay"]["approval"]["summary"]),
            (&json!("paused"), &json!("ls"))
        );
        let (status, answer) = harness.post(CHAT, chat(Some("ada"), said, false)).await;
        assert_eq!((status, content(&answer), answer.get("belay")), (200, expected, None));
        let id = format!("chatcmpl-{}", asked["belay"]["run_id"].as_str().unwrap());
        assert_eq!(asked["id"], json!(id));
        assert!(answer["id"].as_str().unwrap().starts_with(&format!("{id}-")), "an id of its own: {answer}");
    }
}

#[tokio::test]
async fn a_streamed_completion_ends_with_the_question_and_stops_nothing_and_goes_on_with_the_answer() {
    let harness = Harness::open().await;
    let (text, belay) = streamed(&harness, chat(Some("ada"), "ask slowly", true)).await;
    assert_eq!(text, "Let me look.\n\nMay I slowly?");
    assert_eq!(belay["status"], "paused");
    let run = belay["run_id"].as_str().unwrap().parse().unwrap();
    let response = harness.client.post(harness.url(CHAT)).json(&chat(Some("ada"), "yes", true)).send().await.unwrap();
    assert_eq!(response.headers()["x-belay-run"].to_str().unwrap(), belay["run_id"].as_str().unwrap());
    harness.agent.delta(run, 2, "All ");
    harness.agent.finish(run, StopReason::FinalText, "All done");
    let rest: String = events(response, usize::MAX)
        .await
        .iter()
        .filter_map(|(_, _, data)| serde_json::from_str::<Value>(data).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(rest, "All done");
    let seen = harness.agent.seen.lock().unwrap();
    assert!(!seen.iter().any(|message| matches!(message.body, Body::Control(Control::Stop(_)))), "the run was stopped");
}

#[tokio::test]
async fn a_secret_that_a_completion_asks_for_is_the_next_message() {
    let harness = Harness::open().await;
    let (_, asked) = harness.post(CHAT, chat(Some("ada"), "login", false)).await;
    let kind = &asked["belay"]["approval"];
    assert_eq!((&kind["kind"], &kind["name"]), (&json!("credential"), &json!("github")));
    let (_, answer) = harness.post(CHAT, chat(Some("ada"), "hunter2", false)).await;
    assert_eq!(content(&answer), "approved logs in");
}

#[tokio::test]
async fn a_completion_without_a_session_says_how_its_question_can_be_answered() {
    let harness = Harness::open().await;
    let response = harness.client.post(harness.url(CHAT)).json(&chat(None, "ask ls", false)).send().await.unwrap();
    let session = response.headers()["x-belay-session"].to_str().unwrap().to_owned();
    let asked: Value = response.json().await.unwrap();
    let approval = asked["belay"]["approval"]["id"].as_str().unwrap();
    let text = content(&asked);
    assert!(text.contains(&format!("/approve {approval}")), "{text}");
    let request =
        harness.client.post(harness.url(CHAT)).header("x-belay-session", &session).json(&chat(None, "yes", false));
    assert_eq!(content(&read(request).await.1), "approved ls");
}
