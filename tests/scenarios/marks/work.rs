//! Scenes of work beside a conversation: jobs, routines, notes, summaries; and Telegram.

use anyhow::Result;
use belay_tests::model_server::Answer;
use belay_tests::person;
use belay_tests::socket::Socket;
use serde_json::{Value, json};

use super::world::{Roads, World, quoted};

fn done() -> Answer {
    Answer::call("terminate", json!({"status": "success", "summary": quoted()}))
}

/// A job, its notice, and the list of jobs.
pub(super) async fn job(w: &mut World, roads: &mut Roads) -> Result<()> {
    let mut socket = Socket::open(&w.daemon).await?;
    socket.call("chat.subscribe", json!({ "sessionKey": "jobs" })).await?;
    w.model.then(done());
    w.command("jobs", "/job look at the gate").await?;
    let is_notice = |event: &Value| event["state"] == "notice";
    roads.says("the notice about a job", json!(socket.events("chat", is_notice).await?));
    let (_, jobs) = w.daemon.request("GET", "/api/v1/jobs", None).await?;
    roads.says("the list of jobs", &jobs);
    let job = &jobs["jobs"][0];
    let id = job["job_id"].as_str().unwrap_or_default();
    w.ended("jobs", job);
    for path in ["", "/events"] {
        let road = format!("/api/v1/jobs/{id}{path}");
        let (_, read) = w.daemon.request("GET", &road, None).await?;
        roads.clean(&road, read);
    }
    roads.says("belay jobs show", w.home.run(&["jobs", "show", id], "").await?.stdout);
    roads.says("belay jobs watch", w.home.run(&["jobs", "watch", id], "").await?.stdout);
    roads.says("/job ID", w.command("jobs", &format!("/job {id}")).await?);
    roads.clean("/jobs", w.command("jobs", "/jobs").await?);
    Ok(())
}

/// A routine that reports.
pub(super) async fn routine(w: &mut World, roads: &mut Roads) -> Result<()> {
    let made = "/routine create watch in 10h | How is the gate?";
    let made = w.command("routines", made).await?;
    anyhow::ensure!(made["reply"].to_string().contains("watch"), "{made}");
    let fired = w.command("routines", "/routine fire watch").await?;
    let runs = "/api/v1/routines/watch/runs";
    let ended = w.until(runs, |read| read["routine_runs"][0]["status"] == "attention").await?;
    roads.says(format!("{runs} after {fired}"), ended);
    roads.says("belay routines runs", w.home.run(&["routines", "runs", "watch"], "").await?.stdout);
    roads.clean("/routine show", w.command("routines", "/routine show watch").await?);
    Ok(())
}

/// Notes, a summary for the person, and a summary that replaces messages.
pub(super) async fn notes_and_summaries(w: &mut World, roads: &mut Roads) -> Result<()> {
    w.model.then(Answer::call("remember", json!({ "text": quoted() })));
    let run = w.daemon.ask("notes", "remember it").await?;
    w.ended("notes", &run);
    roads.says("/memory", w.command("notes", "/memory").await?);
    roads.says("belay memory", w.home.run(&["memory"], "").await?.stdout);
    roads.clean("/summarize", w.command("reads", "/summarize").await?);
    roads.clean("/compact", w.command("reads", "/compact").await?);
    Ok(())
}

/// Texts that the bot sends: a message of the run, lines for tools and thoughts, a question, the reply, a job's report.
pub(super) async fn telegram(w: &mut World, roads: &mut Roads) -> Result<()> {
    for (at, command) in ["/verbose on", "/reasoning on"].into_iter().enumerate() {
        person::say(&w.daemon, at as u32 + 1, command).await?;
    }
    person::texts(&w.api, 2).await;
    w.script([
        Answer::call("send_message", json!({ "text": format!("Hello. {}", quoted()) })),
        Answer::call("read_file", json!({"path": "page.txt"})),
        Answer::call("run_command", json!({"argv": ["echo", quoted()]})),
        Answer::text(&format!("At last. {}", quoted())), // an echo of what was sent would not be sent again
    ]);
    person::say(&w.daemon, 3, "look at the gate").await?;
    let is_question = |text: &String| text.contains("May I do this?");
    let told = w.told(is_question).await?;
    roads.says("messages of a run on Telegram", json!(told));
    person::say(&w.daemon, 4, "no").await?;
    w.told(|text| text.contains("At last.")).await?;
    w.model.then(done());
    person::say(&w.daemon, 5, "/job look again").await?;
    let told = w.told(|text| text.contains("is done")).await?;
    roads.says("texts on Telegram", json!(told));
    Ok(())
}
