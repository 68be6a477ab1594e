//! The RPC over WebSocket, and `belay agent`, with the real daemon behind them.

use std::process::Stdio;

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::socket::Socket;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

fn message(session: &str, text: &str, key: &str) -> Value {
    json!({ "sessionKey": session, "message": text, "idempotencyKey": key })
}

fn is_end(event: &Value) -> bool {
    event["stream"] == "lifecycle" && matches!(event["data"]["phase"].as_str(), Some("end" | "error"))
}

#[tokio::test]
async fn a_message_is_heard_from_its_start_to_one_end_and_its_answer_outlasts_a_crash() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let mut socket = Socket::open(&daemon).await?;
    let id = socket.ask("agent", message("s", "calculate 17*23", "k")).await?;
    let accepted = socket.answer(&id).await?;
    assert_eq!(accepted["status"], "accepted", "{accepted}");
    let end = socket.answer(&id).await?;
    assert_eq!(end["status"], "ok", "{end}");
    assert!(socket.has_passed("agent", is_end), "the last event comes before the last answer");
    let answer = end["result"]["payloads"][0]["text"].as_str().context("a text")?;
    assert!(answer.contains("391"), "{end}");
    let events = socket.events("agent", is_end).await?;
    let told: Vec<_> = events.iter().map(|event| (&event["stream"], &event["data"]["phase"])).collect();
    for part in [("lifecycle", "start"), ("tool", "start"), ("tool", "result")] {
        assert!(told.contains(&(&json!(part.0), &json!(part.1))), "{part:?} in {told:#?}");
    }
    let numbers: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    let whole = &events[events.len() - 2]["data"];
    assert_eq!((whole["text"].as_str(), &whole["final"]), (Some(answer), &json!(true)));

    daemon.kill().await?;
    let daemon = home.start().await?;
    let mut socket = Socket::open(&daemon).await?;
    assert_eq!(
        socket.call("agent", message("s", "calculate 17*23", "k")).await?,
        end,
        "the same answer, from the store"
    );
    let waited = socket.call("agent.wait", json!({ "runId": end["runId"], "timeoutMs": 0 })).await?;
    assert_eq!((&waited["status"], &waited["endedAt"]), (&json!("ok"), &end["endedAt"]));
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "no second run");
    let unknown = json!({ "sessionKey": "s", "thinking": "low", "model": "no-such-model" });
    let refused = socket.call("sessions.patch", unknown).await.expect_err("there is no such model").to_string();
    assert!(refused.contains("There is no model no-such-model") && refused.contains("thinking"), "{refused}");
    let beyond = json!({ "sessionKey": "s", "since": u64::MAX });
    let refused = socket.call("sessions.subscribe", beyond).await.expect_err("there is no such event").to_string();
    assert!(refused.contains("invalid_cursor"), "{refused}");
    socket.call("sessions.subscribe", json!({ "sessionKey": "s", "since": 0 })).await?;
    let replayed = socket.events("agent", is_end).await?;
    let cursors =
        |events: &[Value]| -> Vec<u64> { events.iter().filter_map(|event| event["cursor"].as_u64()).collect() };
    assert_eq!(cursors(&replayed), cursors(&events), "the same facts, told again after a restart");
    daemon.shut_down().await?;
    Ok(())
}

/// A machine that is busy with other things may be late once; a daemon that waits for a model is late always.
#[tokio::test]
async fn a_message_is_acknowledged_by_a_daemon_whose_model_hangs() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Silence).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let mut socket = Socket::open(&daemon).await?;
    for number in 0..3 {
        let id = socket.ask("agent", message(&format!("s{number}"), "hello", "k")).await?;
        let accepted = socket.answer(&id).await?;
        assert_eq!(accepted["status"], "accepted", "{accepted}");
        let waited = socket.call("agent.wait", json!({ "runId": accepted["runId"], "timeoutMs": 0 })).await?;
        assert_eq!(waited["status"], "timeout", "nothing has answered: {waited}");
    }
    daemon.request("POST", "/api/v1/stop", None).await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_run_is_stopped_a_late_reader_hears_what_was_said_and_the_end_of_the_daemon_is_told() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let mut socket = Socket::open(&daemon).await?;
    let sent = socket.call("chat.send", message("s", "hello", "k")).await?;
    socket.event("chat").await?; // the first delta: it is at work
    let mut late = Socket::open(&daemon).await?;
    late.call("sessions.subscribe", json!({ "sessionKey": "s" })).await?;
    let heard = late.events("agent", |event| event["stream"] == "assistant").await?;
    let said = heard.last().and_then(|event| event["data"]["text"].as_str()).unwrap_or_default();
    assert!(!said.is_empty(), "{heard:#?}");
    let history = late.call("chat.history", json!({ "sessionKey": "s" })).await?;
    assert_eq!(history["inFlightRun"]["runId"], sent["runId"], "{history}");
    let aborted = late.call("chat.abort", json!({ "sessionKey": "s" })).await?;
    assert_eq!((&aborted["aborted"], &aborted["runIds"]), (&json!(true), &json!([sent["runId"]])));
    let last = socket.events("chat", |event| event["state"] != "delta").await?.pop().context("an end")?;
    assert_eq!(last["state"], "aborted", "{last}");

    let id = socket.ask("agent", message("s", "again", "k2")).await?;
    socket.answer(&id).await?;
    socket.events("agent", |event| event["stream"] == "assistant").await?;
    daemon.signal(Signal::TERM)?;
    socket.event("shutdown").await?;
    let end = socket.answer(&id).await?;
    assert_eq!((&end["status"], &end["error"]), (&json!("error"), &json!("aborted")), "{end}");
    assert_eq!(socket.closed().await?, Some(1012));
    assert_eq!(daemon.ended().await?.status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn belay_agent_shows_the_answer_as_it_comes_and_once() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let url = daemon.url.clone();
    for args in [&["agent", "--stream"][..], &["agent"]] {
        let args: Vec<_> = args.iter().copied().chain(["--url", &url, "calculate 17*23"]).collect();
        let output = home.run(&args, "").await?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout.matches("391").count(), 1, "{output:?}");
    }
    let json = home.run(&["agent", "--url", &url, "--stream", "--json", "--session", "j", "hello"], "").await?;
    let lines: Vec<Value> = json.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let last = lines.last().context("lines")?;
    assert_eq!(last["status"], "completed", "{json:?}");
    assert!(lines.iter().any(|line| line["stream"] == "lifecycle"), "{json:?}");
    let command = home.run(&["agent", "--url", &url, "/ping"], "").await?;
    assert_eq!((command.status.code(), command.stdout.trim().is_empty()), (Some(0), false), "{command:?}");
    let wrong = home.run(&["agent", "--url", &url, "--thinking", "hard", "hi"], "").await?;
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn ctrl_c_stops_the_run_of_belay_agent_and_says_so() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let mut command = home.command(&["agent", "--url", &daemon.url, "--stream", "hello"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().context("stdout")?;
    timeout(PATIENCE, stdout.read_exact(&mut first)).await.context("a first word")??;
    let pid = Pid::from_raw(i32::try_from(child.id().context("a pid")?)?).context("not zero")?;
    kill_process(pid, Signal::INT)?;
    let output = timeout(PATIENCE, child.wait_with_output()).await.context("it did not end")??;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("interrupted") && said.contains("stopped"), "{said}");
    let (_, runs) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!(runs["runs"][0]["status"], "stopped", "{runs}");
    daemon.shut_down().await?;
    Ok(())
}
