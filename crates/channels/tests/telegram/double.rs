//! A Bot API server that checks what it is asked and fails as it is told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const TOKEN: &str = "777:the-bots-token";

/// What the double does with a call instead of the usual.
pub(crate) enum Trouble {
    /// This status and body.
    Answer(u16, Value),
    /// A 200 whose body breaks off.
    BreakOff,
    /// No answer, ever.
    Silence,
}

/// The answer of the double to a download.
#[derive(Clone)]
pub(crate) enum Download {
    /// A whole file.
    File(Vec<u8>),
    /// The head, the first bytes, and then nothing, for ever.
    Hang(Vec<u8>),
    /// The first bytes, and then the end of the connection.
    BreakOff(Vec<u8>),
    /// A status without a file.
    Status(u16),
    /// A redirect to this address.
    Redirect(String),
}

pub(crate) struct Double {
    pub(crate) base: String,
    state: Arc<Inner>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Inner {
    calls: Mutex<Vec<(String, Value)>>,
    trouble: Mutex<HashMap<String, VecDeque<Trouble>>>,
    violations: Mutex<Vec<String>>,
    updates: Mutex<Vec<Value>>,
    /// The answers to the downloads of each path, one after another; the last one stays.
    files: Mutex<HashMap<String, VecDeque<Download>>>,
    downloads: Mutex<Vec<String>>,
    changed: watch::Sender<u64>,
}

impl Double {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Inner::default());
        let app = Router::new()
            .route("/{bot}/{method}", post(handle))
            .route("/file/{bot}/{*path}", get(download))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { base, state, server }
    }

    /// The next call of the method goes wrong. Several troubles follow each other.
    pub(crate) fn trouble(&self, method: &str, trouble: Trouble) {
        self.state.trouble.lock().unwrap().entry(method.into()).or_default().push_back(trouble);
    }

    /// Answers the downloads of the file with this id: `files/<id>` is its path.
    pub(crate) fn file(&self, id: &str, downloads: Vec<Download>) {
        self.state.files.lock().unwrap().insert(format!("files/{id}"), downloads.into());
    }

    /// The paths of all downloads so far.
    pub(crate) fn downloads(&self) -> Vec<String> {
        self.state.downloads.lock().unwrap().clone()
    }

    /// What getUpdates hands out, as long as it is not confirmed.
    pub(crate) fn add_update(&self, update: Value) {
        self.state.updates.lock().unwrap().push(update);
        self.state.changed.send_modify(|n| *n += 1);
    }

    /// The numbers of the updates that a new daemon would be given.
    pub(crate) fn unconfirmed(&self) -> Vec<i64> {
        let updates = self.state.updates.lock().unwrap();
        updates.iter().map(|update| update["update_id"].as_i64().unwrap()).collect()
    }

    /// The parameters of all calls of a method so far.
    pub(crate) fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.state.calls.lock().unwrap();
        calls.iter().filter(|(name, _)| name == method).map(|(_, parameters)| parameters.clone()).collect()
    }

    /// Waits until a method has been called so often.
    pub(crate) async fn wait_for(&self, method: &str, times: usize) -> Vec<Value> {
        let mut changed = self.state.changed.subscribe();
        let wait = async {
            while self.calls(method).len() < times {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(300), wait).await.expect("the call in time");
        self.calls(method)
    }

    /// Waits until all updates before this number are confirmed.
    pub(crate) async fn wait_until_confirmed(&self, number: i64) {
        let mut changed = self.state.changed.subscribe();
        let wait = async {
            while self.unconfirmed().iter().any(|unconfirmed| *unconfirmed < number) {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(300), wait).await.expect("the confirmation in time");
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
        let violations = self.state.violations.lock().unwrap();
        assert!(violations.is_empty() || std::thread::panicking(), "{violations:?}");
    }
}

pub(crate) fn refusal(code: u16, description: &str) -> Trouble {
    Trouble::Answer(code, json!({"ok": false, "error_code": code, "description": description}))
}

async fn handle(
    State(state): State<Arc<Inner>>,
    Path((bot, method)): Path<(String, String)>,
    body: Bytes,
) -> Response<Body> {
    let parameters: Value = serde_json::from_slice(&body).unwrap_or_else(|_| form(&body));
    let violation = check(&bot, &method, &parameters).err();
    state.calls.lock().unwrap().push((method.clone(), parameters.clone()));
    state.changed.send_modify(|n| *n += 1);
    if let Some(violation) = violation {
        state.violations.lock().unwrap().push(format!("{method}: {violation} in {parameters}"));
        return answer(400, json!({"ok": false, "error_code": 400, "description": violation}));
    }
    let trouble = state.trouble.lock().unwrap().get_mut(&method).and_then(VecDeque::pop_front);
    match trouble {
        Some(Trouble::Answer(status, body)) => return answer(status, body),
        Some(Trouble::BreakOff) => {
            let pieces = [Ok(Bytes::from("{\"ok\":tr")), Err(std::io::Error::other("broken off"))];
            return Response::new(Body::from_stream(futures_util::stream::iter(pieces)));
        }
        Some(Trouble::Silence) => std::future::pending().await,
        None => {}
    }
    let result = match method.as_str() {
        "getMe" => json!({"id": 777, "is_bot": true, "first_name": "Belay", "username": "belay_bot"}),
        "getUpdates" => updates(&state, &parameters).await,
        "getFile" => {
            let id = parameters["file_id"].as_str().unwrap();
            json!({"file_id": id, "file_unique_id": "u", "file_size": 17, "file_path": format!("files/{id}")})
        }
        "sendMessage" => json!({"message_id": 99, "date": 1, "chat": {"id": 42, "type": "private"}}),
        _ => json!(true),
    };
    answer(200, json!({"ok": true, "result": result}))
}

async fn download(State(state): State<Arc<Inner>>, Path((bot, path)): Path<(String, String)>) -> Response<Body> {
    state.downloads.lock().unwrap().push(path.clone());
    state.changed.send_modify(|n| *n += 1);
    if bot.strip_prefix("bot") != Some(TOKEN) {
        state.violations.lock().unwrap().push(format!("download of {path}: wrong token"));
    }
    let answer = {
        let mut files = state.files.lock().unwrap();
        let answers = files.entry(path).or_default();
        if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
    };
    let stream = |first: Vec<u8>, then: futures_util::stream::BoxStream<'static, std::io::Result<Bytes>>| {
        let first = futures_util::stream::iter([Ok(Bytes::from(first))]);
        Response::builder().header("content-length", "2000000000").body(Body::from_stream(first.chain(then))).unwrap()
    };
    match answer.unwrap_or(Download::Status(404)) {
        Download::File(bytes) => Response::new(Body::from(bytes)),
        Download::Hang(first) => stream(first, Box::pin(futures_util::stream::pending())),
        Download::BreakOff(first) => {
            stream(first, Box::pin(futures_util::stream::iter([Err(std::io::Error::other("broken off"))])))
        }
        Download::Status(status) => Response::builder().status(status).body(Body::empty()).unwrap(),
        Download::Redirect(to) => Response::builder().status(302).header("location", to).body(Body::empty()).unwrap(),
    }
}

