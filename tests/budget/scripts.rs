//! The scripts: what the daemon does while it is counted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_tests::measure::http::{Connection, find};
use belay_tests::measure::model::{Model, REPLY};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::counts::{Figures, Sent};
use crate::daemon::{Daemon, Reading};

/// The conversation of every script.
const SESSION: &str = "budget";
/// Pieces of the streamed answer.
const PIECES: usize = 200;
/// The idle minute.
const MINUTE: Duration = Duration::from_secs(60);
/// The time after a start in which the daemon still works for it: it looks for processes that the probe of the sandbox
/// may have left, the last time 4 s later.
const AFTERWARDS: Duration = Duration::from_secs(6);
/// Messages in the store of the start.
const STORED_MESSAGES: usize = 20;
/// Most repetitions of a call of the routine that is refused because the run before is not over.
const BUSY_MAX: u32 = 20;

/// One script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Message,
    /// [`Script::Message`], and one query more for each message. The gate's own test runs it; it has the table of the former.
    MessageWithQuery,
    ToolRound,
    Approval,
    Stream,
    Routine,
    Start,
    Idle,
}

impl Script {
    /// The scripts of the table.
    pub(crate) const ALL: [Self; 7] =
        [Self::Message, Self::ToolRound, Self::Approval, Self::Stream, Self::Routine, Self::Start, Self::Idle];

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Message | Self::MessageWithQuery => "message",
            Self::ToolRound => "tool-round",
            Self::Approval => "approval",
            Self::Stream => "stream",
            Self::Routine => "routine-run",
            Self::Start => "start",
            Self::Idle => "idle-minute",
        }
    }

    /// How often it runs before and while it is counted.
    fn times(self) -> (usize, usize) {
        match self {
            Self::Message | Self::MessageWithQuery | Self::ToolRound | Self::Routine => (4, 20),
            Self::Approval | Self::Stream => (3, 10),
            Self::Start | Self::Idle => (0, 1),
        }
    }

    fn settings(self) -> Vec<String> {
        match self {
            Self::Approval => vec![r#"approvals.rules=[{tool="calculate",ask="always"}]"#.into()],
            // The conversation must fit: a compaction would be counted too.
            Self::Stream => vec!["llm.context_tokens=100000".into()],
            _ => Vec::new(),
        }
    }

    /// Runs the script in a daemon of its own, and returns what one repetition costs.
    ///
    /// Two readings with nothing between them show what a reading itself costs.
    pub(crate) async fn measure(self, traced: bool) -> Result<Figures> {
        let model = Model::start()?;
        // A path of the same length everywhere: the prompt names it.
        let data = tempfile::Builder::new().prefix("belay-budget-").tempdir_in("/tmp")?;
        if self == Self::Start {
            return self.start(&data, &model, traced).await;
        }
        let daemon = Daemon::start(data.path(), &self.settings(), model.address, traced).await?;
        tokio::time::sleep(AFTERWARDS).await;
        let mut http = Connection::open(daemon.address).await?;
        let (before, times) = self.times();
        if self == Self::Routine {
            create_routine(&mut http).await?;
        }
        for _ in 0..before {
            self.once(&daemon, &model, &mut http).await?;
        }
        let zero = daemon.read().await?;
        let (first, sent) = (daemon.read().await?, bytes(&model));
        for _ in 0..times {
            self.once(&daemon, &model, &mut http).await?;
        }
        let last = daemon.read().await?;
        Ok(Figures::of([&first, &last], [&zero, &first], sent_since(sent, &model), times))
    }

    /// A start with a store that has a conversation, until the daemon is ready and quiet.
    async fn start(self, data: &TempDir, model: &Model, traced: bool) -> Result<Figures> {
        let daemon = Daemon::start(data.path(), &[], model.address, false).await?;
        let mut http = Connection::open(daemon.address).await?;
        for _ in 0..STORED_MESSAGES {
            Self::Message.once(&daemon, model, &mut http).await?;
        }
        drop(daemon);
        let sent = bytes(model);
        let daemon = Daemon::start(data.path(), &[], model.address, traced).await?;
        let last = daemon.read().await?;
        let sent = sent_since(sent, model);
        let after = daemon.read().await?;
        Ok(Figures::of([&Reading::zero(&last), &last], [&last, &after], sent, 1))
    }

    async fn once(self, daemon: &Daemon, model: &Model, http: &mut Connection) -> Result<()> {
        match self {
            Self::Message => drop(say(http, "tool:0").await?),
            Self::MessageWithQuery => {
                say(http, "tool:0").await?;
                let answer = http.get("/api/v1/sessions").await?;
                ensure!(answer.status == 200, "HTTP {}", answer.status);
            }
            Self::ToolRound => drop(say(http, "tool:1").await?),
            Self::Approval => approve(http).await?,
            Self::Stream => stream(http, model).await?,
            Self::Routine => {
                let mut answer = http.post("/api/v1/routines/budget/fire", b"{}").await?;
                // On a busy machine the run before is not over yet. Counts of refused calls are measured again.
                for _ in 0..BUSY_MAX {
                    if answer.status != 429 {
                        break;
                    }
                    daemon.quiet(Duration::from_millis(500)).await?;
                    answer = http.post("/api/v1/routines/budget/fire", b"{}").await?;
                }
                ensure!(answer.status == 202, "HTTP {}: {}", answer.status, text(&answer.body));
                daemon.quiet(Duration::from_millis(150)).await?;
            }
            Self::Idle => tokio::time::sleep(MINUTE).await,
            Self::Start => {}
        }
        Ok(())
    }
}

