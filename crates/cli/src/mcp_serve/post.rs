//! Sends messages to the daemon: one request for each message.

use std::collections::VecDeque;
use std::time::Duration;

use belay_program::exit::{Exit, Failure};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answers::{EVENT_MAX_BYTES, Events};
use crate::client::Client;

/// The route, as segments of a path.
const ROUTE: &[&str] = &["mcp"];

/// The `Accept` header of every request, as the protocol requires.
///
/// Source: MCP 2025-06-18, "Streamable HTTP", "Sending Messages to the Server".
const ACCEPTED: &str = "application/json, text/event-stream";

/// Headers of the protocol.
///
/// Source: MCP 2025-06-18, "Session Management" and "Protocol Version Header"; 2026-07-28 for method and name.
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Where a message of the newer protocol, which has no sessions, has its version.
const META_VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// Longest silence in an answer. 60 s: the daemon sends a comment every 15 s.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Longest time until the daemon begins to answer. 35 s: it gives up on its agent after 30.
const BEGIN_LIMIT: Duration = Duration::from_secs(35);

/// A message of the client.
#[derive(Clone, Debug)]
pub(super) struct ClientMessage {
    message: Json,
    repeated: bool,
}

impl ClientMessage {
    pub(super) fn of(message: Json) -> Self {
        Self { message, repeated: false }
    }

    /// Marks the message as repeated in another session than the first one.
    pub(super) fn repeated(self) -> Self {
        Self { repeated: true, ..self }
    }

    /// Whether it was sent before, in a session that is gone.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// The id of a request; `None`: the message has no answer.
    pub(super) fn id(&self) -> Option<&Json> {
        self.message.get("id").filter(|_| self.message.get("method").is_some())
    }

    /// Whether it begins a session.
    pub(super) fn is_initialize(&self) -> bool {
        self.message["method"] == "initialize"
    }

    /// The request that it cancels.
    pub(super) fn cancels(&self) -> Option<&Json> {
        self.message.pointer("/params/requestId").filter(|_| self.message["method"] == "notifications/cancelled")
    }

    /// Adds the headers that repeat parts of the message.
    fn label(&self, mut request: RequestBuilder, session: Option<&Session>) -> RequestBuilder {
        let header = |text: &Json| text.as_str().and_then(|text| HeaderValue::from_str(text).ok());
        if let Some(version) = self.message.pointer(META_VERSION).and_then(header) {
            request = request.header(VERSION, version);
            let name = ["/params/name", "/params/uri"].iter().find_map(|place| self.message.pointer(place));
            for (label, value) in [(METHOD, self.message.get("method")), (NAME, name)] {
                if let Some(value) = value.and_then(header) {
                    request = request.header(label, value);
                }
            }
        } else if let Some(session) = session {
            request = request.header(SESSION, session.id.clone()).header(VERSION, session.version.clone());
        }
        request
    }
}

/// A session of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    id: HeaderValue,
    version: HeaderValue,
}

/// The end of a request.
#[derive(Debug)]
pub(super) enum Ended {
    /// It has been answered, possibly by an error.
    Answered { id: Json },
    /// It has begun a session.
    Opened { id: Json, initialize: Json, session: Session },
    /// It should have begun a session, but failed.
    Unopened { id: Json },
    /// Its session is unknown to the daemon; nothing was done.
    Lost { post: ClientMessage, session: Session },
}

/// The connection to the daemon, and the session of the client.
pub(super) struct DaemonLink {
    client: Client,
    /// The client's `initialize`, for beginning another session.
    initialize: Option<Json>,
    session: Option<Session>,
}

