//! Scenes in which a model repeats marks, and what people read while they happen.

use anyhow::{Context, Result};
use belay_tests::model_server::Answer;
use serde_json::json;

use super::world::{Roads, World, quoted};

pub(super) fn read(path: &str) -> Answer {
    Answer::call("read_file", json!({ "path": path }))
}

/// A reply after a result and a failed call, which Belay has marked.
pub(super) async fn answers(w: &mut World, roads: &mut Roads) -> Result<()> {
    w.script([read("page.txt"), read("the gate is blue.txt"), Answer::text(&quoted())]);
    let run = w.daemon.ask("reads", "read the page").await?;
    roads.says("the reply to a message", &run);
    w.ended("reads", &run);
    let sent = w.home.run(&["send", "--wait", "--session", "sent", "hello"], "").await?;
    roads.says("belay send --wait", sent.stdout);
    let streamed = w.home.run(&["agent", "--stream", "hello"], "").await?;
    roads.says("belay agent --stream", streamed.stdout);
    let asked = ["ask", "--set", "llm.provider=\"openai\"", "--set", "llm.model=\"scripted\"", "--set"];
    let base_url = format!("llm.base_url={:?}", w.model.base_url);
    let asked = w.home.run(&[&asked[..], &[&base_url, "hello"]].concat(), "").await?;
    roads.says("belay ask", format!("{}{}", asked.stdout, asked.stderr));
    Ok(())
}

/// Arguments that a client gets.
pub(super) async fn calls_of_a_client(w: &World, roads: &mut Roads) -> Result<()> {
    w.model.then(Answer::call("get_weather", json!({ "city": quoted() })));
    let tool = json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}});
    let body = json!({"messages": [{"role": "user", "content": "weather"}], "tools": [tool]});
    roads.says("the calls of a client", w.daemon.request("POST", "/v1/chat/completions", Some(body)).await?.1);
    Ok(())
}

/// An error of a provider that repeats what it was sent.
pub(super) async fn provider_that_quotes_its_input(w: &mut World, roads: &mut Roads) -> Result<()> {
    let error = json!({"error": {"message": format!("cannot parse: {}", quoted()), "code": "invalid_request"}});
    w.model.then(Answer::Status(400, error, Vec::new()));
    let run = w.daemon.ask("refused", "hello").await?;
    roads.says("the error of a provider", &run);
    w.ended("refused", &run);
    Ok(())
}

/// Work that is delegated.
pub(super) async fn subagent_and_plan(w: &mut World, roads: &mut Roads) -> Result<()> {
    w.model.then(Answer::call("spawn_subagent", json!({ "task": quoted() })));
    let run = w.daemon.ask("delegates", "delegate it").await?;
    roads.says("the reply after a subagent", &run);
    w.ended("delegates", &run);
    let plan = json!({"command": "create", "title": quoted(), "steps": [quoted(), "check"]});
    let done = || Answer::call("terminate", json!({"status": "success", "summary": quoted()}));
    w.script([Answer::call("planning", plan), done(), done()]);
    let run = w.daemon.ask("plans", "/plan tidy").await?;
    roads.says("the summary of a plan", &run);
    w.ended("plans", &run);
    Ok(())
}

/// A question that waits.
pub(super) async fn question(w: &mut World, roads: &mut Roads) -> Result<()> {
    let call = || Answer::call("run_command", json!({"argv": ["echo", quoted()]}));
    w.model.then(call());
    let run = w.daemon.send("asks", "run it").await?;
    roads.says("a run that asks", w.daemon.until(&run, "paused").await?);
    let (_, list) = w.daemon.request("GET", "/api/v1/approvals", None).await?;
    roads.says("the list of questions", &list);
    let id = list["approvals"][0]["id"].as_str().context("a question")?;
    roads.says("a question", w.daemon.request("GET", &format!("/api/v1/approvals/{id}"), None).await?.1);
    roads.says("belay approvals", w.home.run(&["approvals"], "").await?.stdout);
    roads.says("belay approvals show", w.home.run(&["approvals", "show", id], "").await?.stdout);
    w.command("asks", "no").await?;
    w.ended("asks", &w.daemon.finished(&run).await?);
    Ok(())
}
