//! The files of the database, changed by other hands under the real binary and while it does not run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use tokio::time::{Instant, sleep};

/// A home whose store is a file, whatever the engine of the other scenarios is.
fn home() -> Home {
    let home = Home::new();
    let url = format!("sqlite://{}", database(&home).display());
    home.store(&url)
}

fn database(home: &Home) -> PathBuf {
    home.path().join("data/belay/belay.db")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    ensure!(Command::new("cp").args([from, to]).status()?.success());
    Ok(())
}

/// Waits until the daemon is not ready, and returns the reason.
async fn not_ready(daemon: &Daemon) -> Result<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (status, ready) = daemon.request("GET", "/readyz", None).await?;
        if status == 503 {
            return Ok(ready["reason"].as_str().context("reason")?.to_owned());
        }
        ensure!(Instant::now() < until, "it stays ready: {ready}");
        sleep(std::time::Duration::from_millis(10)).await; // a real process: there is no clock to pause
    }
}

type Damage = fn(&Path, &Path) -> Result<()>;

#[tokio::test]
async fn a_daemon_whose_database_file_was_taken_away_accepts_nothing_more_and_says_what_to_do() -> Result<()> {
    let other = home();
    other.start().await?.shut_down().await?;
    let damages: [(&str, Damage); 3] = [
        ("was deleted", |path, _| Ok(std::fs::remove_file(path)?)),
        ("was replaced by another file", |path, other| Ok(std::fs::rename(other, path)?)),
        ("was overwritten", |path, other| copy(other, path)),
    ];
    for (words, damage) in damages {
        let home = home();
        let path = database(&home);
        let spare = home.path().join("spare.db");
        copy(&database(&other), &spare)?;
        let mut daemon = home.start().await?;
        let backup = home.run(&["backup", "create", "--json"], "").await?;
        ensure!(backup.status.success(), "{backup:?}");
        let backup: serde_json::Value = serde_json::from_str(&backup.stdout)?;
        daemon.ask("s", "hello").await?;

        damage(&path, &spare)?;
        let reason = not_ready(&daemon).await?;
        ensure!(reason.contains("files of the store"), "{reason}");
        let line = daemon.logged(&format!("{} {words}", path.display())).await?;
        ensure!(line.contains("ERROR") && line.contains("belay backup restore"), "{line}");
        let (status, refused) = daemon.post(serde_json::json!({"session": "s", "text": "too late"})).await?;
        ensure!(status == 503, "{refused}");
        let shown = home.run(&["status"], "").await?;
        ensure!(shown.stdout.contains(words), "{shown:?}");
        daemon.shut_down().await?;

        // The log of the former file is still there, and the start names it.
        let check = home.run(&["check"], "").await?;
        ensure!(!check.status.success() && check.stdout.contains("belay.db-wal"), "{check:?}");
        let file = backup["file"].as_str().context("file")?;
        let restored = home.run(&["backup", "restore", file, "--force"], "").await?;
        ensure!(restored.status.success(), "{restored:?}");
        home.start().await?.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_write_ahead_log_that_is_gone_after_a_kill_is_said_by_check_and_at_the_start() -> Result<()> {
    let home = home();
    let daemon = home.start().await?;
    daemon.ask("s", "hello").await?;
    daemon.kill().await?;
    let whole = home.run(&["check"], "").await?;
    ensure!(!whole.stdout.contains("are lost"), "{whole:?}");
    let log = database(&home).with_file_name("belay.db-wal");
    std::fs::remove_file(&log)?;
    let words = format!("{} is missing", log.display());
    let check = home.run(&["check"], "").await?;
    ensure!(check.stdout.contains(&words), "{check:?}");
    let mut daemon = home.start().await?;
    daemon.has_logged(&words).await?;
    daemon.shut_down().await?;
    let after = home.run(&["check"], "").await?;
    ensure!(!after.stdout.contains("are lost"), "{after:?}");
    Ok(())
}
