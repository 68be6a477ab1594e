//! A slow model server: OpenAI chat completions, streamed. The last user message contains the script.
//!
//! `mark:N` is answered at once, and the time of the request is recorded. `drip:PIECES:MS` is answered chunk by chunk;
//! each chunk contains the time at which it was sent. `hold` is answered after [`SlowModel::release`].

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
use tokio_util::sync::CancellationToken;

use crate::http::find;
use crate::model::serve;

/// The beginning of a chunk of a `drip` answer. The nanoseconds since the server's start and a space follow.
pub(crate) const STAMP: &str = "t";

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
    /// When each mark was requested.
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

    /// When this mark was requested, if it was.
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

    /// How long ago a chunk with this stamp was sent.
    pub(crate) fn age(&self, stamp_ns: u64) -> Duration {
        self.shared.epoch.elapsed().saturating_sub(Duration::from_nanos(stamp_ns))
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
        numbers(b"mark:").map_or(Self::Hold, |(mark, _)| Self::Mark(mark))
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
            shared.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(mark, Instant::now());
            Body::from(format!("{}{}", chunk("Marked."), END))
        }
        Script::Hold => {
            shared.held.fetch_add(1, Relaxed);
            shared.release.cancelled().await;
            Body::from(format!("{}{}", chunk("Held."), END))
        }
        Script::Drip { pieces, every } => drip(shared, pieces, every),
    };
    ([(CONTENT_TYPE, "text/event-stream")], answer).into_response()
}

/// A stream of chunks with pauses.
fn drip(shared: Arc<Shared>, pieces: u64, every: Duration) -> Body {
    let pieces = stream::unfold(0, move |sent| {
        let shared = Arc::clone(&shared);
        async move {
            if sent > pieces {
                return None;
            }
            tokio::time::sleep(every).await;
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
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
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
            (r#"{"content":"hold"}"#, Script::Hold),
        ] {
            assert_eq!(Script::of(request.as_bytes()), script, "{request}");
        }
    }

    #[test]
    fn every_frame_is_json() {
        let all = format!("{}{END}", chunk("t1 "));
        for frame in all.split("\n\n").filter(|frame| !frame.is_empty() && !frame.ends_with("[DONE]")) {
            let data = frame.strip_prefix("data: ").expect("a data line");
            serde_json::from_str::<serde_json::Value>(data).expect("JSON");
        }
    }
}
