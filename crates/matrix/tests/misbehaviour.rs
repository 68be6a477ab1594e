//! The channel against a homeserver that misbehaves: wrong tokens, limits, lost and half answers, broken events.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body as Answer;
use axum::extract::{Request, State};
use axum::response::Response;
use belay_matrix::{MatrixConfig, MatrixParts, MatrixPeople, MatrixSecrets, open};
use belay_protocol::{
    Ack, BlobDigest, BlobStore, BlobWriter, Body, Channel, ChannelId, CommandReply, Cursor, Cursors, DeliverError,
    Envelope, MoveStore, MovedConversation, NoAttachments, Outbound, Refusal, Repeat, ReplyRoute, StoreError,
    UncheckedTexts, UnixMillis,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Generous: it only decides how long a failure takes.
const LONG: Duration = Duration::from_secs(60);

/// A store in memory.
#[derive(Default)]
struct Store {
    cursor: Mutex<Option<Arc<str>>>,
    moves: Mutex<Vec<MovedConversation>>,
}

#[async_trait]
impl Cursors for Store {
    async fn cursor(&self, _: &ChannelId, _: &str) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.cursor.lock().unwrap().clone())
    }

    async fn keep_cursor(&self, _: &ChannelId, cursor: &Cursor) -> Result<(), StoreError> {
        *self.cursor.lock().unwrap() = Some(cursor.value().into());
        Ok(())
    }
}

#[async_trait]
impl MoveStore for Store {
    async fn moves(&self, _: ChannelId) -> Result<Vec<MovedConversation>, StoreError> {
        Ok(self.moves.lock().unwrap().clone())
    }

    async fn put_move(&self, moved: MovedConversation) -> Result<(), StoreError> {
        self.moves.lock().unwrap().push(moved);
        Ok(())
    }
}

#[async_trait]
impl BlobStore for Store {
    fn digest(&self, _: &[u8]) -> Result<BlobDigest, StoreError> {
        unreachable!("no file is stored")
    }

    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        unreachable!("no file is stored")
    }

    async fn read(&self, _: &BlobDigest) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    async fn older_than(&self, _: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _: &[BlobDigest], _: UnixMillis) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// The answer of the homeserver to a request.
#[derive(Clone)]
enum Reply {
    Json(u16, Value),
    /// The beginning of an answer, and then a broken connection.
    Half(&'static str),
    /// An answer of 65 MiB.
    Huge,
}

/// A homeserver that answers by the end of a request's path, and remembers the requests.
#[derive(Clone, Default)]
struct Server {
    replies: Arc<Mutex<HashMap<&'static str, VecDeque<Reply>>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn on(&self, part: &'static str, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().unwrap().entry(part).or_default().extend(replies);
    }

    fn seen(&self, part: &str) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|path| path.contains(part)).cloned().collect()
    }

    /// The next reply. The last one for a part is repeated; news are not.
    fn reply(&self, path: &str) -> Option<Reply> {
        let mut replies = self.replies.lock().unwrap();
        let queue = replies.iter_mut().find(|(part, _)| path.contains(*part))?.1;
        if queue.len() > 1 || path.contains("/sync") { queue.pop_front() } else { queue.front().cloned() }
    }
}

async fn answer(State(server): State<Server>, request: Request) -> Response {
    let path = format!("{} {}", request.method(), request.uri());
    server.seen.lock().unwrap().push(path.clone());
    let (status, body) = match server.reply(&path) {
        Some(Reply::Json(status, value)) => (status, Answer::from(value.to_string())),
        Some(Reply::Half(text)) => {
            let broken = stream::iter([Ok(text), Err(std::io::Error::other("broken"))]);
            (200, Answer::from_stream(broken))
        }
        Some(Reply::Huge) => {
            let piece = Bytes::from(vec![b' '; 1024 * 1024]);
            (200, Answer::from_stream(stream::iter(vec![piece; 65].into_iter().map(Ok::<_, std::io::Error>))))
        }
        None if path.contains("/sync") => std::future::pending().await,
        None => (404, Answer::from(json!({ "errcode": "M_NOT_FOUND", "error": "no" }).to_string())),
    };
    Response::builder().status(status).body(body).unwrap()
}

