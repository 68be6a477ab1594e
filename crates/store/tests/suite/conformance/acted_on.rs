//! Keys of commands and answers that were acted on.

use std::sync::Arc;

use belay_protocol::store::ACTED_ON_KEPT;
use belay_protocol::{IdempotencyKey, UnixMillis};

use super::for_every_store;
use crate::kit::Store;

for_every_store! { what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten }

fn key(n: usize) -> IdempotencyKey {
    IdempotencyKey { channel: "telegram".into(), account: "bot".into(), message_id: n.to_string().into() }
}

async fn what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten(store: Arc<dyn Store>) {
    assert_eq!(store.acted_on().await.unwrap(), []);
    for n in [1, 2, 1] {
        store.note_acted_on(&key(n), UnixMillis(5)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [key(1), key(2)]);
    for n in 3..=ACTED_ON_KEPT + 2 {
        store.note_acted_on(&key(n), UnixMillis(6)).await.unwrap();
    }
    let kept: Vec<IdempotencyKey> = (3..=ACTED_ON_KEPT + 2).map(key).collect();
    assert_eq!(store.acted_on().await.unwrap(), kept);
}
