//! Keys of commands and answers that were acted on.

use std::sync::Arc;

use belay_protocol::store::ACTED_ON_KEPT;
use belay_protocol::{ActedOn, IdempotencyKey, UnixMillis};

use super::for_every_store;
use crate::kit::Store;

for_every_store! {
    what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten
    what_was_sent_is_known_as_it_was_first_and_of_a_secret_nothing
}

fn key(n: usize) -> IdempotencyKey {
    IdempotencyKey { channel: "telegram".into(), account: "bot".into(), message_id: n.to_string().into() }
}

fn command(n: usize) -> ActedOn {
    ActedOn { key: key(n), digest: Some(format!("digest {n}")), refused: n.is_multiple_of(2) }
}

async fn what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten(store: Arc<dyn Store>) {
    assert_eq!(store.acted_on().await.unwrap(), []);
    for n in [1, 2, 1] {
        store.note_acted_on(&command(n), UnixMillis(5)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [command(1), command(2)]);
    for n in 3..=ACTED_ON_KEPT + 2 {
        store.note_acted_on(&command(n), UnixMillis(6)).await.unwrap();
    }
    let kept: Vec<ActedOn> = (3..=ACTED_ON_KEPT + 2).map(command).collect();
    assert_eq!(store.acted_on().await.unwrap(), kept);
}

async fn what_was_sent_is_known_as_it_was_first_and_of_a_secret_nothing(store: Arc<dyn Store>) {
    let secret = ActedOn { key: key(1), digest: None, refused: false };
    let later = ActedOn { digest: Some("other".into()), ..command(2) };
    for acted_on in [&secret, &command(2), &later, &command(1)] {
        store.note_acted_on(acted_on, UnixMillis(5)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [secret, command(2)]);
}
