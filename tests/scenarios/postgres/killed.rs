//! A daemon that is killed in the middle of a tool call.

use std::time::Duration;

use anyhow::{Result, ensure};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_tests::daemon::{Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn killed_in_a_tool_call_the_run_goes_on_and_the_call_is_not_repeated() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let database = TestDatabase::new(PostgresServer::shared(&programs)?)?;
    let call = json!({"argv": ["sh", "-c", "echo once >> effect; sleep 600"]});
    let model = ModelServer::start(vec![Answer::call("run_command", call)], Answer::text("I read the outcome")).await;
    let home = Home::new().store(&format!("{}?sslmode=disable", database.url())).openai(&model.base_url);
    let home = home.settings("[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n");
    let effect = home.workspace().join("effect");
    let daemon = home.start().await?;
    let run = daemon.send("alice", "do it").await?;
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&effect).unwrap_or_default().is_empty() {
        ensure!(Instant::now() < deadline, "the command does not begin: {}", daemon.run(&run).await?);
        sleep(Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
    }
    daemon.kill().await?;

    let daemon = home.start().await?;
    let ended = daemon.finished(&run).await?;
    assert_eq!((&ended["reply"], &ended["attempt"]), (&json!("I read the outcome"), &json!(2)), "{ended}");
    let request = model.requests().pop().unwrap_or_default().to_string();
    assert!(request.contains("outcome unknown"), "the model reads that the call was interrupted: {request}");
    assert_eq!(std::fs::read_to_string(effect)?, "once\n");
    let listed = home.run(&["runs"], "").await?;
    assert!(listed.status.success() && listed.stdout.contains(&run[..8]), "{listed:?}");
    daemon.shut_down().await?;
    Ok(())
}