/// Forgets what is confirmed, then waits for something, at most two seconds of the time that is asked for.
async fn updates(state: &Inner, parameters: &Value) -> Value {
    let offset = parameters["offset"].as_i64().unwrap_or_default();
    let mut changed = state.changed.subscribe();
    state.updates.lock().unwrap().retain(|update| update["update_id"].as_i64().unwrap() >= offset);
    state.changed.send_modify(|n| *n += 1);
    let wait = async {
        while state.updates.lock().unwrap().is_empty() {
            changed.changed().await.unwrap();
        }
    };
    let hold = Duration::from_secs(parameters["timeout"].as_u64().unwrap_or_default().min(2));
    let _ = tokio::time::timeout(hold, wait).await; // nothing came: an empty answer
    let limit = parameters["limit"].as_u64().unwrap_or(100) as usize;
    Value::Array(state.updates.lock().unwrap().iter().take(limit).cloned().collect())
}

fn answer(status: u16, body: Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body.to_string())).unwrap()
}

/// The fields of a form, and the name of its file. Objects are parsed, as the Bot API does.
fn form(body: &[u8]) -> Value {
    let body = String::from_utf8_lossy(body);
    let Some(boundary) = body.lines().next().filter(|line| line.starts_with("--")) else { return Value::Null };
    let fields = body.split(boundary).filter_map(|part| {
        let (head, value) = part.split_once("\r\n\r\n")?;
        let quoted = |name: &str| Some(head.split_once(name)?.1.split_once('"')?.0.to_owned());
        let value = quoted("filename=\"").unwrap_or_else(|| value.trim_end_matches("\r\n").to_owned());
        let value = serde_json::from_str(&value).ok().filter(Value::is_object).unwrap_or(json!(value));
        Some((quoted(" name=\"")?, value))
    });
    Value::Object(fields.collect())
}

