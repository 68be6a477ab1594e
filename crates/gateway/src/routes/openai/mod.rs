//! `GET /v1/models`, `POST /v1/chat/completions` and `POST /v1/completions`, for clients that do not know Belay.
//!
//! Source: the OpenAI API reference, "Chat Completions" and "Models". Unused fields are ignored.

mod answer;
mod client_results;
mod client_tools;
mod completions;
mod error;
mod format;
mod front_ends;
mod paused;
mod readers;
mod request;
mod resent;
mod retries;
mod sampling;
mod sessions;
mod stream;
mod tool_calls;
mod unknown;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use belay_protocol::{
    Accepted, Ack, Body, CommandReply, Inbound, ModelInfo, Partial, Principal, QueueMode, RunId, RunOptions, RunWatch,
    SessionLifetime, Thinking,
};
use serde::Serialize;

#[cfg(test)]
pub(crate) use self::answer::{Completion, TextCompletion};
use self::answer::{Dialect, Head};
#[cfg(test)]
pub(crate) use self::completions::TextRequest as TextBody;
pub(crate) use self::completions::complete;
pub(crate) use self::error::OpenAiError;
#[cfg(test)]
pub(crate) use self::error::OpenAiErrorBody;
use self::readers::Reader;
#[cfg(test)]
pub(crate) use self::request::ChatRequest as ChatBody;
use self::request::{ChatRequest, Conversation};
use self::retries::Attempt;
use self::sessions::Named;
#[cfg(test)]
pub(crate) use self::stream::Chunk;
pub(crate) use self::unknown::no_such_route;
use crate::app::{App, Shared};
use crate::extract::{Caller, JsonBytes, NamePath};
use crate::files::take_all;

/// The model name that always works, whatever model is configured.
const OUR_NAME: &str = "belay";

/// The names that always work.
const OUR_NAMES: [&str; 2] = [OUR_NAME, TEXT_NAME];

/// The model name of plain text: the configured model without tools, notes or a lasting session.
const TEXT_NAME: &str = "belay:text";

/// The header with the session of a request.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-belay-session");

/// Lists the model names that a request may use.
pub(crate) async fn models(State(app): State<Shared>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: model_names(&app).map(ModelBody::of).collect() })
}

/// The model names that a request may use.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ModelList {
    #[cfg_attr(test, schemars(extend("enum" = ["list"])))]
    object: &'static str,
    data: Vec<ModelBody>,
}