struct Stage {
    server: Server,
    store: Arc<Store>,
    channel: Arc<dyn Channel>,
    _serving: JoinHandle<()>,
}

impl Stage {
    async fn new() -> Self {
        let server = Server::default();
        server.on("whoami", [Reply::Json(200, json!({ "user_id": "@belay:s" }))]);
        server.on("joined_members", [Reply::Json(200, json!({ "joined": { "@belay:s": {}, "@ann:s": {} } }))]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let homeserver = Some(format!("http://{}", listener.local_addr().unwrap()));
        let router = axum::Router::new().fallback(answer).with_state(server.clone());
        let serving = tokio::task::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = MatrixConfig { homeserver, allow: vec!["@ann:s".into()], ..MatrixConfig::default() };
        let store = Arc::new(Store::default());
        let parts = MatrixParts {
            people: MatrixPeople::of(&config),
            commands: Vec::new(),
            attachments: Arc::new(NoAttachments),
            blobs: store.clone(),
            texts: Arc::new(UncheckedTexts),
            moves: store.clone(),
            cursors: store.clone(),
        };
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test was first
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
        let channel = open(&config, MatrixSecrets { token: "secret".to_owned().into() }, http, parts).unwrap();
        Self { server, store, channel, _serving: serving }
    }

    async fn messages(&self, stop: &CancellationToken) -> belay_protocol::channel::InboundStream {
        self.channel.start(stop.clone()).await.unwrap()
    }

    fn cursor(&self) -> Option<String> {
        self.store.cursor.lock().unwrap().as_deref().map(str::to_owned)
    }
}

fn event(id: &str, body: Value) -> Value {
    json!({ "type": "m.room.message", "event_id": id, "sender": "@ann:s", "content": { "msgtype": "m.text", "body": body } })
}

fn news(next: &str, events: &[Value]) -> Reply {
    let room = json!({ "timeline": { "events": events, "limited": false } });
    Reply::Json(200, json!({ "next_batch": next, "rooms": { "join": { "!r:s": room } } }))
}

fn first() -> Reply {
    Reply::Json(200, json!({ "next_batch": "s1" }))
}

async fn next(messages: &mut (impl StreamExt<Item = Envelope> + Unpin)) -> (String, Envelope) {
    let envelope = timeout(LONG, messages.next()).await.expect("a message").expect("a message");
    let Body::Text(text) = &envelope.inbound.body else { panic!("{envelope:?}") };
    (text.clone(), envelope)
}

fn taken() -> Ack {
    Ack::Command(CommandReply { command: "/x".into(), reply: String::new(), resumes: None, refused: false })
}

fn outbound(text: &str) -> Outbound {
    let route = ReplyRoute { channel: "matrix".into(), conversation: "!r:s".into(), reply_to: None };
    Outbound::new(None, route, text)
}

#[tokio::test]
async fn a_wrong_token_ends_the_start_and_is_not_told() {
    let stage = Stage::new().await;
    stage.server.replies.lock().unwrap().clear();
    stage.server.on("whoami", [Reply::Json(401, json!({ "errcode": "M_UNKNOWN_TOKEN", "error": "gone" }))]);
    let error = stage.channel.start(CancellationToken::new()).await.err().expect("it cannot start").to_string();
    assert!(error.contains("M_UNKNOWN_TOKEN") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_token_is_kept_after_all_messages_before_it() {
    let stage = Stage::new().await;
    let broken = json!({ "type": "m.room.message", "sender": "@ann:s", "content": 7 });
    let events = [event("$1", json!("one")), broken, event("$2", json!([1])), event("$3", json!("two"))];
    stage.server.on("/sync", [first(), Reply::Half(r#"{"next_batch":"s2","#), news("s2", &events), news("s3", &[])]);
    let stop = CancellationToken::new();
    let mut messages = stage.messages(&stop).await;
    let (text, envelope) = next(&mut messages).await;
    assert_eq!((text.as_str(), stage.cursor().as_deref()), ("one", Some("s1")));
    envelope.ack.send(Ack::Refused(Refusal::Store("full".into())));
    let (text, envelope) = next(&mut messages).await;
    assert_eq!(
        (text.as_str(), stage.cursor().as_deref()),
        ("one", Some("s1")),
        "it is offered again, before the next one"
    );
    envelope.ack.send(taken());
    let (text, envelope) = next(&mut messages).await;
    assert_eq!((text.as_str(), stage.cursor().as_deref()), ("two", Some("s1")));
    let key = envelope.inbound.key.clone().expect("a key");
    assert_eq!((&*key.account, &*key.message_id), ("@belay:s", "$3"));
    envelope.ack.send(taken());
    stop.cancel();
    assert!(timeout(LONG, messages.next()).await.expect("an end").is_none());
    let cursor = stage.cursor().expect("a cursor");
    assert!(cursor == "s2" || cursor == "s3", "{cursor}");
    let since: Vec<String> = stage.server.seen("/sync").into_iter().filter(|path| path.contains("since=s1")).collect();
    assert_eq!(since.len(), 2, "a half answer is asked for again: {since:?}");
}

#[tokio::test]
async fn a_quoted_event_that_cannot_be_read_costs_the_quote_alone() {
    let stage = Stage::new().await;
    let deep = (0..500).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let poison = json!({ "type": "m.room.message", "event_id": "$0", "sender": "@ann:s", "content": { "x": deep } });
    let mut reply = event("$1", json!("one"));
    reply["content"]["m.relates_to"] = json!({ "m.in_reply_to": { "event_id": "$0" } });
    stage.server.on("/event/", [Reply::Json(200, poison)]);
    stage.server.on("/sync", [first(), news("s2", &[reply])]);
    let mut messages = stage.messages(&CancellationToken::new()).await;
    let (text, envelope) = next(&mut messages).await;
    assert_eq!(text, "one");
    assert!(envelope.inbound.provenance.as_ref().is_some_and(|provenance| provenance.reply_to.is_none()));
}

#[tokio::test]
async fn an_unknown_result_is_repeated_with_the_same_transaction() {
    let stage = Stage::new().await;
    let sent = Reply::Json(200, json!({ "event_id": "$e" }));
    stage.server.on(
        "/send/",
        [
            Reply::Half("{\"event"),
            Reply::Json(429, json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1500 })),
            Reply::Json(502, json!(null)),
            sent,
        ],
    );
    let message = outbound("**hello**");
    assert!(matches!(stage.channel.deliver(&message).await, Err(DeliverError::Ambiguous { pieces_sent: 0, .. })));
    let Err(DeliverError::Retry { after, .. }) = stage.channel.deliver(&message).await else { panic!("limited") };
    assert_eq!(after, Some(Duration::from_millis(1500)));
    assert!(matches!(stage.channel.deliver(&message).await, Err(DeliverError::Ambiguous { .. })));
    stage.channel.deliver(&message).await.expect("delivered");
    let mut paths = stage.server.seen("/send/");
    paths.dedup();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert!(matches!(stage.channel.profile().repeat, Repeat::Harmless { .. }));
}

#[tokio::test]
async fn an_answer_follows_a_room_that_was_replaced() {
    let stage = Stage::new().await;
    let forbidden = Reply::Json(403, json!({ "errcode": "M_FORBIDDEN", "error": "power level" }));
    stage.server.on("/send/", [forbidden, Reply::Json(200, json!({ "event_id": "$e" }))]);
    stage.server.on("m.room.tombstone", [Reply::Json(200, json!({ "replacement_room": "!new" }))]);
    stage.server.on("m.room.create", [Reply::Json(200, json!({ "predecessor": { "room_id": "!r:s" } }))]);
    stage.server.on("/join/", [Reply::Json(200, json!({ "room_id": "!new" }))]);
    stage.channel.deliver(&outbound("hello")).await.expect("delivered");
    let last = stage.server.seen("/send/").pop().expect("a request");
    assert!(last.contains("/rooms/!new/"), "{last}");
    let moves = stage.store.moves.lock().unwrap().clone();
    assert_eq!((moves[0].from.as_str(), moves[0].to.as_str()), ("!r:s", "!new"));
    assert_eq!(stage.channel.admission().unwrap().session_of("!new"), Some("matrix:!r:s".into()));
}

#[tokio::test]
async fn nothing_is_sent_to_a_room_that_others_have_joined() {
    let stage = Stage::new().await;
    stage.server.replies.lock().unwrap().remove("joined_members");
    stage
        .server
        .on("joined_members", [Reply::Json(200, json!({ "joined": { "@belay:s": {}, "@ann:s": {}, "@eve:s": {} } }))]);
    let refused = stage.channel.deliver(&outbound("a secret")).await;
    assert!(matches!(refused, Err(DeliverError::Refused { .. })), "{refused:?}");
    assert!(stage.server.seen("/send/").is_empty());
}

#[tokio::test]
async fn the_first_token_is_kept_after_the_open_invitations() {
    let stage = Stage::new().await;
    let invite = json!({
        "type": "m.room.member", "sender": "@ann:s", "state_key": "@belay:s", "content": { "membership": "invite" }
    });
    let invited = json!({ "!new:s": { "invite_state": { "events": [invite] } } });
    stage.server.on("/sync", [Reply::Json(200, json!({ "next_batch": "s1", "rooms": { "invite": invited } }))]);
    stage.server.on("/join/", [Reply::Json(502, json!(null)), Reply::Json(200, json!({ "room_id": "!new:s" }))]);
    let mut messages = stage.messages(&CancellationToken::new()).await;
    let kept = async {
        while stage.cursor().is_none() {
            assert!(timeout(Duration::from_millis(100), messages.next()).await.is_err());
        }
    };
    timeout(LONG, kept).await.expect("it is kept");
    assert_eq!(stage.server.seen("/join/").len(), 2);
}

/// A channel that is invited to a room which the homeserver does not reach, after the first attempt to join.
async fn invited_to_a_dead_room() -> (Stage, belay_protocol::channel::InboundStream) {
    let stage = Stage::new().await;
    let invite = json!({
        "type": "m.room.member", "sender": "@ann:s", "state_key": "@belay:s", "content": { "membership": "invite" }
    });
    let invited = json!({ "!dead:far": { "invite_state": { "events": [invite] } } });
    stage.server.on("/sync", [Reply::Json(200, json!({ "next_batch": "s1", "rooms": { "invite": invited } }))]);
    stage.server.on("/join/", [Reply::Json(502, json!({ "errcode": "M_UNKNOWN", "error": "no server" }))]);
    let mut messages = stage.messages(&CancellationToken::new()).await;
    attempted(&stage, &mut messages, 1).await;
    (stage, messages)
}

/// Waits until the homeserver was asked whether it answers, beyond `asked` times, or the invitation is settled.
async fn attempted(stage: &Stage, messages: &mut belay_protocol::channel::InboundStream, asked: usize) {
    let attempted = async {
        while stage.cursor().is_none() && stage.server.seen("whoami").len() <= asked {
            assert!(timeout(Duration::from_millis(20), messages.next()).await.is_err());
        }
        assert!(timeout(Duration::from_millis(100), messages.next()).await.is_err()); // the answer is read meanwhile
    };
    timeout(LONG, attempted).await.expect("an attempt");
}

/// Lets twenty minutes pass, and waits for the next attempt. The clock stands only between requests.
async fn twenty_minutes_later(stage: &Stage, messages: &mut belay_protocol::channel::InboundStream) {
    let asked = stage.server.seen("whoami").len();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20 * 60)).await;
    tokio::time::resume();
    attempted(stage, messages, asked).await;
}

#[tokio::test]
async fn a_room_that_the_homeserver_does_not_reach_is_given_up() {
    let (stage, mut messages) = invited_to_a_dead_room().await;
    for _ in 0..12 {
        if stage.cursor().is_none() {
            twenty_minutes_later(&stage, &mut messages).await;
        }
    }
    assert!(stage.cursor().is_some(), "the place behind the invitation is kept");
    assert!(stage.server.seen("/join/").len() > 2);
}

#[tokio::test]
async fn an_outage_of_the_own_homeserver_gives_no_invitation_up() {
    let (stage, mut messages) = invited_to_a_dead_room().await;
    stage.server.replies.lock().unwrap().remove("whoami");
    stage.server.on("whoami", [Reply::Json(503, json!(null))]);
    for _ in 0..8 {
        twenty_minutes_later(&stage, &mut messages).await;
        assert_eq!(stage.cursor(), None, "the invitation waits for the homeserver");
    }
    stage.server.replies.lock().unwrap().remove("/join/");
    stage.server.on("/join/", [Reply::Json(200, json!({ "room_id": "!dead:far" }))]);
    for _ in 0..3 {
        if stage.cursor().is_none() {
            twenty_minutes_later(&stage, &mut messages).await;
        }
    }
    assert!(stage.cursor().is_some(), "the room is joined");
}

/// News of a room whose older events are in pages before `p0`.
fn gap(newest: Value) -> Reply {
    let room = json!({ "timeline": { "events": [newest], "limited": true, "prev_batch": "p0" } });
    Reply::Json(200, json!({ "next_batch": "s2", "rooms": { "join": { "!r:s": room } } }))
}

#[tokio::test]
async fn after_an_answer_that_is_too_large_half_of_the_events_are_asked_for() {
    let stage = Stage::new().await;
    let page = Reply::Json(200, json!({ "chunk": [event("$1", json!("older"))] }));
    stage.server.on("/sync", [first(), Reply::Huge, gap(event("$2", json!("newer")))]);
    stage.server.on("/messages", [Reply::Huge, Reply::Huge, page]);
    let mut messages = stage.messages(&CancellationToken::new()).await;
    let (text, envelope) = next(&mut messages).await;
    assert_eq!(text, "older");
    envelope.ack.send(taken());
    assert_eq!(next(&mut messages).await.0, "newer");
    let limits = |part: &str, limit: &str| {
        let seen = stage.server.seen(part).into_iter().filter(|path| path.contains("s1"));
        let after = |path: &str| path.split_once(limit).map(|(_, rest)| rest.to_owned());
        let digits = |rest: String| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        seen.filter_map(|path| after(&path).map(digits)).take(3).collect::<Vec<_>>()
    };
    assert_eq!(limits("/messages", "limit="), ["100", "50", "25"]);
    assert_eq!(limits("/sync", "%22limit%22%3A"), ["50", "25"]);
}

#[tokio::test]
async fn a_gap_is_bounded_by_its_bytes() {
    let stage = Stage::new().await;
    let body = "x".repeat(60_000);
    let page = |number: usize| {
        let chunk: Vec<Value> = (0..100).map(|at| event(&format!("${number}-{at}"), json!(body))).collect();
        Reply::Json(200, json!({ "chunk": chunk, "end": format!("p{number}") }))
    };
    stage.server.on("/sync", [first(), gap(event("$newest", json!("newest")))]);
    stage.server.on("/messages", (1..=5).map(page));
    let mut messages = stage.messages(&CancellationToken::new()).await;
    assert_eq!(next(&mut messages).await.0, body);
    assert_eq!(stage.server.seen("/messages").len(), 3, "16 MiB are in three pages");
}
