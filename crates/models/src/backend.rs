//! One candidate: a server, a model and a key, with the state that was learned about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belay_protocol::{DeltaSink, ModelError, ModelErrorKind, ModelProvider, ModelReply, ModelRequest, TextFormat};
use tracing::warn;

use crate::formats::{RefusedForms, is_about_form};
use crate::refused_pictures::{RefusedPictures, has_pictures, is_about_pictures};
use crate::refused_system::{has_later_system, is_about_system, loses_later_system};
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
    /// The pictures that it has refused.
    refused_pictures: RefusedPictures,
    /// Whether it has refused a system message behind other messages, or is known to lose it.
    refuses_later_system: AtomicBool,
    /// The forms of answers that it has refused.
    refused_forms: RefusedForms,
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
        Self {
            name: name.to_owned(),
            model: model.to_owned(),
            server,
            provider,
            thinking,
            refused_pictures: RefusedPictures::default(),
            refuses_later_system: AtomicBool::new(loses_later_system(model)),
            refused_forms: RefusedForms::default(),
            key_from: String::new(),
        }
    }

    /// Sets the source of its key for error messages.
    pub(crate) fn with_key_from(self, key_from: String) -> Self {
        Self { key_from, ..self }
    }

    /// Sends one request. If it is refused because of its level of thinking, its pictures, its form of the answer or the place
    /// of a system message, sends another one without that, as far as the budget of `requests` allows it. What is left out
    /// stays left out in the next one, because a server names one problem at a time.
    ///
    /// # Errors
    /// The errors of the provider. `attempts` counts all requests.
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
        let send_pictures = request.send_pictures && !self.refused_pictures.any_of(&request);
        let later_system = request.later_system && !self.refuses_later_system.load(Ordering::Relaxed);
        let takes = |format: &&TextFormat| self.provider.takes_format(format) && !self.refused_forms.contains(format);
        let format = request.format.filter(takes);
        // One request each. The inner provider has no budget of its own.
        let full = ModelRequest { thinking, send_pictures, later_system, format, max_attempts: 1, ..request };
        let (mut once, mut left_out) = (full, LeftOut::default());
        let mut before = Spent::default();
        loop {
            sink.sent();
            let error = match self.provider.call(once, sink).await {
                Ok(mut reply) => {
                    self.learn(left_out.causes(), &full);
                    before.add_to(&mut reply.attempts, &mut reply.abandoned);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            let suspect = self.suspect(&once, &error).filter(|_| !sink.heard());
            before.count(&error);
            let is_new = left_out.changed(&error);
            match suspect {
                Some(suspect) if before.attempts < requests => {
                    left_out.last = Some((suspect, error.detail));
                    once = suspect.left_out_of(once);
                }
                suspect => {
                    // Nobody can know now whether the suspect was the cause. If it was, the next call would fail in the
                    // same way.
                    if let Some(suspect) = suspect.filter(|_| is_new) {
                        self.learn(left_out.causes().chain([suspect]), &full);
                    }
                    return Err(ModelError { attempts: before.attempts, abandoned: before.abandoned, ..error });
                }
            }
        }
    }

    /// The part of the request that a refusal is probably about; `None` if none is left to suspect: the level of thinking
    /// first, unless the words are about a system message, pictures or the form of the answer.
    fn suspect(&self, once: &ModelRequest<'_>, error: &ModelError) -> Option<Suspect> {
        if has_later_system(once) && is_about_system(error) {
            return Some(Suspect::LaterSystem);
        }
        if error.kind != ModelErrorKind::BadRequest {
            return None;
        }
        if self.provider.info().vision && has_pictures(once) && is_about_pictures(error) {
            return Some(Suspect::Pictures);
        }
        let form = once.format.map(|_| Suspect::Form);
        match once.thinking {
            Some(_) if form.is_none() || !is_about_form(error) => Some(Suspect::Thinking),
            _ => form,
        }
    }

    /// Remembers that these parts of the request were the causes of refusals.
    fn learn(&self, causes: impl Iterator<Item = Suspect>, full: &ModelRequest<'_>) {
        causes.for_each(|cause| self.learn_one(cause, full));
    }

    fn learn_one(&self, cause: Suspect, full: &ModelRequest<'_>) {
        match cause {
            Suspect::Thinking => self.thinking.close(&self.name),
            Suspect::LaterSystem => {
                warn!(model = %self.name, "the model refuses later system messages, which it now gets as notices");
                self.refuses_later_system.store(true, Ordering::Relaxed);
            }
            Suspect::Form => {
                if let Some(format) = full.format {
                    warn!(model = %self.name, "the model refuses this form of an answer, which is not sent any more");
                    self.refused_forms.remember(format);
                }
            }
            Suspect::Pictures => {
                warn!(model = %self.name, "the model refuses pictures of a conversation, which now gets a line instead");
                self.refused_pictures.remember(full);
            }
        }
    }
}

/// A part of a request that models refuse.
#[derive(Clone, Copy)]
enum Suspect {
    Thinking,
    Form,
    Pictures,
    LaterSystem,
}

impl Suspect {
    fn left_out_of(self, request: ModelRequest<'_>) -> ModelRequest<'_> {
        match self {
            Self::Thinking => ModelRequest { thinking: None, ..request },
            Self::Form => ModelRequest { format: None, ..request },
            Self::Pictures => ModelRequest { send_pictures: false, ..request },
            Self::LaterSystem => ModelRequest { later_system: false, ..request },
        }
    }
}

/// The parts that are left out of the requests of a call.
#[derive(Default)]
struct LeftOut {
    /// Without each of them, the server answered something else.
    changed: Vec<Suspect>,
    /// The last one, and the error before.
    last: Option<(Suspect, String)>,
}

impl LeftOut {
    /// Judges the last part by the error without it: the same error does not say that it was a cause, so that it is sent
    /// again in the next call. Returns whether the error is a new one.
    fn changed(&mut self, error: &ModelError) -> bool {
        let Some((last, before)) = self.last.take() else { return true };
        let is_new = before != error.detail;
        self.changed.extend(Some(last).filter(|_| is_new));
        is_new
    }

    /// The causes of the refusals, if nothing more is refused.
    fn causes(self) -> impl Iterator<Item = Suspect> {
        self.changed.into_iter().chain(self.last.map(|(last, _)| last))
    }
}

/// The failed requests of a call.
#[derive(Default)]
struct Spent {
    attempts: u32,
    abandoned: u32,
}

impl Spent {
    fn count(&mut self, error: &ModelError) {
        self.attempts = self.attempts.saturating_add(error.attempts.max(1));
        self.abandoned = self.abandoned.saturating_add(error.abandoned);
    }

    fn add_to(&self, attempts: &mut u32, abandoned: &mut u32) {
        *attempts = (*attempts).max(1).saturating_add(self.attempts);
        *abandoned = abandoned.saturating_add(self.abandoned);
    }
}
