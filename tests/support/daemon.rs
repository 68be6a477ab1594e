//! The `belay` binary as a child process with a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest wait for anything a test expects. Generous: it only decides how long a failing test takes.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The binary: `$BELAY_BIN`, or the one that cargo built beside this test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("BELAY_BIN") {
        return path.into();
    }
    let mut dir = std::env::current_exe().expect("a test has a path");
    dir.pop(); // deps
    dir.pop();
    let path = dir.join("belay");
    assert!(path.exists(), "{} is missing: build it first (make test does)", path.display());
    path
}

/// A variable of the test process. With the value `postgres`, each [`Home`] has a database of its own in PostgreSQL.
pub const ENGINE: &str = "BELAY_TEST_ENGINE";

/// A database of the server that the tests of this process share.
fn database_of_engine() -> Option<TestDatabase<'static>> {
    if std::env::var_os(ENGINE)? != "postgres" {
        return None;
    }
    let programs = Programs::find().expect("PostgreSQL is installed");
    let server = PostgresServer::shared(&programs).expect("the server starts");
    Some(TestDatabase::new(server).expect("the server answers"))
}

/// A directory for one daemon's data, kept over its restarts.
pub struct Home {
    /// Kept by its daemons too: a daemon whose files are deleted accepts nothing any more.
    dir: Arc<TempDir>,
    sets: Vec<String>,
    env: Vec<(String, String)>,
    /// The program, if it is not [`binary`].
    program: Option<PathBuf>,
    /// The database of the store, where [`ENGINE`] asks for one.
    database: Option<TestDatabase<'static>>,
}

