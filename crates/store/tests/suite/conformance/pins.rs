//! The approved descriptions of MCP tools as a row.

use std::sync::Arc;

use belay_protocol::PinStore;
use belay_store::SqlStore;
use belay_testkit::pin_suite as suite;

super::for_every_store! {
    pins_are_replaced_only_if_they_are_unchanged
    changes_of_many_at_once_are_all_kept
}

async fn pins_are_replaced_only_if_they_are_unchanged(store: Arc<SqlStore>) {
    suite::pins_are_replaced_only_if_they_are_unchanged(store).await;
}

async fn changes_of_many_at_once_are_all_kept(store: Arc<SqlStore>) {
    suite::changes_of_many_at_once_are_all_kept(vec![store.clone() as Arc<dyn PinStore>, store]).await;
}
