//! `agent` and `agent.wait`.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Accepted, Ack, CommandReply, Principal, RunRecord};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Begun, Caller, Kind, Outcome, Over, run_id};
use crate::app::App;
use crate::error::ApiError;
use crate::routes::no_such_run;
use crate::streams::{Terminal, Verdict};
use crate::submit::AgentParams;
use crate::ws::connection::json_of;

/// What `agent.wait` waits when nothing else is said.
const WAIT_DEFAULT_MS: u64 = 30_000;

pub(super) async fn agent(caller: &Caller, params: AgentParams) -> Result<Outcome, ApiError> {
    let app = &caller.app;
    let inbound = params.check(app, caller.principal.clone(), caller.may_follow())?;
    match app.ask(inbound).await? {
        Ack::Accepted(accepted) => match finished(app, &accepted).await? {
            Some(end) => {
                let Accepted { run_id: run, session, .. } = accepted;
                Ok(Outcome::Over(Over { run, session, payload: json_of(&end) }))
            }
            None => {
                let answer = accepted_answer(&accepted);
                let Accepted { run_id: run, session, watch, .. } = accepted;
                Ok(Outcome::Accepted(answer, Begun { kind: Kind::Agent, run, session, watch, answers_twice: true }))
            }
        },
        Ack::Command(reply) => Ok(Outcome::Answered(command_answer(&reply))),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// How a message that was sent before has ended, if it has: the store keeps that, also over a restart.
pub(crate) async fn finished(app: &App, accepted: &Accepted) -> Result<Option<Terminal>, ApiError> {
    if !accepted.duplicate || accepted.watch.is_some() {
        return Ok(None);
    }
    let record = app.runs.run(accepted.run_id).await?;
    Ok(record.and_then(|record| Terminal::of(&record, &app.model)))
}

/// That a message is on disk.
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

/// What a command said; it makes no run.
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

pub(super) async fn wait(caller: &Caller, params: WaitParams) -> Result<Outcome, ApiError> {
    let record = wait_for(&caller.app, caller.principal.clone(), params).await?;
    let payload = waited(&record);
    Ok(match record.status.is_end() {
        true => Outcome::Over(Over { run: record.run_id, session: record.session.clone(), payload }),
        false => Outcome::Answered(payload),
    })
}

/// A run that has ended, or as it stands when the time is up. The time ends the wait, never the run; 0 only looks.
pub(crate) async fn wait_for(app: &App, principal: Principal, params: WaitParams) -> Result<Arc<RunRecord>, ApiError> {
    let run = run_id(&params.run_id)?;
    let limit = Duration::from_millis(params.timeout_ms.unwrap_or(WAIT_DEFAULT_MS.min(app.config.max_wait_ms)));
    if limit > app.config.max_wait() {
        return Err(ApiError::invalid(format!("timeoutMs: at most {}", app.config.max_wait_ms)));
    }
    let run = app.sight(&principal).visible_run(run).await?.id();
    let deadline = Instant::now() + limit;
    let watch = if limit.is_zero() { None } else { app.watch(principal, run, false).await? };
    let record = app.wait_for_end(run, watch.map(|watch| watch.finished), Some(deadline)).await?;
    record.ok_or_else(|| no_such_run(run))
}

/// A run as a wait tells it.
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
