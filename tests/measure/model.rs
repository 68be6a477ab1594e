//! A model server that answers at once: OpenAI chat completions, streamed. The message contains the script.
//!
//! `tool:N` in the last user message requests N rounds of one `calculate` call each, and then text. The request alone
//! determines the round, so that the server stores no conversation. `pieces:N` requests a text of N pieces. Each
//! is sent once the client has reported the one before it, so that no two are read at once. The server searches the bytes and does not parse
//! them: a request with four hundred messages must not cost it more than one with a single message.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The text of every final answer.
pub const REPLY: &str = "The scripted model has answered.";

/// Longest wait for the report of a piece. A client that reports nothing gets all pieces nevertheless.
const REPORT_LIMIT: Duration = Duration::from_secs(1);

/// Statistics since the start, and what the client reports.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of requests.
    pub requests: AtomicU64,
    /// Bytes of all request bodies.
    pub bytes: AtomicU64,
    /// Bytes of the last request body.
    pub last_bytes: AtomicU64,
    /// To be notified when the client has read a piece.
    pub piece: Notify,
    /// Messages in the last request, including the system message.
    pub last_messages: AtomicU64,
    /// Bytes of the last request up to the end of the system message: the settings, the tools and the system prompt.
    pub last_fixed_bytes: AtomicU64,
}

/// A running server, on a thread and a runtime of its own. Dropping it ends both.
#[derive(Debug)]
pub struct Model {
    /// The address of its listener.
    pub address: SocketAddr,
    /// The statistics.
    pub seen: Arc<Seen>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Model {
    /// Starts on a free loopback port.
    pub fn start() -> Result<Self> {
        let seen = Arc::new(Seen::default());
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/models", get(models))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&seen));
        let (address, stop, thread) = serve("model", router)?;
        Ok(Self { address, seen, stop, thread: Some(thread) })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The failing requests have already reported a panic of the server.
            let _ = thread.join();
        }
    }
}

/// Serves `router` on a free loopback port from a thread of its own, until the token is cancelled.
pub fn serve(name: &str, router: Router) -> Result<(SocketAddr, CancellationToken, std::thread::JoinHandle<()>)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free loopback port")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let until = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let listener = listener.tap_io(|stream| {
                // With Nagle's algorithm, the answer would wait for the client's delayed acknowledgement.
                let _ = stream.set_nodelay(true);
            });
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                () = until.cancelled() => {}
            }
        });
    })?;
    Ok((address, stop, thread))
}

