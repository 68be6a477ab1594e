//! The methods `agent` and `agent.wait`, shared by WebSocket and HTTP.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Accepted, CommandReply, Principal, RunRecord};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::app::App;
use crate::checks::{no_such_run, run_id};
use crate::error::ApiError;
use crate::streams::{Terminal, Verdict};

/// The end of the run of a message that was sent before, if the run has ended. Read from the store, so it survives a
/// restart.
pub(crate) async fn finished(app: &App, accepted: &Accepted) -> Result<Option<Terminal>, ApiError> {
    if !accepted.duplicate || accepted.watch.is_some() {
        return Ok(None);
    }
    let record = app.runs.run(accepted.run_id).await?;
    Ok(record.and_then(|record| Terminal::of(&record, &app.model)))
}

/// The answer that a message is on disk.
pub(crate) fn accepted_answer(accepted: &Accepted) -> Value {
    let mut answer = json!({
        "runId": accepted.run_id, "status": "accepted", "acceptedAt": accepted.accepted_at.0,
        "sessionKey": accepted.session,
    });
    if accepted.duplicate {
        answer["duplicate"] = true.into();
    }
    answer
}

/// The answer to a command, which starts no run.
pub(crate) fn command_answer(reply: &CommandReply) -> Value {
    let status = if reply.refused { "error" } else { "ok" };
    let mut answer = json!({
        "status": status, "command": reply.command, "summary": reply.reply,
        "result": { "payloads": [{ "text": reply.reply }] },
    });
    if reply.refused {
        answer["error"] = "refused".into();
    }
    if let Some(run) = reply.resumes {
        answer["resumes"] = json!(run);
    }
    answer
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WaitParams {
    run_id: String,
    timeout_ms: Option<u64>,
}

/// Waits until a run has ended, and returns its record; after the timeout the record is that of an unfinished run. The
/// timeout ends the wait, never the run; 0 does not wait.
pub(crate) async fn wait_for(app: &App, principal: Principal, params: WaitParams) -> Result<Arc<RunRecord>, ApiError> {
    let run = run_id(&params.run_id)?;
    let limit = Duration::from_millis(params.timeout_ms.unwrap_or(WAIT_DEFAULT_MS.min(app.config.max_wait_ms)));
    if limit > app.config.max_wait() {
        return Err(ApiError::invalid(format!("timeoutMs: at most {}", app.config.max_wait_ms)));
    }
    let run = app.visibility(&principal).visible_run(run).await?.id();
    let deadline = Instant::now() + limit;
    let watch = if limit.is_zero() { None } else { app.watch(principal, run, false).await? };
    let record = app.wait_for_end(run, watch.map(|watch| watch.finished), Some(deadline)).await?;
    record.ok_or_else(|| no_such_run(run))
}

/// A run in the form of `agent.wait`.
pub(crate) fn waited(run: &RunRecord) -> Value {
    let date = |date: Option<belay_protocol::UnixMillis>| date.map(|date| date.0);
    let mut answer = json!({
        "runId": run.run_id, "startedAt": date(run.started_at), "endedAt": date(run.ended_at), "runStatus": run.status,
    });
    match run.reason.filter(|_| run.status.is_end()) {
        Some(reason) => {
            let verdict = Verdict::of(run.status, reason);
            answer["status"] = verdict.word().into();
            answer["reason"] = if verdict == Verdict::Timeout { "run_timeout" } else { reason.word() }.into();
            if verdict != Verdict::Ok {
                answer["error"] = if verdict.is_aborted() { "aborted" } else { reason.word() }.into();
            }
        }
        None => {
            answer["status"] = "timeout".into();
            answer["reason"] = "wait_expired".into();
        }
    }
    answer
}

/// Default wait of `agent.wait`.
const WAIT_DEFAULT_MS: u64 = 30_000;
