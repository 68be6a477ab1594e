//! Whole answers.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::run::RunUsage;
use belay_protocol::{Accepted, RunId, RunRecord, RunStatus, SessionKey, StopReason, UnixMillis};
use serde_json::{Value, json};

use super::error::OpenAiError;
use crate::app::App;
use crate::error::ApiError;

/// What every form of an answer begins with.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: i64,
    pub(crate) model: String,
    session: SessionKey,
    run: Option<RunId>,
}

impl Head {
    /// The head of an answer that has no run.
    pub(crate) fn new(model: String, session: SessionKey, at: UnixMillis) -> Self {
        let id = format!("chatcmpl-{}", RunId::new());
        Self { id, created: at.0.div_euclid(1000), model, session, run: None }
    }

    /// The head of that run's answer.
    pub(crate) fn of_run(self, accepted: &Accepted) -> Self {
        let id = format!("chatcmpl-{}", accepted.run_id);
        let created = accepted.accepted_at.0.div_euclid(1000);
        Self { id, created, run: Some(accepted.run_id), ..self }
    }

    /// `X-Belay-Run`, `X-Belay-Session` and, once it has ended, `X-Belay-Reason`.
    pub(crate) fn headers(&self, reason: Option<StopReason>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            // UTF-8 as it is. Only control characters could not be sent, and session keys have none.
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("x-belay-session", self.session.as_str());
        if let Some(run) = self.run {
            set("x-belay-run", &run.to_string());
        }
        if let Some(reason) = reason {
            set("x-belay-reason", reason.word());
        }
        headers
    }

    /// `chat.completion`.
    pub(crate) fn completion(&self, text: &str, usage: &RunUsage, finish: &str) -> Json<Value> {
        Json(json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0, "finish_reason": finish, "logprobs": null,
                "message": {"role": "assistant", "content": text, "refusal": null},
            }],
            "usage": usage_body(usage),
        }))
    }
}

/// Why an answer ended, in the words of that API; `None` for a run that is an error there.
pub(crate) fn finish_reason(run: &RunRecord) -> Option<&'static str> {
    let cut_off = run.evidence.get("cut_off").and_then(Value::as_str).and_then(StopReason::from_word).or(run.reason);
    match (run.status, cut_off) {
        (_, Some(StopReason::LengthLimit)) => Some("length"),
        (_, Some(StopReason::ContentFilter)) => Some("content_filter"),
        (RunStatus::Completed | RunStatus::Stopped, _) => Some("stop"),
        _ => None,
    }
}

/// Usage in the words of that API.
pub(crate) fn usage_body(usage: &RunUsage) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

/// Waits for the run's end and answers with its reply. A client that goes away meanwhile changes nothing.
pub(crate) async fn when_ended(app: &App, head: Head, accepted: Accepted) -> Result<Response, OpenAiError> {
    let run = app.wait_for_run(accepted.run_id, accepted.watch, app.config.max_wait()).await?;
    let run = run.ok_or_else(|| ApiError::no_answer("the run is not in the store"))?;
    let headers = head.headers(run.reason);
    Ok((headers, of_ended(&head, &run)).into_response())
}

fn of_ended(head: &Head, run: &RunRecord) -> Response {
    if let Some(finish) = finish_reason(run) {
        let text = run.reply.as_deref().unwrap_or_default();
        return (StatusCode::OK, head.completion(text, &run.usage, finish)).into_response();
    }
    match run.status {
        RunStatus::Failed => OpenAiError::failed(run).into_response(),
        _ => OpenAiError::still_running(&run.run_id.to_string()).into_response(),
    }
}
