//! The gauges of `/metrics`: they follow the state of the daemon.

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

/// Most looks at a daemon that starts and ends threads, and the pause between two of them.
const LOOKS_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(100);

/// The page of metrics.
struct Page(String);

impl Page {
    async fn of(daemon: &Daemon) -> Result<Self> {
        let (status, text) = daemon.request("GET", "/metrics", None).await?;
        assert_eq!(status, 200);
        Ok(Self(text.as_str().context("text")?.to_owned()))
    }

    /// The value of the series that is written so.
    fn value(&self, series: &str) -> Result<f64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("{series} is not in\n{}", self.0))?.parse()?)
    }

    /// The numbers of running, queued and paused runs.
    fn runs(&self) -> Result<[f64; 3]> {
        let of = |state: &str| self.value(&format!("belay_runs{{state=\"{state}\"}}"));
        Ok([of("running")?, of("queued")?, of("paused")?])
    }
}

#[tokio::test]
async fn gauges_follow_the_runs_the_money_and_the_model() -> Result<()> {
    let error = json!({"error": {"message": "invalid key", "code": "invalid_api_key"}});
    let script = vec![Answer::text("first"), Answer::Stall, Answer::Status(401, error, Vec::new())];
    let model = ModelServer::start(script, Answer::text("well again")).await;
    let home = Home::new()
        .openai(&model.base_url)
        .settings("[llm]\nmax_attempts = 1\n[llm.price_usd]\ninput = 1\noutput = 2\n");
    let daemon = home.start().await?;

    daemon.ask("alice", "hello").await?;
    let idle = Page::of(&daemon).await?;
    assert_eq!(idle.runs()?, [0.0, 0.0, 0.0]);
    assert_eq!((idle.value("belay_oldest_waiting_message_seconds")?, idle.value("belay_model_up")?), (0.0, 1.0));
    assert_eq!((idle.value("belay_open_reservations")?, idle.value("belay_open_reservations_usd")?), (0.0, 0.0));
    let spent = idle.value("belay_spent_today_usd{purpose=\"chat\"}")?;
    assert!(spent > 0.0 && spent < 0.1, "{spent}");
    assert_eq!(idle.value("belay_spent_today_usd{purpose=\"job\"}")?, 0.0);

    let running = daemon.send("alice", "a long story").await?;
    model.seen(2).await;
    let waiting = daemon.send("alice", "and then?").await?;
    let busy = Page::of(&daemon).await?;
    assert_eq!(busy.runs()?, [1.0, 1.0, 0.0]);
    assert_eq!(busy.value("belay_open_reservations")?, 1.0);
    let reserved = busy.value("belay_open_reservations_usd")?;
    let spent_now = busy.value("belay_spent_today_usd{purpose=\"chat\"}")?;
    assert!(reserved > 0.0 && (spent_now - spent - reserved).abs() < 1e-9, "{spent} + {reserved} = {spent_now}");
    let later = Page::of(&daemon).await?;
    let age = |page: &Page| page.value("belay_oldest_waiting_message_seconds");
    assert!(age(&later)? > 0.0 && age(&later)? >= age(&busy)? && age(&later)? < 60.0, "{}", age(&later)?);

    let (status, _) = daemon.request("POST", &format!("/api/v1/runs/{running}/stop"), None).await?;
    assert_eq!(status, 200);
    assert_eq!(daemon.finished(&waiting).await?["status"], "failed");
    let down = Page::of(&daemon).await?;
    assert_eq!((down.runs()?, down.value("belay_model_up")?), ([0.0, 0.0, 0.0], 0.0));
    daemon.ask("alice", "are you there?").await?;
    assert_eq!(Page::of(&daemon).await?.value("belay_model_up")?, 1.0);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_is_paused() -> Result<()> {
    let home = Home::new().settings("[[approvals.rules]]\ntool = \"calculate\"\nask = \"always\"\n");
    let daemon = home.start().await?;
    let run = daemon.send("alice", r#"call calculate {"expression": "1 + 1"}"#).await?;
    daemon.until(&run, "paused").await?;
    assert_eq!(Page::of(&daemon).await?.runs()?, [0.0, 0.0, 1.0]);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_sizes_of_the_store_are_those_of_its_files() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let before = Page::of(&daemon).await?.value("belay_store_size_bytes{file=\"wal\"}")?;
    daemon.ask("alice", &"a long message ".repeat(2000)).await?;
    let page = Page::of(&daemon).await?;
    let database = std::fs::metadata(home.path().join("data/belay/belay.db"))?.len();
    assert_eq!(page.value("belay_store_size_bytes{file=\"database\"}")?, database as f64);
    let wal = page.value("belay_store_size_bytes{file=\"wal\"}")?;
    assert!(wal > before && wal >= 30_000.0, "{before}, then {wal}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_metrics_of_the_process_are_those_of_the_daemon() -> Result<()> {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
    let home = Home::new();
    let daemon = home.start().await?;
    let count = |what: &str| anyhow::Ok(std::fs::read_dir(format!("/proc/{}/{what}", daemon.pid()))?.count() as f64);
    // Threads and files come and go, so the page and /proc agree only while none does. The page is made while its own
    // connection and a directory of /proc are open.
    let mut looks = 0;
    let page = loop {
        let (threads, files) = (count("task")?, count("fd")?);
        let page = Page::of(&daemon).await?;
        let differ = [page.value("process_threads")? - threads, page.value("process_open_fds")? - files];
        if differ[0].abs() < 0.5 && differ[1].abs() < 3.5 {
            break page;
        }
        looks += 1;
        assert!(looks < LOOKS_MAX, "the page and /proc differ: {differ:?}");
        tokio::time::sleep(LOOK).await;
    };
    assert!(page.value("process_max_fds")? >= page.value("process_open_fds")?);
    assert!(page.value("process_resident_memory_bytes")? > 1_000_000.0);
    assert!(page.value("process_cpu_seconds_total")? < 60.0);
    // The kernel counts in ticks since a start that it knows to the second.
    let started = page.value("process_start_time_seconds")?;
    assert!(started >= before - 2.0 && started <= before + 60.0, "{before}, then {started}");
    daemon.shut_down().await?;
    Ok(())
}