impl DaemonLink {
    /// Checks that the daemon offers MCP and admits this user.
    ///
    /// # Errors
    /// It does not.
    pub(super) async fn open(client: Client) -> Result<Self, Failure> {
        // Without a session this request is refused; the kind of refusal shows whether the route exists.
        let asked = client.request(Method::GET, ROUTE)?.header(ACCEPT, ACCEPTED);
        let answer = timeout(BEGIN_LIMIT, asked.send()).await;
        let place = client.place().to_owned();
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(_)) | Err(_) => {
                return Err(Failure::new(Exit::OutOfReach, format!("no daemon answers at {place}"))
                    .next("start one with `belay run`, or say where it is with --url http://host:port"));
            }
        };
        match response.status() {
            StatusCode::NOT_FOUND => Err(Failure::new(
                Exit::OutOfReach,
                format!("the daemon at {place} does not offer its sessions over MCP"),
            )
            .next("set gateway.mcp = true in its settings, and start it again")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(Failure::new(Exit::Failed, format!("the daemon at {place} does not let us in"))
                    .next("put its token into BELAY_TOKEN, or BELAY_OPERATOR_TOKEN"))
            }
            _ => Ok(Self { client, initialize: None, session: None }),
        }
    }

    /// Records the session of the client.
    pub(super) fn begin(&mut self, initialize: Json, session: Session) {
        (self.initialize, self.session) = (Some(initialize), Some(session));
    }

    /// Sends a message; its answers go to `output`, if there is one.
    pub(super) fn send(
        &self,
        post: ClientMessage,
        output: Option<mpsc::Sender<Json>>,
    ) -> impl Future<Output = Ended> + use<> {
        let session = self.session.clone().filter(|_| !post.is_initialize());
        let request = self.prepared(&post, session.as_ref());
        async move { exchange(request, post, session, output.as_ref()).await }
    }

    /// Begins a new session if the current one is `gone`. Returns whether there is a session.
    pub(super) async fn reopen(&mut self, gone: &Session) -> bool {
        if self.session.as_ref() != Some(gone) {
            return self.session.is_some();
        }
        let Some(initialize) = self.initialize.clone().map(ClientMessage::of) else { return false };
        // The client has already had the answer to its `initialize`, so this one is dropped.
        let Ended::Opened { session, .. } = self.send(initialize, None).await else { return false };
        self.session = Some(session);
        let initialized = ClientMessage::of(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        self.send(initialized, None).await;
        true
    }

    /// Ends the session.
    pub(super) async fn close(&self) {
        if let Some(session) = &self.session
            && let Ok(request) = self.client.request(Method::DELETE, ROUTE)
        {
            let request = request.header(SESSION, session.id.clone()).header(VERSION, session.version.clone());
            let _ = request.send().await; // the daemon ends an idle session by itself
        }
    }

    fn prepared(&self, post: &ClientMessage, session: Option<&Session>) -> Option<RequestBuilder> {
        let request = self.client.request(Method::POST, ROUTE).ok()?;
        let request = request.header(ACCEPT, ACCEPTED).json(&post.message);
        Some(post.label(request, session))
    }
}

