//! `/plan` over HTTP: the plan is made and worked through by the stand-in, its steps are events, and the run says how it ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The facts of a run that are about its plan or its end, a line for each.
async fn story(daemon: &Daemon, run: &Value) -> Result<Vec<String>> {
    let events = daemon.events(run["run_id"].as_str().unwrap_or_default()).await?;
    let line = |event: &Value| match event["type"].as_str()? {
        "plan_created" => Some(format!("{} {}", event["title"], event["steps"])),
        "plan_step" => Some(format!("{} {} {} {}", event["index"], event["status"], event["executor"], event["note"])),
        "tool_started" => Some(event["name"].to_string()),
        "run_ended" => Some(format!("{} {}", event["reason"], belay_protocol::canonical_json(&event["evidence"]))),
        _ => None,
    };
    Ok(events.iter().filter_map(line).map(|line| line.replace('"', "")).collect())
}

#[tokio::test]
async fn a_plan_is_made_worked_through_by_its_executors_and_summed_up() -> Result<()> {
    let home = Home::new();
    let config = home.path().join("config/belay");
    std::fs::create_dir_all(&config)?;
    let executors = "[agent.executors.maths]\ndescription = \"calculates\"\ntools = [\"calculate\"]\n";
    std::fs::write(config.join("belay.toml"), executors)?;
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "/plan tidy the house").await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("completed"), Some("plan_completed")), "{run}");
    assert_eq!(run["evidence"], json!({"completed": 3, "blocked": 0, "executions": 3}));
    assert!(run["reply"].as_str().unwrap_or_default().ends_with("3 steps completed, 0 blocked."), "{run}");
    // One call for the plan, two for each step, one for the summary.
    assert_eq!(run["usage"]["model_calls"], 8, "{run}");
    let expected = [
        "planning",
        "tidy the house [Look at what is there,[MATHS] Do the work,Check the result]",
        "0 in_progress general null",
        "calculate",
        "terminate",
        "0 completed general step 0 is rehearsed, calculate said 42",
        "1 in_progress maths null",
        "calculate",
        "terminate",
        "1 completed maths step 1 is rehearsed, calculate said 42",
        "2 in_progress general null",
        "calculate",
        "terminate",
        "2 completed general step 2 is rehearsed, calculate said 42",
        "plan_completed {blocked:0,completed:3,executions:3}",
    ];
    assert_eq!(story(&daemon, &run).await?, expected);
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    assert_eq!(history["messages"].as_array().map(Vec::len), Some(2), "the steps are not in the thread: {history}");
    daemon.shut_down().await?;
    Ok(())
}

/// What a command about the plan is answered.
async fn told(daemon: &Daemon, text: &str) -> Result<String> {
    let (status, answer) = daemon.post(json!({"session": "alice", "text": text})).await?;
    let reply = answer["reply"].as_str().with_context(|| format!("{text}: {status} {answer}"))?;
    Ok(reply.to_owned())
}

