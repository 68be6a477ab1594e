//! A model server that answers at once: OpenAI chat completions, streamed. The message contains the script.
//!
//! `tool:N` in the last user message requests N rounds of one `calculate` call each, and then text. The request alone
//! determines the round, so that the server stores no conversation. The server searches the bytes and does not parse
//! them: a request with four hundred messages must not cost it more than one with a single message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio_util::sync::CancellationToken;

/// The text of every final answer.
pub(crate) const REPLY: &str = "The scripted model has answered.";

/// Statistics since the start.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Number of requests.
    pub(crate) requests: AtomicU64,
    /// Bytes of the last request body.
    pub(crate) last_bytes: AtomicU64,
    /// Messages in the last request, including the system message.
    pub(crate) last_messages: AtomicU64,
}

/// A running server, on a thread and a runtime of its own. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Model {
    /// The address of its listener.
    pub(crate) address: SocketAddr,
    /// The statistics.
    pub(crate) seen: Arc<Seen>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Model {
    /// Starts on a free loopback port.
    pub(crate) fn start() -> Result<Self> {
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
pub(crate) fn serve(
    name: &str,
    router: Router,
) -> Result<(SocketAddr, CancellationToken, std::thread::JoinHandle<()>)> {
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
    seen.last_bytes.store(body.len() as u64, Relaxed);
    seen.last_messages.store(count(&body, br#""role":"#), Relaxed);
    ([(CONTENT_TYPE, "text/event-stream")], answer(number, &body)).into_response()
}

/// The whole event stream that answers `request`.
fn answer(number: u64, request: &[u8]) -> String {
    let prompt_tokens = request.len() / 4;
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
    let usage = format!(
        r#"data: {{"id":"c{number}","object":"chat.completion.chunk","created":0,"model":"bench","choices":[],"usage":{{"prompt_tokens":{prompt_tokens},"completion_tokens":8,"total_tokens":{}}}}}"#,
        prompt_tokens + 8
    );
    let role = chunk(number, r#"{"role":"assistant","content":null}"#, "null");
    let end = chunk(number, "{}", finish);
    format!("{role}{frames}{end}{usage}\n\ndata: [DONE]\n\n")
}

fn chunk(number: u64, delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c{number}\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// The next tool round, if the last scripted message requests another one.
fn next_round(request: &[u8]) -> Option<u64> {
    let at = rfind(request, b"tool:")?;
    let digits = request[at + 5..].iter().take_while(|byte| byte.is_ascii_digit());
    let wanted = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    let done = count(&request[at..], br#""role":"tool""#);
    (done < wanted).then_some(done + 1)
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