/// A model name.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Model"))]
pub(crate) struct ModelBody {
    id: String,
    #[cfg_attr(test, schemars(extend("enum" = ["model"])))]
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl ModelBody {
    fn of(name: &str) -> Self {
        Self { id: name.to_owned(), object: "model", created: 0, owned_by: "belay" }
    }
}

fn model_names(app: &App) -> impl Iterator<Item = &str> {
    let configured = Some(app.model.model.as_str()).filter(|name| !name.is_empty() && !OUR_NAMES.contains(name));
    OUR_NAMES.into_iter().chain(configured)
}

/// Shows one of the model names that a request may use.
pub(crate) async fn model(State(app): State<Shared>, NamePath(name): NamePath) -> Result<Json<ModelBody>, OpenAiError> {
    if model_names(&app).any(|known| known == name) {
        Ok(Json(ModelBody::of(&name)))
    } else {
        Err(OpenAiError::model_not_found(&name))
    }
}

/// Answers a chat request.
pub(crate) async fn chat(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBytes<ChatRequest>, crate::error::ApiError>,
) -> Result<Response, OpenAiError> {
    let JsonBytes(request, bytes) = body?;
    answer_to(app, principal, headers, request, &bytes, Dialect::Chat).await
}

/// Answers a chat request, or one of the older API that was converted to one, in the form of that API. `bytes`: the body as
/// it was sent, which recognises a retry.
async fn answer_to(
    app: Shared,
    principal: Principal,
    headers: HeaderMap,
    request: ChatRequest,
    bytes: &[u8],
    dialect: Dialect,
) -> Result<Response, OpenAiError> {
    let model = request.model.clone().unwrap_or_else(|| OUR_NAME.into());
    if !model_names(&app).any(|name| name == model) {
        return Err(OpenAiError::model_not_found(&model));
    }
    request.refuse_unsupported()?;
    let (streams, is_named) = (request.streams(), Named::of(&request, &headers)?.is_some());
    if let Some(resumed) = client_results::resume(&app, &principal, &request).await? {
        let now = app.clock.now();
        let head = answer::Head::new(model, resumed.session, is_named, now).in_form(request.form()?);
        let (run, is_again) = (resumed.run, resumed.is_again);
        return resumed_run(app, principal, &request, head.of_run(run, now), (run, is_again)).await;
    }
    let attempt = Attempt::of(&app, &principal, &headers, bytes, streams)?;
    let mut conversation = match attempt.as_ref().and_then(|attempt| attempt.again(&request)) {
        Some(again) => again?,
        None => taken(&app, &principal, &request, &headers, model == TEXT_NAME).await?,
    };
    if let Some(attempt) = &attempt {
        attempt.remember(&app, &conversation);
    }
    conversation.name_older_files(app.attachments.max_count());
    conversation.check_sampling(&app.model)?;
    let (session, is_named) = (conversation.session.clone(), conversation.is_named);
    let form = conversation.form.clone();
    let provenance = take_all(&app, &principal, &conversation.files).await?;
    let inbound = conversation.inbound(&app, principal.clone(), streams);
    let inbound = Inbound { provenance, key: attempt.as_ref().map(|attempt| attempt.key(&app)), ..inbound };
    let grace = if streams { Some(Duration::ZERO) } else { readers::grace(&app) };
    let ack = match grace {
        Some(grace) => app.ask_while_there(inbound, grace).await?,
        None => app.ask(inbound).await?,
    };
    let now = app.clock.now();
    let answer = Head::new(model, session, is_named, now).in_form(form).in_dialect(dialect);
    let (head, run, watch) = match ack {
        Ack::Accepted(Accepted { run_id, session, accepted_at, watch, .. }) => {
            (answer.of_run(run_id, accepted_at).in_session(session), run_id, watch)
        }
        // The message answered an approval request: the client waits for the run that continues.
        Ack::Command(CommandReply { resumes: Some(run), .. }) => {
            let watch = app.watch(principal.clone(), run, streams).await?;
            // The client has read what the run has said before its question.
            let watch = watch.map(|watch| RunWatch { so_far: Partial::default(), ..watch });
            (answer.of_run(run, now), run, watch)
        }
        Ack::Command(reply) if streams => return Ok(stream::of_text(answer, &reply.reply, request.wants_usage())),
        Ack::Command(reply) => return Ok(answer.whole(&reply.reply, &Default::default(), "stop", None)),
        other => return Err(crate::error::ApiError::unexpected(&other).into()),
    };
    answered(Reader::new(app, principal, run, streams).of_attempt(attempt), head, watch, &request).await
}

/// Answers a request whose results a run has got, now or before.
async fn resumed_run(
    app: Shared,
    principal: Principal,
    request: &ChatRequest,
    head: answer::Head,
    (run, is_again): (RunId, bool),
) -> Result<Response, OpenAiError> {
    let mut watch = app.watch(principal.clone(), run, request.streams()).await?;
    // The client has read what the run has said before its calls. It has not read the answer that it asks for again.
    if let Some(watch) = watch.as_mut().filter(|_| !is_again) {
        watch.so_far = Partial::default();
    }
    answered(Reader::new(app, principal, run, request.streams()), head, watch, request).await
}

/// Answers with a run: by a stream, or when it has ended or waits.
async fn answered(
    mut reader: Reader,
    head: answer::Head,
    watch: Option<RunWatch>,
    request: &ChatRequest,
) -> Result<Response, OpenAiError> {
    if request.streams() {
        return Ok(stream::of_run(reader, head, watch, request.wants_usage()));
    }
    let (app, run) = (reader.app.clone(), reader.run);
    let answer = answer::when_ended_or_paused(&app, head, run, watch).await;
    reader.served();
    answer
}

/// The conversation of a request: its session, as far as the client names one and shows its messages, and what is new in
/// it. `text_only`: the client has asked for plain text.
async fn taken(
    app: &App,
    principal: &Principal,
    request: &ChatRequest,
    headers: &HeaderMap,
    text_only: bool,
) -> Result<Conversation, OpenAiError> {
    let lines = request.lines()?;
    let text_only = text_only || (app.config.openai_background_as_text && request.is_background(&lines));
    if text_only {
        return Ok(Conversation { text_only, ..request.conversation(lines, None)? });
    }
    let named = match Named::of(request, headers)? {
        Some(named) => named.compared(app, principal, &lines).await?,
        None => None,
    };
    let is_named = named.is_some();
    let conversation = request.conversation(lines, named)?;
    Ok(if is_named { conversation } else { conversation.answering(app, principal).await? })
}

impl Conversation {
    /// Refuses sampling fields that the interface of the configured model does not support, by name and before the run
    /// starts.
    fn check_sampling(&self, model: &ModelInfo) -> Result<(), OpenAiError> {
        let thinks = self.thinking.is_some_and(|level| level != Thinking::Off);
        match self.sampling.as_ref().and_then(|sampling| model.sampling.refused(sampling, thinks)) {
            Some(what) => {
                let message = format!("{} is not supported here: {}", what.field, what.advice);
                Err(OpenAiError::invalid(what.field, "unsupported_parameter", message))
            }
            None => Ok(()),
        }
    }

    fn inbound(self, app: &App, principal: Principal, want_deltas: bool) -> Inbound {
        Inbound {
            history: self.history,
            want_deltas,
            only_now: true,
            outputs: self.form.outputs(),
            lifetime: match self.is_named {
                true => SessionLifetime::Lasting,
                // A later request can name it only after reading its key from the answer.
                false => SessionLifetime::Ephemeral,
            },
            // The client waits for the answer to this request.
            options: RunOptions {
                queue: Some(QueueMode::Followup),
                thinking: self.thinking,
                text_only: self.text_only,
                sampling: self.sampling,
                client_tools: self.client_tools,
                ..RunOptions::default()
            },
            ..Inbound::new(app.channel.clone(), self.session, principal, Body::Text(self.text))
        }
    }
}
