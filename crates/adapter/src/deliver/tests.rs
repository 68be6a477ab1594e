//! Tests of deliveries.

use std::sync::Arc;

use belay_protocol::ReplyRoute;

use super::*;
use crate::frames::{Delivered, Ready};

fn message(pieces_sent: u32) -> Outbound {
    let route = ReplyRoute { channel: "irc".into(), conversation: "ann".into(), reply_to: None };
    Outbound { pieces_sent, ..Outbound::new(None, route, "word ".repeat(100)) }
}

fn limit(max: usize) -> TextLimit {
    TextLimit::of(&AdapterConfig { max_text: Some(max), ..AdapterConfig::default() })
}

#[tokio::test]
async fn a_part_of_other_pieces_is_never_taken_for_the_whole() {
    let link = Link::default();
    let (_, _queue) = link.open(Ready::default());
    let ended = deliver(&link, limit(4000), &message(3)).await;
    assert!(matches!(ended, Err(DeliverError::Ambiguous { pieces_sent: 3, .. })), "{ended:?}");
}

#[tokio::test]
async fn a_refusal_has_the_words_of_the_adapter_on_one_short_line() {
    let link = Arc::new(Link::default());
    let (generation, mut queue) = link.open(Ready::default());
    let adapter = link.clone();
    let refuses = async {
        let key = queue.recv().await.and_then(|frame| frame.key).expect("a delivery");
        let detail = format!("no\u{1b}[2Jsuch room\n{}", "x".repeat(1_000));
        let delivered = Delivered { key: key.clone(), result: DeliveryResult::Refused, after_ms: None, detail };
        adapter.answer(generation, &key, Answer::Delivered(delivered));
    };
    let outbound = message(0);
    let (ended, ()) = tokio::join!(deliver(&link, limit(4000), &outbound), refuses);
    let Err(DeliverError::Refused { detail }) = ended else { panic!("{ended:?}") };
    assert!(detail.starts_with("no\\u{1b}[2Jsuch room\\nxxx"), "{detail}");
    assert_eq!(detail.chars().count(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_long_delivery_goes_on_in_another_attempt() {
    let link = Arc::new(Link::default());
    let (generation, mut queue) = link.open(Ready::default());
    let adapter = link.clone();
    let slow = tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let key = frame.key.expect("a delivery has a key");
            let (result, detail) = (DeliveryResult::Sent, String::new());
            let delivered = Delivered { key: key.clone(), result, after_ms: None, detail };
            adapter.answer(generation, &key, Answer::Delivered(delivered));
        }
    });
    let ended = deliver(&link, limit(32), &message(0)).await;
    slow.abort();
    let Err(DeliverError::Retry { after, pieces_sent, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!((after, pieces_sent), (Some(Duration::ZERO), 3));
}
