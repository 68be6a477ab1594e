//! Conversations that have another address now.

use std::sync::Arc;

use belay_protocol::{MoveStore, MovedConversation};
use belay_store::SqlStore;

super::for_every_store! {
    a_move_is_kept_and_a_later_one_from_the_same_address_replaces_it
}

fn moved(from: &str, to: &str, keeps_session: bool) -> MovedConversation {
    MovedConversation { channel: "telegram".into(), from: from.into(), to: to.into(), keeps_session }
}

async fn a_move_is_kept_and_a_later_one_from_the_same_address_replaces_it(store: Arc<SqlStore>) {
    let (first, second, again) = (moved("-1", "-1009", false), moved("-2", "-1008", true), moved("-1", "-1010", true));
    for moved in [&first, &second, &again, &again] {
        store.put_move(moved.clone()).await.unwrap();
    }
    assert_eq!(store.moves("telegram".into()).await.unwrap(), [again, second]);
    assert_eq!(store.moves("other".into()).await.unwrap(), []);
}