/// What the daemon has sent since there were so many bytes.
fn sent_since(before: u64, model: &Model) -> Sent {
    let bytes = bytes(model) - before;
    let fixed = if bytes == 0 { 0 } else { model.seen.last_fixed_bytes.load(std::sync::atomic::Ordering::Relaxed) };
    Sent { bytes, fixed }
}

fn bytes(model: &Model) -> u64 {
    model.seen.bytes.load(std::sync::atomic::Ordering::Relaxed)
}

/// The beginning of a body, for an error.
fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(300).collect()
}

/// Sends a message and waits for the end of its run, or for its question.
async fn post(http: &mut Connection, script: &str) -> Result<Value> {
    let body = json!({"session": SESSION, "text": format!("Please answer. {script}"), "wait_ms": 60_000});
    let answer = http.post("/api/v1/messages", body.to_string().as_bytes()).await?;
    ensure!(answer.status == 200, "HTTP {}: {}", answer.status, text(&answer.body));
    Ok(serde_json::from_slice(&answer.body)?)
}

async fn say(http: &mut Connection, script: &str) -> Result<Value> {
    let run = post(http, script).await?;
    ensure!(run.to_string().contains(REPLY), "{script} was not answered as it should be: {run}");
    Ok(run)
}

/// A message whose tool call asks, and the answer to it.
async fn approve(http: &mut Connection) -> Result<()> {
    let run = post(http, "tool:1").await?;
    let question = run["waiting_for"]["approval"].as_str().with_context(|| format!("it does not ask: {run}"))?;
    let answer = http.post(&format!("/api/v1/approvals/{question}"), br#"{"decision":"approve"}"#).await?;
    ensure!(answer.status == 200, "HTTP {}: {}", answer.status, text(&answer.body));
    let run = run["run_id"].as_str().context("no run_id")?;
    let answer = http.get(&format!("/api/v1/runs/{run}/wait?timeout_ms=60000")).await?;
    ensure!(find(&answer.body, REPLY.as_bytes()).is_some(), "HTTP {}: {}", answer.status, text(&answer.body));
    Ok(())
}

/// An answer of many pieces over the OpenAI route.
async fn stream(http: &mut Connection, model: &Model) -> Result<()> {
    let message = json!({"role": "user", "content": format!("Please answer. pieces:{PIECES}")});
    let body = json!({"model": "belay", "stream": true, "conversation": SESSION, "messages": [message]});
    let mut reported = 0;
    let report = |read: &[u8]| {
        let pieces = pieces(read);
        (reported..pieces).for_each(|_| model.seen.piece.notify_one());
        reported = pieces;
    };
    let answer = http.post_watched("/v1/chat/completions", body.to_string().as_bytes(), report).await?;
    let pieces = pieces(&answer.body);
    ensure!(pieces == PIECES, "{pieces} of {PIECES} pieces, HTTP {}: {}", answer.status, text(&answer.body));
    Ok(())
}

/// The number of pieces: each ends with a space. Other events begin and end the stream.
fn pieces(answer: &[u8]) -> usize {
    answer.windows(4).filter(|window| *window == b" \"},").count()
}

async fn create_routine(http: &mut Connection) -> Result<()> {
    let routine = json!({
        "name": "budget",
        "trigger": {"kind": "manual"},
        "action": {"mode": "lightweight", "prompt": "Please look. tool:0"},
        "guard": {"cooldown_s": 0, "max_concurrent": 1, "dedup_window_s": 0, "max_failures": 0},
    });
    let answer = http.post("/api/v1/routines", routine.to_string().as_bytes()).await?;
    ensure!(answer.status == 201, "HTTP {}: {}", answer.status, text(&answer.body));
    Ok(())
}
