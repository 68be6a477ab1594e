//! Streamed answers, in the form that a [`Writer`] gives them.
//!
//! The client of such a stream can stop its run only by disconnecting. So a stream that is dropped before its end stops
//! the run, see [`Reader`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use belay_protocol::{ApprovalId, Delta, Partial, RunRecord, RunWatch};
use futures_util::stream;

use super::error::OpenAiError;
use super::follow::Beginning;
use super::news::{News, next_news};
use super::outcome::{End, Outcome};
use super::part::Part;
use super::readers::Reader;
use super::writer::{Out, Writer};
use super::written::Written;
use crate::app::App;
use crate::sse::KEEP_ALIVE;

/// Streams the answer of a run.
pub(super) fn of_run<W: Writer>(reader: Reader, writer: W, beginning: Beginning) -> Response {
    let Beginning { watch, before, after } = beginning;
    let (headers, keep_alive) = (writer.head().headers(None), writer.keep_alive().interval(KEEP_ALIVE));
    let (out, written) = (Out::new(), Written::default());
    let mut stream = RunStream { out, writer, written, phase: Phase::Running(None), after, reader };
    stream.writer.begin(&mut stream.out);
    for (step, text) in before {
        stream.say(step, text);
    }
    // A retry joins a run that has said something already.
    if let Some(watch) = &watch {
        let Partial { step, text, reasoning } = watch.so_far.clone();
        stream.reason(&reasoning);
        stream.say(step, text);
    }
    stream.phase = Phase::Running(watch);
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    (headers, Sse::new(events).keep_alive(keep_alive)).into_response()
}

struct RunStream<W> {
    out: Out,
    writer: W,
    written: Written,
    phase: Phase,
    after: Option<ApprovalId>,
    reader: Reader,
}

enum Phase {
    /// The run is in progress. `None`: it was not live when the stream began.
    Running(Option<RunWatch>),
    /// Only the events of `out` are left.
    Over,
}

impl<W: Writer> RunStream<W> {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.out.pop_front() {
                return Some(event);
            }
            let watch = match &mut self.phase {
                Phase::Over => return None,
                Phase::Running(watch) => watch,
            };
            let news = match watch {
                Some(watch) => next_news(&self.reader.app, watch).await,
                None => News::EndedOrPaused(None),
            };
            match news {
                News::Delta(Delta::Text { step, text }) => self.say(step, text),
                News::Delta(Delta::Reasoning { text, .. }) => self.reason(&text),
                News::Delta(Delta::Tool { .. }) | News::Nothing => {}
                News::Lost => self.written.lossy = true,
                News::EndedOrPaused(record) => self.end(record).await,
            }
        }
    }

    /// Queues a piece of the answer. The model's text is no part of a JSON value, which comes at the end in one piece.
    fn say(&mut self, step: u32, text: String) {
        if self.writer.head().form().is_text() && !text.is_empty() {
            let text = self.written.piece(step, text);
            self.writer.text(&text, &mut self.out);
        }
    }

    /// Queues a piece of the reasoning.
    fn reason(&mut self, text: &str) {
        if !text.is_empty() {
            self.writer.reasoning(text, &mut self.out);
        }
    }

    /// Queues the texts before tool calls that nobody has watched. The reply comes with the end.
    async fn catch_up(&mut self, app: &App, record: Arc<RunRecord>) {
        if record.usage.tool_calls == 0 || !record.status.is_ended_or_paused() {
            return;
        }
        let part = Part::read_of_ended(app, self.writer.head(), record, self.after).await;
        for (step, text) in part.steps.texts {
            if let Some(text) = self.written.missing(step, text) {
                self.say(step, text);
            }
        }
    }

    /// Queues the end of the answer: the text that was not streamed, then the closing events; or an error.
    async fn end(&mut self, record: Option<Arc<RunRecord>>) {
        self.phase = Phase::Over;
        let app = self.reader.app.clone();
        let is_watched = record.is_some();
        let record = match record {
            Some(record) => Some(record),
            None => app.wait_for_run(self.reader.run, None, app.config.max_wait()).await.ok().flatten(),
        };
        if let Some(record) = record.as_ref().filter(|_| !is_watched) {
            self.catch_up(&app, record.clone()).await;
        }
        self.reader.served();
        let Some(record) = record else {
            let error = OpenAiError::still_running(&self.reader.run.to_string());
            return self.writer.fail(&error, &mut self.out);
        };
        let outcome = Outcome::of(&app, self.writer.head(), record).await;
        if !matches!(outcome.end, End::Error(_)) {
            // The text beside calls is no JSON value.
            let is_said = self.writer.head().form().is_text() || !matches!(outcome.end, End::Calls(_));
            let rest = if is_said { self.written.rest(outcome.text()) } else { String::new() };
            if !rest.is_empty() {
                self.writer.text(&rest, &mut self.out);
            }
        }
        self.writer.end(&outcome, &mut self.out);
    }
}
