//! A Bot API server of our own over real HTTP: it takes what a bot sends, hands out updates, and remembers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The bot's token in every test.
pub const TOKEN: &str = "1234567:test-token";

struct Shared {
    calls: Mutex<Vec<(String, Value)>>,
    updates: Mutex<VecDeque<Value>>,
    /// Answers to sendMessage, sendPhoto and sendDocument before they begin to work.
    refusals: Mutex<VecDeque<Value>>,
    /// The menus of commands, by scope.
    menus: Mutex<HashMap<String, Value>>,
    called: watch::Sender<u32>,
    sent: watch::Sender<u32>,
    /// The files by their ids; `None`: the download hangs.
    files: Mutex<HashMap<String, Option<Vec<u8>>>>,
    downloads: watch::Sender<u32>,
    /// Files that were taken.
    taken: watch::Sender<u32>,
    /// Whether a file gets no answer.
    silent: AtomicBool,
}

/// The server; ends with the test's runtime.
pub struct BotApi {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    shared: Arc<Shared>,
}

impl BotApi {
    /// Starts it.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            calls: Mutex::default(),
            updates: Mutex::default(),
            refusals: Mutex::default(),
            menus: Mutex::default(),
            called: watch::Sender::new(0),
            sent: watch::Sender::new(0),
            files: Mutex::default(),
            downloads: watch::Sender::new(0),
            taken: watch::Sender::new(0),
            silent: AtomicBool::new(false),
        });
        let app = Router::new()
            .route("/{bot}/{method}", post(call).get(call))
            .route("/file/{bot}/files/{id}", get(download))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, shared }
    }

    /// The next answer to sendMessage, sendPhoto or sendDocument.
    pub fn refuse(&self, body: Value) {
        lock(&self.shared.refusals).push_back(body);
    }

    /// Waits until the answers of [`refuse`](Self::refuse) are given.
    pub async fn refused(&self) {
        let wait = async {
            while !lock(&self.shared.refusals).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await; // a real process: there is no clock to pause
            }
        };
        tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("nothing was sent");
    }

    /// An update for long polling.
    pub fn update(&self, update: Value) {
        lock(&self.shared.updates).push_back(update);
    }

    /// Serves a file under an id. `None`: its download hangs.
    pub fn file(&self, id: &str, bytes: Option<Vec<u8>>) {
        lock(&self.shared.files).insert(id.to_owned(), bytes);
    }

    /// Waits until so many downloads were asked for.
    pub async fn downloads(&self, n: u32) {
        let mut downloads = self.shared.downloads.subscribe();
        let wait = downloads.wait_for(|downloads| *downloads >= n);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("no file was asked for");
    }

    /// What sendMessage was called with, refused calls left out.
    pub fn sent(&self) -> Vec<Value> {
        self.calls("sendMessage")
    }

    /// What a method was called with.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        lock(&self.shared.calls).iter().filter(|(name, _)| name == method).map(|(_, body)| body.clone()).collect()
    }

    /// Waits until a method was called so often, and returns what with.
    pub async fn called(&self, method: &str, times: usize) -> Vec<Value> {
        let mut called = self.shared.called.subscribe();
        let wait = called.wait_for(|_| self.calls(method).len() >= times);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("the method was not called");
        self.calls(method)
    }

    /// From now on, whether a file that is sent gets no answer.
    pub fn be_silent(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Waits until so many files were taken. Returns the method and the fields of each; the file itself is an object with
    /// `filename`, `type` and `base64`.
    pub async fn files(&self, n: u32) -> Vec<(String, Value)> {
        let mut files = self.shared.taken.subscribe();
        let wait = files.wait_for(|files| *files >= n);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("the file was not sent");
        let is_file = |(method, _): &&(String, Value)| method == "sendPhoto" || method == "sendDocument";
        lock(&self.shared.calls).iter().filter(is_file).cloned().collect()
    }

    /// Waits until so many messages were taken.
    pub async fn messages(&self, n: u32) -> Vec<Value> {
        let mut sent = self.shared.sent.subscribe();
        let wait = sent.wait_for(|sent| *sent >= n);
        let _ = tokio::time::timeout(crate::daemon::PATIENCE, wait).await.expect("the message was not sent");
        self.sent()
    }
}

/// A private message of a user, as Telegram words it.
pub fn private_message(update_id: u32, user: i64, text: &str) -> Value {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    json!({"update_id": update_id, "message": {
        "message_id": update_id, "date": now, "text": text,
        "from": {"id": user, "is_bot": false, "first_name": "Tester"},
        "chat": {"id": user, "type": "private", "first_name": "Tester"},
    }})
}

