//! `belay migrate` through the real binary.

use anyhow::{Context, Result, ensure};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_tests::daemon::{Daemon, Home};
use serde_json::Value;

/// The number of runs of a session.
async fn runs(daemon: &Daemon, session: &str) -> Result<usize> {
    let (_, runs) = daemon.request("GET", &format!("/api/v1/runs?session={session}"), None).await?;
    Ok(runs["runs"].as_array().context("runs")?.len())
}

#[tokio::test]
async fn a_conversation_goes_on_in_postgresql_and_back_in_a_file() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let server = tokio::task::spawn_blocking(move || PostgresServer::shared(&programs)).await??;
    let database = tokio::task::spawn_blocking(move || TestDatabase::new(server)).await??;
    let address = format!("{}?sslmode=disable", database.url());

    let home = Home::new();
    let data = home.path().join("data/belay");
    let file = format!("sqlite://{}", data.join("belay.db").display());
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    let busy = home.run(&["migrate", &file, &address], "").await?;
    ensure!(busy.status.code() == Some(75) && busy.stderr.contains("belay shutdown"), "{busy:?}");
    daemon.shut_down().await?;

    let there = home.run(&["migrate", &file, &address], "").await?;
    ensure!(there.status.success() && there.stderr.is_empty(), "{there:?}");
    for words in ["runs ", " equal", "built anew", "store.url", "stay in", "secret.key", "twice"] {
        ensure!(there.stdout.contains(words), "{words}: {there:?}");
    }
    ensure!(!there.stdout.contains(['\r', '\x1b', '%']), "no progress in a pipe: {there:?}");
    let again = home.run(&["migrate", &file, &address], "").await?;
    ensure!(again.status.code() == Some(2) && again.stderr.contains("not empty"), "{again:?}");

    let home = home.set("store.url", address.as_str());
    let daemon = home.start().await?;
    ensure!(runs(&daemon, "anna").await? == 1, "the conversation is there");
    daemon.ask("anna", "and again").await?;
    let busy = home.run(&["migrate", &address, &file], "").await?;
    ensure!(busy.status.code() == Some(75), "{busy:?}");
    daemon.shut_down().await?;

    let elsewhere = home.path().join("elsewhere/belay.db");
    let file = format!("sqlite://{}", elsewhere.display());
    let back = home.run(&["migrate", &address, &file, "--json"], "").await?;
    let report: Value = serde_json::from_str(&back.stdout)?;
    ensure!(back.status.success() && report["equal"] == true, "{back:?}");
    let files = |side: &str| report["files"][side].as_str().unwrap_or_default().to_owned();
    ensure!(files("source") == data.join("attachments").display().to_string(), "{report}");
    ensure!(files("target") == home.path().join("elsewhere/attachments").display().to_string(), "{report}");
    let home = home.set("store.url", file.as_str());
    let daemon = home.start().await?;
    ensure!(runs(&daemon, "anna").await? == 2, "both turns are there");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_address_is_refused_without_its_password() -> Result<()> {
    let home = Home::new();
    for (source, target, words) in [
        ("sqlite:///nowhere/belay.db", "sqlite:///nowhere/new.db", "there is no store at"),
        ("mysql://u:hunter2@h/d", "sqlite:///nowhere/new.db", "SOURCE: "),
        ("sqlite:///nowhere/belay.db", "postgres://u:hunter2@h", "TARGET: "),
        ("memory:", "sqlite:///nowhere/new.db", "in memory"),
    ] {
        let refused = home.run(&["migrate", source, target], "").await?;
        ensure!(refused.status.code() == Some(2) && refused.stderr.contains(words), "{refused:?}");
        ensure!(!refused.stderr.contains("hunter2"), "{refused:?}");
    }
    Ok(())
}
