//! Telegram over real HTTP: a Bot API double on one side, the webhook's caller on the other.
#![cfg(feature = "telegram")]
#![allow(clippy::unwrap_used)]

mod blobs;
mod deliver;
mod double;
mod ephemeral;
mod files;
mod intake;
mod leased;
mod moves;
mod odd;
mod order;
mod polling;
mod preview;
mod replied;
mod suite;
mod taps;
mod topics;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use belay_channels::{AllowLists, Telegram, TelegramConfig, TelegramParts, TelegramSecrets, on_one_host};
use belay_protocol::{
    Accepted, Ack, AckSender, AttachmentIntake, Envelope, InboundStream, MoveStore, NoAttachments, RunId, SessionKey,
    UncheckedTexts, UnixMillis,
};
use futures_util::StreamExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::double::{Double, TOKEN};
use crate::moves::MemoryMoves;

const SECRET: &str = "the-webhook-secret";

fn http() -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test was first
    on_one_host(reqwest::Client::builder().no_proxy()).build().unwrap()
}

fn config(api_base: &str) -> TelegramConfig {
    TelegramConfig {
        enabled: true,
        api_base: api_base.into(),
        allow: vec![42],
        operators: vec![7],
        max_age_s: 0, // the messages of these tests are of 1970
        groups: belay_channels::GroupsConfig { allow: vec![-100], ..Default::default() },
        ..TelegramConfig::default()
    }
}

fn telegram(config: TelegramConfig) -> Telegram {
    telegram_with(config, Arc::new(NoAttachments))
}

fn telegram_with(config: TelegramConfig, intake: Arc<dyn AttachmentIntake>) -> Telegram {
    telegram_of(config, intake, Arc::new(MemoryMoves::default()))
}

fn telegram_of(config: TelegramConfig, intake: Arc<dyn AttachmentIntake>, moves: Arc<dyn MoveStore>) -> Telegram {
    let secrets = TelegramSecrets { token: TOKEN.into(), webhook_secret: Some(SecretString::from(SECRET)) };
    let lists = AllowLists::of(&config);
    let parts = TelegramParts {
        lists,
        codes: None,
        commands: Vec::new(),
        attachments: intake,
        texts: Arc::new(UncheckedTexts),
        moves,
    };
    Telegram::new(config, secrets, http(), parts).unwrap()
}

/// An update with a private text of user 42.
fn update(update_id: u64, text: &str) -> Value {
    json!({"update_id": update_id, "message": {
        "message_id": 5, "date": 1, "text": text,
        "from": {"id": 42, "is_bot": false, "first_name": "A"},
        "chat": {"id": 42, "type": "private"},
    }})
}

/// An update with a text of the operator 7, in a private chat of their own.
fn other_chat(update_id: u64, text: &str) -> Value {
    let mut update = update(update_id, text);
    update["message"]["from"]["id"] = json!(7);
    update["message"]["chat"]["id"] = json!(7);
    update
}

/// An update with a tap of this user on a button of the message 77 in the private chat of user 42.
fn tap(update_id: u64, from: u64, data: &str) -> Value {
    json!({"update_id": update_id, "callback_query": {
        "id": format!("query-{update_id}"), "chat_instance": "c", "data": data,
        "from": {"id": from, "is_bot": false, "first_name": "A"},
        "message": {
            "message_id": 77, "date": 1, "text": "May I?", "from": {"id": 777, "is_bot": true, "first_name": "B"},
            "chat": {"id": 42, "type": "private"},
        },
    }})
}

async fn next(stream: &mut InboundStream) -> Envelope {
    timeout(Duration::from_secs(300), stream.next()).await.expect("a message in time").expect("the stream goes on")
}

/// Polls until all updates before this number are confirmed. No message may come meanwhile.
async fn confirmed(double: &Double, stream: &mut InboundStream, number: i64) {
    tokio::select! {
        biased;
        message = stream.next() => panic!("{:?}", message.map(|envelope| envelope.inbound)),
        () = double.wait_until_confirmed(number) => {}
    }
}

fn accept(ack: AckSender) {
    ack.send(Ack::Accepted(Accepted {
        run_id: RunId::new(),
        session: SessionKey::new("telegram:42"),
        accepted_at: UnixMillis(0),
        duplicate: false,
        frozen: None,
        watch: None,
    }));
}
