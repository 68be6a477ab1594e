//! Reads an event stream to its end: passes the events to a decoder, and returns an error for every irregular end.

use std::time::Duration;

use belay_protocol::{DeltaSink, FinishReason, ModelError, ModelErrorKind, ModelReply};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::bounds::{EVENT_MAX_BYTES, STREAM_MAX_BYTES};
use crate::failure::{network, readable};
use crate::http::{Answer, Endpoint};
use crate::overflow::{by_numbers, by_size, is_full};
use crate::sse::{Event, SseReader};

/// How long to wait after a complete answer for the server to end its stream, so that the connection can be reused.
/// That end is usually in the same packet, hence only 5 ms. If a server keeps the stream open, the next call needs a
/// new connection.
const END_GRACE: Duration = Duration::from_millis(5);

/// How long to wait for a terminal event after the reason to stop and the usage. 1 s: nothing more is needed, and some
/// servers never send that event, only comments or nothing at all.
const COUNTED_GRACE: Duration = Duration::from_secs(1);

/// How much of a body without any event an error quotes, in bytes.
const QUOTED_MAX_BYTES: usize = 4096;

/// Whether an event has ended the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// More events follow.
    Continue,
    /// It was the terminal event.
    Done,
}

/// Decodes the events of one wire format.
pub(crate) trait Decoder: Send {
    /// Decodes one event.
    fn event(&mut self, event: &Event<'_>, sink: &mut dyn DeltaSink) -> Result<Flow, ModelError>;

    /// Decodes the body of a server that does not stream.
    fn whole(&mut self, body: &[u8], sink: &mut dyn DeltaSink) -> Result<(), ModelError>;

    /// Whether the answer is complete without a terminal event: the model has said why it stopped.
    fn may_end(&self) -> bool;

    /// Whether the usage has arrived too, so that nothing is missing but the terminal event.
    fn is_counted(&self) -> bool;

    /// Whether any part of an answer has arrived.
    fn begun(&self) -> bool;

    /// Returns the answer.
    fn into_reply(self) -> ModelReply;
}

/// Sends a request and reads its answer. `context_tokens`: the context of the model, if it is known.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn exchange<D: Decoder>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    mut decoder: D,
    context_tokens: Option<u64>,
    sink: &mut dyn DeltaSink,
) -> Result<ModelReply, ModelError> {
    let sent = body.len();
    let refused = |error| by_size(by_numbers(error, context_tokens), sent, context_tokens);
    let answer = endpoint.post(body).await.map_err(refused)?;
    let result = match answer {
        Answer::Json(body) => decoder.whole(&body, sink),
        Answer::Stream(response) => {
            let chunks = response.bytes_stream().map(|chunk| chunk.map_err(crate::failure::from_client));
            drive(std::pin::pin!(chunks), endpoint.idle(), &mut decoder, sink).await
        }
    };
    let begun = decoder.begun();
    match result.and_then(|()| not_hollow(decoder.into_reply(), context_tokens)) {
        Ok(reply) => Ok(reply),
        Err(mut error) => {
            error.abandoned = u32::from(begun);
            Err(endpoint.redact(by_numbers(error, context_tokens)))
        }
    }
}

/// Refuses an answer without content for which the server counted no output either. Proxies make one of a page or an error
/// that they cannot read. A model that says nothing has generated at least the token that ends an answer.
fn not_hollow(reply: ModelReply, context_tokens: Option<u64>) -> Result<ModelReply, ModelError> {
    if is_full(&reply, context_tokens) {
        return Err(ModelError::new(ModelErrorKind::ContextTooLong, "the server counted a full context and no output"));
    }
    let has_content = !reply.text.is_empty() || !reply.tool_calls.is_empty();
    if has_content || reply.finish != FinishReason::Stop || reply.usage.is_none_or(|usage| usage.output > 0) {
        return Ok(reply);
    }
    Err(network("the server sent an empty answer and counted no output: a proxy may have hidden an error"))
}

/// Reads a stream until its answer is complete. A complete answer is used however its stream ends.
pub(crate) async fn drive<S, D>(
    mut chunks: S,
    idle: Duration,
    decoder: &mut D,
    sink: &mut dyn DeltaSink,
) -> Result<(), ModelError>
where
    S: Stream<Item = Result<Bytes, ModelError>> + Unpin,
    D: Decoder,
{
    let mut reader = SseReader::default();
    let mut body = Start::default();
    let mut deadline = Instant::now() + idle;
    loop {
        let chunk = match timeout_at(deadline, chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            _ if decoder.may_end() => return Ok(()),
            Ok(Some(Err(error))) => return Err(error),
            Ok(None) => return Err(body.ended()),
            Err(_) => return Err(network(format!("the server was silent for {} s", idle.as_secs()))),
        };
        body.read(&chunk)?;
        let lines = reader.lines();
        reader.push(&chunk);
        loop {
            let event = reader.next().map_err(|_| {
                network(format!("a line or event of the stream is longer than {EVENT_MAX_BYTES} bytes"))
            })?;
            let Some(event) = event else { break };
            body.has_events = true;
            let before = (decoder.may_end(), decoder.is_counted());
            if decoder.event(&event, sink)? == Flow::Done {
                // Nothing after the terminal event changes the answer, not even an error.
                let _ = timeout(END_GRACE, async { while let Some(Ok(_)) = chunks.next().await {} }).await;
                return Ok(());
            }
            // Once the model has stopped, later events and comments do not extend the wait.
            if before != (decoder.may_end(), decoder.is_counted()) && decoder.may_end() {
                deadline = Instant::now() + if decoder.is_counted() { COUNTED_GRACE } else { idle };
            }
        }
        if reader.lines() > lines && !decoder.may_end() {
            deadline = Instant::now() + idle;
        }
    }
}

