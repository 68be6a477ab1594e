//! Stops that apply to all nodes.

use std::sync::Arc;

use belay_protocol::store::OrderStore;
use belay_protocol::{BootId, OrderId, OrderTarget, RunId, StopOrder};
use belay_store::SqlStore;
use serde_json::json;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    orders_are_read_in_order_and_once
    each_node_reports_and_its_last_report_counts
    old_orders_are_deleted_and_no_number_is_given_twice
}

type Store = Arc<SqlStore>;

const HOUR_MS: i64 = 3_600_000;

fn order(target: OrderTarget, ms: i64) -> StopOrder {
    StopOrder { id: OrderId::new(), at: at(ms), target, cause: json!({"reason": "user"}), source: BootId::new() }
}

async fn orders_are_read_in_order_and_once(store: Store) {
    assert_eq!((store.newest_order().await.unwrap(), store.orders_after(0, 10).await.unwrap()), (0, vec![]));
    let targets = [OrderTarget::Run(RunId::new()), OrderTarget::Session("s".into()), OrderTarget::All];
    let orders = targets.map(|target| order(target, 1_000));
    for order in &orders {
        store.order(order.clone()).await.unwrap();
        store.order(order.clone()).await.unwrap();
    }
    let read = store.orders_after(0, 10).await.unwrap();
    assert_eq!(read.iter().map(|(_, order)| order.clone()).collect::<Vec<_>>(), orders);
    assert!(read.is_sorted_by(|one, next| one.0 < next.0));
    let (first, newest) = (read[0].0, read[2].0);
    assert_eq!(store.newest_order().await.unwrap(), newest);
    assert_eq!(store.orders_after(first, 1).await.unwrap(), read[1..2]);
    assert_eq!(store.orders_after(newest, 10).await.unwrap(), []);
}

async fn each_node_reports_and_its_last_report_counts(store: Store) {
    let order = order(OrderTarget::All, 1_000);
    let (a, b) = (BootId::new(), BootId::new());
    store.acknowledge(order.id, a, json!({"stopped": 9})).await.unwrap();
    assert_eq!(store.acknowledgements(order.id).await.unwrap(), [], "the order is unknown");
    store.order(order.clone()).await.unwrap();
    for (boot, stopped) in [(a, 1), (b, 2), (a, 3)] {
        store.acknowledge(order.id, boot, json!({"stopped": stopped})).await.unwrap();
    }
    let reports = [(a, json!({"stopped": 3})), (b, json!({"stopped": 2}))];
    assert_eq!(store.acknowledgements(order.id).await.unwrap(), reports);
    assert_eq!(store.acknowledgements(OrderId::new()).await.unwrap(), []);
}

async fn old_orders_are_deleted_and_no_number_is_given_twice(store: Store) {
    let old = order(OrderTarget::All, 1_000);
    store.order(old.clone()).await.unwrap();
    store.acknowledge(old.id, BootId::new(), json!({})).await.unwrap();
    let seen = store.newest_order().await.unwrap();
    let next = order(OrderTarget::All, 1_001 + HOUR_MS);
    store.order(next.clone()).await.unwrap();
    let left: Vec<_> = store.orders_after(0, 10).await.unwrap().into_iter().map(|(_, order)| order).collect();
    assert_eq!(left, [next]);
    assert_eq!(store.acknowledgements(old.id).await.unwrap(), []);
    assert_eq!(store.orders_after(seen, 10).await.unwrap().len(), 1);
    // A clock that goes back deletes no newer order, and the newest one stays in each case.
    let seen = store.newest_order().await.unwrap();
    store.order(order(OrderTarget::All, 1_000)).await.unwrap();
    assert_eq!(store.orders_after(seen, 10).await.unwrap().len(), 1);
}