/// A private message of a user with media instead of a text, as Telegram words it.
pub fn private_media(update_id: u32, user: i64, kind: &str, media: Value) -> Value {
    let mut update = private_message(update_id, user, "");
    if let Some(message) = update["message"].as_object_mut() {
        message.remove("text");
        message.insert(kind.to_owned(), media);
    }
    update
}

/// A photo in one size, as Telegram words it.
pub fn photo(id: &str) -> Value {
    json!([{"file_id": id, "file_unique_id": id, "width": 1280, "height": 853, "file_size": 1000}])
}

/// The boundary of a form.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get("content-type")?.to_str().ok()?;
    Some(kind.strip_prefix("multipart/form-data; boundary=")?.to_owned())
}

/// The fields of a form.
fn fields(body: &[u8], boundary: &str) -> Value {
    let find = |from: usize, what: &[u8]| {
        body[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let mark = format!("--{boundary}");
    let mut all = json!({});
    let mut at = find(0, mark.as_bytes());
    while let Some(begin) = at {
        let Some(next) = find(begin + mark.len(), mark.as_bytes()) else { break };
        at = Some(next);
        let Some(blank) = find(begin, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&body[begin..blank]).into_owned();
        let content = &body[blank + 4..next - 2];
        let quoted = |name: &str| {
            let (_, rest) = head.split_once(&format!(" {name}=\""))?;
            Some(rest.split('"').next().unwrap_or_default().to_owned())
        };
        let Some(name) = quoted("name") else { break };
        let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap_or_default();
        all[name] = match quoted("filename") {
            Some(filename) => json!({"filename": filename, "type": kind, "base64": STANDARD.encode(content)}),
            None => String::from_utf8_lossy(content).into(),
        };
    }
    all
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn download(State(shared): State<Arc<Shared>>, Path((bot, id)): Path<(String, String)>) -> Response {
    if bot != format!("bot{TOKEN}") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let file = lock(&shared.files).get(&id).cloned();
    shared.downloads.send_modify(|downloads| *downloads += 1);
    match file {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(Some(bytes)) => Response::new(Body::from(bytes)),
        Some(None) => std::future::pending().await,
    }
}

async fn call(
    State(shared): State<Arc<Shared>>,
    Path((bot, method)): Path<(String, String)>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> axum::Json<Value> {
    if bot != format!("bot{TOKEN}") {
        return axum::Json(json!({"ok": false, "error_code": 401, "description": "Unauthorized"}));
    }
    let body: Value = match boundary(&headers) {
        Some(boundary) => fields(&body, &boundary),
        None => serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let result = match method.as_str() {
        "getMe" => json!({"id": 1_234_567, "is_bot": true, "first_name": "Belay", "username": "belay_test_bot"}),
        "getFile" => {
            let id = body["file_id"].as_str().unwrap_or_default();
            json!({"file_id": id, "file_unique_id": id, "file_path": format!("files/{id}")})
        }
        "getUpdates" => {
            let offset = body["offset"].as_u64().unwrap_or(0);
            let ready: Vec<Value> = {
                let mut updates = lock(&shared.updates);
                updates.retain(|update| update["update_id"].as_u64().unwrap_or(0) >= offset);
                updates.iter().cloned().collect()
            };
            if ready.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await; // the double of a long poll
            }
            json!(ready)
        }
        "sendMessage" | "sendPhoto" | "sendDocument" => {
            let refusal = lock(&shared.refusals).pop_front();
            if let Some(refusal) = refusal {
                return axum::Json(refusal);
            }
            let is_text = method == "sendMessage";
            lock(&shared.calls).push((method, body.clone()));
            if !is_text {
                shared.taken.send_modify(|files| *files += 1);
                if shared.silent.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                return axum::Json(json!({"ok": true, "result": {"message_id": 1001}}));
            }
            shared.sent.send_modify(|sent| *sent += 1);
            return axum::Json(json!({"ok": true, "result": {
                "message_id": 1000, "date": 1_700_000_000, "chat": {"id": body["chat_id"], "type": "private"}, "text": body["text"],
            }}));
        }
        "getMyCommands" => lock(&shared.menus).get(&body["scope"].to_string()).cloned().unwrap_or_else(|| json!([])),
        "setMyCommands" => {
            lock(&shared.menus).insert(body["scope"].to_string(), body["commands"].clone());
            json!(true)
        }
        _ => json!(true),
    };
    lock(&shared.calls).push((method, body));
    shared.called.send_modify(|called| *called += 1);
    axum::Json(json!({"ok": true, "result": result}))
}
