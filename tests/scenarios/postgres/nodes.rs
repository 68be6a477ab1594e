//! Nodes of a cluster for the scenarios: one database, one workspace and one key.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_tests::daemon::{Daemon, Home, Output, PATIENCE};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

/// How often a condition of another process is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// An empty database, and what its nodes share.
pub(super) struct Cluster {
    pub(super) server: &'static PostgresServer,
    pub(super) database: TestDatabase<'static>,
    workspace: TempDir,
}

/// What a node has.
pub(super) struct Node<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Each byte of its key of the vault.
    pub(super) key: u8,
    /// The port of the server, or of a pooler before it.
    pub(super) port: u16,
    /// Its workspace; `None`: that of the cluster.
    pub(super) workspace: Option<&'a std::path::Path>,
}

impl Cluster {
    /// `None`: there is no PostgreSQL here.
    pub(super) fn new() -> Result<Option<Self>> {
        let Some(programs) = Programs::for_test()? else { return Ok(None) };
        let server = PostgresServer::shared(&programs)?;
        Ok(Some(Self { server, database: TestDatabase::new(server)?, workspace: tempfile::tempdir()? }))
    }

    /// What a node of this name has.
    pub(super) fn node<'a>(&self, name: &'a str) -> Node<'a> {
        Node { name, key: 1, port: self.server.port(), workspace: None }
    }

    /// The address of the database, through this port.
    pub(super) fn url(&self, port: u16) -> String {
        let own = format!(":{}/", self.server.port());
        format!("{}?sslmode=disable", self.database.url().replace(&own, &format!(":{port}/")))
    }

    /// The directory of a node. Its model is rehearsal.
    pub(super) fn home(&self, node: &Node<'_>) -> Result<Home> {
        let workspace = node.workspace.unwrap_or(self.workspace.path());
        let settings = format!(
            "[cluster]\nenabled = true\nname = \"{}\"\n\n[tools]\nworkspace = \"{}\"\n\n[channels.stdin]\nenabled = false\n",
            node.name,
            workspace.display(),
        );
        let home = Home::new().store(&self.url(node.port)).settings(&settings);
        let data = home.path().join("data/belay");
        std::fs::create_dir_all(&data)?;
        let key = data.join("secret.key");
        std::fs::write(&key, [node.key; 32])?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
        Ok(home)
    }

    /// Starts a node of this name.
    pub(super) async fn start(&self, name: &str) -> Result<(Home, Daemon)> {
        let home = self.home(&self.node(name))?;
        let daemon = home.start().await?;
        Ok((home, daemon))
    }
}

/// Longest wait for a start that is refused: it may wait for a lease of 15 s before.
const REFUSED_AFTER: Duration = Duration::from_secs(60);

/// Runs `belay run` to its end.
pub(super) async fn run(home: &Home) -> Result<Output> {
    let args = home.run_args();
    let mut command = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let ended =
        timeout(REFUSED_AFTER, command.stdin(Stdio::null()).output()).await.context("the start did not end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Output { status: ended.status, stdout: text(&ended.stdout), stderr: text(&ended.stderr) })
}

/// Checks the exit code and a part of the words.
pub(super) fn check(output: &Output, code: i32, words: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stderr.contains(words) || output.stdout.contains(words), "{words:?} is not in {output:?}");
    assert!(!output.stderr.contains("panicked"), "{output:?}");
}

/// Sends a message until it is accepted, as clients do after an error with `retryable`, and waits for the end of its run.
pub(super) async fn ask(daemon: &Daemon, session: &str, text: &str) -> Result<Value> {
    let body = json!({"session": session, "text": text, "idempotency_key": format!("{session} {text}")});
    let deadline = Instant::now() + PATIENCE;
    let run = loop {
        let (status, answer) = daemon.post(body.clone()).await?;
        match status {
            200 | 202 => break answer["run_id"].as_str().context("run_id")?.to_owned(),
            _ => ensure!(answer["error"]["retryable"] == true && Instant::now() < deadline, "{status}: {answer}"),
        }
        sleep(LOOK).await; // polling a real process: there is no clock to pause
    };
    daemon.until(&run, "completed").await
}
