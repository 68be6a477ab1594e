//! How far channels have read their sources.

use std::sync::Arc;

use belay_protocol::store::CURSORS_MAX;
use belay_protocol::{Cursor, StoreError};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_cursor_has_the_value_that_was_kept_last
    a_channel_has_so_many_cursors
}

type Store = Arc<dyn Everything>;

fn cursor(name: &str, value: &str) -> Cursor {
    Cursor::new(name, value).unwrap()
}

async fn a_cursor_has_the_value_that_was_kept_last(store: Store) {
    let value = async |channel: &str, name: &str| store.cursor(&channel.into(), name).await.unwrap();
    assert_eq!(value("matrix", "since").await, None);
    store.keep_cursor(&"matrix".into(), &cursor("since", "s1")).await.unwrap();
    store.keep_cursor(&"matrix".into(), &cursor("since", "s2_ä")).await.unwrap();
    store.keep_cursor(&"mail".into(), &cursor("since", "")).await.unwrap();
    assert_eq!(value("matrix", "since").await.as_deref(), Some("s2_ä"));
    assert_eq!(value("mail", "since").await.as_deref(), Some(""));
    assert_eq!(value("matrix", "Since").await, None, "case matters");
}

async fn a_channel_has_so_many_cursors(store: Store) {
    let keep =
        async |channel: &str, name: u32| store.keep_cursor(&channel.into(), &cursor(&name.to_string(), "1")).await;
    let kept = futures_util::future::join_all((0..CURSORS_MAX).map(|name| keep("matrix", name))).await;
    assert!(kept.into_iter().all(|kept| kept.is_ok()));
    let refused = keep("matrix", CURSORS_MAX).await;
    assert!(matches!(refused, Err(StoreError::TooMuch(_))), "{refused:?}");
    keep("matrix", 0).await.unwrap();
    keep("mail", CURSORS_MAX).await.unwrap();
}
