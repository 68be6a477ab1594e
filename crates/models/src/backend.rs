//! One candidate: a server, a model and a key, with the state that was learned about them.

use std::sync::Arc;

use belay_protocol::{DeltaSink, ModelError, ModelErrorKind, ModelProvider, ModelReply, ModelRequest};

use crate::thinking::Gate;
use crate::tracking_sink::TrackingSink;

/// A candidate that can be called.
pub(crate) struct Backend {
    /// Name for people: `gpt-4.1-mini by openai (key 2)`.
    pub(crate) name: String,
    /// The name of the model in a session.
    pub(crate) model: String,
    /// The index of its server.
    pub(crate) server: usize,
    /// Sends one request for each call.
    pub(crate) provider: Arc<dyn ModelProvider>,
    /// The levels of thinking that may be sent.
    pub(crate) thinking: Gate,
    /// The source of its key, for error messages: a variable or a setting.
    pub(crate) key_from: String,
}

impl Backend {
    /// Makes a candidate with nothing learned yet.
    pub(crate) fn new(
        name: &str,
        model: &str,
        server: usize,
        provider: Arc<dyn ModelProvider>,
        thinking: Gate,
    ) -> Self {
        Self { name: name.to_owned(), model: model.to_owned(), server, provider, thinking, key_from: String::new() }
    }

    /// Sets the source of its key for error messages.
    pub(crate) fn with_key_from(self, key_from: String) -> Self {
        Self { key_from, ..self }
    }

    /// Sends one request. Sends a second one without thinking if the first is refused because of its level of thinking
    /// and the budget of `requests` allows it.
    ///
    /// # Errors
    /// The errors of the provider. `attempts` counts both requests.
    pub(crate) async fn ask(
        &self,
        request: ModelRequest<'_>,
        sink: &mut TrackingSink<'_>,
        requests: u32,
    ) -> Result<ModelReply, ModelError> {
        self.send(request, sink, requests).await.map_err(|mut error| {
            if let Some(refusal) = &mut error.refusal {
                refusal.key_from.clone_from(&self.key_from);
            }
            error
        })
    }

    async fn send(
        &self,
        request: ModelRequest<'_>,
        sink: &mut TrackingSink<'_>,
        requests: u32,
    ) -> Result<ModelReply, ModelError> {
        let thinking = self.thinking.admit(request.thinking, &self.name);
        // One request each. The inner provider has no budget of its own.
        let once = ModelRequest { thinking, max_attempts: 1, ..request };
        sink.sent();
        let refused = match self.provider.call(once, sink).await {
            Err(error) if error.kind == ModelErrorKind::BadRequest && thinking.is_some() && !sink.heard() => error,
            other => return other,
        };
        if requests < 2 {
            // Nobody can know now whether the level was the cause. Without closing the gate, the next call would fail
            // in the same way.
            self.thinking.close(&self.name);
            return Err(refused);
        }
        sink.sent();
        match self.provider.call(ModelRequest { thinking: None, ..once }, sink).await {
            Ok(mut reply) => {
                self.thinking.close(&self.name);
                reply.attempts = reply.attempts.max(1).saturating_add(refused.attempts.max(1));
                reply.abandoned = reply.abandoned.saturating_add(refused.abandoned);
                Ok(reply)
            }
            Err(mut error) => {
                error.attempts = error.attempts.max(1).saturating_add(refused.attempts.max(1));
                error.abandoned = error.abandoned.saturating_add(refused.abandoned);
                Err(error)
            }
        }
    }
}
