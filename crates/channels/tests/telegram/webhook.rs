use std::sync::Arc;
use std::time::Duration;

use belay_channels::{AllowLists, Telegram, TelegramConfig, TelegramParts, TelegramSecrets};
use belay_protocol::{
    Accepted, Ack, Body, Channel, CommandReply, Control, InboundStream, NoAttachments, Refusal, RunId, UncheckedTexts,
    UnixMillis,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::double::{Double, refusal};
use crate::moves::MemoryMoves;
use crate::{SECRET, accept, config, http, next, tap, telegram, update};

/// A started webhook on a listener of its own.
pub(crate) struct Served {
    pub(crate) double: Double,
    address: String,
    pub(crate) stream: InboundStream,
    intake: CancellationToken,
    server: JoinHandle<()>,
    pub(crate) channel: Telegram,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) async fn serve() -> Served {
    let double = Double::start().await;
    let config = config(&double.base);
    serve_with(double, config).await
}

async fn serve_with(double: Double, config: TelegramConfig) -> Served {
    serve_channel(double, telegram(config)).await
}

pub(crate) async fn serve_channel(double: Double, channel: Telegram) -> Served {
    let router = channel.router().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let intake = CancellationToken::new();
    let stream = channel.start(intake.clone()).await.unwrap();
    Served { double, address, stream, intake, server, channel }
}

impl Served {
    /// Delivers a body as Telegram does; the status comes when the task ends.
    pub(crate) fn post(&self, body: impl Into<reqwest::Body>) -> JoinHandle<u16> {
        let request = http()
            .post(format!("http://{}/telegram/webhook", self.address))
            .header("X-Telegram-Bot-Api-Secret-Token", SECRET)
            .body(body);
        tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
    }

    pub(crate) fn post_update(&self, update: &Value) -> JoinHandle<u16> {
        self.post(update.to_string())
    }

    pub(crate) async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(50), self.stream.next()).await.is_err()
    }

    /// What the server answers to raw bytes, up to the end of its first line.
    async fn raw(&self, request: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 64];
        let read =
            timeout(Duration::from_secs(300), socket.read(&mut answer)).await.expect("an answer in time").unwrap();
        String::from_utf8_lossy(&answer[..read]).lines().next().unwrap_or_default().to_owned()
    }
}

fn text(body: &Body) -> &str {
    match body {
        Body::Text(text) | Body::Edit(text) => text,
        Body::Control(control) => panic!("{control:?}"),
    }
}

#[tokio::test]
async fn a_delivery_is_answered_200_only_after_the_message_is_committed() {
    let mut served = serve().await;
    let status = served.post_update(&update(1, "hello"));
    let envelope = next(&mut served.stream).await;
    assert_eq!(text(&envelope.inbound.body), "hello");
    tokio::time::sleep(Duration::from_millis(50)).await; // real: an answer that comes too early would come now
    assert!(!status.is_finished());
    accept(envelope.ack);
    assert_eq!(status.await.unwrap(), 200);
}

#[tokio::test]
async fn the_secret_is_checked_before_the_body_is_read() {
    let mut served = serve().await;
    for header in
        ["", "X-Telegram-Bot-Api-Secret-Token: wrong\r\n", "X-Telegram-Bot-Api-Secret-Token: the-webhook-secret2\r\n"]
    {
        // The body never comes.
        let head = format!("POST /telegram/webhook HTTP/1.1\r\nhost: x\r\n{header}content-length: 100\r\n\r\n");
        assert_eq!(served.raw(&head).await, "HTTP/1.1 401 Unauthorized", "{header}");
    }
    assert!(served.is_silent().await);
}

