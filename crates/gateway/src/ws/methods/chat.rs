//! `chat.send`, `chat.abort` and `chat.history`.

use belay_protocol::{Accepted, Ack, HistoryEntry, QueueMode, RunFilter, RunStatus, SessionKey, Thinking};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Begun, Caller, Kind, Outcome, RunEnd, session_key};
use crate::agent_rpc::{CommandAnswer, finished};
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::routes::{Stop, stop_and_wait};
use crate::submit::{AgentParams, check_options};
use crate::ws::connection::json_of;

/// Default and largest number of history lines.
const HISTORY_DEFAULT: u32 = 200;
const HISTORY_MAX: u32 = 1000;

/// Longest text of a line, in characters; the rest is cut, and the line says so.
const LINE_MAX_CHARS: usize = 12_000;

/// Longest history, in bytes of its texts: a connection can hold this much beside the other data that waits for its
/// reader.
const HISTORY_MAX_BYTES: usize = 512 * 1024;

/// Most lines after a cursor. A client that is further behind gets the newest history instead.
const BEHIND_MAX: u32 = 200;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChatSendParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SendParams {
    session_key: String,
    message: String,
    idempotency_key: String,
    thinking: Option<Thinking>,
    timeout_ms: Option<u64>,
    queue_mode: Option<QueueMode>,
}

