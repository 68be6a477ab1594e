//! Bad input from every side: an error that says what is wrong, nothing lost, nobody else disturbed.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn a_lying_model_server_is_an_honest_error_and_the_next_message_works() -> Result<()> {
    let html = Answer::Raw("text/html", b"<html>gateway</html>".to_vec());
    let half = Answer::Raw(
        "text/event-stream",
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"},\"finish_reason\":null}]}\n\n".to_vec(),
    );
    let garbage = Answer::Raw("text/event-stream", b"data: {not json}\n\ndata: [DONE]\n\n".to_vec());
    let binary = Answer::Raw("text/event-stream", vec![0xff; 4096]);
    for (name, answer, reason) in [
        ("not the protocol", html, "network"),
        ("half a stream", half, "network"),
        ("garbage", garbage, "network"),
        ("binary", binary, "network"),
        ("wrong key", Answer::Status(401, json!({"error": {"message": "bad key"}}), vec![]), "provider_auth"),
        ("bad request", Answer::Status(400, json!({"error": {"message": "no"}}), vec![]), "bad_request"),
    ] {
        let model = ModelServer::start(vec![], answer).await;
        let home = Home::new().openai(&model.base_url).set("llm.max_attempts", 2);
        let daemon = home.start().await?;
        let run = daemon.ask("alice", "hello").await?;
        assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("failed"), Some(reason)), "{name}: {run}");
        let sent = if reason == "network" { 2 } else { 1 };
        assert_eq!(model.requests().len(), sent, "{name}: the budget of requests");
        assert_eq!(daemon.request("GET", "/readyz", None).await?.0, 200, "{name}");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_recovers_within_the_budget_is_answered_from() -> Result<()> {
    let overloaded = Answer::Status(503, json!({"error": {"message": "later"}}), vec![("retry-after", "1".into())]);
    let model = ModelServer::start(vec![overloaded], Answer::text("there you are")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    assert_eq!(
        (run["reply"].as_str(), run["usage"]["model_calls"].as_u64()),
        (Some("there you are"), Some(2)),
        "{run}"
    );
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_unreachable_model_fails_the_run_and_not_the_daemon() -> Result<()> {
    let home = Home::new().openai("http://127.0.0.1:9/v1").set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    assert_eq!((run["status"].as_str(), run["reason"].as_str()), (Some("failed"), Some("network")), "{run}");
    assert_eq!(daemon.request("GET", "/readyz", None).await?.0, 200, "a model that is away does not fail readiness");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_silent_model_is_given_up_and_a_slow_one_is_not() -> Result<()> {
    let slow = Answer::Drip("slow but sure".into(), Duration::from_millis(1));
    let model = ModelServer::start(vec![Answer::Silence, slow], Answer::text("ok")).await;
    // So long that a busy machine is not taken for a silent model.
    let home = Home::new().openai(&model.base_url).set("llm.idle_timeout_s", 10).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    assert_eq!(run["reason"], "network", "{run}");
    let run = daemon.ask("alice", "hello again").await?;
    assert_eq!(run["reply"], "slow but sure", "{run}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn calls_that_lie_about_ids_names_and_arguments_each_get_one_result() -> Result<()> {
    let good = json!({"expression": "2+2"}).to_string();
    let calls = vec![
        ("calculate".to_owned(), good.clone()),
        ("calculate".to_owned(), "{\"expression\": \"2+".to_owned()),
        ("no_such_tool".to_owned(), "{}".to_owned()),
        ("calculate".to_owned(), json!({"expression": "x".repeat(200_000)}).to_string()),
        ("calculate".to_owned(), json!({"expression": "1", "extra": true}).to_string()),
    ];
    let mut twice = calls.clone();
    twice.extend(calls);
    let model = ModelServer::start(vec![Answer::Calls(twice)], Answer::text("done")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "go").await?;
    assert_eq!(run["reply"], "done", "{run}");
    let second = &model.requests()[1]["messages"];
    let messages = second.as_array().cloned().unwrap_or_default();
    let asked: Vec<_> = messages.iter().flat_map(|m| m["tool_calls"].as_array().cloned().unwrap_or_default()).collect();
    let answered: Vec<_> = messages.iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!((asked.len(), answered.len()), (10, 10));
    for (call, result) in asked.iter().zip(answered) {
        assert_eq!(call["id"], result["tool_call_id"]);
        assert!(
            serde_json::from_str::<serde_json::Value>(call["function"]["arguments"].as_str().unwrap_or("")).is_ok()
        );
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn invalid_utf8_on_stdin_is_told_and_the_next_line_works() -> Result<()> {
    let home = Home::new();
    let mut command = home.command(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"hello \xff\xfe\ncalculate 4*4\n").await?;
    drop(stdin);
    let output = tokio::time::timeout(belay_tests::daemon::PATIENCE, child.wait_with_output()).await??;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("16"), "{stdout}\n{stderr}");
    assert!(format!("{stdout}{stderr}").contains("UTF-8"), "{stdout}\n{stderr}");
    assert_eq!(output.status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn one_session_in_trouble_does_not_disturb_another() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Silence, Answer::Stall], Answer::text("fine")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.send("one", "hang").await?;
    model.seen(1).await;
    daemon.send("two", "stall").await?;
    model.seen(2).await;
    let run = daemon.ask("three", "hello").await?;
    assert_eq!(run["reply"], "fine");
    daemon.request("POST", "/api/v1/stop", None).await?;
    daemon.shut_down().await?;
    Ok(())
}
