//! Answers without streaming.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use belay_protocol::{RunId, RunRecord, RunStatus, SessionKey, StopReason, UnixMillis, UsedTokens};
use serde::Serialize;
use serde_json::{Value, json};

use super::error::OpenAiError;
use super::format::AnswerForm;
use super::outcome::{End, Outcome};
use super::part::Part;
use super::tool_calls::{TOOL_CALLS, ToolCallBody};
use super::turn::RunTurn;

/// The fields that begin every form of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: i64,
    pub(crate) model: String,
    session: SessionKey,
    is_named: bool,
    pub(super) run: Option<RunId>,
    form: AnswerForm,
    /// The tokens of the run before this answer.
    pub(super) used: UsedTokens,
    pub(super) dialect: Dialect,
}

/// The API of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Chat completions.
    #[default]
    Chat,
    /// The older completions, of texts.
    Text,
}

impl Head {
    /// The head of an answer without a run.
    pub(crate) fn new(model: String, session: SessionKey, is_named: bool, at: UnixMillis) -> Self {
        let id = format!("chatcmpl-{}", RunId::new());
        let created = at.0.div_euclid(1000);
        let (run, form, used, dialect) = (None, AnswerForm::Text, UsedTokens::default(), Dialect::Chat);
        Self { id, created, model, session, is_named, run, form, used, dialect }
    }

    /// The head of the answer of a run that was accepted or resumed at that date.
    pub(crate) fn of_run(self, run: RunId, at: UnixMillis) -> Self {
        let id = format!("chatcmpl-{run}");
        Self { id, created: at.0.div_euclid(1000), run: Some(run), ..self }
    }

    /// The head of a later answer of the same run, which has an id of its own: clients take two messages of one id as one.
    pub(crate) fn of_continued_run(self, run: RunId, at: UnixMillis, part: impl std::fmt::Display) -> Self {
        let head = self.of_run(run, at);
        Self { id: format!("{}-{part}", head.id), ..head }
    }

    /// Sets the tokens that the run has used before this answer.
    pub(crate) fn after_use_of(self, used: UsedTokens) -> Self {
        Self { used, ..self }
    }

    /// Sets the form of the answer.
    pub(crate) fn in_form(self, form: AnswerForm) -> Self {
        Self { form, ..self }
    }

    /// Sets the API of the request.
    pub(crate) fn in_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// Sets the session, which is that of the first request if this is a retry.
    pub(crate) fn in_session(self, session: SessionKey) -> Self {
        Self { session, ..self }
    }

    /// The form of the answer.
    pub(crate) fn form(&self) -> &AnswerForm {
        &self.form
    }

    /// Whether the client has named no session.
    pub(crate) fn is_nameless(&self) -> bool {
        !self.is_named
    }

    /// The headers `X-Belay-Run`, `X-Belay-Session` and, once the run has ended, `X-Belay-Reason`.
    pub(crate) fn headers(&self, reason: Option<StopReason>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            // UTF-8 without encoding. Only control characters cannot be sent, and session keys have none.
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

    /// The answer without streaming.
    pub(crate) fn whole(&self, text: &str, used: UsedTokens, finish: &'static str, belay: Option<Value>) -> Response {
        match self.dialect {
            Dialect::Chat => Json(Completion { belay, ..self.completion(text, used, finish) }).into_response(),
            Dialect::Text => {
                let choice = TextChoice { index: 0, text, logprobs: (), finish_reason: finish };
                let Self { id, created, model, .. } = self;
                let (object, usage) = (TEXT_COMPLETION, UsageBody::of(used));
                Json(TextCompletion { id, object, created: *created, model, choices: [choice], usage, belay })
                    .into_response()
            }
        }
    }

    /// The body of a `chat.completion`.
    fn completion(&self, text: &str, used: UsedTokens, finish: &'static str) -> Completion<'_> {
        let message =
            AnswerMessage { role: "assistant", content: Some(text.to_owned()), refusal: (), tool_calls: None };
        Completion {
            id: &self.id,
            object: "chat.completion",
            created: self.created,
            model: &self.model,
            choices: [AnswerChoice { index: 0, finish_reason: finish, logprobs: (), message }],
            usage: UsageBody::of(used),
            belay: None,
        }
    }
}

impl Completion<'_> {
    /// The same with calls of the client's tools. Without a text the content is null.
    fn with_calls(mut self, calls: Vec<ToolCallBody>) -> Self {
        let [AnswerChoice { finish_reason, message, .. }] = &mut self.choices;
        *finish_reason = TOOL_CALLS;
        message.content.take_if(|text| text.is_empty());
        message.tool_calls = Some(calls);
        self
    }
}

/// The answer to a chat request without streaming.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Completion<'a> {
    id: &'a str,
    #[cfg_attr(test, schemars(extend("enum" = ["chat.completion"])))]
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    model: &'a str,
    choices: [AnswerChoice; 1],
    usage: UsageBody,
    /// `{"run_id","files"}` of a run that has sent files, or `{"run_id","status","approval"}` of a run that waits for
    /// approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    belay: Option<Value>,
}

