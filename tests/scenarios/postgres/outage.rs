//! A server that is killed, and what the daemon does until it is back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use belay_testkit::postgres::{PostgresOptions, PostgresServer, Programs};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// How often a condition of another process is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A server that the test may kill, and a home whose store is in it. `None`: there is no PostgreSQL here.
fn server_and_home() -> Result<Option<(PostgresServer, Home)>> {
    let Some(programs) = Programs::for_test()? else { return Ok(None) };
    let server = PostgresServer::start(&programs, &PostgresOptions::default())?;
    server.create_database("belay")?;
    let home = Home::new().store(&format!("{}?sslmode=disable", server.url("belay")));
    Ok(Some((server, home)))
}

/// Waits until `/readyz` answers with this status, and returns its body.
async fn until_readiness(daemon: &Daemon, wanted: u16) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, body) = daemon.request("GET", "/readyz", None).await?;
        if status == wanted {
            return Ok(body);
        }
        ensure!(Instant::now() < deadline, "readiness did not become {wanted}: {status} {body}");
        sleep(LOOK).await;
    }
}

fn message(session: &str, text: &str) -> Value {
    json!({"session": session, "text": text, "idempotency_key": format!("{session} {text}")})
}

/// Sends a message until it is accepted, as clients do after an error with `retryable`. Returns the id of its run.
async fn send_until_accepted(daemon: &Daemon, body: &Value) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = daemon.post(body.clone()).await?;
        match status {
            200 | 202 => return Ok(answer["run_id"].as_str().context("run_id")?.to_owned()),
            503 if answer["error"]["retryable"] == true && Instant::now() < deadline => sleep(LOOK).await,
            _ => bail!("{body} was answered with {status}: {answer}"),
        }
    }
}

/// Reads until the store can be read: each reading connection finds out by itself that the server is back.
async fn read(daemon: &Daemon, path: &str) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = daemon.request("GET", path, None).await?;
        match status {
            200 => return Ok(answer),
            503 if answer["error"]["retryable"] == true && Instant::now() < deadline => sleep(LOOK).await,
            _ => bail!("{path} was answered with {status}: {answer}"),
        }
    }
}

/// Waits for the end of a run.
async fn end_of(daemon: &Daemon, run: &str) -> Result<Value> {
    read(daemon, &format!("/api/v1/runs/{run}/wait?timeout_ms={}", PATIENCE.as_millis())).await
}

/// Role and text of each message of a conversation.
async fn history(daemon: &Daemon, session: &str) -> Result<Vec<(String, String)>> {
    let history = read(daemon, &format!("/api/v1/sessions/{session}/messages?limit=100")).await?;
    let of = |message: &Value, field: &str| message[field].as_str().unwrap_or_default().to_owned();
    let messages = history["messages"].as_array().context("messages")?;
    Ok(messages.iter().map(|message| (of(message, "role"), of(message, "text"))).collect())
}