#[tokio::test]
async fn bad_requests_are_refused_with_the_fitting_status() {
    let mut served = serve().await;
    let secret = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
    for (request, expected) in [
        (format!("GET /telegram/webhook HTTP/1.1\r\nhost: x\r\n{secret}\r\n"), "405"),
        (format!("POST /telegram HTTP/1.1\r\nhost: x\r\n{secret}content-length: 2\r\n\r\n{{}}"), "404"),
        (format!("POST /telegram/webhook HTTP/1.1\r\nhost: x\r\n{secret}content-length: 1048577\r\n\r\n"), "413"),
    ] {
        let line = served.raw(&request).await;
        assert_eq!(line.split(' ').nth(1), Some(expected), "{request}");
    }
    let chunks = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100_000])));
    assert_eq!(served.post(reqwest::Body::wrap_stream(chunks)).await.unwrap(), 413, "also without a length");
    for (body, expected) in
        [("", 400), ("not json", 400), ("{\"update_id\":", 400), ("\u{0}", 400), ("{}", 200), ("[1]", 200)]
    {
        assert_eq!(served.post(body).await.unwrap(), expected, "{body:?}");
    }
    assert_eq!(served.post(&b"{\"update_id\":1,\"message\":\"\xff\"}"[..]).await.unwrap(), 400, "not UTF-8");
    assert!(served.is_silent().await);
}

#[tokio::test]
async fn what_is_not_for_us_is_answered_200_and_dropped() {
    let mut served = serve().await;
    let mut stranger = update(1, "let me in");
    stranger["message"]["from"]["id"] = json!(43);
    let mut edited = update(2, "x");
    edited["edited_message"] = edited["message"].take();
    edited.as_object_mut().unwrap().remove("message");
    let mut group = update(3, "not about the bot");
    group["message"]["chat"] = json!({"id": -100, "type": "group", "title": "G"});
    let unknown = json!({"update_id": 4, "some_new_kind": {"x": 1}});
    for update in [stranger, edited, group, unknown] {
        assert_eq!(served.post_update(&update).await.unwrap(), 200, "{update}");
    }
    assert!(served.is_silent().await);
    assert_eq!(served.double.calls("sendMessage"), Vec::<Value>::new());
}

#[tokio::test]
async fn an_anonymous_administrator_is_told_once_for_each_group_how_to_be_recognised() {
    let mut served = serve().await;
    for (number, text) in [(1, "@belay_bot hi"), (2, "@belay_bot hi"), (3, "hi")] {
        let mut update = update(number, text);
        let fields = update["message"].as_object_mut().unwrap();
        let group = json!({"id": -100, "type": "supergroup", "title": "G"});
        fields.insert("chat".into(), group.clone());
        fields.insert("sender_chat".into(), group);
        fields.insert("from".into(), json!({"id": 1_087_968_824, "is_bot": true, "first_name": "Group"}));
        fields.insert("entities".into(), json!([{"type": "mention", "offset": 0, "length": 10}]));
        assert_eq!(served.post_update(&update).await.unwrap(), 200);
    }
    assert!(served.is_silent().await);
    let told = served.double.calls("sendMessage");
    assert_eq!(
        (told.len(), &told[0]["chat_id"], &told[0]["reply_parameters"]["message_id"]),
        (1, &json!(-100), &json!(5))
    );
    assert!(told[0]["text"].as_str().unwrap().contains("Remain anonymous"));
}

#[tokio::test]
async fn five_deliveries_of_one_update_carry_one_key() {
    let mut served = serve().await;
    let mut keys = Vec::new();
    for _ in 0..5 {
        let status = served.post_update(&update(77, "once"));
        let envelope = next(&mut served.stream).await;
        keys.push(envelope.inbound.key.clone().unwrap());
        accept(envelope.ack);
        assert_eq!(status.await.unwrap(), 200);
    }
    keys.dedup();
    assert_eq!(keys.len(), 1);
    assert_eq!((&*keys[0].account, &*keys[0].message_id), ("777", "update:77"));
}

#[tokio::test]
async fn each_acknowledgement_has_its_status() {
    let mut served = serve().await;
    let busy = Refusal::Busy { what: "queue".into(), retry_after: Duration::from_secs(1) };
    for (ack, expected) in [
        (
            Some(Ack::Command(CommandReply {
                command: "/ping".into(),
                reply: "pong".into(),
                resumes: None,
                refused: false,
            })),
            200,
        ),
        (Some(Ack::Refused(busy)), 503),
        (Some(Ack::Refused(Refusal::Store("disk full".into()))), 503),
        (Some(Ack::Refused(Refusal::ShuttingDown)), 503),
        (Some(Ack::Refused(Refusal::Invalid("no".into()))), 200),
        (Some(Ack::Refused(Refusal::Forbidden("no".into()))), 200),
        (Some(Ack::Refused(Refusal::Conflict { run_id: RunId::new() })), 200),
        (None, 503),
    ] {
        let status = served.post_update(&update(1, "x"));
        let envelope = next(&mut served.stream).await;
        let seen = format!("{ack:?}");
        match ack {
            Some(ack) => envelope.ack.send(ack),
            None => drop(envelope),
        }
        assert_eq!(status.await.unwrap(), expected, "{seen}");
    }
}

