//! Freezes.

use std::sync::Arc;

use belay_protocol::{Freeze, FreezeId, FreezeReceipt, FreezeScope, RunId};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_freeze_is_in_force_with_its_receipt_until_the_thaw
    a_freeze_that_was_ended_before_it_was_written_never_comes_into_force
    a_second_freeze_of_a_scope_gives_way_and_the_receipts_of_both_name_all_stopped_runs
}

type Store = Arc<dyn Everything>;

fn freeze(scope: FreezeScope, since: i64) -> Freeze {
    let (id, detail, actor) = (FreezeId::new(), Some("why".to_owned()), "op".to_owned());
    Freeze { id, scope, detail, actor, source: "http".into(), at: at(since), receipt: None, thawed_at: None }
}

async fn a_freeze_is_in_force_with_its_receipt_until_the_thaw(store: Store) {
    assert_eq!(store.freezes().await.unwrap(), []);
    let (all, person) = (freeze(FreezeScope::All, 2_000), freeze(FreezeScope::person("telegram:42"), 1_000));
    for freeze in [&all, &person] {
        store.put_freeze(freeze.clone()).await.unwrap();
    }
    let receipt = FreezeReceipt {
        acknowledged_ms: Some(3),
        trees_empty_ms: None,
        stopped: vec![RunId::new()],
        outside: vec!["x".to_owned()],
    };
    let all = Freeze { receipt: Some(receipt), ..all };
    store.put_freeze(all.clone()).await.unwrap();
    assert_eq!(store.freezes().await.unwrap(), [person.clone(), all.clone()]);
    // A write without the receipt does not remove it.
    store.put_freeze(Freeze { receipt: None, ..all.clone() }).await.unwrap();
    assert_eq!(store.freezes().await.unwrap(), [person.clone(), all.clone()]);
    store.thaw(all, at(3_000)).await.unwrap();
    assert_eq!(store.freezes().await.unwrap(), [person]);
}

async fn a_freeze_that_was_ended_before_it_was_written_never_comes_into_force(store: Store) {
    let all = freeze(FreezeScope::All, 1_000);
    store.thaw(all.clone(), at(2_000)).await.unwrap();
    assert_eq!(store.put_freeze(all).await.unwrap(), None);
    assert_eq!(store.freezes().await.unwrap(), []);
}

async fn a_second_freeze_of_a_scope_gives_way_and_the_receipts_of_both_name_all_stopped_runs(store: Store) {
    let (first, second) = (freeze(FreezeScope::All, 1_000), freeze(FreezeScope::All, 2_000));
    assert_eq!(store.put_freeze(first.clone()).await.unwrap(), Some(first.clone()));
    assert_eq!(store.put_freeze(second.clone()).await.unwrap(), Some(first.clone()));
    let (one, two) = (RunId::new(), RunId::new());
    let with = |stopped: &[RunId]| {
        let receipt = FreezeReceipt { stopped: stopped.to_vec(), ..FreezeReceipt::default() };
        Freeze { receipt: Some(receipt), ..first.clone() }
    };
    store.put_freeze(with(&[one])).await.unwrap();
    assert_eq!(store.put_freeze(with(&[two])).await.unwrap(), Some(with(&[one, two])));
    assert_eq!(store.put_freeze(with(&[one, two])).await.unwrap(), Some(with(&[one, two])));
    store.thaw(second, at(3_000)).await.unwrap();
    assert_eq!(store.freezes().await.unwrap(), []);
    let again = freeze(FreezeScope::All, 4_000);
    assert_eq!(store.put_freeze(again.clone()).await.unwrap(), Some(again));
}
