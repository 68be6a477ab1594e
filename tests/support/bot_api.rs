//! A Bot API server of our own over real HTTP: it takes what a bot sends, hands out updates, and remembers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The bot's token in every test.
pub const TOKEN: &str = "1234567:test-token";

struct Shared {
    calls: Mutex<Vec<(String, Value)>>,
    updates: Mutex<VecDeque<Value>>,
    /// Answers to sendMessage before it begins to work.
    refusals: Mutex<VecDeque<Value>>,
    sent: watch::Sender<u32>,
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
            sent: watch::Sender::new(0),
        });
        let app = Router::new().route("/{bot}/{method}", post(call).get(call)).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, shared }
    }

    /// The next answer to sendMessage.
    pub fn refuse(&self, body: Value) {
        lock(&self.shared.refusals).push_back(body);
    }

    /// An update for long polling.
    pub fn update(&self, update: Value) {
        lock(&self.shared.updates).push_back(update);
    }

    /// What sendMessage was called with, refused calls left out.
    pub fn sent(&self) -> Vec<Value> {
        self.calls("sendMessage")
    }

    /// What a method was called with.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        lock(&self.shared.calls).iter().filter(|(name, _)| name == method).map(|(_, body)| body.clone()).collect()
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn call(
    State(shared): State<Arc<Shared>>,
    Path((bot, method)): Path<(String, String)>,
    body: axum::body::Bytes,
) -> axum::Json<Value> {
    if bot != format!("bot{TOKEN}") {
        return axum::Json(json!({"ok": false, "error_code": 401, "description": "Unauthorized"}));
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let result = match method.as_str() {
        "getMe" => json!({"id": 1_234_567, "is_bot": true, "first_name": "Belay", "username": "belay_test_bot"}),
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
        "sendMessage" => {
            let refusal = lock(&shared.refusals).pop_front();
            if let Some(refusal) = refusal {
                return axum::Json(refusal);
            }
            lock(&shared.calls).push((method, body.clone()));
            shared.sent.send_modify(|sent| *sent += 1);
            return axum::Json(json!({"ok": true, "result": {
                "message_id": 1000, "date": 1_700_000_000, "chat": {"id": body["chat_id"], "type": "private"}, "text": body["text"],
            }}));
        }
        _ => json!(true),
    };
    lock(&shared.calls).push((method, body));
    axum::Json(json!({"ok": true, "result": result}))
}
