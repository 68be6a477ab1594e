//! The sums of money: a row for each writer, and one for all of them later.

use belay_protocol::{Archive, CallCharge, Purpose, Retention, RunId, SpendLedger, StoreHealth};

use super::delivery_and_money::{DAY, sums};
use super::two::two;
use crate::kit::*;

const DAY_MS: i64 = 86_400_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_of_one_writer_does_not_wait_for_the_sums_of_another() {
    let Some(two) = two().await else { return };
    let reserved = two.one.reserve(reservation(RunId::new(), Purpose::Chat, DAY, 100)).await.unwrap();
    let done = two.committed().await;
    let held = two.hold("SELECT 1 FROM spend FOR UPDATE", &done, "SELECT 1").await;
    two.other.settle(reserved, charge(7)).await.unwrap();
    two.other.ping().await.unwrap(); // the settlement is committed with it
    held.await.unwrap();
    assert_eq!(sums(&two.one).await, (7, 100, 1));
    assert_eq!(two.other.spent(DAY).await.unwrap().total(), 7);
    assert_eq!(two.value("SELECT string_agg(micro_usd::text, ' ' ORDER BY micro_usd) FROM spend").await, "-93 100");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_all_writers_become_one_when_their_day_is_old() {
    let Some(two) = two().await else { return };
    let models = ["a", "b"];
    for store in [&two.one, &two.other] {
        for model in models {
            let reserved = store.reserve(reservation(RunId::new(), Purpose::Chat, DAY, 100)).await.unwrap();
            let charge = CallCharge { model: Some(model.into()), ..charge(7) };
            store.settle(reserved, charge).await.unwrap();
        }
        store.ping().await.unwrap();
    }
    let late = two.other.reserve(reservation(RunId::new(), Purpose::Chat, DAY, 100)).await.unwrap();
    let rows = "SELECT COUNT(*) || ' ' || COUNT(*) FILTER (WHERE node = '') FROM spend";
    let prune = |day: i64| {
        let old = Retention { keys_before: at(day * DAY_MS), ..Retention::default() };
        two.one.prune(old, 1_000)
    };
    prune(DAY).await.unwrap();
    assert_eq!(two.value(rows).await, "6 0", "three models of two writers: the day is not old");
    prune(DAY + 1).await.unwrap();
    assert_eq!(two.value(rows).await, "3 3");
    assert_eq!(sums(&two.one).await, (128, 400, 4));
    two.other.settle(late, charge(9)).await.unwrap();
    two.other.ping().await.unwrap();
    assert_eq!((two.value(rows).await.as_str(), sums(&two.one).await), ("4 3", (37, 500, 5)));
    prune(DAY + 1).await.unwrap();
    assert_eq!((two.value(rows).await.as_str(), sums(&two.one).await), ("3 3", (37, 500, 5)));
    two.close().await;
}
