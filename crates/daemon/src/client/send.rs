//! `belay send`: one message to the running daemon.

use std::time::Duration;

use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::{Client, text};
use crate::cli::SendArgs;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};

/// How long one request waits for the end of a run before the next one goes on waiting. 30 s: below the idle limits of
/// the proxies that may stand between.
const WAIT_ROUND: Duration = Duration::from_secs(30);

/// Sends the message; with `--wait` the exit code is the verdict of its run.
pub(crate) async fn send(args: &SendArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let message = crate::input::message(&args.text)?;
    let client = Client::find(&args.client, env)?;
    let body = json!({ "session": args.session, "text": message, "idempotency_key": Uuid::now_v7().to_string() });
    let answer = client.post(&["api", "v1", "messages"], Some(&body), Duration::ZERO).await?;
    if answer.get("run_id").is_none() {
        return Ok(command_answered(&answer, args.client.json, out));
    }
    if !args.wait {
        accepted(&answer, args.client.json, out);
        return Ok(Exit::Fine);
    }
    let run = wait(&client, text(&answer, "/run_id")).await?;
    Ok(verdict(&run, args.client.json, out))
}

/// Waits for the end of a run. A daemon that goes away ends the wait, not the run.
async fn wait(client: &Client, run_id: &str) -> Result<Json, Failure> {
    let limit = WAIT_ROUND.as_millis().to_string();
    loop {
        let path = ["api", "v1", "runs", run_id, "wait"];
        let run = client.get_slowly(&path, &[("timeout_ms", &limit)], WAIT_ROUND).await.map_err(|failure| {
            failure.next(format!("the message is accepted and its run goes on: `belay runs show {run_id}`"))
        })?;
        if matches!(text(&run, "/status"), "completed" | "stopped" | "failed") {
            return Ok(run);
        }
    }
}

fn command_answered(answer: &Json, as_json: bool, out: Output<'_>) -> Exit {
    if as_json {
        out.json(answer)
    } else {
        out.line(text(answer, "/reply"))
    }
    Exit::Fine
}

fn accepted(answer: &Json, as_json: bool, out: Output<'_>) {
    if as_json { out.json(answer) } else { out.line(&format!("accepted as run {}", text(answer, "/run_id"))) }
}

/// Prints an ended run: its reply, and on stderr why there is none. Also what `belay ask` ends with.
pub(crate) fn verdict(run: &Json, as_json: bool, out: Output<'_>) -> Exit {
    let completed = text(run, "/status") == "completed";
    let reply = text(run, "/reply");
    if as_json {
        out.json(run);
    } else if completed {
        out.line(reply);
    } else {
        note(&format!("the run {} ({}): {reply}", text(run, "/status"), text(run, "/reason")));
    }
    match text(run, "/reason") {
        _ if completed => Exit::Fine,
        "network" => Exit::OutOfReach,
        _ => Exit::Failed,
    }
}
