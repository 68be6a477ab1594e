//! Streamed answers.
//!
//! The client of such a stream can stop its run only by disconnecting. So a stream that is dropped before its end stops
//! the run, see [`Reader`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use belay_protocol::run::RunUsage;
use belay_protocol::{Delta, Partial, RunRecord, RunStatus, RunWatch};
use futures_util::stream;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::answer::{Dialect, Head, TEXT_COMPLETION, UsageBody, finish_reason, sent_files};
use super::error::OpenAiError;
use super::paused::ApprovalAnswer;
use super::readers::Reader;
use super::tool_calls::{TOOL_CALLS, ToolCallBody};
use crate::app::App;
use crate::event_json::one_line;
use crate::sse::KEEP_ALIVE;

/// Streams the answer of a run.
pub(crate) fn of_run(reader: Reader, head: Head, watch: Option<RunWatch>, usage: bool) -> Response {
    let headers = head.headers(None);
    let mut stream = ChatStream {
        out: head.role_chunk().into_iter().collect(),
        head,
        usage,
        written: Written::default(),
        phase: Phase::Running(None),
        reader,
    };
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
    (headers, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

/// Sends a complete text in the form of a stream.
pub(crate) fn of_text(head: Head, text: &str, usage: bool) -> Response {
    let mut events: Vec<Event> = head.role_chunk().into_iter().chain([head.text_chunk(text)]).collect();
    events.extend(head.closing(usage.then(RunUsage::default).as_ref(), "stop", None));
    let headers = head.headers(None);
    (headers, Sse::new(stream::iter(events.into_iter().map(Ok::<_, Infallible>)))).into_response()
}

struct ChatStream {
    head: Head,
    usage: bool,
    /// Events that wait to be sent.
    out: VecDeque<Event>,
    written: Written,
    phase: Phase,
    reader: Reader,
}

enum Phase {
    /// The run is in progress. `None`: it was not live when the stream began.
    Running(Option<RunWatch>),
    /// Only the events of `out` are left.
    Over,
}

enum News {
    Delta(Delta),
    /// Deltas were dropped, because the client reads too slowly.
    Lost,
    /// No more deltas will come.
    Nothing,
    /// The run has ended or waits for approval, or is no longer live. Its record, if there is one.
    EndedOrPaused(Option<Arc<RunRecord>>),
}

impl ChatStream {
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
        if self.head.form().is_text() && !text.is_empty() {
            let text = self.written.piece(step, text);
            self.out.push_back(self.head.text_chunk(&text));
        }
    }

    /// Queues a piece of the reasoning. The older API has none.
    fn reason(&mut self, text: &str) {
        if !text.is_empty() && self.head.dialect == Dialect::Chat {
            self.out.push_back(self.head.reasoning_chunk(text));
        }
    }

    /// Queues the end of the answer: the text that was not streamed or the approval request, then the closing chunks;
    /// or an error.
    async fn end(&mut self, record: Option<Arc<RunRecord>>) {
        self.phase = Phase::Over;
        let app = self.reader.app.clone();
        let record = match record {
            Some(record) => Some(record),
            None => app.wait_for_run(self.reader.run, None, app.config.max_wait()).await.ok().flatten(),
        };
        self.reader.served();
        if let Some((run, calls)) = record.as_ref().and_then(|run| Some((run, ToolCallBody::of(run)?))) {
            let rest = self.written.rest(run.reply.as_deref().unwrap_or_default());
            if !rest.is_empty() {
                self.out.push_back(self.head.text_chunk(&rest));
            }
            self.out.push_back(self.head.calls_chunk(ToolCallBody::indexed(calls)));
            self.out.extend(self.head.closing(self.usage.then_some(&run.usage), TOOL_CALLS, None));
            return;
        }
        let asked = match &record {
            Some(run) => ApprovalAnswer::of(&app, &self.head, run).await,
            None => None,
        };
        let error = match record {
            Some(run) => match (finish_reason(&run), asked) {
                (_, Some(asked)) => return self.close(&asked.text, &run.usage, "stop", Some(&asked.belay)),
                (Some(finish), None) => {
                    let files = sent_files(&run);
                    return self.close(&self.head.form().content(&run), &run.usage, finish, files.as_ref());
                }
                (None, None) if run.status == RunStatus::Failed => OpenAiError::failed(&run),
                (None, None) => OpenAiError::still_running(&self.reader.run.to_string()),
            },
            None => OpenAiError::still_running(&self.reader.run.to_string()),
        };
        self.out.push_back(Event::default().data(one_line(error.body().to_string())));
    }

    /// Queues the text that was not streamed and the closing chunks.
    fn close(&mut self, text: &str, usage: &RunUsage, finish: &'static str, belay: Option<&Value>) {
        let rest = self.written.rest(text);
        if !rest.is_empty() {
            self.out.push_back(self.head.text_chunk(&rest));
        }
        self.out.extend(self.head.closing(self.usage.then_some(usage), finish, belay));
    }
}

/// Returns the next delta, or the record of the run when no delta is left. `biased`: deltas come before the end.
async fn next_news(app: &App, watch: &mut RunWatch) -> News {
    let RunWatch { finished, deltas, .. } = watch;
    let fragment = async {
        match deltas {
            Some(receiver) => receiver.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        delta = fragment => match delta {
            Ok(delta) => News::Delta(delta),
            Err(RecvError::Lagged(_)) => News::Lost,
            Err(RecvError::Closed) => {
                *deltas = None;
                News::Nothing
            }
        },
        record = app.end_or_pause(finished) => News::EndedOrPaused(record),
    }
}

/// The text that was sent to the client.
#[derive(Debug, Default)]
struct Written {
    step: u32,
    /// The text of the newest step that had any.
    step_text: String,
    /// Whether deltas in between were lost.
    lossy: bool,
}

impl Written {
    /// The delta as it is sent: a blank line separates the texts of two steps.
    fn piece(&mut self, step: u32, piece: String) -> String {
        if self.step_text.is_empty() || step == self.step {
            self.step = step;
            self.step_text.push_str(&piece);
            return piece;
        }
        self.step = step;
        self.step_text.clone_from(&piece);
        format!("\n\n{piece}")
    }

    /// The missing part of the reply. The reply may be a cleaned form of the streamed text; then nothing is added.
    fn rest(&self, reply: &str) -> String {
        let (sent, reply_trimmed) = (self.step_text.trim(), reply.trim());
        if sent.is_empty() {
            return reply.into();
        }
        if reply_trimmed.is_empty() || (!self.lossy && sent.contains(reply_trimmed)) {
            return String::new();
        }
        match reply_trimmed.strip_prefix(self.step_text.trim_start()).or_else(|| reply_trimmed.strip_prefix(sent)) {
            Some(rest) => rest.into(),
            None => format!("\n\n{reply}"),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CompletionChunk"))]
pub(crate) struct Chunk<'a> {
    id: &'a str,
    #[cfg_attr(test, schemars(extend("enum" = ["chat.completion.chunk"])))]
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    /// The approval request that the run waits for, or the files that it has sent, in the last chunk of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    belay: Option<&'a Value>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChunkChoice"))]
struct Choice<'a> {
    index: u32,
    delta: Piece<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChunkDelta"))]
struct Piece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCallBody>>,
    /// A piece of the model's reasoning, as DeepSeek's API has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

impl Head {
    fn chunk(&self, delta: Piece<'_>, finish_reason: Option<&'static str>, belay: Option<&Value>) -> Event {
        let Self { id, created, model, .. } = self;
        let data = match self.dialect {
            Dialect::Chat => {
                let choices = [Choice { index: 0, delta, logprobs: (), finish_reason }];
                let object = "chat.completion.chunk";
                serde_json::to_string(&Chunk { id, object, created: *created, model, choices, belay })
            }
            Dialect::Text => {
                let text = delta.content.unwrap_or_default();
                let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason});
                let mut chunk = json!({"id": id, "object": TEXT_COMPLETION, "created": created, "model": model,
                    "choices": [choice]});
                if let Some(belay) = belay {
                    chunk["belay"] = belay.clone();
                }
                Ok(chunk.to_string())
            }
        };
        Event::default().data(one_line(data.unwrap_or_default()))
    }

    /// The first chunk; the older API has none.
    fn role_chunk(&self) -> Option<Event> {
        let piece = Piece { role: Some("assistant"), content: Some(""), ..Piece::default() };
        (self.dialect == Dialect::Chat).then(|| self.chunk(piece, None, None))
    }

    fn text_chunk(&self, text: &str) -> Event {
        self.chunk(Piece { content: Some(text), ..Piece::default() }, None, None)
    }

    /// All calls of the client's tools, whole.
    fn calls_chunk(&self, calls: Vec<ToolCallBody>) -> Event {
        self.chunk(Piece { tool_calls: Some(calls), ..Piece::default() }, None, None)
    }

    fn reasoning_chunk(&self, text: &str) -> Event {
        self.chunk(Piece { reasoning_content: Some(text), ..Piece::default() }, None, None)
    }

    /// The finish reason, the usage if requested, and the end marker.
    fn closing(&self, usage: Option<&RunUsage>, finish: &'static str, belay: Option<&Value>) -> Vec<Event> {
        let mut events = vec![self.chunk(Piece::default(), Some(finish), belay)];
        if let Some(usage) = usage {
            let object = if self.dialect == Dialect::Chat { "chat.completion.chunk" } else { TEXT_COMPLETION };
            let chunk = json!({
                "id": self.id, "object": object, "created": self.created, "model": self.model,
                "choices": [], "usage": UsageBody::of(usage),
            });
            events.push(Event::default().data(chunk.to_string()));
        }
        events.push(Event::default().data("[DONE]"));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_with_what_is_missing_of_the_reply_and_repeats_nothing() {
        type Row = (&'static [(u32, &'static str)], bool, &'static str, &'static str);
        let rows: &[Row] = &[
            (&[], false, "all of it", "all of it"),
            (&[], false, "", ""),
            (&[(1, "Hel"), (1, "lo")], false, "Hello", "Hello"),
            (&[(1, "Hel")], false, "Hello", "Hello"),
            (&[(1, "Hello ")], false, "Hello you", "Hello you"),
            (&[(1, " Hello\n")], false, "Hello", " Hello\n"),
            (&[(1, "I look."), (2, "Found.")], false, "Found.", "I look.\n\nFound."),
            (&[(1, "I look.")], false, "Found.", "I look.\n\nFound."),
            (&[(1, "Once upon")], false, "Interrupted.", "Once upon\n\nInterrupted."),
            (&[(1, "Sure. [call x] Done.")], false, "Done.", "Sure. [call x] Done."),
            (&[(1, "He")], true, "Hello", "Hello"),
            (&[(1, "Hlo")], true, "Hello", "Hlo\n\nHello"),
            (&[(1, "Hello")], false, "", "Hello"),
        ];
        for (pieces, lossy, reply, expected) in rows {
            let mut written = Written { lossy: *lossy, ..Written::default() };
            let mut sent: String = pieces.iter().map(|(step, text)| written.piece(*step, (*text).into())).collect();
            sent.push_str(&written.rest(reply));
            assert_eq!(sent, *expected, "{pieces:?} then {reply:?}");
        }
    }
}