/// Checks that the events of each run are in order, that no event occurs twice, and that each run has one end.
async fn events_are_whole(daemon: &Daemon, runs: &[String]) -> Result<()> {
    let mut numbers = BTreeSet::new();
    for run in runs {
        end_of(daemon, run).await?;
        let events = read(daemon, &format!("/api/v1/runs/{run}/events")).await?;
        let events = events.as_str().context("a stream")?.lines().filter_map(|line| line.strip_prefix("data:"));
        let events = events.map(|data| Ok(serde_json::from_str(data)?)).collect::<Result<Vec<Value>>>()?;
        let of_run: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        ensure!(of_run.is_sorted() && of_run.len() == events.len(), "{events:?}");
        ensure!(of_run.iter().all(|number| numbers.insert(*number)), "an event is in two runs: {events:?}");
        for (kind, times) in [("run_accepted", 1), ("run_ended", 1)] {
            ensure!(events.iter().filter(|event| event["type"] == kind).count() == times, "{kind}: {events:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn while_the_server_is_down_messages_are_refused_as_retryable_and_the_run_ends_after_its_return() -> Result<()> {
    let Some((mut server, home)) = server_and_home()? else { return Ok(()) };
    let go_on = Arc::new(Notify::new());
    let held = Answer::Held(go_on.clone(), "answered during the outage".into());
    let model = ModelServer::start(vec![Answer::text("hi"), held], Answer::text("answered later")).await;
    let home = home.openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    let run = daemon.send("alice", "in the middle").await?;
    model.seen(2).await;

    server.kill()?;
    let body = until_readiness(&daemon, 503).await?;
    // The first look may meet the lost connection, a later one the refused one.
    let reason = body["reason"].as_str().context("a reason")?;
    ensure!(["the store cannot take a write", "the store does not answer"].contains(&reason), "{body}");
    let later = [message("alice", "later"), message("bob", "later")];
    for body in &later {
        let (status, refusal) = daemon.post(body.clone()).await?;
        assert_eq!((status, &refusal["error"]["retryable"]), (503, &json!(true)), "{refusal}");
        assert!(!refusal.to_string().contains("postgres"), "clients read nothing about the server: {refusal}");
    }
    let (status, refusal) = daemon.request("GET", "/api/v1/runs", None).await?;
    assert_eq!((status, &refusal["error"]["retryable"]), (503, &json!(true)), "{refusal}");
    assert_eq!(daemon.request("GET", "/livez", None).await?.0, 200);
    go_on.notify_one();

    server.restart()?;
    until_readiness(&daemon, 200).await?;
    let ended = daemon.until(&run, "completed").await?;
    assert_eq!(ended["reply"], "answered during the outage", "{ended}");
    let mut runs = vec![run];
    for body in &later {
        let accepted = send_until_accepted(&daemon, body).await?;
        assert_eq!(send_until_accepted(&daemon, body).await?, accepted, "the same key is the same run");
        assert_eq!(end_of(&daemon, &accepted).await?["reply"], "answered later");
        runs.push(accepted);
    }
    assert_eq!(model.requests().len(), 4, "each message was answered once");
    let pairs = |texts: &[(&str, &str)]| -> Vec<(String, String)> {
        let both = texts.iter().flat_map(|(asked, reply)| [("user", asked), ("assistant", reply)]);
        both.map(|(role, text)| (role.to_owned(), (*text).to_owned())).collect()
    };
    let alice = [("hello", "hi"), ("in the middle", "answered during the outage"), ("later", "answered later")];
    assert_eq!(history(&daemon, "alice").await?, pairs(&alice));
    assert_eq!(history(&daemon, "bob").await?, pairs(&[("later", "answered later")]));
    events_are_whole(&daemon, &runs).await?;
    let log = daemon.shut_down().await?;
    assert!(log.status.success() && log.stderr.contains("the database answers again"), "{}", log.stderr);
    assert!(!log.stderr.contains("panicked"), "{}", log.stderr);
    Ok(())
}

/// The number of sessions under load, and of messages in each of them.
const SESSIONS: usize = 4;
const MESSAGES: usize = 6;

/// A message whose run writes this line into a file once, and answers with it.
fn writing(session: usize, n: usize) -> (String, Value) {
    let line = format!("line-{session}-{n}");
    let argv = json!({"argv": ["sh", "-c", format!("echo {line} | tee -a effects")]});
    (line, message(&format!("s{session}"), &format!("call run_command {argv}")))
}

#[tokio::test]
async fn killed_under_load_the_server_comes_back_and_each_accepted_run_completes_with_its_effect_once() -> Result<()> {
    let Some((mut server, home)) = server_and_home()? else { return Ok(()) };
    let home = home
        .settings("[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\nallow_untrusted = true\n")
        .set("agent.max_concurrent_turns", 8);
    let effects = home.workspace().join("effects");
    let daemon = home.start().await?;
    let bodies: Vec<(String, Value)> =
        (0..SESSIONS).flat_map(|session| (0..MESSAGES).map(move |n| writing(session, n))).collect();
    let mut runs = Vec::new();
    for (n, (_, body)) in bodies.iter().enumerate() {
        if n % 8 == 5 {
            // Runs are in each of their steps now.
            server.kill()?;
            let (status, refusal) = daemon.post(body.clone()).await?;
            assert_eq!((status, &refusal["error"]["retryable"]), (503, &json!(true)), "{refusal}");
            until_readiness(&daemon, 503).await?;
            server.restart()?;
        }
        runs.push(send_until_accepted(&daemon, body).await?);
    }
    until_readiness(&daemon, 200).await?;
    for ((line, body), run) in bodies.iter().zip(&runs) {
        assert_eq!(&send_until_accepted(&daemon, body).await?, run, "the same key is the same run");
        let ended = end_of(&daemon, run).await?;
        assert_eq!((&ended["status"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended}");
        assert!(ended["reply"].as_str().is_some_and(|reply| reply.contains(line)), "{ended}");
    }
    let mut written: Vec<String> = std::fs::read_to_string(effects)?.lines().map(str::to_owned).collect();
    written.sort_unstable();
    let lines: Vec<String> = bodies.iter().map(|(line, _)| line.clone()).collect();
    assert_eq!(written, lines, "each effect is there once");
    for (session, bodies) in bodies.chunks(MESSAGES).enumerate() {
        let history = history(&daemon, &format!("s{session}")).await?;
        let of_role = |wanted: &str| -> Vec<&str> {
            history.iter().filter(|(role, _)| role == wanted).map(|(_, text)| text.as_str()).collect()
        };
        let asked: Vec<&str> = bodies.iter().filter_map(|(_, body)| body["text"].as_str()).collect();
        assert_eq!(of_role("user"), asked, "{history:?}");
        let replies = of_role("assistant").into_iter().filter(|text| text.contains("line-")).collect::<Vec<_>>();
        assert_eq!(replies.len(), bodies.len(), "{history:?}");
        for ((line, _), reply) in bodies.iter().zip(replies) {
            assert!(reply.contains(line), "{line} in {history:?}");
        }
    }
    events_are_whole(&daemon, &runs).await?;
    let ended = daemon.shut_down().await?;
    assert!(ended.status.success() && !ended.stderr.contains("panicked"), "{}", ended.stderr);
    Ok(())
}

#[tokio::test]
async fn a_daemon_that_is_killed_while_the_server_is_down_starts_after_its_return_and_goes_on() -> Result<()> {
    let Some((mut server, home)) = server_and_home()? else { return Ok(()) };
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("after both")).await;
    let home = home.openai(&model.base_url);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "hello").await?;
    model.seen(1).await;
    server.kill()?;
    until_readiness(&daemon, 503).await?;
    daemon.kill().await?;
    let mut daemon = home.begin()?;
    let line = daemon.logged("the start waits for the database").await?;
    assert!(line.contains("check that it runs"), "{line}");

    server.restart()?;
    daemon.ready().await?;
    let ended = end_of(&daemon, &run).await?;
    assert_eq!((&ended["reply"], &ended["attempt"]), (&json!("after both"), &json!(2)), "{ended}");
    events_are_whole(&daemon, &[run]).await?;
    daemon.shut_down().await?;
    Ok(())
}
