//! The form of a streamed answer, which each API gives it.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::answer::Head;
use super::error::OpenAiError;
use super::outcome::Outcome;

/// Events that wait to be sent.
pub(super) type Out = VecDeque<Event>;

/// Gives a streamed answer the form of an API.
pub(super) trait Writer: Send + 'static {
    /// The head of the answer.
    fn head(&self) -> &Head;
    /// Begins the answer.
    fn begin(&mut self, out: &mut Out);
    /// Adds a piece of the text.
    fn text(&mut self, text: &str, out: &mut Out);
    /// Adds a piece of the model's reasoning.
    fn reasoning(&mut self, text: &str, out: &mut Out);
    /// Ends the answer of a run. Its text was added before.
    fn end(&mut self, outcome: &Outcome, out: &mut Out);
    /// Ends the answer to a command, which has no run. Its text was added before.
    fn command(&mut self, out: &mut Out);
    /// Ends the answer with an error, without a record of the run.
    fn fail(&mut self, error: &OpenAiError, out: &mut Out);
    /// The answer instead of a stream, if the run had failed before.
    fn refusal(&self, error: &OpenAiError) -> Response {
        error.clone().into_response()
    }
    /// Keeps the connection while the model says nothing. By default a comment does.
    fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new()
    }
}

/// Sends a complete text in the form of a stream.
pub(super) fn of_text<W: Writer>(mut writer: W, text: &str) -> Response {
    let mut out = Out::new();
    writer.begin(&mut out);
    writer.text(text, &mut out);
    writer.command(&mut out);
    let headers = writer.head().headers(None);
    (headers, Sse::new(stream::iter(out.into_iter().map(Ok::<_, Infallible>)))).into_response()
}

/// Sends a complete answer of a run in the form of a stream.
pub(super) fn of_outcome<W: Writer>(mut writer: W, text: &str, outcome: &Outcome) -> Response {
    let mut out = Out::new();
    writer.begin(&mut out);
    if !text.is_empty() {
        writer.text(text, &mut out);
    }
    writer.end(outcome, &mut out);
    let headers = writer.head().headers(outcome.run.reason);
    (headers, Sse::new(stream::iter(out.into_iter().map(Ok::<_, Infallible>)))).into_response()
}