impl Home {
    /// A fresh directory; the daemon uses rehearsal and a free port unless told otherwise.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("belay-").tempdir().expect("a temporary directory");
        let home = Self {
            dir: Arc::new(dir),
            sets: vec!["llm.provider=\"rehearsal\"".into(), "gateway.listen=\"127.0.0.1:0\"".into()],
            env: Vec::new(),
            program: None,
            database: database_of_engine(),
        };
        match home.database.as_ref().map(|database| format!("{}?sslmode=disable", database.url())) {
            Some(url) => home.store(&url),
            None => home,
        }
    }

    /// The address of the store, for the daemon and for all commands.
    #[must_use]
    pub fn store(self, url: &str) -> Self {
        self.env("BELAY__STORE__URL", url)
    }

    /// One more `--set`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.sets.push(format!("{key}={}", value.into()));
        self
    }

    /// The settings file of the user.
    ///
    /// # Panics
    /// It cannot be written.
    #[must_use]
    pub fn settings(self, toml: &str) -> Self {
        let place = self.path().join("config/belay");
        std::fs::create_dir_all(&place).expect("a directory");
        std::fs::write(place.join("belay.toml"), toml).expect("written");
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Another program than [`binary`].
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        Self { program: Some(program.to_owned()), ..self }
    }

    /// Uses an OpenAI-compatible server instead of rehearsal.
    #[must_use]
    pub fn openai(self, base_url: &str) -> Self {
        self.set("llm.provider", "openai").set("llm.base_url", base_url).set("llm.model", "scripted")
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The workspace of the file tools.
    pub fn workspace(&self) -> PathBuf {
        let path = self.path().join("data/belay/workspace");
        std::fs::create_dir_all(&path).expect("the workspace can be made");
        path
    }

    /// A number out of the store, whichever engine it has: the only value of the only row of a query.
    ///
    /// # Errors
    /// The query failed, or its result is no number.
    pub fn count(&self, query: &str) -> Result<u64> {
        let printed = match &self.database {
            Some(database) => database.sql(query)?,
            None => self.of_sqlite(query)?,
        };
        printed.trim().parse().with_context(|| format!("no number: {printed}"))
    }

    fn of_sqlite(&self, query: &str) -> Result<String> {
        let script = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1], 30) as db:\n    \
                      print(db.execute(sys.argv[2]).fetchone()[0])";
        let database = self.path().join("data/belay/belay.db");
        let done = std::process::Command::new("python3").args(["-c", script]).arg(database).arg(query).output()?;
        anyhow::ensure!(done.status.success(), "{done:?}");
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Waits until the store has the result of each delivery. The platform has a message before Belay knows of it: a daemon
    /// that is killed in between tells the person of a delivery without a result, or delivers again.
    ///
    /// # Errors
    /// A delivery still has no result after [`PATIENCE`].
    pub async fn settled(&self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.count("SELECT COUNT(*) FROM outbox WHERE state IN ('waiting', 'sending')")? != 0 {
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "a delivery has no result");
            tokio::time::sleep(Duration::from_millis(10)).await; // polling a real process: there is no clock to pause
        }
        Ok(())
    }

    /// A command of the binary in this home, with nothing of the caller's environment that could change what it does.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program.clone().unwrap_or_else(binary));
        command.env_clear();
        for key in ["PATH", "TMPDIR", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(key) {
                command.env(key, value);
            }
        }
        let path = self.path();
        command
            .env("HOME", path)
            .env("XDG_DATA_HOME", path.join("data"))
            .env("XDG_CONFIG_HOME", path.join("config"))
            .env("XDG_RUNTIME_DIR", path);
        if matches!(args, ["check" | "run", ..]) {
            // Another Belay of this machine may listen on the default port.
            command.env("BELAY__GATEWAY__LISTEN", "127.0.0.1:0");
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value))).args(args).kill_on_drop(true);
        command
    }

    /// The arguments of `belay run` in this home.
    pub fn run_args(&self) -> Vec<String> {
        let sets = self.sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        std::iter::once("run".to_owned()).chain(sets).collect()
    }

    /// Starts `belay run` with stdin off, and waits until it is ready.
    pub async fn start(&self) -> Result<Daemon> {
        self.start_with(Stdio::null()).await
    }

    /// Starts `belay run` with this standard input, and waits until it is ready.
    pub async fn start_with(&self, stdin: Stdio) -> Result<Daemon> {
        let mut daemon = self.begin_with(stdin)?;
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Starts `belay run` with stdin off, and does not wait until it is ready.
    pub fn begin(&self) -> Result<Daemon> {
        self.begin_with(Stdio::null())
    }

    fn begin_with(&self, stdin: Stdio) -> Result<Daemon> {
        let args = self.run_args();
        let mut command = self.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = lines(child.stdout.take().context("stdout")?);
        let stderr = lines(child.stderr.take().context("stderr")?);
        let stdin = child.stdin.take();
        Ok(Daemon {
            child,
            url: String::new(),
            stdin,
            stdout,
            stderr,
            log: Vec::new(),
            http: client(),
            _dir: self.dir.clone(),
        })
    }

    /// Runs a subcommand to its end.
    pub async fn run(&self, args: &[&str], input: &str) -> Result<Output> {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("stdin")?;
        let _ = stdin.write_all(input.as_bytes()).await; // it may end without reading
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output()).await.context("the command did not end")??;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

/// What a subcommand left.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    /// `http://127.0.0.1:PORT`; empty until it is ready.
    pub url: String,
    stdin: Option<ChildStdin>,
    stdout: mpsc::Receiver<String>,
    stderr: mpsc::Receiver<String>,
    log: Vec<String>,
    http: reqwest::Client,
    _dir: Arc<TempDir>,
}