/// The `object` of an answer to a text.
pub(super) const TEXT_COMPLETION: &str = "text_completion";

/// The answer to a text without streaming.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TextCompletion<'a> {
    id: &'a str,
    #[cfg_attr(test, schemars(extend("enum" = ["text_completion"])))]
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    model: &'a str,
    choices: [TextChoice<'a>; 1],
    usage: UsageBody,
    /// As in the answer to a chat request.
    #[serde(skip_serializing_if = "Option::is_none")]
    belay: Option<Value>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TextChoice<'a> {
    index: u32,
    text: &'a str,
    logprobs: (),
    /// `stop`, `length` or `content_filter`.
    #[cfg_attr(test, schemars(extend("enum" = ["stop", "length", "content_filter"])))]
    finish_reason: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnswerChoice {
    index: u32,
    /// `stop`, `length`, `content_filter` or `tool_calls`.
    #[cfg_attr(test, schemars(extend("enum" = ["stop", "length", "content_filter", "tool_calls"])))]
    finish_reason: &'static str,
    logprobs: (),
    message: AnswerMessage,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnswerMessage {
    #[cfg_attr(test, schemars(extend("enum" = ["assistant"])))]
    role: &'static str,
    /// The text; null beside calls without a text.
    content: Option<String>,
    refusal: (),
    /// The calls that the client is to carry out.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCallBody>>,
}

/// The usage of an answer in the format of this API.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CompletionUsage"))]
pub(crate) struct UsageBody {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl UsageBody {
    pub(super) fn of(used: UsedTokens) -> Self {
        Self {
            prompt_tokens: used.input,
            completion_tokens: used.output,
            total_tokens: used.input.saturating_add(used.output),
        }
    }
}

/// The `finish_reason` of an answer; `None` for a run that becomes an error in this API.
pub(crate) fn finish_reason(run: &RunRecord) -> Option<&'static str> {
    let cut_off = run.evidence.get("cut_off").and_then(Value::as_str).and_then(StopReason::from_word).or(run.reason);
    match (run.status, cut_off) {
        (_, Some(StopReason::LengthLimit)) => Some("length"),
        (_, Some(StopReason::ContentFilter)) => Some("content_filter"),
        (RunStatus::Completed | RunStatus::Stopped, _) => Some("stop"),
        _ => None,
    }
}

/// Waits until the run has ended or waits for approval, and answers with its reply or its approval request.
pub(super) async fn when_ended_or_paused(head: Head, run: RunTurn) -> Result<Response, OpenAiError> {
    let part = Part::when_there(&head, run).await?;
    let Outcome { run, end, used } = &part.outcome;
    let answer = match end {
        End::Calls(calls) => {
            Json(head.completion(&part.text(&head), *used, TOOL_CALLS).with_calls(calls.clone())).into_response()
        }
        End::Text { finish, belay, .. } => head.whole(&part.text(&head), *used, finish, belay.clone()),
        End::Error(error) => error.clone().into_response(),
    };
    Ok((head.headers(run.reason), answer).into_response())
}

/// The field `belay` of the answer of a run that has sent files.
pub(crate) fn sent_files(run: &RunRecord) -> Option<Value> {
    (!run.files.is_empty()).then(|| json!({"run_id": run.run_id, "files": run.files}))
}
