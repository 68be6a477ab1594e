//! Slices of the budgets of a day, drawn by two writers.

use belay_protocol::{BootId, BudgetSlices, Draw, Drawn, NewReservation, Purpose, RunId, SpendLedger, StoreError};
use belay_store::SqlStore;

use super::two::{Two, against, two};
use crate::kit::*;

const ROUNDS: usize = 40;
const DAY: i64 = 20_000;

fn draw(boot: BootId, micro_usd: u64, limit: u64) -> Draw {
    Draw { utc_day: DAY, budget: None, boot, limit, least: micro_usd, need: micro_usd, want: micro_usd }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_draw_the_last_money_of_a_budget_do_not_pass_its_limit() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    let (a, b) = (BootId::new(), BootId::new());
    // Money of a time when one daemon was alone counts.
    one.reserve(reservation(RunId::new(), Purpose::Chat, DAY, 40)).await.unwrap();
    let mut granted = 0;
    for n in 1..=ROUNDS as u64 {
        let limit = 40 + 10 * n; // room for one of both
        let (x, y) = against(one.draw(draw(a, 10, limit)), other.draw(draw(b, 10, limit))).await;
        let (x, y) = (x.unwrap(), y.unwrap());
        assert_eq!(x.granted + y.granted, 10, "round {n}: {x:?} {y:?}");
        granted += 10;
    }
    let of = |sql: &str| database.sql(sql).unwrap().trim().to_owned();
    assert_eq!(of("SELECT granted FROM budgets"), (40 + granted).to_string());
    assert_eq!(of("SELECT SUM(granted) FROM budget_slices"), granted.to_string());
    let of_a: u64 =
        of(&format!("SELECT granted FROM budget_slices WHERE boot = decode('{}', 'hex')", a.as_uuid().simple()))
            .parse()
            .unwrap();
    for _ in 0..2 {
        // The outcome of a request may be unknown: it can be repeated.
        one.give_back(DAY, None, a, of_a - 5).await.unwrap();
    }
    assert_eq!(one.draw(draw(b, 5, 40 + granted)).await.unwrap(), Drawn { granted: 5, left: 0 });
    let less = Draw { least: 1, need: 2, want: 50, ..draw(a, 0, 1_000) };
    assert_eq!(one.draw(less).await.unwrap(), Drawn { granted: 50, left: 510 });
    let last = Draw { limit: 500, ..less };
    assert_eq!(one.draw(last).await.unwrap(), Drawn { granted: 2, left: 8 }, "of the last tenth it gets its need");
}

async fn reserve(store: &SqlStore, node: BootId, micro_usd: u64) -> Result<u64, StoreError> {
    let of_node = NewReservation { node: Some(node), ..reservation(RunId::new(), Purpose::Chat, DAY, micro_usd) };
    store.reserve(of_node).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slice_of_an_ended_node_is_reconciled_once_with_what_it_has_spent() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    let (alive, dead) = (BootId::new(), BootId::new());
    for boot in [alive, dead] {
        let boot = boot.as_uuid().simple();
        database
            .sql(&format!(
                "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
                 VALUES (decode('{boot}', 'hex'), '{boot}', '1', 1, 1, '', 0, 0)"
            ))
            .unwrap();
    }
    for boot in [alive, dead] {
        assert_eq!(one.draw(draw(boot, 100, 1_000)).await.unwrap().granted, 100);
    }
    let settled = reserve(&one, dead, 40).await.unwrap();
    one.settle(settled, charge(10)).await.unwrap();
    reserve(&one, dead, 20).await.unwrap(); // the call was never settled
    reserve(&one, alive, 90).await.unwrap();
    assert_eq!(other.reconcile(DAY).await.unwrap(), 0, "both live");
    let boot = dead.as_uuid().simple();
    database
        .sql(&format!("UPDATE nodes SET ended_at = 1, ended_by = 'lease' WHERE boot = decode('{boot}', 'hex')"))
        .unwrap();
    let (a, b) = against(one.reconcile(DAY), other.reconcile(DAY)).await;
    assert_eq!(a.unwrap() + b.unwrap(), 70);
    assert_eq!(database.sql("SELECT granted FROM budgets").unwrap().trim(), "130");
    // A node that was paused for long wakes.
    for refused in [reserve(&one, dead, 1).await.err(), one.draw(draw(dead, 1, 1_000)).await.err()] {
        assert!(matches!(refused, Some(StoreError::Unavailable(_))), "{refused:?}");
    }
    one.give_back(DAY, None, dead, 0).await.unwrap();
    reserve(&one, alive, 10).await.unwrap();
    assert_eq!(database.sql("SELECT granted FROM budgets").unwrap().trim(), "130");
}
