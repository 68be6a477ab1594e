//! Tests of the adapter as a channel.

use std::net::SocketAddr;
use std::time::Duration;

use belay_protocol::{AccessDecision, Cursor, StoreError};
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::connection::OPEN_MAX;

/// Generous: it only decides how long a failure takes.
const LONG: Duration = Duration::from_secs(60);

/// A store that has no cursor.
struct NoCursors;

#[async_trait]
impl Cursors for NoCursors {
    async fn cursor(&self, _channel: &ChannelId, _name: &str) -> Result<Option<Arc<str>>, StoreError> {
        Ok(None)
    }

    async fn keep_cursor(&self, _channel: &ChannelId, _cursor: &Cursor) -> Result<(), StoreError> {
        Ok(())
    }
}

fn adapter() -> Adapter {
    let config = AdapterConfig { allow: vec!["ann".to_owned()], ..AdapterConfig::default() };
    let token = SecretString::from("0123456789abcdef".to_owned());
    Adapter::new("irc", &config, token, Arc::new(NoCursors)).expect("the token is long enough")
}

#[test]
fn somebody_who_is_on_no_list_any_more_loses_access() {
    let adapter = adapter();
    let admission = adapter.admission().expect("an adapter has lists");
    assert!(matches!(admission.standing_of("ann", None), AccessDecision::May(_)));
    assert!(matches!(admission.standing_of("eve", None), AccessDecision::NotAllowed(_)));
}

/// A served adapter.
struct Stage {
    adapter: Arc<Adapter>,
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _listening: JoinSet<()>,
}

type Client = WebSocketStream<TcpStream>;

impl Stage {
    async fn new() -> Self {
        let (adapter, stop, mut listening) = (Arc::new(adapter()), CancellationToken::new(), JoinSet::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, router) = (listener.local_addr().expect("an address"), adapter.router());
        listening.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let serving = tokio::spawn(adapter.clone().serve(stop.clone()));
        Self { adapter, address, stop, serving, _listening: listening }
    }

    /// A connection whose first frames were exchanged.
    async fn connect(&self) -> Client {
        let mut request = format!("ws://{}/adapters/irc", self.address).into_client_request().expect("an address");
        request.headers_mut().insert("authorization", "Bearer 0123456789abcdef".parse().expect("a header"));
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let (mut client, _) = client_async(request, stream).await.expect("a handshake");
        assert_eq!(frame(&mut client).await["type"], "hello");
        tell(&mut client, json!({ "type": "ready" })).await;
        let ready = async {
            while self.adapter.link.ready().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, ready).await.expect("it is ready");
        client
    }
}

async fn tell(client: &mut Client, frame: Value) {
    client.send(Message::text(frame.to_string())).await.expect("it reads");
}

async fn say(client: &mut Client, id: usize) {
    let message = json!({ "type": "message", "id": id.to_string(), "sender": { "id": "ann" }, "text": "hello" });
    tell(client, message).await;
}

async fn message(client: &mut Client) -> Message {
    loop {
        let message = timeout(LONG, client.next()).await.expect("in time").expect("before the end").expect("no error");
        if !message.is_ping() {
            return message;
        }
    }
}

async fn frame(client: &mut Client) -> Value {
    let message = message(client).await;
    serde_json::from_str(message.to_text().expect("a text")).expect("JSON")
}

/// The code and the reason of the close frame, which is next.
async fn close(client: &mut Client) -> (u16, String) {
    let Message::Close(Some(close)) = message(client).await else { panic!("no close frame") };
    (close.code.into(), close.reason.to_string())
}

#[tokio::test]
async fn an_adapter_is_told_that_the_daemon_ends() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    stage.stop.cancel();
    say(&mut client, 1).await; // a frame that comes too late does not cost the close frame
    assert_eq!(close(&mut client).await, (1001, "Belay is shutting down".to_owned()));
    assert!(timeout(LONG, client.next()).await.expect("an end").is_none());
    timeout(LONG, stage.serving).await.expect("it ends").expect("no panic");
    assert!(stage.adapter.link.ready().is_none());
}

#[tokio::test]
async fn an_adapter_that_does_not_answer_the_close_frame_is_not_waited_for() {
    let stage = Stage::new().await;
    let _silent = stage.connect().await;
    tokio::time::pause(); // from here on only the limit passes
    stage.stop.cancel();
    timeout(LONG, stage.serving).await.expect("it ends").expect("no panic");
}

#[tokio::test]
async fn a_newer_connection_ends_the_older_one() {
    let stage = Stage::new().await;
    let mut older = stage.connect().await;
    let mut newer = stage.connect().await;
    assert_eq!(close(&mut older).await, (1000, "another connection has taken its place".to_owned()));
    stage.stop.cancel();
    assert_eq!(close(&mut newer).await.0, 1001);
}

#[tokio::test]
async fn results_are_read_while_messages_wait_and_too_many_messages_end_the_connection() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    for id in 1..=OPEN_MAX {
        say(&mut client, id).await; // no agent takes them
    }
    let route = ReplyRoute { channel: "irc".into(), conversation: "ann".into(), reply_to: None };
    let (adapter, outbound) = (stage.adapter.clone(), Outbound::new(None, route, "an answer"));
    let delivery = tokio::spawn(async move { adapter.deliver(&outbound).await });
    let deliver = frame(&mut client).await;
    assert_eq!((&deliver["type"], &deliver["text"]), (&json!("deliver"), &json!("an answer")));
    tell(&mut client, json!({ "type": "delivered", "key": deliver["key"], "result": "sent" })).await;
    timeout(LONG, delivery).await.expect("the result is read").expect("no panic").expect("it is delivered");
    say(&mut client, OPEN_MAX + 1).await;
    let error = frame(&mut client).await;
    assert!(error["type"] == "error" && error["detail"].as_str().is_some_and(|it| it.contains("256")), "{error}");
    let (code, reason) = close(&mut client).await;
    assert!(code == 1000 && reason.contains("256 messages are open"), "{code} {reason}");
}
