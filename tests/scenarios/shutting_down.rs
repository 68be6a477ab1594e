//! `belay shutdown`: the end of a daemon, and the wait for it.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};

/// Whether the process of the daemon has ended. It stays a zombie until the test waits for it.
fn has_ended(daemon: &Daemon) -> Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid()))?;
    Ok(stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

#[tokio::test]
async fn a_shutdown_returns_when_the_daemon_has_ended_over_the_socket_and_over_http() -> Result<()> {
    for over_http in [false, true] {
        let home = Home::new();
        let daemon = home.start().await?;
        daemon.send("alice", "rehearse stall 1").await?;
        let mut args = vec!["shutdown"];
        if over_http {
            args.extend(["--url", &daemon.url]);
        }
        let output = home.run(&args, "").await?;
        ensure!(output.status.success() && output.stdout.contains("The daemon has ended after"), "{output:?}");
        // Over HTTP the end of the listener is all that can be seen.
        ensure!(over_http || has_ended(&daemon)?);
        ensure!(daemon.ended().await?.status.code() == Some(0));
    }
    Ok(())
}

#[tokio::test]
async fn a_shutdown_without_waiting_returns_while_a_run_works() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence], Answer::text("never")).await;
    let home = Home::new().openai(&model.base_url).set("agent.drain_s", 60);
    let daemon = home.start().await?;
    daemon.send("alice", "hang").await?;
    model.seen(1).await;
    let output = home.run(&["shutdown", "--no-wait"], "").await?;
    ensure!(output.status.success() && !output.stdout.contains("has ended"), "{output:?}");
    ensure!(!has_ended(&daemon)?);
    daemon.kill().await
}

#[tokio::test]
async fn a_long_shutdown_says_what_still_runs_and_an_interrupt_ends_only_the_wait() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence], Answer::text("never")).await;
    let home = Home::new().openai(&model.base_url).set("agent.drain_s", 60);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "hang").await?;
    model.seen(1).await;
    let mut shutdown = home.command(&["shutdown"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(shutdown.stderr.take().context("stderr")?).lines();
    let line = lines.next_line().await?.context("a line")?;
    ensure!(line.contains("still ending after") && line.contains(&format!("run {run} of alice for")), "{line}");
    let pid = Pid::from_raw(shutdown.id().context("a pid")?.cast_signed()).context("a pid")?;
    kill_process(pid, Signal::INT)?;
    let line = loop {
        let line = lines.next_line().await?.context("a line")?;
        if !line.contains("still ending") {
            break line;
        }
    };
    ensure!(line.contains("ends all the same"), "{line}");
    ensure!(shutdown.wait().await?.code() == Some(130));
    ensure!(!has_ended(&daemon)?);
    daemon.kill().await
}
