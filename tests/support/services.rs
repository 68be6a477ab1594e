//! The further routes of a server with the API of OpenAI, over real HTTP: transcription by a script, and embeddings by
//! topics.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

/// Words of one topic have the same direction.
const TOPICS: [&[&str]; 4] =
    [&["flight", "plane", "airport"], &["cat", "kitten", "purrs"], &["birthday", "born"], &["car", "garage"]];

/// The key that both routes need.
pub const KEY: &str = "sesame-of-the-services";

#[derive(Default)]
struct Shared {
    transcripts: Mutex<VecDeque<(u16, Value)>>,
    recordings: Mutex<Vec<String>>,
    inputs: Mutex<Vec<Vec<String>>>,
    is_down: Mutex<bool>,
}

/// The server; ends with the test's runtime.
pub struct Services {
    /// `http://127.0.0.1:PORT/v1`
    pub base_url: String,
    shared: Arc<Shared>,
}

impl Services {
    /// Starts it.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared::default());
        let app = Router::new()
            .route("/v1/audio/transcriptions", post(transcribe))
            .route("/v1/embeddings", post(embed))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { base_url, shared }
    }

    /// The answer to the next recording: a status and a body.
    pub fn transcript(&self, status: u16, body: Value) {
        lock(&self.shared.transcripts).push_back((status, body));
    }

    /// The requests for transcripts so far, as text.
    pub fn recordings(&self) -> Vec<String> {
        lock(&self.shared.recordings).clone()
    }

    /// The texts of each request for embeddings so far.
    pub fn inputs(&self) -> Vec<Vec<String>> {
        lock(&self.shared.inputs).clone()
    }

    /// Whether embeddings are refused from now on.
    pub fn set_down(&self, is_down: bool) {
        *lock(&self.shared.is_down) = is_down;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusal(status: u16, message: &str) -> Response {
    let body = axum::Json(json!({"error": {"message": message}}));
    (StatusCode::from_u16(status).expect("a status"), body).into_response()
}

fn has_key(headers: &HeaderMap) -> bool {
    headers.get("authorization").and_then(|value| value.to_str().ok()) == Some(&format!("Bearer {KEY}"))
}

async fn transcribe(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    if !has_key(&headers) {
        return refusal(401, "wrong key");
    }
    lock(&shared.recordings).push(String::from_utf8_lossy(&body).into_owned());
    let (status, body) = lock(&shared.transcripts).pop_front().unwrap_or((500, json!({})));
    (StatusCode::from_u16(status).expect("a status"), axum::Json(body)).into_response()
}

async fn embed(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let texts = body["input"].as_array().cloned().unwrap_or_default();
    let texts: Vec<String> = texts.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if !has_key(&headers) {
        return refusal(401, "wrong key");
    }
    lock(&shared.inputs).push(texts.clone());
    if *lock(&shared.is_down) {
        return refusal(503, "down");
    }
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text)}))
        .collect();
    axum::Json(json!({"object": "list", "data": data, "model": body["model"]})).into_response()
}

fn vector(text: &str) -> [f32; 5] {
    let text = text.to_lowercase();
    let mut vector = [0.0, 0.0, 0.0, 0.0, 0.05];
    for (at, words) in TOPICS.iter().enumerate() {
        vector[at] = words.iter().filter(|word| text.contains(**word)).count() as f32;
    }
    vector
}