impl Daemon {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it is running")
    }

    /// Waits for a line of its log that contains a text, and returns it.
    pub async fn logged(&mut self, text: &str) -> Result<String> {
        loop {
            let line = timeout(PATIENCE, self.stderr.recv()).await;
            let line = line.with_context(|| format!("{text:?} was not logged:\n{}", self.log.join("\n")))?;
            let Some(line) = line else {
                let status = self.child.wait().await?;
                bail!("the daemon ended before {text:?} ({status}):\n{}", self.log.join("\n"));
            };
            self.log.push(line.clone());
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Waits until its log has a line that contains a text, also an earlier one.
    pub async fn has_logged(&mut self, text: &str) -> Result<()> {
        if !self.log.iter().any(|line| line.contains(text)) {
            self.logged(text).await?;
        }
        Ok(())
    }

    /// Waits until it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        loop {
            let line = self.logged("ready").await?;
            if let Some(rest) = line.split("http://").nth(1) {
                self.url = format!("http://{}", rest.split([' ', ')', ',', '"']).next().unwrap_or(rest));
                return Ok(());
            }
        }
    }

    /// Types a line.
    pub async fn type_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is not a pipe")?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Ends its input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for a printed line that contains a text; lines before it are passed over and returned with it.
    pub async fn printed(&mut self, text: &str) -> Result<Vec<String>> {
        let mut seen = Vec::new();
        loop {
            let line = timeout(PATIENCE, self.stdout.recv()).await;
            let line = line.map_err(|_| anyhow!("{text:?} was not printed; seen: {seen:#?}"))?;
            let line = line.with_context(|| format!("stdout ended without {text:?}; seen: {seen:#?}"))?;
            let found = line.contains(text);
            seen.push(line);
            if found {
                return Ok(seen);
            }
        }
    }

    /// Sends a request and returns status and JSON body (`null` if there is none).
    pub async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
        let method = method.parse::<reqwest::Method>()?;
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Sends a message and returns the response to it.
    pub async fn post(&self, body: Value) -> Result<(u16, Value)> {
        self.request("POST", "/api/v1/messages", Some(body)).await
    }

    /// Sends a message and waits for the finished run.
    pub async fn ask(&self, session: &str, text: &str) -> Result<Value> {
        let body = json!({"session": session, "text": text, "wait_ms": PATIENCE.as_millis() as u64});
        let (status, run) = self.post(body).await?;
        if status != 200 {
            bail!("{text:?} was answered with {status}: {run}");
        }
        Ok(run)
    }

    /// Sends a message without waiting and returns its run's id.
    pub async fn send(&self, session: &str, text: &str) -> Result<String> {
        let (status, accepted) = self.post(json!({"session": session, "text": text})).await?;
        if status != 202 {
            bail!("{text:?} was answered with {status}: {accepted}");
        }
        Ok(accepted["run_id"].as_str().context("run_id")?.to_owned())
    }

    /// Waits for the end of a run.
    pub async fn finished(&self, run: &str) -> Result<Value> {
        let (_, run) =
            self.request("GET", &format!("/api/v1/runs/{run}/wait?timeout_ms={}", PATIENCE.as_millis()), None).await?;
        Ok(run)
    }

    /// A run as it stands.
    pub async fn run(&self, run: &str) -> Result<Value> {
        Ok(self.request("GET", &format!("/api/v1/runs/{run}"), None).await?.1)
    }

    /// Waits until a run has this status.
    pub async fn until(&self, run: &str, status: &str) -> Result<Value> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let seen = self.run(run).await?;
            if seen["status"] == status {
                return Ok(seen);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("run {run} did not become {status}: {seen}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // polling a real process: there is no clock to pause
        }
    }

    /// The stored facts of a run, in order.
    pub async fn events(&self, run: &str) -> Result<Vec<Value>> {
        let response = self.http.get(format!("{}/api/v1/runs/{run}/events", self.url)).send().await?;
        let text = timeout(PATIENCE, response.text()).await.context("the event stream of an ended run must end")??;
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.map(|data| Ok(serde_json::from_str(data.trim())?)).collect()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = i32::try_from(self.pid())?;
        let pid = rustix::process::Pid::from_raw(pid).context("a pid is not zero")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub async fn kill(mut self) -> Result<()> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(())
    }

    /// Waits for its end. Returns exit status, what it printed since last asked, and its whole log.
    pub async fn ended(mut self) -> Result<Output> {
        let status = timeout(PATIENCE, self.child.wait()).await.context("the daemon did not end")??;
        let mut stdout = String::new();
        while let Some(line) = self.stdout.recv().await {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        while let Some(line) = self.stderr.recv().await {
            self.log.push(line);
        }
        Ok(Output { status, stdout, stderr: self.log.join("\n") })
    }

    /// Asks it to end by SIGTERM and waits.
    pub async fn shut_down(self) -> Result<Output> {
        self.signal(rustix::process::Signal::TERM)?;
        self.ended().await
    }
}

/// A client that waits for nothing longer than a test does.
pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test of this process may have
    reqwest::Client::builder().no_proxy().timeout(PATIENCE * 2).build().expect("a client")
}

fn lines(from: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> mpsc::Receiver<String> {
    let (tx, rx) = mpsc::channel(10_000);
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if tx.send(line).await.is_err() {
                return;
            }
        }
    });
    rx
}
