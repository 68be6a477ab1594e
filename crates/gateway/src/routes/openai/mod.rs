//! `GET /v1/models` and `POST /v1/chat/completions`, for clients that know nothing of Belay.
//!
//! Source: the OpenAI API reference, "Chat Completions" and "Models". Fields that we do not use are ignored.

mod answer;
mod error;
mod request;
mod stream;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use belay_protocol::{Ack, Body, Inbound, Principal};
use serde_json::{Value, json};

pub(crate) use self::error::OpenAiError;
use self::request::{ChatRequest, Conversation};
use crate::app::{App, Shared};
use crate::extract::{Caller, JsonBody};

/// The name that always works, whatever model is configured.
const OUR_NAME: &str = "belay";

/// The names that a request may use.
pub(crate) async fn models(State(app): State<Shared>) -> Json<Value> {
    let model = |name: &str| json!({"id": name, "object": "model", "created": 0, "owned_by": "belay"});
    let data: Vec<Value> = model_names(&app).map(model).collect();
    Json(json!({"object": "list", "data": data}))
}

fn model_names(app: &App) -> impl Iterator<Item = &str> {
    let configured = Some(app.model.model.as_str()).filter(|name| !name.is_empty() && *name != OUR_NAME);
    std::iter::once(OUR_NAME).chain(configured)
}

/// Answers a conversation.
pub(crate) async fn chat(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBody<ChatRequest>, crate::error::ApiError>,
) -> Result<Response, OpenAiError> {
    let JsonBody(request) = body?;
    let model = request.model.clone().unwrap_or_else(|| OUR_NAME.into());
    if !model_names(&app).any(|name| name == model) {
        return Err(OpenAiError::model_not_found(&model));
    }
    let conversation = request.conversation(headers.get("x-belay-session"))?;
    let session = conversation.session.clone();
    let inbound = conversation.inbound(&app, principal.clone(), request.streams());
    let ack = if request.streams() { app.ask_while_there(inbound).await? } else { app.ask(inbound).await? };
    let answer = answer::Head::new(model, session, app.clock.now());
    match ack {
        Ack::Accepted(accepted) if request.streams() => {
            Ok(stream::of_run(app, principal, answer.of_run(&accepted), accepted, request.wants_usage()))
        }
        Ack::Accepted(accepted) => answer::when_ended(&app, answer.of_run(&accepted), accepted).await,
        Ack::Command(reply) if request.streams() => Ok(stream::of_text(answer, &reply.reply, request.wants_usage())),
        Ack::Command(reply) => Ok(answer.completion(&reply.reply, &Default::default(), "stop").into_response()),
        other => Err(crate::error::ApiError::unexpected(&other).into()),
    }
}

impl Conversation {
    fn inbound(self, app: &App, principal: Principal, want_deltas: bool) -> Inbound {
        Inbound {
            channel: app.channel.clone(),
            session: self.session,
            principal,
            key: None,
            reply_to: None,
            body: Body::Text(self.text),
            history: self.history,
            want_deltas,
            outputs: Vec::new(),
            relayed: false,
        }
    }
}