#[tokio::test]
async fn after_the_end_of_intake_deliveries_are_asked_for_again() {
    let mut served = serve().await;
    served.intake.cancel();
    assert!(served.stream.next().await.is_none());
    served.stream = Box::pin(futures_util::stream::pending());
    assert_eq!(served.post_update(&update(1, "too late")).await.unwrap(), 503);
}

#[tokio::test]
async fn an_album_without_words_is_answered_once_and_a_wrong_notice_does_not_hurt() {
    let served = serve().await;
    let mut photo = update(1, "");
    let fields = photo["message"].as_object_mut().unwrap();
    fields.remove("text");
    fields.insert("photo".into(), json!([{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]));
    fields.insert("media_group_id".into(), json!("album"));
    for _ in 0..3 {
        assert_eq!(served.post_update(&photo).await.unwrap(), 200);
    }
    assert_eq!(served.double.calls("sendMessage").len(), 1);
    photo["message"].as_object_mut().unwrap().remove("media_group_id");
    served.double.trouble("sendMessage", refusal(403, "blocked"));
    assert_eq!(served.post_update(&photo).await.unwrap(), 200);
    assert_eq!(served.double.calls("sendMessage").len(), 2);
}

#[tokio::test]
async fn a_part_of_an_album_that_was_refused_keeps_its_line_and_each_conversation_has_albums_of_its_own() {
    let mut served = serve().await;
    let part = |number: u64, caption: Option<&str>| {
        let mut photo = update(number, "");
        let fields = photo["message"].as_object_mut().unwrap();
        fields.remove("text");
        let size = json!({"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1, "file_size": 120_000});
        fields.insert("photo".into(), json!([size]));
        fields.insert("media_group_id".into(), json!("album"));
        caption.map(|words| fields.insert("caption".into(), json!(words)));
        photo
    };
    let captioned = part(1, Some("what is this?"));
    for accepted in [false, true] {
        let status = served.post_update(&captioned);
        let envelope = next(&mut served.stream).await;
        let session = envelope.inbound.session.clone();
        envelope.ack.send(match accepted {
            false => Ack::Refused(Refusal::Busy { what: "full".into(), retry_after: Duration::ZERO }),
            true => Ack::Accepted(Accepted {
                run_id: RunId::new(),
                session,
                accepted_at: UnixMillis(0),
                duplicate: false,
                frozen: None,
                watch: None,
            }),
        });
        assert_eq!(status.await.unwrap() == 200, accepted);
        assert_eq!(
            served.double.calls("sendMessage").len(),
            usize::from(accepted),
            "the line comes with the acceptance"
        );
    }
    assert_eq!(served.post_update(&part(2, None)).await.unwrap(), 200);
    assert_eq!(served.double.calls("sendMessage").len(), 1, "a part of the same album");
}

#[tokio::test]
async fn a_caption_is_handed_over_and_its_sender_is_told_once_what_was_not_read() {
    let mut served = serve().await;
    let mut photo = update(1, "");
    let fields = photo["message"].as_object_mut().unwrap();
    fields.remove("text");
    let size = json!({"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1, "file_size": 120_000});
    fields.insert("photo".into(), json!([size]));
    fields.insert("caption".into(), json!("what is this?"));
    for duplicate in [false, true] {
        let status = served.post_update(&photo);
        let envelope = next(&mut served.stream).await;
        assert_eq!(envelope.inbound.body, Body::Text("what is this?".into()));
        let not_read = &envelope.inbound.provenance.as_ref().unwrap().not_read;
        assert_eq!((&*not_read[0].kind, not_read[0].bytes), ("photo", Some(120_000)));
        envelope.ack.send(Ack::Accepted(Accepted {
            run_id: RunId::new(),
            session: envelope.inbound.session,
            accepted_at: UnixMillis(0),
            duplicate,
            frozen: None,
            watch: None,
        }));
        assert_eq!(status.await.unwrap(), 200);
    }
    let told: Vec<Value> = served.double.calls("sendMessage").into_iter().map(|call| call["text"].clone()).collect();
    let line = "I have not read this: photo (120 kB). I answer the text alone.";
    assert_eq!(told, [json!(line)]);
}

#[tokio::test]
async fn an_edit_and_a_tap_without_a_chat_instance_are_handed_over() {
    let mut served = serve().await;
    let mut edited = update(2, "better");
    edited["message"]["edit_date"] = json!(2);
    edited["edited_message"] = edited["message"].take();
    edited.as_object_mut().unwrap().remove("message");
    let approval = belay_protocol::ApprovalId::new();
    let mut tapped = tap(3, 42, &format!("belay:a:{approval}"));
    tapped["callback_query"].as_object_mut().unwrap().remove("chat_instance");
    let decided = Body::Control(Control::Decide { approval, decision: belay_protocol::Decision::Approve });
    for (update, expected) in [(edited, Body::Edit("better".into())), (tapped, decided)] {
        let status = served.post_update(&update);
        let envelope = next(&mut served.stream).await;
        assert_eq!(envelope.inbound.body, expected);
        accept(envelope.ack);
        assert_eq!(status.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn the_webhook_is_registered_where_its_address_is_known_and_tried_again() {
    let double = Double::start().await;
    double.trouble("setWebhook", refusal(502, "Bad Gateway"));
    let config = TelegramConfig { webhook_url: Some("https://e.org/telegram/webhook".into()), ..config(&double.base) };
    let mut served = serve_with(double, config).await;
    let registered = {
        let (double, stream) = (&served.double, &mut served.stream);
        tokio::select! {
            calls = double.wait_for("setWebhook", 2) => calls,
            _ = stream.next() => panic!("nothing was sent"),
        }
    };
    let expected = json!({"url": "https://e.org/telegram/webhook", "secret_token": SECRET, "allowed_updates": ["message", "edited_message", "callback_query", "my_chat_member"]});
    assert_eq!(registered, [expected.clone(), expected]);
}

#[tokio::test]
async fn a_wrong_token_refuses_to_start_without_being_told() {
    let double = Double::start().await;
    double.trouble("getMe", refusal(401, "Unauthorized"));
    let Err(error) = telegram(config(&double.base)).start(CancellationToken::new()).await else { panic!("started") };
    assert!(error.to_string().contains("refuses the token"), "{error}");
    assert!(!error.to_string().contains("the-bots-token"), "{error}");
}

#[tokio::test]
async fn without_the_internet_the_channel_starts_and_asks_again_for_groups_it_cannot_judge() {
    let double = Double::start().await;
    let mut served = serve_with(double, config("http://127.0.0.1:1")).await;
    let mut group = update(1, "@belay_bot hi");
    group["message"]["chat"] = json!({"id": -100, "type": "group", "title": "G"});
    group["message"]["entities"] = json!([{"type": "mention", "offset": 0, "length": 10}]);
    assert_eq!(served.post_update(&group).await.unwrap(), 503);
    let status = served.post_update(&update(2, "hello"));
    accept(next(&mut served.stream).await.ack);
    assert_eq!(status.await.unwrap(), 200);
}

#[test]
fn a_webhook_without_a_secret_is_refused() {
    let secrets = TelegramSecrets { token: "777:x".into(), webhook_secret: None };
    let config = config("http://127.0.0.1:1");
    let (lists, attachments) = (AllowLists::of(&config), Arc::new(NoAttachments));
    let (texts, moves) = (Arc::new(UncheckedTexts), Arc::new(MemoryMoves::default()));
    let parts = TelegramParts { lists, codes: None, commands: Vec::new(), attachments, texts, moves };
    let Err(error) = Telegram::new(config, secrets, http(), parts) else { panic!("accepted") };
    assert!(error.to_string().contains("needs a secret token"), "{error}");
}
