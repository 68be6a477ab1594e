//! Reads an event stream to its end: passes the events to a decoder, and returns an error for every irregular end.

use std::time::Duration;

use belay_protocol::{DeltaSink, ModelError, ModelReply};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::bounds::{EVENT_MAX_BYTES, STREAM_MAX_BYTES};
use crate::failure::network;
use crate::http::{Answer, Endpoint};
use crate::sse::{Event, SseReader};

/// How long to wait after a complete answer for the server to end its stream, so that the connection can be reused.
/// That end is usually in the same packet, hence only 5 ms. If a server keeps the stream open, the next call needs a
/// new connection.
const END_GRACE: Duration = Duration::from_millis(5);

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

    /// Whether the answer is complete if the stream ends here without a terminal event.
    fn may_end(&self) -> bool;

    /// Whether any part of an answer has arrived.
    fn begun(&self) -> bool;

    /// Returns the answer.
    fn into_reply(self) -> ModelReply;
}

/// Sends a request and reads its answer.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn exchange<D: Decoder>(
    endpoint: &Endpoint,
    body: Vec<u8>,
    mut decoder: D,
    sink: &mut dyn DeltaSink,
) -> Result<ModelReply, ModelError> {
    let result = match endpoint.post(body).await? {
        Answer::Json(body) => decoder.whole(&body, sink),
        Answer::Stream(response) => {
            let chunks = response.bytes_stream().map(|chunk| chunk.map_err(crate::failure::from_client));
            drive(std::pin::pin!(chunks), endpoint.idle(), &mut decoder, sink).await
        }
    };
    match result {
        Ok(()) => Ok(decoder.into_reply()),
        Err(mut error) => {
            error.abandoned = u32::from(decoder.begun());
            Err(endpoint.redact(error))
        }
    }
}

/// Reads a stream until its answer is complete.
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
    let mut bytes_read = 0;
    let mut deadline = Instant::now() + idle;
    loop {
        let chunk = match timeout_at(deadline, chunks.next()).await {
            Ok(Some(chunk)) => chunk?,
            Ok(None) if decoder.may_end() => return Ok(()),
            Ok(None) => return Err(network("the stream ended before its terminal event")),
            Err(_) => return Err(network(format!("the server was silent for {} s", idle.as_secs()))),
        };
        bytes_read += chunk.len();
        if bytes_read > STREAM_MAX_BYTES {
            return Err(network(format!("the stream is longer than {STREAM_MAX_BYTES} bytes")));
        }
        let lines = reader.lines();
        reader.push(&chunk);
        loop {
            let event = reader.next().map_err(|_| {
                network(format!("a line or event of the stream is longer than {EVENT_MAX_BYTES} bytes"))
            })?;
            let Some(event) = event else { break };
            if decoder.event(&event, sink)? == Flow::Done {
                // Nothing after the terminal event changes the answer, not even an error.
                let _ = timeout(END_GRACE, async { while let Some(Ok(_)) = chunks.next().await {} }).await;
                return Ok(());
            }
        }
        if reader.lines() > lines {
            deadline = Instant::now() + idle;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_protocol::{FinishReason, ModelErrorKind, NoSink};
    use futures_util::stream;

    use super::*;
    use crate::openai::response::OpenAiDecoder;

    const IDLE: Duration = Duration::from_secs(90);
    const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n";

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
        let (result, took, _) = run(vec![(1, HELLO), (91, "data: [DONE]\n\n")]).await;
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
    async fn a_stream_that_breaks_after_its_last_word_is_still_broken() {
        let chunks = stream::iter([Ok(Bytes::from_static(HELLO.as_bytes())), Err(network("reset"))]);
        let error = drive(chunks, IDLE, &mut OpenAiDecoder::default(), &mut NoSink).await.unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ModelErrorKind::Network, "reset"));
    }
}