/// What the Bot API would refuse, and what we never mean to ask.
fn check(bot: &str, method: &str, parameters: &Value) -> Result<(), String> {
    if bot.strip_prefix("bot") != Some(TOKEN) {
        return Err("wrong token".into());
    }
    let known: &[&str] = match method {
        "getMe" => &[],
        "getFile" => &["file_id"],
        "sendMessage" => &[
            "chat_id",
            "ephemeral_message_parameters",
            "message_thread_id",
            "direct_messages_topic_id",
            "text",
            "parse_mode",
            "link_preview_options",
            "reply_parameters",
            "reply_markup",
        ],
        "sendDocument" => &[
            "chat_id",
            "message_thread_id",
            "ephemeral_message_parameters",
            "document",
            "caption",
            "parse_mode",
            "reply_parameters",
        ],
        "editMessageText" => &["chat_id", "message_id", "text", "parse_mode", "link_preview_options"],
        "deleteMessage" => &["chat_id", "message_id"],
        "sendChatAction" => &["chat_id", "message_thread_id", "action"],
        "getUpdates" => &["offset", "limit", "timeout", "allowed_updates"],
        "setWebhook" => &["url", "secret_token", "allowed_updates"],
        "deleteWebhook" => &[],
        "answerCallbackQuery" => &["callback_query_id", "text", "show_alert"],
        "editMessageReplyMarkup" => &["chat_id", "message_id"],
        other => return Err(format!("unexpected method {other}")),
    };
    let parameters = parameters.as_object().ok_or("no JSON object")?;
    if let Some(name) = parameters.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("unexpected parameter {name}"));
    }
    if method == "answerCallbackQuery" && parameters["text"].as_str().is_none_or(|text| text.chars().count() > 200) {
        return Err("the text has more than 200 characters, or is none".into());
    }
    if !["sendMessage", "editMessageText"].contains(&method) {
        return Ok(());
    }
    let rows = parameters.get("reply_markup").and_then(|markup| markup["inline_keyboard"].as_array());
    for button in rows.into_iter().flatten().filter_map(Value::as_array).flatten() {
        if !(1..=64).contains(&button["callback_data"].as_str().unwrap_or_default().len()) {
            return Err(format!("BUTTON_DATA_INVALID: {button}"));
        }
    }
    if !parameters["chat_id"].is_i64() {
        return Err("chat_id is no number".into());
    }
    let text = parameters["text"].as_str().ok_or("no text")?;
    let shown = match parameters.get("parse_mode").and_then(Value::as_str) {
        None => text.to_owned(),
        Some("HTML") => shown(text)?,
        Some(other) => return Err(format!("parse mode {other}")),
    };
    match shown.trim().encode_utf16().count() {
        0 => Err("message text is empty".into()),
        1..=4096 => Ok(()),
        n => Err(format!("message is too long: {n}")),
    }
}

/// The text after entities parsing, or what is wrong with the HTML.
fn shown(html: &str) -> Result<String, String> {
    let (mut text, mut open, mut rest) = (String::new(), Vec::new(), html);
    while let Some(c) = rest.chars().next() {
        let used = match c {
            '<' => {
                let end = rest.find('>').ok_or("can't parse entities: unclosed tag")?;
                let tag = &rest[1..end];
                let name = tag.trim_start_matches('/').split(' ').next().unwrap_or_default();
                if !["b", "i", "s", "code", "pre", "a", "blockquote"].contains(&name) {
                    return Err(format!("can't parse entities: tag {name}"));
                }
                if !tag.starts_with('/') {
                    open.push(name);
                } else if open.pop() != Some(name) {
                    return Err(format!("can't parse entities: unexpected end of {name}"));
                }
                end + 1
            }
            '&' => {
                let end = rest.find(';').ok_or("can't parse entities: &")?;
                text.push(match &rest[..=end] {
                    "&amp;" => '&',
                    "&lt;" => '<',
                    "&gt;" => '>',
                    "&quot;" => '"',
                    other => return Err(format!("can't parse entities: {other}")),
                });
                end + 1
            }
            c => {
                text.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[used..];
    }
    if open.is_empty() { Ok(text) } else { Err(format!("can't parse entities: {open:?} left open")) }
}