pub(super) async fn send(caller: &Caller, params: SendParams) -> Result<Outcome, ApiError> {
    let app = &caller.app;
    let message = AgentParams {
        message: params.message,
        session_key: params.session_key,
        idempotency_key: params.idempotency_key,
        thinking: params.thinking,
        reasoning: None,
        verbose: None,
        model: None,
        timeout: None,
        queue_mode: params.queue_mode,
        extra_system_prompt: None,
        callback_url: None,
        outputs: Vec::new(),
    };
    let mut inbound = message.check(app, caller.principal.clone(), caller.may_follow())?;
    inbound.options.timeout_ms = params.timeout_ms;
    check_options(&inbound.options, "timeoutMs", &caller.principal)?;
    match app.ask(inbound).await? {
        Ack::Accepted(accepted) => match finished(app, &accepted).await? {
            Some(end) => {
                let Accepted { run_id: run, session, .. } = accepted;
                Ok(Outcome::RunEnd(RunEnd { run, session, payload: json_of(&end) }))
            }
            None => {
                let status = if accepted.duplicate { "in_flight" } else { "started" };
                let Accepted { run_id: run, session, watch, .. } = accepted;
                let answer = json!({ "runId": run, "status": status, "sessionKey": session });
                Ok(Outcome::Accepted(answer, Begun { kind: Kind::Chat, run, session, watch, answers_twice: false }))
            }
        },
        Ack::Command(reply) => Ok(Outcome::Answered(json_of(&CommandAnswer::from(&reply)))),
        other => Err(ApiError::unexpected(&other)),
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChatAbortParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AbortParams {
    session_key: String,
    run_id: Option<String>,
}

pub(super) async fn abort(caller: &Caller, params: AbortParams) -> Result<Value, ApiError> {
    let session = caller.session(&params.session_key).await?;
    let target = match params.run_id {
        None => Stop::Session(session),
        Some(text) => {
            let run = caller.run(&text).await?;
            let record = caller.app.runs.run(run.id()).await?.ok_or_else(|| no_such_run(run.id()))?;
            if record.session != *session.key() {
                return Err(ApiError::invalid("runId: the run belongs to another session than sessionKey"));
            }
            Stop::Run(run)
        }
    };
    let report = stop_and_wait(&caller.app, caller.principal.clone(), target).await?;
    Ok(stopped(&report))
}

/// The answer about a stop.
pub(super) fn stopped(report: &belay_protocol::StopReport) -> Value {
    json!({
        "ok": true, "aborted": !report.stopped.is_empty(), "runIds": report.stopped,
        "stillRunning": report.still_running,
    })
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChatHistoryParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HistoryParams {
    session_key: String,
    limit: Option<u32>,
    /// The cursor of an earlier answer: only later lines are returned.
    cursor: Option<u64>,
}

pub(super) async fn history(caller: &Caller, params: HistoryParams) -> Result<Value, ApiError> {
    let session = session_key(&params.session_key)?;
    let limit = params.limit.unwrap_or(HISTORY_DEFAULT);
    if !(1..=HISTORY_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit: 1 to {HISTORY_MAX}")));
    }
    let session = caller.app.visibility(&caller.principal).visible_session(session).await?.into_key();
    let sessions = &caller.app.sessions;
    // One more than allowed shows that the client is too far behind.
    let (lines, reset) = match params.cursor {
        Some(cursor) => match sessions.history(&session, cursor, BEHIND_MAX + 1).await? {
            lines if lines.len() <= BEHIND_MAX as usize => (lines, false),
            _ => (sessions.recent_history(&session, limit).await?, true),
        },
        None => (sessions.recent_history(&session, limit).await?, false),
    };
    let cursor = lines.last().map(|line| line.id).or(params.cursor);
    let (messages, left_out) = shown(&lines);
    let mut answer = json!({ "sessionKey": session, "messages": messages, "cursor": cursor });
    if reset {
        answer["reset"] = true.into();
    }
    if left_out > 0 {
        answer["leftOut"] = left_out.into();
    }
    if let Some(in_flight) = in_flight(caller, session).await? {
        answer["inFlightRun"] = in_flight;
    }
    Ok(answer)
}

/// The newest lines that fit, oldest first, and the number of lines that did not fit.
fn shown(lines: &[HistoryEntry]) -> (Vec<Value>, usize) {
    let mut room = HISTORY_MAX_BYTES;
    let mut messages = Vec::new();
    for line in lines.iter().rev() {
        let end = line.text.char_indices().nth(LINE_MAX_CHARS).map_or(line.text.len(), |(at, _)| at);
        let text = &line.text[..end];
        if text.len() > room {
            break;
        }
        room -= text.len();
        let mut message = json!({
            "id": line.id, "role": line.role, "content": [{ "type": "text", "text": text }], "runId": line.run_id,
            "timestamp": line.at.0,
        });
        if !line.files.is_empty() {
            message["files"] = json!(line.files);
        }
        if end < line.text.len() {
            message["truncated"] = true.into();
        }
        messages.push(message);
    }
    messages.reverse();
    let left_out = lines.len() - messages.len();
    (messages, left_out)
}

/// The live run of a session, and its text so far.
async fn in_flight(caller: &Caller, session: SessionKey) -> Result<Option<Value>, ApiError> {
    let filter =
        RunFilter { session: Some(session), statuses: vec![RunStatus::Running], limit: 1, ..RunFilter::default() };
    let Some(run) = caller.app.runs.runs(filter).await?.into_iter().next() else { return Ok(None) };
    let watch = caller.app.watch(caller.principal.clone(), run.run_id, true).await?;
    let text = watch.map(|watch| watch.so_far.text).unwrap_or_default();
    Ok(Some(json!({ "runId": run.run_id, "text": text })))
}

#[cfg(test)]
mod tests {
    use belay_protocol::UnixMillis;

    use super::*;

    fn line(id: u64, text: String) -> HistoryEntry {
        HistoryEntry { id, role: "user".into(), text, run_id: None, at: UnixMillis(0), files: Vec::new() }
    }

    #[test]
    fn a_history_keeps_its_newest_lines_within_its_bounds() {
        let long = line(1, "ä".repeat(LINE_MAX_CHARS + 1));
        let (messages, left_out) = shown(&[long]);
        let text = messages[0].pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
        assert_eq!((text.chars().count(), left_out, &messages[0]["truncated"]), (LINE_MAX_CHARS, 0, &json!(true)));
        let many: Vec<_> = (0..1000).map(|id| line(id, "x".repeat(LINE_MAX_CHARS))).collect();
        let (messages, left_out) = shown(&many);
        let fit = HISTORY_MAX_BYTES / LINE_MAX_CHARS;
        assert_eq!((messages.len(), left_out), (fit, 1000 - fit));
        assert_eq!(messages.last().map(|message| &message["id"]), Some(&json!(999)));
    }
}
