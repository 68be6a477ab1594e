//! A client of the WebSocket RPC, by hand.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::daemon::{Daemon, PATIENCE};

/// A connection that has shaken hands.
pub struct Socket {
    io: WebSocketStream<TcpStream>,
    /// Frames that were passed over, for whoever asks for them later.
    kept: VecDeque<Value>,
    requests: u32,
}

impl Socket {
    /// Connects to a daemon.
    pub async fn open(daemon: &Daemon) -> Result<Self> {
        Self::open_at(daemon.url.trim_start_matches("http://")).await
    }

    /// Connects to the daemon at `HOST:PORT`.
    pub async fn open_at(address: &str) -> Result<Self> {
        Self::connect(address, None).await
    }

    /// Connects to a daemon with a token.
    pub async fn open_with(daemon: &Daemon, token: &str) -> Result<Self> {
        Self::connect(daemon.url.trim_start_matches("http://"), Some(token)).await
    }

    async fn connect(address: &str, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (io, _) = tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream).await?;
        let mut socket = Self { io, kept: VecDeque::new(), requests: 0 };
        let mut params = json!({ "minProtocol": 1, "maxProtocol": 4, "client": { "id": "scenario", "version": "1" } });
        if let Some(token) = token {
            params["auth"] = json!({ "token": token });
        }
        socket.call("connect", params).await?;
        Ok(socket)
    }

    /// Sends a request and returns its id.
    pub async fn ask(&mut self, method: &str, params: Value) -> Result<String> {
        self.requests += 1;
        let id = format!("r{}", self.requests);
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.io.send(Message::text(request.to_string())).await?;
        Ok(id)
    }

    /// The payload of the first answer to a request.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.ask(method, params).await?;
        self.answer(&id).await
    }

    /// The payload of the next answer to a request.
    pub async fn answer(&mut self, id: &str) -> Result<Value> {
        let answer = self.find(|frame| frame["type"] == "res" && frame["id"] == id).await?;
        if answer["ok"] != true {
            bail!("{answer}");
        }
        Ok(answer["payload"].clone())
    }

    /// The payload of the next event of that name.
    pub async fn event(&mut self, name: &str) -> Result<Value> {
        Ok(self.find(|frame| frame["event"] == name).await?["payload"].clone())
    }

    /// The payloads of the events of that name, up to and with the one that is the last.
    pub async fn events(&mut self, name: &str, last: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let mut events = vec![self.event(name).await?];
        while !events.last().is_some_and(&last) {
            events.push(self.event(name).await?);
        }
        Ok(events)
    }

    /// Whether such an event was passed over on the way to what was asked for.
    pub fn has_passed(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> bool {
        self.kept.iter().any(|frame| frame["event"] == name && wanted(&frame["payload"]))
    }

    /// The code that the connection is ended with.
    pub async fn closed(&mut self) -> Result<Option<u16>> {
        loop {
            match timeout(PATIENCE, self.io.next()).await.context("the connection did not end")? {
                Some(Ok(Message::Close(close))) => return Ok(close.map(|close| close.code.into())),
                None | Some(Err(_)) => return Ok(None),
                Some(Ok(_)) => {}
            }
        }
    }

    async fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at).context("it was there");
        }
        loop {
            let frame = timeout(PATIENCE, self.io.next()).await;
            let frame = frame.with_context(|| format!("nothing came in time; before it: {:#?}", self.kept))?;
            match frame.context("the connection ended")?? {
                Message::Text(text) => {
                    let frame: Value = serde_json::from_str(&text)?;
                    if wanted(&frame) {
                        return Ok(frame);
                    }
                    self.kept.push_back(frame);
                }
                Message::Close(close) => bail!("closed: {close:?}"),
                _ => {}
            }
        }
    }
}