/// Waits until the plan is shown with this text in it.
async fn shown(daemon: &Daemon, part: &str) -> Result<String> {
    let mut newest = String::new();
    for _ in 0..1200 {
        newest = told(daemon, "/plan").await?;
        if newest.contains(part) {
            return Ok(newest);
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
    bail!("{part:?} was never shown, but {newest}")
}

fn planned(steps: &[&str]) -> Answer {
    Answer::call("planning", json!({"command": "create", "title": "The work", "steps": steps}))
}

fn done(summary: &str) -> Answer {
    Answer::call("terminate", json!({"status": "success", "summary": summary}))
}

/// The steps that the model was asked to carry out, in order.
fn carried_out(model: &ModelServer) -> Vec<String> {
    let task = |request: Value| {
        let task = request["messages"][1]["content"].as_str()?.rsplit_once("Your step is number ")?.1.to_owned();
        Some(task.lines().next().unwrap_or_default().to_owned())
    };
    model.requests().into_iter().filter_map(task).collect()
}

#[tokio::test]
async fn a_person_changes_a_plan_between_its_steps_and_the_change_survives_a_kill() -> Result<()> {
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let script = vec![
        planned(&["look", "work", "check"]),
        Answer::Held(first.clone(), "The step is done.".into()),
        Answer::Held(second.clone(), "The step is done.".into()),
        done("looked"),
        done("worked"),
        done("swept"),
    ];
    let model = ModelServer::start(script, Answer::text("All but the check.")).await;
    let home = Home::new().openai(&model.base_url);
    let mut daemon = home.start().await?;
    let run = daemon.send("alice", "/plan tidy the house").await?;
    let plan = shown(&daemon, "1. look (running)").await?;
    assert!(plan.contains("\n2. work\n3. check\n"), "{plan}");
    for (command, answer) in [
        ("/plan change 1 sleep", "Step 1 is running."),
        ("/plan change 4 sleep", "There is no step 4: the steps of this plan are 1 to 3."),
        ("/plan drop", "/plan shows the plan here."),
        ("/plan change 2 work slowly", "Step 2 is changed."),
        ("/plan drop 3", "Step 3 is dropped: check"),
        ("/plan add 3 sweep", "Step 3 is added."),
    ] {
        let told = told(&daemon, command).await?;
        assert!(told.starts_with(answer), "{command}: {told}");
    }
    daemon.kill().await?;

    daemon = home.start().await?;
    let plan = shown(&daemon, "1. look (running").await?;
    assert!(plan.contains("\n2. work slowly\n3. sweep\n4. check (dropped)\n"), "{plan}");
    assert!(told(&daemon, "/plan hold").await?.starts_with("No further step begins"));
    daemon.kill().await?; // the hold is stored too
    daemon = home.start().await?;
    shown(&daemon, "It waits: /plan approve").await?;
    let approved = told(&daemon, "/plan approve").await?;
    assert!(approved.starts_with("Approved: the plan goes on."), "{approved}");
    let run = daemon.finished(&run).await?;
    assert_eq!(run["reason"], "plan_blocked", "the first step was interrupted twice: {run}");
    assert_eq!(carried_out(&model), ["0: look", "0: look", "1: work slowly", "2: sweep"], "{run}");
    assert_eq!(run["evidence"]["dropped"], 1, "{run}");
    let (status, none) = daemon.post(json!({"session": "alice", "text": "/plan drop 2"})).await?;
    assert_eq!(status, 200);
    assert!(none["reply"].as_str().unwrap_or_default().starts_with("No plan is being carried out here."), "{none}");
    first.notify_one();
    second.notify_one();
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_plan_under_review_waits_for_the_person_over_http_and_over_a_restart() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.send("alice", "/plan --review tidy the house").await?;
    let plan = shown(&daemon, "It waits: /plan approve").await?;
    assert!(plan.contains("1. Look at what is there\n2. Do the work\n3. Check the result\n"), "{plan}");
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    shown(&daemon, "It waits: /plan approve").await?;
    assert!(told(&daemon, "/plan drop 3").await?.starts_with("Step 3 is dropped"));
    // The question about the changed plan replaces the one before.
    let asked = async {
        while daemon.request("GET", "/api/v1/approvals", None).await?.1["approvals"][0].is_null() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, asked).await.context("the question is not in the list")??;
    told(&daemon, "/plan approve").await?;
    let run = daemon.finished(&run).await?;
    assert_eq!(run["evidence"], json!({"completed": 2, "blocked": 0, "dropped": 1, "executions": 2}), "{run}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_step_that_cannot_be_done_is_blocked_and_the_run_says_so() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "/plan rehearse blocked-step").await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("failed"), Some("plan_blocked")), "{run}");
    assert_eq!(run["evidence"], json!({"completed": 2, "blocked": 1, "executions": 3}));
    let story = story(&daemon, &run).await?;
    assert!(story.contains(&"1 blocked general this step fails, as it was asked to".to_owned()), "{story:#?}");
    let (status, usage) = daemon.post(json!({"session": "alice", "text": "/plan"})).await?;
    assert_eq!((status, usage["command"].as_str()), (200, Some("/plan")), "{usage}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_executor_with_an_unknown_tool_keeps_the_daemon_from_starting() -> Result<()> {
    let home = Home::new();
    let executor = "agent.executors={maths={description=\"calculates\",tools=[\"calculater\"]}}";
    let output = home
        .run(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", executor], "")
        .await?;
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(output.stderr.contains("there is no tool calculater; did you mean calculate?"), "{output:?}");
    Ok(())
}
