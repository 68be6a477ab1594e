//! Idempotency keys and the names of models, over HTTP and WebSocket: what cannot be meant is refused, and nothing is lost.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::socket::Socket;
use serde_json::{Value, json};

/// What a refusal says: the status, its word, and the sentence.
fn told((status, body): (u16, Value)) -> (u16, String, String) {
    let word = |field: &str| body["error"][field].as_str().unwrap_or_default().to_owned();
    (status, word("code"), word("message"))
}

#[tokio::test]
async fn a_key_that_was_used_for_something_else_is_refused_also_after_a_restart_and_nothing_is_lost() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let send = |key: &str, text: &str| json!({ "session": "alice", "text": text, "idempotency_key": key });
    let with = |field: &str, value: Value| {
        let mut body = send("message", "water the plants");
        body[field] = value;
        body
    };
    let mut daemon = home.start().await?;
    for (key, text) in [("at once", "/status"), ("of the conversation", "/new")] {
        let (status, reply) = daemon.post(send(key, text)).await?;
        assert_eq!((status, reply["command"].as_str()), (200, Some(text)), "{reply}");
    }
    let (_, first) = daemon.post(with("wait_ms", json!(30_000))).await?;
    let run = first["run_id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(first["reply"], "done", "{first}");

    for boot in 1..=2 {
        for body in [
            send("at once", "water the plants"),
            send("of the conversation", "water the plants"),
            send("of the conversation", "/undo"),
            send("message", "water the flowers"),
            send("message", "/status"),
            send("message", "/new"),
            with("thinking", json!("high")),
            with("outputs", json!([{ "name": "n", "schema": { "type": "integer" } }])),
        ] {
            let (status, code, message) = told(daemon.post(body.clone()).await?);
            assert_eq!((status, code.as_str()), (409, "conflict"), "{boot}: {body}: {message}");
            assert!(message.contains("a new key"), "{message}");
        }
        let (_, again) = daemon.post(send("message", "water the plants")).await?;
        assert_eq!((again["run_id"].as_str(), &again["duplicate"]), (Some(&*run), &json!(true)), "{again}");
        if boot == 1 {
            daemon.shut_down().await?;
            daemon = home.start().await?;
        }
    }
    assert_eq!(model.requests().len(), 1, "nothing was answered twice");
    let mut fresh = send("fresh", "water the plants");
    fresh["wait_ms"] = json!(30_000);
    let (_, answered) = daemon.post(fresh).await?;
    assert_eq!(answered["reply"], "done", "{answered}");
    assert_ne!(answered["run_id"], run.as_str());
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_refused_with_the_names_of_those_that_are() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let (_, report) = daemon.request("GET", "/api/v1/status", None).await?;
    let ours = report["model"]["model"].as_str().unwrap_or_default().to_owned();
    let wrong = format!("{ours}x");
    let sentence = format!("There is no model {wrong}. Did you mean {ours}? Available models: {ours}.");
    for (body, expected) in [
        (json!({ "session": "alice", "text": "hello", "model": wrong }), format!("model: {sentence}")),
        (json!({ "session": "alice", "text": format!("/model {wrong}") }), sentence.clone()),
    ] {
        let (status, code, message) = told(daemon.post(body).await?);
        assert_eq!((status, code.as_str(), message), (422, "invalid", expected));
    }
    let mut socket = Socket::open(&daemon).await?;
    for (method, params) in [
        ("agent", json!({ "sessionKey": "alice", "message": "hello", "idempotencyKey": "k", "model": wrong })),
        ("sessions.patch", json!({ "sessionKey": "alice", "model": wrong })),
    ] {
        let refused = socket.call(method, params).await.expect_err(method).to_string();
        assert!(refused.contains("INVALID_REQUEST") && refused.contains(&sentence), "{method}: {refused}");
    }
    let body = json!({ "session": "alice", "text": "hello", "model": ours, "wait_ms": 30_000 });
    assert_eq!(daemon.post(body).await?.1["reply"], "done");
    daemon.shut_down().await?;
    Ok(())
}
