//! A scripted OpenAI-compatible model server over real HTTP: it answers as told, lies as told, and remembers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// One answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A text, whole.
    Text(String),
    /// A text cut off by the limit of tokens.
    Cut(String),
    /// Calls of one batch: name and raw arguments.
    Calls(Vec<(String, String)>),
    /// Calls cut off by the limit of tokens.
    CutCalls(Vec<(String, String)>),
    /// A status with a body and headers.
    Status(u16, Value, Vec<(&'static str, String)>),
    /// Any bytes with status 200 and a content type, then the end.
    Raw(&'static str, Vec<u8>),
    /// Streams a word each 100 ms for ever. No word comes twice: also on a slow machine no stop rule finds a loop.
    Stall,
    /// Sends the head of a stream and then nothing, for ever.
    Silence,
    /// A text, whole, once the test has notified.
    Held(Arc<Notify>, String),
    /// A text, one byte at a time, with this pause after each.
    Drip(String, Duration),
    /// A text in pieces of this many characters, with this pause after each.
    Pieces(String, usize, Duration),
}

impl Answer {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// One call.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::Calls(vec![(name.into(), arguments.to_string())])
    }

    /// The refusal of a context that is too long, as llama.cpp words it.
    pub fn too_long() -> Self {
        let error = json!({"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available context size"});
        Self::Status(400, json!({"error": error}), Vec::new())
    }
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    otherwise: Answer,
    requests: Mutex<Vec<Value>>,
    /// How many connections a client has dropped in the middle of a stream.
    dropped: watch::Sender<u32>,
    seen: watch::Sender<u32>,
    /// The key that the list of models needs, and the list.
    listed: Mutex<Option<(Option<String>, Vec<String>)>>,
}

/// The server; ends with the test's runtime.
pub struct ModelServer {
    /// `http://127.0.0.1:PORT/v1`
    pub base_url: String,
    shared: Arc<Shared>,
}

impl ModelServer {
    /// Answers with the script, then with `otherwise` for ever.
    pub async fn start(script: Vec<Answer>, otherwise: Answer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into()),
            otherwise,
            requests: Mutex::new(Vec::new()),
            dropped: watch::Sender::new(0),
            seen: watch::Sender::new(0),
            listed: Mutex::new(None),
        });
        let app = Router::new()
            .route("/v1/chat/completions", post(answer))
            .route("/v1/models", get(list))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { base_url, shared }
    }

    /// Lists these models from now on, to everybody or to holders of a key. Before, the list is not found (404).
    pub fn lists(&self, key: Option<&str>, models: &[&str]) {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        *lock(&self.shared.listed) = Some((key.map(str::to_owned), models));
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.shared.requests).clone()
    }

    /// Adds to the script.
    pub fn then(&self, answer: Answer) {
        lock(&self.shared.script).push_back(answer);
    }

    /// Waits until so many requests have come.
    pub async fn seen(&self, n: u32) {
        let mut seen = self.shared.seen.subscribe();
        let wait = seen.wait_for(|seen| *seen >= n);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("the model was not asked");
    }

    /// Waits until so many clients have gone away in the middle of an answer.
    pub async fn dropped(&self, n: u32) {
        let mut dropped = self.shared.dropped.subscribe();
        let wait = dropped.wait_for(|dropped| *dropped >= n);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("the connection was not closed");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let listed = lock(&shared.listed).clone();
    let Some((key, models)) = listed else { return StatusCode::NOT_FOUND.into_response() };
    let given = headers.get("authorization").and_then(|value| value.to_str().ok());
    if key.is_some_and(|key| given != Some(&format!("Bearer {key}"))) {
        let error = json!({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    let data: Vec<Value> = models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
    axum::Json(json!({"object": "list", "data": data})).into_response()
}

async fn answer(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    lock(&shared.requests).push(serde_json::from_slice(&body).unwrap_or(Value::Null));
    shared.seen.send_modify(|seen| *seen += 1);
    let answer = lock(&shared.script).pop_front().unwrap_or_else(|| shared.otherwise.clone());
    match answer {
        Answer::Held(notified, text) => {
            notified.notified().await;
            sse([chunk(json!({"content": text}), None), chunk(json!({}), Some("stop")), done()].concat())
        }
        Answer::Text(text) => {
            sse([chunk(json!({"content": text}), None), chunk(json!({}), Some("stop")), done()].concat())
        }
        Answer::Cut(text) => {
            sse([chunk(json!({"content": text}), None), chunk(json!({}), Some("length")), done()].concat())
        }
        Answer::Calls(calls) => {
            sse([chunk(json!({"tool_calls": wire(&calls)}), None), chunk(json!({}), Some("tool_calls")), done()]
                .concat())
        }
        Answer::CutCalls(calls) => {
            sse([chunk(json!({"tool_calls": wire(&calls)}), None), chunk(json!({}), Some("length")), done()].concat())
        }
        Answer::Status(status, body, headers) => {
            let mut response = (StatusCode::from_u16(status).expect("a status"), axum::Json(body)).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().expect("a header"));
            }
            response
        }
        Answer::Raw(kind, bytes) => ([("content-type", kind)], bytes).into_response(),
        Answer::Stall => {
            let words = (1_u64..).map(|n| Bytes::from(chunk(json!({"content": nth_word(n)}), None)));
            stream(shared, words, Duration::from_millis(100))
        }
        Answer::Silence => {
            let head = Bytes::from(chunk(json!({"role": "assistant"}), None));
            stream(shared, std::iter::once(head).chain(std::iter::repeat(Bytes::new())), Duration::from_millis(50))
        }
        Answer::Pieces(text, length, pause) => {
            let text: Vec<char> = text.chars().collect();
            let pieces = text.chunks(length).map(|piece| chunk(json!({"content": String::from_iter(piece)}), None));
            let end = [chunk(json!({}), Some("stop")), done()].concat();
            let all: Vec<String> = pieces.chain([end]).collect();
            stream(shared, all.into_iter().map(Bytes::from), pause)
        }
        Answer::Drip(text, pause) => {
            let all = [chunk(json!({"content": text}), None), chunk(json!({}), Some("stop")), done()].concat();
            stream(shared, all.into_bytes().into_iter().map(|byte| Bytes::from(vec![byte])), pause)
        }
    }
}

/// One of 2^64 different words of 14 letters, and a blank. Neighbours differ in most letters.
fn nth_word(n: u64) -> String {
    let mut rest = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut word = String::new();
    for _ in 0..14 {
        word.push(char::from(b'a' + u8::try_from(rest % 26).unwrap_or_default()));
        rest /= 26;
    }
    word.push(' ');
    word
}

fn wire(calls: &[(String, String)]) -> Value {
    let call = |(index, (name, arguments)): (usize, &(String, String))| {
        json!({"index": index, "id": format!("call_{index}"), "type": "function",
               "function": {"name": name, "arguments": arguments}})
    };
    calls.iter().enumerate().map(call).collect()
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    format!("data: {chunk}\n\n")
}

fn done() -> String {
    let usage = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [],
                       "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}});
    format!("data: {usage}\n\ndata: [DONE]\n\n")
}

fn sse(body: String) -> Response {
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Sends pieces with a pause after each, and counts the client that goes away before they end.
fn stream(shared: Arc<Shared>, pieces: impl Iterator<Item = Bytes> + Send + 'static, pause: Duration) -> Response {
    let (tx, rx) = mpsc::channel::<Result<Bytes, std::convert::Infallible>>(1);
    tokio::spawn(async move {
        for piece in pieces {
            let gone = tokio::select! {
                () = tx.closed() => true,
                sent = async { if piece.is_empty() { Ok(()) } else { tx.send(Ok(piece)).await } } => sent.is_err(),
            };
            let gone = gone || tokio::time::timeout(pause, tx.closed()).await.is_ok();
            if gone {
                shared.dropped.send_modify(|dropped| *dropped += 1);
                return;
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(rx));
    ([("content-type", "text/event-stream")], body).into_response()
}
