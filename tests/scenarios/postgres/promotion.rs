//! The promotion of a standby that was behind: what daemons do whose memory is newer than the database.

use anyhow::{Context, Result, ensure};
use belay_testkit::postgres::{PostgresOptions, PostgresServer, Programs};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::nodes::LOOK;

/// A primary server with a standby that replicates asynchronously.
struct Servers {
    primary: PostgresServer,
    standby: PostgresServer,
}

impl Servers {
    /// `None`: there is no PostgreSQL here.
    fn start() -> Result<Option<Self>> {
        let Some(programs) = Programs::for_test()? else { return Ok(None) };
        let primary = PostgresServer::start(&programs, &PostgresOptions::default())?;
        primary.create_database("belay")?;
        let standby = primary.standby()?;
        Ok(Some(Self { primary, standby }))
    }

    /// The address of both, the primary first.
    fn url(&self) -> String {
        let one = format!("127.0.0.1:{}", self.primary.port());
        let both = format!("{one},127.0.0.1:{}", self.standby.port());
        format!("{}?sslmode=disable", self.primary.url("belay").replace(&one, &both))
    }

    /// The standby gets what was committed so far, and nothing more.
    fn fall_behind(&self) -> Result<()> {
        self.standby.catch_up_with(&self.primary)?;
        self.standby.fall_behind()
    }

    fn promote(&mut self) -> Result<()> {
        self.primary.kill()?;
        self.standby.promote()
    }
}

/// Sends a message until the daemon has ended by itself. None is accepted.
async fn until_ended(daemon: Daemon) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let body = json!({"session": "alice", "text": "meanwhile"});
    while let Ok((status, answer)) = daemon.post(body.clone()).await {
        ensure!(status == 503, "{status}: {answer}");
        ensure!(Instant::now() < deadline, "the daemon goes on");
        sleep(LOOK).await; // polling a real process: there is no clock to pause
    }
    ended(daemon).await
}

/// The log of a daemon that ends by itself as one that has lost its lease.
async fn ended(daemon: Daemon) -> Result<String> {
    let ended = daemon.ended().await?;
    ensure!(ended.status.code() == Some(75) && !ended.stderr.contains("panicked"), "{ended:?}");
    Ok(ended.stderr)
}

/// The texts of a conversation.
async fn texts(daemon: &Daemon, session: &str) -> Result<Vec<String>> {
    let (_, history) = daemon.request("GET", &format!("/api/v1/sessions/{session}/messages?limit=100"), None).await?;
    let messages = history["messages"].as_array().context("messages")?;
    let people = messages.iter().filter(|message| message["role"] == "user");
    Ok(people.map(|message| message["text"].as_str().unwrap_or_default().to_owned()).collect())
}

/// The losses in the status of a daemon.
async fn losses(daemon: &Daemon) -> Result<Value> {
    Ok(daemon.request("GET", "/api/v1/status", None).await?.1["database_losses"].clone())
}

#[tokio::test]
async fn after_a_promotion_that_lost_a_message_the_daemon_ends_and_its_next_start_says_what_is_lost() -> Result<()> {
    let Some(mut servers) = Servers::start()? else { return Ok(()) };
    let home = Home::new().store(&servers.url());
    let daemon = home.start().await?;
    daemon.ask("alice", "kept").await?;
    assert_eq!(losses(&daemon).await?, Value::Null);
    servers.fall_behind()?;
    daemon.ask("alice", "lost").await?;
    servers.promote()?;
    let log = until_ended(daemon).await?;
    assert!(log.contains("its next start continues with what the database has"), "{log}");

    let daemon = home.start().await?;
    daemon.ask("alice", "after").await?;
    assert_eq!(texts(&daemon, "alice").await?, ["kept", "after"]);
    let losses = losses(&daemon).await?;
    assert!(losses[0]["transactions"].as_u64() > Some(0), "{losses}");
    let detail = losses[0]["detail"].as_str().context("detail")?;
    assert!(detail.contains(losses[0]["kept_until"].as_str().context("kept_until")?), "{losses}");
    let shown = home.run(&["status"], "").await?;
    assert!(shown.stdout.contains("Replies and stops since may come again"), "{shown:?}");
    let log = daemon.shut_down().await?;
    assert!(log.status.success() && log.stderr.contains(detail), "{log:?}");
    Ok(())
}

#[tokio::test]
async fn after_a_promotion_that_lost_the_commits_of_one_node_all_nodes_end_and_their_next_starts_go_on() -> Result<()> {
    let Some(mut servers) = Servers::start()? else { return Ok(()) };
    let workspace = tempfile::tempdir()?;
    let node = |name: &str| {
        let home = Home::new().store(&servers.url()).set("cluster.enabled", true).set("cluster.name", name);
        home.set("tools.workspace", workspace.path().display().to_string()).set("channels.stdin.enabled", false)
    };
    let homes = [node("a"), node("b")];
    let a = homes[0].start().await?;
    let key = "data/belay/secret.key";
    std::fs::create_dir_all(homes[1].path().join("data/belay"))?;
    std::fs::copy(homes[0].path().join(key), homes[1].path().join(key))?;
    let b = homes[1].start().await?;
    a.ask("alice", "kept").await?;
    servers.fall_behind()?;
    a.ask("alice", "lost").await?;
    servers.promote()?;
    until_ended(a).await?;
    ended(b).await?; // nobody has asked it for anything

    let a = homes[0].start().await?;
    let b = homes[1].start().await?;
    for (daemon, text) in [(&a, "after"), (&b, "and after")] {
        daemon.ask("alice", text).await?;
        assert!(losses(daemon).await?.is_array());
    }
    assert_eq!(texts(&b, "alice").await?, ["kept", "after", "and after"]);
    a.shut_down().await?;
    b.shut_down().await?;
    Ok(())
}
