//! A start does not wait for anything that can wait: the sandbox, MCP servers, interrupted runs.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;
use tokio::time::sleep;

/// How often a file is looked at again. There is no clock to pause in a real process.
const LOOK: Duration = Duration::from_millis(20);

/// Installs a stand-in for bubblewrap. Each run waits while there is a file `slow`, and a test of the sandbox fails while
/// there is a file `bad`.
fn stand_in(home: Home) -> Result<Home> {
    let (program, here) = (home.path().join("bwrap"), home.path().display().to_string());
    let script = format!(
        "#!/bin/sh\nwhile test -e {here}/slow; do sleep 0.05; done\n\
         test \"$1\" != --version || {{ echo bubblewrap 0.11.0; exit 0; }}\n\
         test ! -e {here}/bad || {{ echo 'No permissions to create new namespace' >&2; exit 1; }}\n"
    );
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    let shown = program.display().to_string();
    Ok(home.set("tools.sandbox.bwrap", shown))
}

/// Waits until a file of the data directory is there, or gone.
async fn until_file(home: &Home, name: &str, there: bool) -> Result<()> {
    let begin = Instant::now();
    while find(home.path(), name)? != there {
        ensure!(begin.elapsed() < PATIENCE, "{name} there: {}", !there);
        sleep(LOOK).await;
    }
    Ok(())
}

fn find(directory: &std::path::Path, name: &str) -> Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() == name || entry.file_type()?.is_dir() && find(&entry.path(), name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[tokio::test]
async fn the_sandbox_is_tested_after_readiness_and_a_successful_test_is_remembered() -> Result<()> {
    let home = stand_in(Home::new())?.set("workers.enabled", true);
    let first = home.start().await?;
    until_file(&home, "sandbox-probe", true).await?; // it is written behind readiness
    first.shut_down().await?;

    // Even workers, which a start offers only if the sandbox works, wait for no second test: it fails after readiness.
    std::fs::write(home.path().join("slow"), "")?;
    let mut daemon = home.start().await?;
    assert_eq!(daemon.ask("alice", "calculate 2*3").await?["status"], "completed");
    std::fs::write(home.path().join("bad"), "")?;
    std::fs::remove_file(home.path().join("slow"))?;
    daemon.logged("worked at an earlier start").await?;
    daemon.kill().await
}

#[tokio::test]
async fn a_sandbox_that_no_longer_works_is_reported_and_commands_are_refused() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["true"]}));
    let model = ModelServer::start(vec![call], Answer::text("it is refused")).await;
    let home = stand_in(Home::new().openai(&model.base_url))?;
    let first = home.start().await?;
    until_file(&home, "sandbox-probe", true).await?; // it is written behind readiness
    first.shut_down().await?;

    std::fs::write(home.path().join("bad"), "")?;
    let daemon = home.start().await?;
    until_file(&home, "sandbox-probe", false).await?;
    assert_eq!(daemon.ask("alice", "run it").await?["status"], "completed");
    let request = model.requests().pop().context("a second request")?.to_string();
    assert!(request.contains("Commands are disabled here") && request.contains("namespace"), "{request}");
    let ended = daemon.shut_down().await?;
    assert!(ended.stderr.contains("worked at an earlier start"), "{}", ended.stderr);
    Ok(())
}

#[tokio::test]
async fn the_tools_of_a_known_server_are_offered_while_it_is_slow() -> Result<()> {
    let other = Home::new().set("gateway.mcp", true);
    let served = other.start().await?;
    let model = ModelServer::start(Vec::new(), Answer::text("hello")).await;
    // The server relays to another daemon, after a pause if there is one.
    let program = belay_tests::daemon::binary().display().to_string();
    let home = Home::new().openai(&model.base_url).env("BELAY_URL", &served.url);
    let slow = home.path().join("slow");
    let script = format!("while test -e {}; do sleep 0.05; done; exec {program} mcp serve", slow.display());
    let home = home
        .set("tools.mcp.other.command", json!(["sh", "-c", script]))
        .set("tools.mcp.other.env_from", json!(["BELAY_URL"]))
        .set("tools.mcp.other.start_timeout_s", 600) // longer than a test waits for readiness
        .set("tools.mcp.other.sandbox", false);
    home.start().await?.shut_down().await?;

    std::fs::write(&slow, "")?;
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    let request = model.requests().pop().context("a request")?.to_string();
    assert!(request.contains("mcp_other_list_sessions"), "{request}");
    std::fs::remove_file(&slow)?;
    daemon.kill().await
}

#[tokio::test]
async fn hundreds_of_interrupted_runs_are_resumed_after_readiness() -> Result<()> {
    const RUNS: u32 = 200;
    let model = ModelServer::start(vec![], Answer::Silence).await;
    let home = Home::new().openai(&model.base_url).set("agent.max_concurrent_turns", 2000);
    let daemon = home.start().await?;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(daemon.send(&format!("person-{number}"), "hello").await?);
    }
    model.seen(RUNS).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    // The last conversations are not resumed yet, and can be stopped.
    let last = runs.pop().context("a run")?;
    let (status, _) = daemon.request("POST", &format!("/api/v1/runs/{last}/stop"), None).await?;
    assert_eq!(status, 200);
    assert_eq!(daemon.finished(&last).await?["status"], "stopped");
    model.seen(2 * RUNS - 1).await;
    // The stopped one can be among those that the model has seen again, so another one may still be on its way.
    let begin = Instant::now();
    for run in [&runs[0], &runs[runs.len() - 1]] {
        while daemon.run(run).await?["attempt"] != 2 {
            ensure!(begin.elapsed() < PATIENCE, "{run} is not resumed");
            sleep(LOOK).await;
        }
    }
    daemon.kill().await
}
