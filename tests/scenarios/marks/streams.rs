//! Answers that people read while a model writes them.

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::daemon::client;
use belay_tests::model_server::Answer;
use belay_tests::socket::Socket;
use serde_json::{Value, json};

use super::scenes::read;
use super::world::{Roads, TOLD, World, quoted};

/// Answers that are read while they are written: in pieces of three characters.
pub(super) async fn pieces(w: &mut World, roads: &mut Roads) -> Result<()> {
    let pieces = || Answer::Pieces(quoted(), 3, Duration::ZERO);
    let hello = json!({"messages": [{"role": "user", "content": "hello"}]});
    let (_, whole) = w.daemon.request("POST", "/v1/chat/completions", Some(hello.clone())).await?;
    roads.says("a chat completion", whole);
    w.model.then(pieces());
    let body = json!({"stream": true, "messages": hello["messages"]});
    let answer =
        client().post(format!("{}/v1/chat/completions", w.daemon.url)).json(&body).send().await?.text().await?;
    roads.says("a chat completion in pieces", joined(&answer, "/choices/0/delta/content"));

    let mut socket = Socket::open(&w.daemon).await?;
    socket.call("chat.subscribe", json!({ "sessionKey": "socket" })).await?;
    w.script([read("page.txt"), pieces()]);
    let id = socket.ask("agent", json!({"sessionKey": "socket", "message": "hello", "idempotencyKey": "k"})).await?;
    socket.answer(&id).await?;
    let end = socket.answer(&id).await?;
    roads.says("the answer over the WebSocket", &end);
    let chat = socket.events("chat", |event| event["state"] != "delta").await?;
    roads.says("events of a chat", json!(chat));
    let is_end = |event: &Value| event["stream"] == "lifecycle" && event["data"]["phase"] == "end";
    roads.says("events of an agent", json!(socket.events("agent", is_end).await?));
    w.ended("socket", &json!({ "run_id": end["runId"] }));
    let history = socket.call("chat.history", json!({ "sessionKey": "socket" })).await?;
    roads.says("the history over the WebSocket", history);
    Ok(())
}

/// The thinking of a model, while it is written.
pub(super) async fn thoughts(w: &mut World, roads: &mut Roads) -> Result<()> {
    let thinks = || Answer::Pieces(format!("<think>{}</think>\nDone.", quoted()), 3, Duration::ZERO);
    w.model.then(thinks());
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let answer =
        client().post(format!("{}/v1/chat/completions", w.daemon.url)).json(&body).send().await?.text().await?;
    roads.says("the thoughts in a chat completion", joined(&answer, "/choices/0/delta/reasoning_content"));
    let mut socket = Socket::open(&w.daemon).await?;
    w.command("thinks", "/reasoning on").await?;
    socket.call("chat.subscribe", json!({ "sessionKey": "thinks" })).await?;
    w.model.then(thinks());
    let id = socket.ask("agent", json!({"sessionKey": "thinks", "message": "hello", "idempotencyKey": "t"})).await?;
    let accepted = socket.answer(&id).await?;
    let is_end = |event: &Value| event["stream"] == "lifecycle" && event["data"]["phase"] == "end";
    roads.says("thoughts over the WebSocket", json!(socket.events("agent", is_end).await?));
    w.ended("thinks", &json!({ "run_id": accepted["runId"] }));
    Ok(())
}

/// An answer that goes on until a person stops it.
pub(super) async fn stream_that_is_stopped(w: &mut World, roads: &mut Roads) -> Result<()> {
    let rest: String = (0..4000u32).map(|n| format!(" {:x}", n.wrapping_mul(2_654_435_761))).collect();
    w.model.then(Answer::Pieces(quoted() + &rest, 3, Duration::from_millis(20)));
    let mut socket = Socket::open(&w.daemon).await?;
    socket.call("chat.subscribe", json!({ "sessionKey": "stopped" })).await?;
    let id = socket.ask("agent", json!({"sessionKey": "stopped", "message": "hello", "idempotencyKey": "s"})).await?;
    let accepted = socket.answer(&id).await?;
    let read = |event: &Value| event.to_string().contains(TOLD);
    roads.says("an answer before its end", json!(socket.events("agent", read).await?));
    let run = accepted["runId"].as_str().context("a run")?.to_owned();
    roads.clean("the stop of an answer", w.command("stopped", "/stop").await?);
    roads.clean("an answer that was stopped", socket.answer(&id).await?);
    let finished = w.daemon.finished(&run).await?;
    assert_ne!(finished["status"], "completed", "{finished}");
    roads.clean("a run that was stopped", &finished);
    w.ended("stopped", &finished);
    Ok(())
}

/// The texts of a stream's pieces, one after the other.
pub(super) fn joined(stream: &str, at: &str) -> String {
    let data = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?.trim()).ok());
    data.filter_map(|piece| Some(piece.pointer(at)?.as_str()?.to_owned())).collect()
}
