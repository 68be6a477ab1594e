//! The methods `agent` and `agent.wait`, shared by WebSocket and HTTP.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Accepted, CommandReply, Principal, RunId, RunRecord, RunStatus, SentFile, SessionKey, UnixMillis,
};
use serde::{Deserialize, Serialize};
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
    Ok(record.and_then(|record| Terminal::of(&record, &app.models.chat)))
}

/// The answer that a message is on disk.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AcceptedAnswer {
    run_id: RunId,
    /// Always `accepted`.
    #[cfg_attr(test, schemars(extend("enum" = ["accepted"])))]
    status: &'static str,
    /// Milliseconds since 1970.
    accepted_at: i64,
    session_key: SessionKey,
    /// Present if the message was accepted before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    /// What the person is told while a freeze keeps the run from beginning: by whom, since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen: Option<String>,
}

impl From<&Accepted> for AcceptedAnswer {
    fn from(accepted: &Accepted) -> Self {
        Self {
            run_id: accepted.run_id,
            status: "accepted",
            accepted_at: accepted.accepted_at.0,
            session_key: accepted.session.clone(),
            duplicate: accepted.duplicate,
            frozen: accepted.frozen.clone(),
        }
    }
}

/// The answer over HTTP to a message that starts no run: `kind` tells them apart.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum AgentAnswer {
    /// The message was sent before, and its run has ended.
    Run(Terminal),
    /// The message was a command.
    Command(CommandAnswer),
}

/// The answer to a command, which starts no run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CommandAnswer {
    /// `ok` or `error`.
    #[cfg_attr(test, schemars(extend("enum" = ["ok", "error"])))]
    status: &'static str,
    command: String,
    /// The reply.
    summary: String,
    result: CommandResult,
    /// `refused`: the command did nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["refused"])))]
    error: Option<&'static str>,
    /// The run that continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumes: Option<RunId>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CommandResult {
    payloads: [ReplyText; 1],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReplyText {
    text: String,
}

impl From<&CommandReply> for CommandAnswer {
    fn from(reply: &CommandReply) -> Self {
        Self {
            status: if reply.refused { "error" } else { "ok" },
            command: reply.command.clone(),
            summary: reply.reply.clone(),
            result: CommandResult { payloads: [ReplyText { text: reply.reply.clone() }] },
            error: reply.refused.then_some("refused"),
            resumes: reply.resumes,
        }
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AgentWaitParams"))]
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
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct WaitedRun {
    run_id: RunId,
    /// `ok`, `error` or `timeout`.
    #[cfg_attr(test, schemars(extend("enum" = ["ok", "error", "timeout"])))]
    status: &'static str,
    /// The reason of the run; `run_timeout`: it ran out of time; `wait_expired`: it has not ended.
    #[cfg_attr(test, schemars(schema_with = "crate::streams::waited_reason"))]
    reason: &'static str,
    run_status: RunStatus,
    /// Milliseconds since 1970.
    started_at: Option<i64>,
    /// Milliseconds since 1970.
    ended_at: Option<i64>,
    /// `aborted`, or the reason; absent for a run that is ok or has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(schema_with = "crate::streams::run_error"))]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<SentFile>,
}

impl From<&RunRecord> for WaitedRun {
    fn from(run: &RunRecord) -> Self {
        let date = |date: Option<UnixMillis>| date.map(|date| date.0);
        let (status, reason, error) = match run.reason.filter(|_| run.status.is_end()) {
            Some(reason) => {
                let verdict = Verdict::of(run.status, reason);
                let error = match verdict {
                    Verdict::Ok => None,
                    Verdict::Aborted => Some("aborted"),
                    Verdict::Timeout | Verdict::Error => Some(reason.word()),
                };
                let reason = if verdict == Verdict::Timeout { "run_timeout" } else { reason.word() };
                (verdict.word(), reason, error)
            }
            None => ("timeout", "wait_expired", None),
        };
        Self {
            run_id: run.run_id,
            status,
            reason,
            run_status: run.status,
            started_at: date(run.started_at),
            ended_at: date(run.ended_at),
            error,
            files: run.files.clone(),
        }
    }
}

/// Default wait of `agent.wait`.
const WAIT_DEFAULT_MS: u64 = 30_000;