/// The size of a stream, and its start while it contains no event.
#[derive(Default)]
struct Start {
    bytes: usize,
    has_events: bool,
    text: Vec<u8>,
}

impl Start {
    /// # Errors
    /// The stream is too long.
    fn read(&mut self, chunk: &[u8]) -> Result<(), ModelError> {
        self.bytes += chunk.len();
        if self.bytes > STREAM_MAX_BYTES {
            return Err(network(format!("the stream is longer than {STREAM_MAX_BYTES} bytes")));
        }
        if !self.has_events {
            let room = QUOTED_MAX_BYTES - self.text.len();
            self.text.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Ok(())
    }

    /// The error of a stream that ended too early. A body without events is the text of a proxy or a page.
    fn ended(&self) -> ModelError {
        let said = if self.has_events { String::new() } else { readable(&self.text) };
        let is_field =
            |line: &&str| ["", "data", "event", "id", "retry"].iter().any(|it| line.starts_with(&format!("{it}:")));
        let said: Vec<&str> = said.lines().filter(|line| !is_field(line)).collect();
        match said.join("\n").trim() {
            "" => network("the stream ended before its terminal event"),
            said => network(format!("the server sent no event of a stream: {said}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_protocol::NoSink;
    use futures_util::stream;

    use super::*;
    use crate::openai::response::OpenAiDecoder;

    const IDLE: Duration = Duration::from_secs(90);
    const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n";

    const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\n";
    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";

    /// Each piece comes after a pause.
    async fn run(pieces: Vec<(u64, &'static str)>) -> (Result<(), ModelError>, Duration, OpenAiDecoder) {
        let chunks = stream::iter(pieces).then(|(pause_s, piece)| async move {
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
            Ok(Bytes::from_static(piece.as_bytes()))
        });
        let mut decoder = OpenAiDecoder::default();
        let start = Instant::now();
        let result = drive(Box::pin(chunks), IDLE, &mut decoder, &mut NoSink).await;
        (result, start.elapsed(), decoder)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_stream_is_read_to_its_end_however_long_it_takes() {
        let pieces = (0..100).map(|_| (80, ": alive\n")).chain([(80, HELLO), (80, "data: [DONE]\n\n")]).collect();
        let (result, took, decoder) = run(pieces).await;
        assert!(result.is_ok() && took.as_secs() == 102 * 80, "{result:?} {took:?}");
        assert_eq!(decoder.into_reply().text, "hello");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_an_error() {
        let (result, took, _) = run(vec![(1, HALF), (91, "data: [DONE]\n\n")]).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind, took.as_secs()), (ModelErrorKind::Network, 91));
        assert_eq!(error.detail, "the server was silent for 90 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_a_second_without_an_end_of_line_counts_as_silence() {
        let (result, took, _) = run((0..1000).map(|_| (1, "x")).collect()).await;
        assert_eq!((result.unwrap_err().kind, took.as_secs()), (ModelErrorKind::Network, 90));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_only_a_moment_for_the_end_of_its_stream() {
        let (result, took, decoder) = run(vec![(0, HELLO), (0, "data: [DONE]\n\n"), (50, "never read")]).await;
        assert!(result.is_ok() && took < Duration::from_millis(10), "{took:?}");
        assert_eq!(decoder.into_reply().finish, FinishReason::Stop);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_breaks_is_broken_until_the_model_has_stopped() {
        for (words, expected) in [(HALF, Err("reset")), (HELLO, Ok("hello"))] {
            let chunks = stream::iter([Ok(Bytes::from_static(words.as_bytes())), Err(network("reset"))]);
            let mut decoder = OpenAiDecoder::default();
            let result = drive(chunks, IDLE, &mut decoder, &mut NoSink).await;
            let result = result.map(|()| decoder.into_reply().text).map_err(|error| error.detail);
            assert_eq!(result, expected.map(str::to_owned).map_err(str::to_owned));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_counted_answer_waits_a_second_for_its_end_and_another_one_the_idle_limit() {
        let comments = || (0..1000).map(|_| (1, ": alive\n"));
        for (what, first, took_s) in [
            ("counted, then comments", vec![HELLO, USAGE], 1),
            ("usage before the reason", vec![USAGE, HELLO], 1),
            ("not counted, then comments", vec![HELLO], IDLE.as_secs()),
        ] {
            let first = first.into_iter().map(|piece| (0, piece));
            for pieces in [first.clone().chain(comments()).collect(), first.chain([(1000, "")]).collect()] {
                let (result, took, decoder) = run(pieces).await;
                assert!(result.is_ok() && took.as_secs() == took_s, "{what}: {result:?} {took:?}");
                assert_eq!(decoder.into_reply().text, "hello", "{what}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_without_events_is_an_error_that_quotes_it() {
        for (body, detail) in [
            ("", "the stream ended before its terminal event"),
            (": comment\n\n", "the stream ended before its terminal event"),
            (HALF, "the stream ended before its terminal event"),
            ("upstream is down", "the server sent no event of a stream: upstream is down"),
            (
                "<html><style>b{}</style><body><h1>502</h1>\n\nBad gateway</body></html>",
                "the server sent no event of a stream: 502 Bad gateway",
            ),
        ] {
            let chunks = stream::iter([Ok(Bytes::from_static(body.as_bytes()))]);
            let error = drive(chunks, IDLE, &mut OpenAiDecoder::default(), &mut NoSink).await.unwrap_err();
            assert_eq!((error.kind, error.detail.as_str()), (ModelErrorKind::Network, detail), "{body}");
        }
    }
}
