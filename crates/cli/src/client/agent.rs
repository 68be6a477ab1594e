//! `belay agent`: sends one message to the running daemon and shows its answer while it is written.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use belay_program::signals::{OnHangup, SignalWatch};
use belay_protocol::{QueueMode, Thinking};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::send::{verdict, wait};
use super::{Client, text};
use crate::args::AgentArgs;

/// Sends the message and waits until its run has ended or waits for approval. The exit code is the verdict. The first
/// Ctrl-C stops the run.
pub async fn agent(args: &AgentArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut body = body(args)?;
    let client = Client::find(&args.client, env)?;
    body["sessionKey"] = client.session(args.session.as_deref()).into();
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;
    let (handle, interrupted) = (signals.handle(), CancellationToken::new());
    let work = async {
        let done = work(args, &client, &body, out, &interrupted).await;
        handle.close();
        done
    };
    let (done, ()) = tokio::join!(work, signals.watch(interrupted.clone()));
    done
}

async fn work(
    args: &AgentArgs,
    client: &Client,
    body: &Json,
    out: Output<'_>,
    interrupted: &CancellationToken,
) -> Result<Exit, Failure> {
    // Not cancelled by a signal: it would be unknown whether the message was accepted.
    let answer = client.post(&["api", "v1", "agent"], Some(body), Duration::ZERO).await?;
    let run_id = match (text(&answer, "/runId"), text(&answer, "/resumes")) {
        ("", "") => {
            if args.client.json {
                out.json(&answer)
            } else {
                out.line(text(&answer, "/summary"))
            }
            return Ok(if text(&answer, "/status") == "error" { Exit::Failed } else { Exit::Fine });
        }
        // The message answered an approval request: the paused run continues.
        ("", run_id) => run_id,
        (run_id, _) => run_id,
    };
    tokio::select! {
        done = follow(args, client, run_id, out) => done,
        () = interrupted.cancelled() => stop(client, run_id).await,
    }
}

/// Shows the answer while it is written, and ends like `belay send --wait`.
async fn follow(args: &AgentArgs, client: &Client, run_id: &str, out: Output<'_>) -> Result<Exit, Failure> {
    let mut shown = Shown { as_json: args.client.json, out, text: String::new() };
    if args.stream {
        shown.stream(client, run_id).await?;
    }
    let run = wait(client, run_id).await?;
    let reply = text(&run, "/reply");
    if text(&run, "/status") == "completed" && !args.client.json && shown.text == reply {
        return Ok(Exit::Fine); // it is printed already, or the model has chosen not to reply
    }
    Ok(verdict(&run, args.client.json, out))
}

async fn stop(client: &Client, run_id: &str) -> Result<Exit, Failure> {
    client
        .post(&["api", "v1", "runs", run_id, "stop"], None, Duration::ZERO)
        .await
        .map_err(|failure| failure.next(format!("the run continues; `belay stop {run_id}` stops it")))?;
    note(&format!("interrupted; the run {run_id} is stopped"));
    Ok(Exit::Interrupted)
}

/// The message in the format of the API.
fn body(args: &AgentArgs) -> Result<Json, Failure> {
    let wrong = |what: String| Failure::new(Exit::WrongUsage, what);
    let mut body = json!({
        "message": belay_program::input::message(&args.text)?, "idempotencyKey": Uuid::now_v7().to_string(),
    });
    if let Some(word) = &args.thinking {
        let words: Vec<_> = Thinking::ALL.iter().map(|level| level.word()).collect();
        let level = Thinking::from_word(word);
        let level = level.ok_or_else(|| wrong(format!("--thinking is one of {}, not {word:?}", words.join(", "))))?;
        body["thinking"] = level.word().into();
    }
    if let Some(word) = &args.queue {
        let words: Vec<_> = QueueMode::ALL.iter().map(|mode| mode.word()).collect();
        let mode = QueueMode::from_word(word);
        let mode = mode.ok_or_else(|| wrong(format!("--queue is one of {}, not {word:?}", words.join(", "))))?;
        body["queueMode"] = mode.word().into();
    }
    if let Some(seconds) = args.timeout {
        body["timeout"] = seconds.into();
    }
    Ok(body)
}

/// The text on standard output.
struct Shown<'a> {
    as_json: bool,
    out: Output<'a>,
    /// The printed text of the current step.
    text: String,
}

impl Shown<'_> {
    /// Prints the events of a run until it has ended or waits for approval. A broken stream is no failure: the caller
    /// waits for the run in any case.
    async fn stream(&mut self, client: &Client, run_id: &str) -> Result<(), Failure> {
        let mut events = client.events(&["api", "v1", "runs", run_id, "stream"]).await?;
        while let Some(event) = events.next().await {
            if self.as_json {
                self.out.json(&event);
            } else {
                self.event(&event);
            }
            if text(&event, "/stream") == "approval" && text(&event, "/data/phase") == "requested" {
                break;
            }
        }
        if !self.text.is_empty() {
            self.out.piece("\n");
        }
        Ok(())
    }

    fn event(&mut self, event: &Json) {
        match text(event, "/stream") {
            "assistant" => {
                let (whole, piece) = (text(event, "/data/text"), text(event, "/data/delta"));
                // A text that does not continue the previous one begins on a new line.
                if !self.text.is_empty() && whole != format!("{}{piece}", self.text) {
                    self.out.piece("\n");
                }
                self.out.piece(piece);
                self.text = whole.to_owned();
            }
            "tool" if text(event, "/data/phase") == "start" => note(&format!("uses {}", text(event, "/data/name"))),
            _ => {}
        }
    }
}
