//! A client that sends more than is answered: what is refused, and what it costs to keep the rest.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;

/// Bytes of one message.
const BYTES: usize = 50_000;
/// Requests that a client has under way at once.
const ABREAST: usize = 16;

/// Messages of the measurement: a part of it, or `BELAY_OVERLOAD_MESSAGES` of them; 8000 are the whole.
fn messages() -> usize {
    std::env::var("BELAY_OVERLOAD_MESSAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_200)
}

/// Resident memory of a daemon in bytes. Linux: proc_pid_status(5), `VmRSS`.
fn resident(daemon: &Daemon) -> Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}

/// Sends messages to fresh sessions and counts the answers: accepted, refused for this sender, refused for everybody.
async fn flood(daemon: &Daemon, messages: usize, bytes: usize) -> Result<[usize; 3]> {
    let answers = stream::iter(0..messages).map(|n| async move {
        let text = format!("message {n} {}", "x".repeat(bytes));
        let (status, body) = daemon.post(json!({"session": format!("flood-{n}"), "text": text})).await?;
        let retry_after = body["error"]["retry_after_ms"].as_u64().unwrap_or(0);
        ensure!(status == 202 || (body["error"]["retryable"] == true && retry_after > 0), "{status} {body}");
        anyhow::Ok(status)
    });
    let statuses: Vec<u16> = answers.buffer_unordered(ABREAST).try_collect().await?;
    Ok([202, 429, 503].map(|wanted| statuses.iter().filter(|status| **status == wanted).count()))
}

#[tokio::test]
async fn what_waits_is_in_the_store_and_not_in_memory_before_and_after_a_kill() -> Result<()> {
    let model = ModelServer::start(Vec::new(), Answer::Silence).await;
    let home = Home::new()
        .openai(&model.base_url)
        .set("queue.max_messages_per_sender", 100_000)
        .set("queue.max_bytes", 4_u64 << 30);
    let daemon = home.start().await?;
    let idle = resident(&daemon)?;
    let sent = messages();
    // Less than the texts alone would take; 100 MiB for the whole measurement.
    let most = (sent * BYTES * 4 / 5).min(100 << 20);
    assert_eq!(flood(&daemon, sent, BYTES).await?, [sent, 0, 0]);
    let full = resident(&daemon)?;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    let again = resident(&daemon)?;
    let mib = |bytes: usize| bytes >> 20;
    println!("{sent} messages: idle {} MiB, full {} MiB, after a kill {} MiB", mib(idle), mib(full), mib(again));
    let open = status["queued"].as_u64().unwrap_or(0) + status["running"].as_array().map_or(0, Vec::len) as u64;
    assert_eq!(open, sent as u64, "none is lost: {status}");
    assert!(full < idle + most, "idle {idle}, full {full}");
    assert!(again < idle + most, "idle {idle}, after a kill {again}");
    daemon.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_is_refused_beyond_its_bound_everybody_beyond_the_daemons_and_operators_are_heard() -> Result<()> {
    let model = ModelServer::start(Vec::new(), Answer::Silence).await;
    let home = Home::new().openai(&model.base_url).set("queue.max_messages_per_sender", 20);
    let daemon = home.start().await?;
    assert_eq!(flood(&daemon, 30, 10).await?, [20, 10, 0]);
    let body = json!({"model": "belay", "messages": [{"role": "user", "content": "hello"}]});
    let (status, refused) = daemon.request("POST", "/v1/chat/completions", Some(body)).await?;
    assert_eq!((status, &refused["error"]["code"]), (429, &json!("busy")), "{refused}");
    let (_, command) = daemon.post(json!({"session": "flood-1", "text": "/ping"})).await?;
    assert_eq!(command["reply"], "pong");
    let (status, stopped) = daemon.request("POST", "/api/v1/stop", None).await?;
    assert_eq!(status, 200, "{stopped}");
    let admitted = async {
        while flood(&daemon, 1, 10).await? != [1, 0, 0] {
            tokio::time::sleep(Duration::from_millis(50)).await; // the stop is answered while runs still end
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, admitted).await.context("what has ended makes room")??;
    daemon.kill().await?;

    // More than all senders together may: the start counts what is there.
    let home = home.set("queue.max_messages_per_sender", 30).set("queue.max_messages", 1);
    let daemon = home.start().await?;
    assert_eq!(flood(&daemon, 1, 10).await?, [0, 0, 1]);
    daemon.kill().await?;
    Ok(())
}
