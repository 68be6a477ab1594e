//! Stop means stopped, measured from outside.

use std::process::Stdio;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

#[tokio::test]
async fn the_stop_route_ends_a_streaming_run_and_closes_the_connection_to_the_model() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "talk for ever").await?;
    model.seen(1).await;
    let (status, report) = daemon.request("POST", &format!("/api/v1/runs/{run}/stop?wait_ms=10000"), None).await?;
    assert_eq!((status, &report["stopped"]), (200, &json!([run])), "{report}");
    let stopped = daemon.run(&run).await?;
    assert_eq!((stopped["status"].as_str(), stopped["reason"].as_str()), (Some("stopped"), Some("user_stop")));
    model.dropped(1).await;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_operators_stop_over_another_channel_ends_a_run_that_stalls() -> Result<()> {
    let home = Home::new();
    let mut daemon = home.start_with(Stdio::piped()).await?;
    let run = daemon.send("alice", "rehearse stall").await?;
    daemon.until(&run, "running").await?;
    daemon.type_line(&format!("/stop {run}")).await?;
    daemon.printed("Interrupted").await?;
    let stopped = daemon.run(&run).await?;
    assert_eq!((&stopped["status"], &stopped["reason"]), (&json!("stopped"), &json!("operator_stop")), "{stopped}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_session_and_everything_can_be_stopped_and_the_queue_goes_with_them() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Silence).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let first = daemon.send("alice", "one").await?;
    let second = daemon.send("alice", "two").await?;
    let other = daemon.send("bob", "three").await?;
    model.seen(2).await;
    let (_, report) = daemon.request("POST", "/api/v1/sessions/alice/stop?wait_ms=10000", None).await?;
    assert_eq!(report["stopped"].as_array().map(Vec::len), Some(2), "{report}");
    for run in [&first, &second] {
        assert_eq!(daemon.run(run).await?["status"], "stopped");
    }
    assert_eq!(daemon.run(&other).await?["status"], "running");
    let (_, report) = daemon.request("POST", "/api/v1/stop?wait_ms=10000", None).await?;
    assert_eq!(report["stopped"], json!([other]), "{report}");
    daemon.finished(&other).await?;
    assert_eq!(daemon.request("POST", &format!("/api/v1/runs/{other}/stop"), None).await?.1["stopped"], json!([]));
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_drops_its_stream_stops_the_run() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let client = belay_tests::daemon::client();
    let body = json!({"model": "belay", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let mut response = client.post(format!("{}/v1/chat/completions", daemon.url)).json(&body).send().await?;
    assert!(response.chunk().await?.is_some());
    model.seen(1).await; // a client that goes away before the model is asked leaves no connection to close
    drop(response);
    model.dropped(1).await;
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    let id = runs["runs"][0]["run_id"].as_str().unwrap_or_default().to_owned();
    let run = daemon.finished(&id).await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("stopped"), Some("client_gone")), "{run}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_wait_that_times_out_ends_only_the_wait() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let body = json!({"session": "alice", "text": "rehearse stall 2", "wait_ms": 50});
    let (status, accepted) = daemon.post(body).await?;
    assert_eq!(status, 202, "{accepted}");
    let id = accepted["run_id"].as_str().unwrap_or_default().to_owned();
    let (status, run) = daemon.request("GET", &format!("/api/v1/runs/{id}/wait?timeout_ms=20"), None).await?;
    assert_eq!((status, run["status"].as_str()), (200, Some("running")), "{run}");
    assert_eq!(daemon.finished(&id).await?["status"], "completed");
    daemon.shut_down().await?;
    Ok(())
}
