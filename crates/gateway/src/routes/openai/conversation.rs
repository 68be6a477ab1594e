//! The conversation of a request, and the message to the agent that it becomes.

use axum::http::HeaderMap;
use belay_protocol::{Body, Inbound, ModelInfo, Principal, QueueMode, RunOptions, SessionLifetime, Thinking};

use super::error::OpenAiError;
use super::readers::Reading;
use super::request::{ChatRequest, Conversation};
use super::sessions::Named;
use crate::app::App;

/// The conversation of a request: its session, as far as the client names one and shows its messages, and what is new in
/// it. `text_only`: the client has asked for plain text.
pub(super) async fn taken(
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
        Some(named) => named.compared(app, principal, headers, &lines).await?,
        None => None,
    };
    let is_named = named.is_some();
    let conversation = request.conversation(lines, named)?;
    Ok(if is_named { conversation } else { conversation.answering(app, principal).await? })
}

impl Conversation {
    /// Refuses sampling fields that the interface of the configured model does not support, by name and before the run
    /// starts.
    pub(super) fn check_sampling(&self, model: &ModelInfo) -> Result<(), OpenAiError> {
        let thinks = self.thinking.is_some_and(|level| level != Thinking::Off);
        match self.sampling.as_ref().and_then(|sampling| model.sampling.refused(sampling, thinks)) {
            Some(what) => {
                let message = format!("{} is not supported here: {}", what.field, what.advice);
                Err(OpenAiError::invalid(what.field, "unsupported_parameter", message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn inbound(self, app: &App, principal: Principal, reading: Reading) -> Inbound {
        Inbound {
            history: self.history,
            want_deltas: reading.streams(),
            only_now: !reading.is_later(),
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
                continues: self.continues,
                sampling: self.sampling,
                client_tools: self.client_tools,
                ..RunOptions::default()
            },
            ..Inbound::new(app.channel.clone(), self.session, principal, Body::Text(self.text))
        }
    }
}
