//! A client by hand: what it reads is kept in order, and what a test does not ask for is skipped.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use futures_util::{SinkExt, StreamExt};
use jsonschema::Validator;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::Harness;
pub(crate) use crate::harness::PATIENCE;

pub(crate) struct Socket {
    pub(crate) io: WebSocketStream<TcpStream>,
    /// Frames that were passed over, for whoever asks for them later.
    kept: VecDeque<Value>,
    requests: u32,
    /// Requests without an answer, by their id.
    asked: HashMap<String, Value>,
}

const SCHEMA: &str = include_str!("../../../../../docs/reference/websocket.schema.json");

/// The frame matches this definition of the published schema.
fn assert_matches(definition: &str, frame: &Value) {
    static VALIDATORS: LazyLock<HashMap<&str, Validator>> = LazyLock::new(|| {
        ["ServerFrame", "ClientFrame"]
            .map(|name| {
                let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
                schema.as_object_mut().unwrap().remove("anyOf");
                schema["$ref"] = format!("#/$defs/{name}").into();
                (name, jsonschema::draft202012::new(&schema).unwrap())
            })
            .into()
    });
    if let Err(problem) = VALIDATORS[definition].validate(frame) {
        panic!("a frame does not match docs/reference/websocket.schema.json: {problem}\n{frame:#}");
    }
}

/// Why a connection is at its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Code(u16),
    Broken,
}

impl Socket {
    /// A connection before its handshake; a refused upgrade is its status.
    pub(crate) async fn raw(harness: &Harness, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let address = harness.addr.unwrap();
        let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match tokio::time::timeout(PATIENCE, tokio_tungstenite::client_async(request, stream)).await.unwrap() {
            Ok((io, _)) => Ok(Self { io, kept: VecDeque::new(), requests: 0, asked: HashMap::new() }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A connection with its handshake behind it, and hello-ok.
    pub(crate) async fn hello(harness: &Harness, token: Option<&str>) -> (Self, Value) {
        let mut socket = Self::raw(harness, &[]).await.unwrap();
        socket.event("connect.challenge").await;
        let auth = token.map_or(json!({}), |token| json!({ "token": token }));
        let answer = socket.call("connect", connect(json!({ "auth": auth }))).await;
        assert_eq!(answer["ok"], true, "{answer}");
        (socket, answer["payload"].clone())
    }

    pub(crate) async fn open(harness: &Harness) -> Self {
        Self::hello(harness, None).await.0
    }

    pub(crate) async fn say(&mut self, text: impl Into<String>) {
        self.io.send(Message::text(text.into())).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> String {
        self.requests += 1;
        let id = format!("r{}", self.requests);
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.say(request.to_string()).await;
        self.asked.insert(id.clone(), request);
        id
    }

    /// Sends a request and returns its first answer.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    /// The payload of a request that is answered well.
    pub(crate) async fn payload(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert_eq!(answer["ok"], true, "{answer}");
        answer["payload"].clone()
    }

    /// The code of a request that is answered with an error.
    pub(crate) async fn refusal(&mut self, method: &str, params: Value) -> String {
        let answer = self.call(method, params).await;
        assert_eq!(answer["ok"], false, "{answer}");
        answer["error"]["code"].as_str().unwrap().to_owned()
    }

    /// Reads a frame, which must match the published schema, and whose request must match it if it was accepted.
    fn check(&mut self, frame: &Value) {
        assert_matches("ServerFrame", frame);
        let id = frame["id"].as_str().unwrap_or_default();
        if let Some(request) = self.asked.remove(id)
            && frame["ok"] == true
        {
            assert_matches("ClientFrame", &request);
        }
    }

    /// The next answer to a request.
    pub(crate) async fn answer(&mut self, id: &str) -> Value {
        self.find(|frame| frame["type"] == "res" && frame["id"] == id).await
    }

    /// The payload of the next event of that name.
    pub(crate) async fn event(&mut self, name: &str) -> Value {
        self.find(|frame| frame["type"] == "event" && frame["event"] == name).await["payload"].clone()
    }

    /// The events of that name, up to and with the one that is the last.
    pub(crate) async fn events(&mut self, name: &str, last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event(name).await;
            let done = last(&event);
            events.push(event);
            if done {
                return events;
            }
        }
    }

    async fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let frame = self.frame().await.unwrap_or_else(|end| panic!("{end:?} after {:#?}", self.kept));
            if wanted(&frame) {
                return frame;
            }
            self.kept.push_back(frame);
        }
    }

    /// Whether nothing of that kind was passed over.
    pub(crate) fn none_kept(&self, name: &str) -> bool {
        self.kept.iter().all(|frame| frame["event"] != name)
    }

    /// Whether no answer to a request was passed over.
    pub(crate) fn is_unanswered(&self, id: &str) -> bool {
        self.kept.iter().all(|frame| frame["id"] != id)
    }

    /// The payloads of that kind that were passed over.
    pub(crate) fn kept<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.kept.iter().filter(move |frame| frame["event"] == name).map(|frame| &frame["payload"])
    }

    async fn frame(&mut self) -> Result<Value, End> {
        loop {
            match tokio::time::timeout(PATIENCE, self.io.next()).await.expect("a frame in time") {
                Some(Ok(Message::Text(text))) => {
                    let frame = serde_json::from_str(&text).unwrap();
                    self.check(&frame);
                    return Ok(frame);
                }
                Some(Ok(Message::Close(Some(close)))) => return Err(End::Code(close.code.into())),
                Some(Ok(Message::Close(None))) | None | Some(Err(_)) => return Err(End::Broken),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Reads to the end.
    pub(crate) async fn end(mut self) -> End {
        loop {
            if let Err(end) = self.frame().await {
                return end;
            }
        }
    }
}

/// The parameters of connect, with these beside the usual ones.
pub(crate) fn connect(more: Value) -> Value {
    let mut params = json!({ "minProtocol": 1, "maxProtocol": 4, "client": { "id": "test", "version": "1" } });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    params
}

/// A message as `agent` takes it.
pub(crate) fn message(session: &str, text: &str, key: &str) -> Value {
    json!({ "sessionKey": session, "message": text, "idempotencyKey": key })
}
