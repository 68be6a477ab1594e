//! `/goal` through the real binary: checks in the sandbox, a kill, a check that the run edits, and a goal over HTTP.

use std::sync::Arc;

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A home whose rules ask nobody about commands and files.
fn home(model: &ModelServer) -> Result<Home> {
    let home = Home::new().openai(&model.base_url);
    let place = home.path().join("config/belay");
    std::fs::create_dir_all(&place)?;
    let rule = |tool: &str| format!("[[approvals.rules]]\ntool = \"{tool}\"\nask = \"never\"\n");
    std::fs::write(place.join("belay.toml"), rule("run_command") + &rule("write_file"))?;
    Ok(home)
}

fn write(path: &str, content: &str) -> Answer {
    Answer::call("write_file", json!({"path": path, "content": content}))
}

/// The commands of a run that have begun, in order.
async fn checks(daemon: &Daemon, run: &Value) -> Result<usize> {
    let events = daemon.events(run["run_id"].as_str().context("an id")?).await?;
    Ok(events.iter().filter(|event| event["type"] == "tool_started" && event["name"] == "run_command").count())
}

#[tokio::test]
async fn a_goal_goes_on_over_a_kill_until_its_command_succeeds_in_the_sandbox() -> Result<()> {
    let hold = Arc::new(Notify::new());
    let script = vec![
        Answer::text("It is done."),
        Answer::Held(hold.clone(), "Nobody hears this.".into()),
        write("done.txt", "yes"),
    ];
    let model = ModelServer::start(script, Answer::text("Now it is done.")).await;
    let home = home(&model)?;
    let mut daemon = home.start().await?;
    let run = daemon.send("alice", "/goal write done.txt until `test -f done.txt`").await?;
    model.seen(2).await;
    daemon.kill().await?;

    daemon = home.start().await?;
    let run = daemon.finished(&run).await?;
    assert_eq!((&run["status"], &run["reason"]), (&json!("completed"), &json!("goal")), "{run}");
    assert_eq!((&run["evidence"]["attempts"], &run["evidence"]["check"]), (&json!(2), &json!("`test -f done.txt`")));
    let reply = run["reply"].as_str().unwrap_or_default();
    assert!(reply.starts_with("Now it is done.\n\nGoal reached after 2 attempts"), "{run}");
    assert_eq!(checks(&daemon, &run).await?, 3, "at the start and after each attempt");
    let events = daemon.events(run["run_id"].as_str().context("an id")?).await?;
    let said: Vec<_> = events.iter().filter(|event| event["type"] == "goal_checked").collect();
    let said: Vec<_> = said.iter().map(|event| (event["attempt"].as_u64(), event["holds"] == true)).collect();
    assert_eq!(said, [(Some(0), false), (Some(1), false), (Some(2), true)], "{events:?}");
    assert_eq!(model.requests().len(), 4, "none after the check holds");
    hold.notify_one();

    // It holds already: no model is asked.
    let body = json!({
        "session": "bob", "text": "write done.txt", "wait_ms": 60_000, "goal": {"until": {"command": ["test", "-f", "done.txt"]}},
    });
    let (status, met) = daemon.post(body).await?;
    assert_eq!((status, &met["reason"], &met["usage"]["model_calls"]), (200, &json!("goal"), &json!(0)), "{met}");

    let sent = home.run(&["send", "--wait", "--until", "run test -f done.txt", "write done.txt"], "").await?;
    assert!(sent.stdout.starts_with("Goal reached before any work: `test -f done.txt` holds."), "{sent:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_run_that_edits_its_own_check_is_refused() -> Result<()> {
    let model = ModelServer::start(vec![write("check.sh", "exit 0\n")], Answer::text("It passes.")).await;
    let home = home(&model)?;
    std::fs::write(home.workspace().join("check.sh"), "exit 3\n")?;
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "/goal make it pass until `sh check.sh`").await?;
    assert_eq!((&run["status"], &run["reason"]), (&json!("failed"), &json!("goal_missed")), "{run}");
    assert_eq!(run["evidence"]["cause"], "check_changed", "{run}");
    assert_eq!(checks(&daemon, &run).await?, 1, "the changed check has not run: {run}");
    daemon.shut_down().await?;
    Ok(())
}
