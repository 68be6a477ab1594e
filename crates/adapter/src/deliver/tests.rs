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
