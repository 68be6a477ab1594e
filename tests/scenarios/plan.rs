//! `/plan` over HTTP: the plan is made and worked through by the stand-in, its steps are events, and the run says how it ended.

use anyhow::Result;
use belay_tests::daemon::{Daemon, Home};
use serde_json::{Value, json};

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
