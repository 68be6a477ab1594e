//! Messages that meet a busy conversation: they join the running turn, or are collected into the next one, over the real
//! binary and its store.

use std::time::Duration;

use anyhow::Result;
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// What the model was sent in its request number `n`, from 0, without the system prompt.
fn said(model: &ModelServer, n: usize) -> Vec<(String, String)> {
    let messages = model.requests()[n]["messages"].as_array().cloned().unwrap_or_default();
    let text = |message: &Value, key: &str| message[key].as_str().unwrap_or_default().to_owned();
    messages.iter().skip(1).map(|message| (text(message, "role"), text(message, "content"))).collect()
}

async fn command(daemon: &Daemon, text: &str) -> Result<String> {
    let (status, reply) = daemon.post(json!({"session": "alice", "text": text})).await?;
    assert_eq!(status, 200, "{text}: {reply}");
    Ok(reply["reply"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_message_joins_the_running_turn_and_ends_with_it() -> Result<()> {
    // An announcement without a call is answered by the loop with another step; with the frames around it, it takes some
    // seconds to say, byte by byte.
    let announcement = "I will read the file now. ".to_owned() + &"Please wait. ".repeat(6);
    let model =
        ModelServer::start(vec![Answer::Drip(announcement, Duration::from_millis(15))], Answer::text("about both"))
            .await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    assert!(command(&daemon, "/queue").await?.starts_with("Queue: followup"), "a program has its own answer");
    assert!(command(&daemon, "/queue steer").await?.starts_with("Queue: steer"));
    let first = daemon.send("alice", "what is in the file?").await?;
    model.seen(1).await;
    let second = daemon.send("alice", "and who wrote it?").await?;
    let answered = daemon.finished(&first).await?;
    assert_eq!(answered["reply"], "about both", "{answered}");
    let joined = daemon.finished(&second).await?;
    assert_eq!((&joined["status"], &joined["reason"]), (&json!("completed"), &json!("joined")), "{joined}");
    assert_eq!((&joined["evidence"]["run"], &joined["evidence"]["mode"]), (&json!(first), &json!("steer")));
    let said = said(&model, 1);
    assert_eq!(said.first().map(|(_, text)| text.as_str()), Some("what is in the file?"));
    assert!(said.contains(&("user".into(), "and who wrote it?".into())), "{said:#?}");
    let kinds = daemon.events(&second).await?;
    assert!(kinds.iter().any(|event| event["type"] == "queued" && event["mode"] == "steer"), "{kinds:#?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn what_was_collected_is_one_turn_also_over_a_crash() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall, Answer::Stall], Answer::text("all three")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    command(&daemon, "/queue collect debounce:100ms").await?;
    let first = daemon.send("alice", "first").await?;
    model.seen(1).await;
    let second = daemon.send("alice", "second").await?;
    let third = daemon.send("alice", "third").await?;
    daemon.kill().await?;

    let daemon = home.start().await?;
    model.seen(2).await;
    let fourth = daemon.send("alice", "fourth").await?;
    let (status, _) = daemon.request("POST", &format!("/api/v1/runs/{first}/stop"), None).await?;
    assert_eq!(status, 200);
    let answered = daemon.finished(&second).await?;
    assert_eq!((&answered["reply"], &answered["reason"]), (&json!("all three"), &json!("final_text")), "{answered}");
    for run in [third, fourth] {
        let joined = daemon.finished(&run).await?;
        assert_eq!((&joined["reason"], &joined["evidence"]["run"]), (&json!("joined"), &json!(second)), "{joined}");
    }
    let said = said(&model, 2);
    assert_eq!(said.last().map(|(role, _)| role.as_str()), Some("system"), "how they came is a notice: {said:#?}");
    let (_, text) = said.iter().rfind(|(role, _)| role == "user").cloned().unwrap_or_default();
    assert!(text.ends_with("1. second\n2. third\n3. fourth"), "{text}");
    let cut =
        said.iter().filter(|(role, text)| role == "assistant" && text.ends_with("[cut off: the run was stopped here]"));
    assert_eq!(cut.count(), 1, "what was said before the stop is there once: {said:#?}");
    daemon.shut_down().await?;
    Ok(())
}
