//! Start, ready, drain, end.

use std::process::Stdio;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::Signal;

#[tokio::test]
async fn ready_means_that_a_message_is_accepted() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for path in ["/livez", "/readyz", "/startupz"] {
        assert_eq!(daemon.request("GET", path, None).await?.0, 200, "{path}");
    }
    daemon.ask("alice", "hello").await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_signal_lets_the_running_turn_finish_and_ends_with_zero() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let home = Home::new();
        let daemon = home.start().await?;
        let run = daemon.send("alice", "rehearse stall 1").await?;
        daemon.until(&run, "running").await?;
        daemon.signal(signal)?;
        let output = daemon.ended().await?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let daemon = home.start().await?;
        assert_eq!(daemon.run(&run).await?["status"], "completed");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_turn_that_outlives_the_grace_is_recorded_and_what_waits_is_answered_by_the_next_start() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence], Answer::text("next time")).await;
    let home = Home::new().openai(&model.base_url).set("agent.drain_s", 1);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "hang").await?;
    let waiting = daemon.send("alice", "wait").await?;
    model.seen(1).await;
    let output = daemon.shut_down().await?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let daemon = home.start().await?;
    let stopped = daemon.run(&run).await?;
    assert_eq!((stopped["status"].as_str(), stopped["reason"].as_str()), (Some("stopped"), Some("shutdown")));
    assert_eq!(daemon.finished(&waiting).await?["reply"], "next time");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_second_signal_exits_at_once() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Silence).await;
    let home = Home::new().openai(&model.base_url).set("agent.drain_s", 60);
    let mut daemon = home.start().await?;
    daemon.send("alice", "hang").await?;
    model.seen(1).await;
    daemon.signal(Signal::INT)?;
    daemon.logged("signal received").await?; // two signals at the same moment are one to the kernel
    daemon.signal(Signal::INT)?;
    let output = daemon.ended().await?;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn quit_is_for_operators_and_shutdown_works_over_http() -> Result<()> {
    let home = Home::new().env("BELAY_TOKEN", "user-token").env("BELAY_OPERATOR_TOKEN", "operator-token");
    let daemon = home.start().await?;
    let client = belay_tests::daemon::client();
    let post = |token: &str, path: &str| client.post(format!("{}{path}", daemon.url)).bearer_auth(token).send();
    assert_eq!(client.post(format!("{}/api/v1/shutdown", daemon.url)).send().await?.status(), 401);
    assert_eq!(post("wrong", "/api/v1/shutdown").await?.status(), 401);
    assert_eq!(post("user-token", "/api/v1/shutdown").await?.status(), 403);
    assert_eq!(post("operator-token", "/api/v1/shutdown").await?.status(), 200);
    let output = daemon.ended().await?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn under_systemd_with_dev_null_the_stdin_channel_is_off() -> Result<()> {
    let home = Home::new();
    let daemon = home.start_with(Stdio::null()).await?;
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    assert!(!status["channels"].to_string().contains("stdin"), "{status}");
    daemon.ask("alice", "hello").await?;
    daemon.shut_down().await?;
    Ok(())
}
