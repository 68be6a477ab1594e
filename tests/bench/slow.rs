//! A slow model server: OpenAI chat completions, streamed. The last user message contains the script.
//!
//! `mark:N` is answered at once, and the time of the request is recorded. `drip:PIECES:MS` is answered chunk by chunk;
//! each chunk contains the time at which it was sent. `stream:N` is answered by chunks without end; the time of the
//! second one is recorded. `execute:N` is answered by a call of `run_command`, which makes the file [`started`] and
//! then sleeps. `hold` is answered after [`SlowModel::release`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::http::find;
use crate::model::serve;

/// The beginning of a chunk of a `drip` answer. The nanoseconds since the server's start and a space follow.
pub(crate) const STAMP: &str = "t";

/// Pause between two chunks of an answer without end.
const PIECE_EVERY: Duration = Duration::from_millis(20);

/// The file that the command of `execute:N` makes in the workspace when it runs.
pub(crate) fn started(number: u64) -> String {
    format!("started-{number}")
}

/// A running server, on a thread and a runtime of its own. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct SlowModel {
    /// The address of its listener.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    /// When each mark was requested, and when each answer without end had begun.
    asked: Mutex<HashMap<u64, Instant>>,
    held: AtomicUsize,
    release: CancellationToken,
}

impl SlowModel {
    /// Starts on a free loopback port.
    pub(crate) fn start() -> Result<Self> {
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            asked: Mutex::default(),
            held: AtomicUsize::new(0),
            release: CancellationToken::new(),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let (address, stop, thread) = serve("slow model", router)?;
        Ok(Self { address, shared, stop, thread: Some(thread) })
    }

    /// When this mark was requested, or the second chunk of its answer without end was sent, if it was.
    pub(crate) fn asked(&self, mark: u64) -> Option<Instant> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).get(&mark).copied()
    }

    /// The number of answers that are held back.
    pub(crate) fn held(&self) -> usize {
        self.shared.held.load(Relaxed)
    }

    /// Sends all held answers, and holds no more.
    pub(crate) fn release(&self) {
        self.shared.release.cancel();
    }

    /// When a chunk with this stamp was sent.
    pub(crate) fn sent_at(&self, stamp_ns: u64) -> Instant {
        self.shared.epoch + Duration::from_nanos(stamp_ns)
    }

    /// How long ago a chunk with this stamp was sent.
    pub(crate) fn age(&self, stamp_ns: u64) -> Duration {
        self.shared.epoch.elapsed().saturating_sub(Duration::from_nanos(stamp_ns))
    }
}

impl Shared {
    fn record(&self, mark: u64) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(mark, Instant::now());
    }
}

impl Drop for SlowModel {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The failing requests have already reported a panic of the server.
            let _ = thread.join();
        }
    }
}

/// The script of a message.
#[derive(Debug, PartialEq, Eq)]
enum Script {
    Mark(u64),
    Drip { pieces: u64, every: Duration },
    Stream(u64),
    Execute(u64),
    Hold,
}

impl Script {
    fn of(request: &[u8]) -> Self {
        let numbers = |word: &[u8]| {
            let at = rfind(request, word)? + word.len();
            let text: String = request[at..].iter().take(20).map(|byte| char::from(*byte)).collect();
            let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
            Some((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
        };
        if let Some((pieces, every_ms)) = numbers(b"drip:") {
            return Self::Drip { pieces, every: Duration::from_millis(every_ms) };
        }
        let one = |word: &[u8], script: fn(u64) -> Self| numbers(word).map(|(number, _)| script(number));
        let found = one(b"stream:", Self::Stream).or_else(|| one(b"execute:", Self::Execute));
        found.or_else(|| one(b"mark:", Self::Mark)).unwrap_or(Self::Hold)
    }
}

fn rfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut at = 0;
    while let Some(next) = find(&haystack[at..], needle) {
        found = Some(at + next);
        at += next + 1;
    }
    found
}

async fn chat(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let answer = match Script::of(&body) {
        Script::Mark(mark) => {
            shared.record(mark);
            Body::from(format!("{}{}", chunk("Marked."), END))
        }
        Script::Hold => {
            shared.held.fetch_add(1, Relaxed);
            shared.release.cancelled().await;
            Body::from(format!("{}{}", chunk("Held."), END))
        }
        Script::Drip { pieces, every } => drip(shared, pieces, every, None),
        Script::Stream(mark) => drip(shared, u64::MAX, PIECE_EVERY, Some(mark)),
        Script::Execute(number) => Body::from(execute(number)),
    };
    ([(CONTENT_TYPE, "text/event-stream")], answer).into_response()
}

/// A stream of chunks with pauses. The time of the second chunk is recorded under `mark`: the first one has been taken
/// from the server by then.
fn drip(shared: Arc<Shared>, pieces: u64, every: Duration, mark: Option<u64>) -> Body {
    let pieces = stream::unfold(0, move |sent| {
        let shared = Arc::clone(&shared);
        async move {
            if sent > pieces {
                return None;
            }
            tokio::time::sleep(every).await;
            if let Some(mark) = mark.filter(|_| sent == 1) {
                shared.record(mark);
            }
            let piece = match sent {
                last if last == pieces => END.to_owned(),
                _ => chunk(&format!("{STAMP}{} ", shared.epoch.elapsed().as_nanos())),
            };
            Some((Ok::<_, Infallible>(Bytes::from(piece)), sent + 1))
        }
    });
    Body::from_stream(pieces)
}

fn chunk(text: &str) -> String {
    frame(&json!({"content": text}), None)
}

/// The answer that calls `run_command` with a program that runs until it is stopped.
fn execute(number: u64) -> String {
    let arguments = json!({"argv": ["sh", "-c", format!("touch {} && exec sleep 1000", started(number))]});
    let function = json!({"name": "run_command", "arguments": arguments.to_string()});
    let call = json!({"index": 0, "id": format!("call_{number}"), "type": "function", "function": function});
    format!("{}{}data: [DONE]\n\n", frame(&json!({"tool_calls": [call]}), None), frame(&json!({}), Some("tool_calls")))
}

fn frame(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let frame =
        json!({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "bench", "choices": [choice]});
    format!("data: {frame}\n\n")
}

/// The end of every answer.
const END: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":8,\"total_tokens\":108}}\n\ndata: [DONE]\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_says_what_is_to_be_done() {
        for (request, script) in [
            (r#"{"content":"mark:1"},{"content":"mark:22, please"}"#, Script::Mark(22)),
            (r#"{"content":"drip:40:25"}"#, Script::Drip { pieces: 40, every: Duration::from_millis(25) }),
            (r#"{"content":"stream:3"}"#, Script::Stream(3)),
            (r#"{"content":"execute:4"}"#, Script::Execute(4)),
            (r#"{"content":"hold"}"#, Script::Hold),
        ] {
            assert_eq!(Script::of(request.as_bytes()), script, "{request}");
        }
    }

    #[test]
    fn every_frame_is_json() {
        let all = format!("{}{END}{}", chunk("t1 "), execute(1));
        for frame in all.split("\n\n").filter(|frame| !frame.is_empty() && !frame.ends_with("[DONE]")) {
            let data = frame.strip_prefix("data: ").expect("a data line");
            serde_json::from_str::<serde_json::Value>(data).expect("JSON");
        }
    }
}