async fn models() -> Response {
    let body = r#"{"object":"list","data":[{"id":"bench","object":"model","created":0,"owned_by":"bench"}]}"#;
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn chat(State(seen): State<Arc<Seen>>, body: Bytes) -> Response {
    let number = seen.requests.fetch_add(1, Relaxed);
    seen.bytes.fetch_add(body.len() as u64, Relaxed);
    seen.last_bytes.store(body.len() as u64, Relaxed);
    seen.last_messages.store(count(&body, br#""role":"#), Relaxed);
    seen.last_fixed_bytes.store(fixed_bytes(&body), Relaxed);
    let answer = match number_after(&body, b"pieces:") {
        Some((pieces, _)) => in_pieces(seen, number, pieces, body.len()),
        None => answer(number, &body).into(),
    };
    ([(CONTENT_TYPE, "text/event-stream")], answer).into_response()
}

/// The whole event stream that answers `request`.
fn answer(number: u64, request: &[u8]) -> String {
    let (frames, finish) = match next_round(request) {
        Some(round) => {
            let call = format!(
                r#"{{"tool_calls":[{{"index":0,"id":"call_{number}","type":"function","function":{{"name":"calculate","arguments":"{{\"expression\":\"{round}*7\"}}"}}}}]}}"#
            );
            (chunk(number, &call, "null"), "\"tool_calls\"")
        }
        None => {
            let pieces = REPLY.split_inclusive(' ').map(|piece| format!(r#"{{"content":"{piece}"}}"#));
            (pieces.map(|delta| chunk(number, &delta, "null")).collect(), "\"stop\"")
        }
    };
    let role = chunk(number, r#"{"role":"assistant","content":null}"#, "null");
    format!("{role}{frames}{}", end(number, finish, request.len()))
}

/// The last frames of an answer: the reason of its end, the usage, and the mark of the end.
fn end(number: u64, finish: &str, request_bytes: usize) -> String {
    let prompt_tokens = request_bytes / 4;
    let usage = format!(
        r#"data: {{"id":"c{number}","object":"chat.completion.chunk","created":0,"model":"bench","choices":[],"usage":{{"prompt_tokens":{prompt_tokens},"completion_tokens":8,"total_tokens":{}}}}}"#,
        prompt_tokens + 8
    );
    format!("{}{usage}\n\ndata: [DONE]\n\n", chunk(number, "{}", finish))
}

fn chunk(number: u64, delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c{number}\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// An answer of this many pieces.
fn in_pieces(seen: Arc<Seen>, number: u64, pieces: u64, request_bytes: usize) -> Body {
    let pieces = stream::unfold(0, move |sent| {
        let seen = Arc::clone(&seen);
        async move {
            if (1..=pieces).contains(&sent) {
                // The limit is over, or the client has read the piece: the next one in either case.
                let _ = tokio::time::timeout(REPORT_LIMIT, seen.piece.notified()).await;
            }
            let piece = match sent {
                _ if sent > pieces => return None,
                _ if sent == pieces => end(number, "\"stop\"", request_bytes),
                _ => chunk(number, &format!(r#"{{"content":"{} "}}"#, word(sent)), "null"),
            };
            Some((Ok::<_, Infallible>(Bytes::from(piece)), sent + 1))
        }
    });
    Body::from_stream(pieces)
}

/// A word of six letters for this number, the same in each run: the daemon stops a model that repeats itself.
fn word(number: u64) -> String {
    // The generator of Knuth's MMIX; its upper bits look like chance.
    let mut state = number;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyz"[(state >> 33) as usize % 26])
    };
    (0..6).map(|_| letter()).collect()
}

/// The next tool round, if the last scripted message requests another one.
fn next_round(request: &[u8]) -> Option<u64> {
    let (wanted, at) = number_after(request, b"tool:")?;
    let done = count(&request[at..], br#""role":"tool""#);
    (done < wanted).then_some(done + 1)
}

/// The number behind the last `word`, and the place of that word.
fn number_after(request: &[u8], word: &[u8]) -> Option<(u64, usize)> {
    let at = rfind(request, word)?;
    let digits = request[at + word.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    Some((digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')), at))
}

/// The bytes before the second message.
fn fixed_bytes(request: &[u8]) -> u64 {
    let find = |from: usize, word: &[u8]| {
        request[from..].windows(word.len()).position(|window| window == word).map(|at| from + at)
    };
    let messages = find(0, br#""messages":["#);
    messages.and_then(|at| find(at, br#"},{"role":"#)).map_or(0, |end| end as u64 + 1)
}

fn rfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).rposition(|window| window == needle)
}

fn count(haystack: &[u8], needle: &[u8]) -> u64 {
    let mut found = 0;
    let mut rest = haystack;
    // The search for a single byte is the fastest.
    while let Some(at) = rest.iter().position(|byte| *byte == needle[0]) {
        rest = &rest[at..];
        if rest.starts_with(needle) {
            found += 1;
        }
        rest = &rest[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(messages: &str) -> Option<u64> {
        next_round(format!(r#"{{"messages":[{messages}]}}"#).as_bytes())
    }

    #[test]
    fn the_request_alone_tells_the_round() {
        let user = r#"{"role":"user","content":"go tool:2"}"#;
        let tool = r#"{"role":"tool","content":"7"}"#;
        assert_eq!(round(r#"{"role":"user","content":"plain"}"#), None);
        assert_eq!(round(user), Some(1));
        assert_eq!(round(&format!("{user},{tool}")), Some(2));
        assert_eq!(round(&format!("{user},{tool},{tool}")), None);
        assert_eq!(round(&format!(r#"{user},{tool},{tool},{{"content":"tool:0","role":"user"}}"#)), None);
    }

    #[test]
    fn fixed_bytes_end_with_the_system_message() {
        let fixed = r#"{"model":"m","messages":[{"role":"system","content":"be brief"}"#;
        let request = format!(r#"{fixed},{{"role":"user","content":"go"}},{{"role":"user","content":"go"}}]}}"#);
        assert_eq!(fixed_bytes(request.as_bytes()), fixed.len() as u64);
        assert_eq!(fixed_bytes(br#"{"messages":[]}"#), 0);
    }

    #[test]
    fn every_frame_is_json_and_the_last_one_says_done() {
        for request in [r#"{"content":"tool:0"}"#, r#"{"content":"tool:1"}"#] {
            let stream = answer(3, request.as_bytes());
            let frames: Vec<_> = stream.split("\n\n").filter(|frame| !frame.is_empty()).collect();
            let (last, json) = frames.split_last().expect("frames");
            assert_eq!(*last, "data: [DONE]");
            for frame in json {
                let data = frame.strip_prefix("data: ").expect("a data line");
                serde_json::from_str::<serde_json::Value>(data).expect("JSON");
            }
        }
    }
}