/// Sends one request and passes its answers on.
///
/// # Cancel safety
/// If dropped, the connection is closed, which cancels a request without a session.
async fn exchange(
    request: Option<RequestBuilder>,
    post: ClientMessage,
    session: Option<Session>,
    output: Option<&mpsc::Sender<Json>>,
) -> Ended {
    let id = post.id().cloned().unwrap_or_default();
    let sent = match request {
        Some(request) => timeout(BEGIN_LIMIT, request.send()).await.ok().and_then(Result::ok),
        None => None,
    };
    let Some(response) = sent else {
        let what =
            "the daemon does not answer; whether it took the request is not known. Start it again with `belay run`";
        return failed(post, what, output).await;
    };
    let status = response.status();
    let opened = response.headers().get(SESSION).cloned();
    let mut answers = Answers { response, events: None };
    let version = loop {
        match answers.next().await {
            Ok(Some(answer)) => {
                let message = serde_json::from_slice::<Json>(&answer).ok().filter(|json| json.get("jsonrpc").is_some());
                let code = message.as_ref().and_then(|message| message.pointer("/error/code")).and_then(Json::as_i64);
                // A refusal of the request as a whole may have no id.
                let fits = |message: &Json| status.is_success() || message.get("id") == Some(&id);
                let Some(message) = message.filter(|message| fits(message) && code != Some(NO_SESSION)) else {
                    return match session {
                        Some(session) if status == StatusCode::NOT_FOUND => Ended::Lost { post, session },
                        _ => failed(post, &words(status, &answer), output).await,
                    };
                };
                let last = message.get("id") == Some(&id) && message.get("method").is_none();
                let version = message.pointer("/result/protocolVersion").and_then(Json::as_str);
                let version = version.and_then(|version| HeaderValue::from_str(version).ok());
                queue_output(output, message).await;
                if last {
                    break version;
                }
            }
            Ok(None) if post.id().is_none() => return Ended::Answered { id },
            Ok(None) => return failed(post, "the daemon ended its answer early; ask again", output).await,
            Err(what) => return failed(post, what, output).await,
        }
    };
    match (post.is_initialize(), opened, version) {
        (false, _, _) => Ended::Answered { id },
        (true, Some(opened), Some(version)) => {
            Ended::Opened { id, initialize: post.message, session: Session { id: opened, version } }
        }
        (true, _, _) => Ended::Unopened { id },
    }
}

/// Answers with an error of the relay itself, if the message expects an answer.
async fn failed(post: ClientMessage, what: &str, output: Option<&mpsc::Sender<Json>>) -> Ended {
    let Some(id) = post.id().cloned() else { return Ended::Answered { id: Json::Null } };
    queue_output(output, error(&id, -32000, what)).await;
    if post.is_initialize() { Ended::Unopened { id } } else { Ended::Answered { id } }
}

/// The code of a refusal because the session does not exist.
const NO_SESSION: i64 = -32001;

/// An error answer.
pub(super) fn error(id: &Json, code: i32, message: &str) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// Queues a message for the output.
async fn queue_output(output: Option<&mpsc::Sender<Json>>, message: Json) {
    if let Some(output) = output {
        let _ = output.send(message).await; // fails when the loop has ended: nobody reads
    }
}

/// The text of a refusal that is not a message of the protocol.
fn words(status: StatusCode, answer: &[u8]) -> String {
    let json: Option<Json> = serde_json::from_slice(answer).ok();
    let ours = json.as_ref().and_then(|json| json.pointer("/error/message")).and_then(Json::as_str);
    let text = ours.map(str::to_owned).unwrap_or_else(|| String::from_utf8_lossy(answer).trim().to_owned());
    let text: String = text.chars().take(500).collect();
    format!("the daemon refuses the request (HTTP {}): {text}", status.as_u16())
}

/// The messages of one response.
struct Answers {
    response: Response,
    /// Complete events that were not returned yet; `None` before the first bytes.
    events: Option<(Events, VecDeque<Vec<u8>>)>,
}

impl Answers {
    /// Returns the next message; `None`: there are no more.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return self.whole().await;
        }
        let (mut events, mut waiting) = self.events.take().unwrap_or_default();
        let next = loop {
            if let Some(event) = waiting.pop_front() {
                break Some(event);
            }
            let Some(bytes) = self.chunk().await? else { break None };
            waiting.extend(events.take(&bytes).map_err(|_too_long| "the daemon's answer has no end")?);
        };
        self.events = Some((events, waiting));
        Ok(next)
    }

    /// The body as one message; `None` if it is empty.
    async fn whole(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            whole.extend_from_slice(&bytes);
            if whole.len() > EVENT_MAX_BYTES {
                return Err("the daemon's answer has no end");
            }
        }
        Ok((!whole.is_empty()).then_some(whole))
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let broken =
            "the connection to the daemon broke off; ask again, with the same idempotency_key where there was one";
        match timeout(SILENCE_LIMIT, self.response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes.map(|bytes| bytes.to_vec())),
            Ok(Err(_)) | Err(_) => Err(broken),
        }
    }
}
