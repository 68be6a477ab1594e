//! What a kill leaves, and what the next start makes of it.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::json;

#[tokio::test]
async fn killed_during_a_model_call_the_message_is_answered_once_in_the_same_conversation() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("hi"), Answer::Stall], Answer::text("after the restart")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    let run = daemon.send("alice", "how are you").await?;
    let waiting = daemon.send("alice", "and you").await?;
    model.seen(2).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let first = daemon.finished(&run).await?;
    assert_eq!((first["status"].as_str(), first["attempt"].as_u64()), (Some("completed"), Some(2)), "{first}");
    assert_eq!(daemon.finished(&waiting).await?["status"], "completed");
    let (_, history) = daemon.request("GET", "/api/v1/sessions/alice/messages", None).await?;
    let texts: Vec<_> =
        history["messages"].as_array().into_iter().flatten().filter_map(|m| m["text"].as_str()).collect();
    assert_eq!(texts, ["hello", "hi", "how are you", "after the restart", "and you", "after the restart"]);
    assert_eq!(model.requests().len(), 4, "each message was answered once");
    daemon.shut_down().await?;
    Ok(())
}

/// Sets the limit of file sizes of a process, in bytes; `None`: as far as it may go.
fn limit_files(pid: u32, bytes: Option<u64>) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None })?;
    Ok(())
}

#[tokio::test]
async fn a_limit_of_file_sizes_is_like_a_full_disk_and_does_not_end_the_daemon() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("alice", "calculate 2*3").await?;
    limit_files(daemon.pid(), Some(4096))?;
    let message = json!({"session": "alice", "text": "x".repeat(50_000)});
    let (status, refusal) = daemon.post(message).await?;
    assert_eq!(status, 503, "{refusal}");
    let words = refusal["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("the disk cannot be written"), "{refusal}");
    limit_files(daemon.pid(), None)?;
    assert_eq!(daemon.ask("alice", "calculate 2*4").await?["status"], "completed");
    // Caught and not ignored: what the daemon starts inherits the latter.
    let process = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let has = |field: &str| {
        let mask = process.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default().trim();
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & (1 << (Signal::XFSZ.as_raw() - 1)) != 0)
    };
    assert_eq!((has("SigCgt:"), has("SigIgn:")), (true, false), "{process}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn events_of_a_run_replay_from_any_point_also_after_a_restart() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "calculate 2*3").await?;
    let id = run["run_id"].as_str().unwrap_or_default().to_owned();
    let before = daemon.events(&id).await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    assert_eq!(daemon.events(&id).await?, before);
    let kinds: Vec<_> = before.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds,
        ["run_accepted", "run_started", "model_called", "tool_started", "tool_finished", "model_called", "run_ended"]
    );
    let cursor = before[3]["seq"].clone();
    let (_, rest) = daemon.request("GET", &format!("/api/v1/runs/{id}/events?since={cursor}"), None).await?;
    let rest = rest.as_str().unwrap_or_default().matches("data:").count();
    assert_eq!(rest, 3);
    assert_eq!(daemon.run(&id).await?, run);
    daemon.shut_down().await?;
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_daemon_is_refused_by_every_name_of_the_store_and_without_the_lock_file() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let database = home.path().join("data/belay/belay.db");
    let names = ["symbolic.db", "hard.db", "data/../data/belay/belay.db"].map(|name| home.path().join(name));
    std::os::unix::fs::symlink(&database, &names[0])?;
    std::fs::hard_link(&database, &names[1])?;
    std::fs::remove_file(home.path().join("data/belay/belay.db.lock"))?;
    for name in names.iter().chain([&database]) {
        let store = format!("store.url=sqlite://{}", name.display());
        let args = ["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", &store];
        let output = home.run(&args, "").await?;
        assert_eq!(output.status.code(), Some(75), "{}: {output:?}", name.display());
        assert!(output.stderr.contains("in use by another belay"), "{output:?}");
    }
    // What only reads goes on as before.
    assert_eq!(daemon.ask("alice", "hello").await?["status"], "completed");
    let output = home.run(&["sessions"], "").await?;
    assert!(output.status.success() && output.stdout.contains("alice"), "{output:?}");
    let output = home.run(&["ask", "--set", "llm.provider=rehearsal", "hello"], "").await?;
    assert!(output.status.success(), "{output:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_second_daemon_on_the_same_store_is_refused() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let output = home.run(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"], "").await?;
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert!(output.stderr.contains(&daemon.pid().to_string()), "it names the owner: {output:?}");
    assert!(output.stderr.contains("STATE_DIRECTORY=/absolute/path"), "{output:?}");
    // With another store, the control socket is in use.
    let other = home.path().join("other.db");
    let store = format!("store.url=sqlite://{}", other.display());
    let start = ["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", &store];
    let output = home.run(&start, "").await?;
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    for part in ["another Belay is running", "STATE_DIRECTORY=/absolute/path"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_days_money_is_remembered_over_a_kill() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url).set("llm.max_tokens", 100).set("limits.usd_per_day", 0.0005);
    // 1 dollar for a million tokens: a call of 110 tokens costs 110 millionths, and reserves about 800.
    let home = home.set("llm.price_usd.input", 1).set("llm.price_usd.output", 1);
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    let spent = status["spent_today_micro_usd"].as_u64();
    daemon.kill().await?;
    let daemon = home.start().await?;
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    assert_eq!(status["spent_today_micro_usd"].as_u64(), spent, "{run}");
    daemon.shut_down().await?;
    Ok(())
}
