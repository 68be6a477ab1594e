//! Routine runs: limits, ends and missed times.

use belay_protocol::{
    Claim, Deferral, Held, NewRoutine, RoutineReader, RoutineRunEnd, RoutineRunStatus, RoutineRunStore,
    RoutineSchedule, RoutineStore, SessionNotice, Settled, StoreHealth,
};

use super::holder::Holder;
use super::two::{Two, count, two};
use crate::kit::*;

/// Nobody writes routine runs, but everybody reads and locks them.
const NO_RUNS: &str = "LOCK TABLE routine_runs IN SHARE MODE";
/// The same with routines.
const NO_ROUTINES: &str = "LOCK TABLE routines IN SHARE MODE";

/// A routine with one slot.
fn alone(name: &str) -> NewRoutine {
    let mut new = routine(name);
    new.spec.guard.max_concurrent = 1;
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_all_routine_runs_holds_for_both_together() {
    let Some(two) = two().await else { return };
    put(&two.one, routine("a")).await;
    put(&two.one, routine("b")).await;
    let (one, other) =
        two.race(NO_RUNS, two.one.claim(routine_run("a", "k"), 1), two.other.claim(routine_run("b", "k"), 1)).await;
    assert!(matches!(one.unwrap(), Claim::Claimed(_)));
    assert_eq!(other.unwrap(), Claim::Held(Held::Global));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_routine_holds_for_both_together() {
    let Some(two) = two().await else { return };
    put(&two.one, alone("a")).await;
    let (one, other) =
        two.race(NO_RUNS, two.one.claim(routine_run("a", "k"), 9), two.other.claim(routine_run("a", "l"), 9)).await;
    assert!(matches!(one.unwrap(), Claim::Claimed(_)));
    assert_eq!(other.unwrap(), Claim::Held(Held::Concurrent));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_claimed_of_a_routine_that_is_being_disabled() {
    let Some(two) = two().await else { return };
    let id = put(&two.one, routine("a")).await.routine_id;
    let (disabled, claimed) = two
        .race(
            NO_ROUTINES,
            two.one.enable(id, false, "enough", None, at(3_000)),
            two.other.claim(routine_run("a", "k"), 9),
        )
        .await;
    assert!(disabled.unwrap().is_some());
    assert!(matches!(claimed.unwrap(), Claim::Off(_)));
    assert!(!two.one.routine("a").await.unwrap().unwrap().enabled);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_time_keeps_the_count_of_a_claim() {
    let Some(two) = two().await else { return };
    let id = put(&two.one, scheduled("tick", 60_000)).await.routine_id;
    let (claimed, missed) = two
        .race(
            NO_ROUTINES,
            two.one.claim(routine_run("tick", "k"), 9),
            two.other.miss(id, vec![at(60_000)], Some(at(120_000)), at(100_000)),
        )
        .await;
    assert!(matches!(claimed.unwrap(), Claim::Claimed(_)));
    missed.unwrap();
    let now = two.one.routine("tick").await.unwrap().unwrap();
    assert_eq!((now.routine_runs, now.next_at, now.claimed_to), (1, Some(at(120_000)), Some(at(60_000))));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_routine_run_ends_once_with_one_notice() {
    let Some(two) = two().await else { return };
    put(&two.one, routine("a")).await;
    let id = claim(&two.one, routine_run("a", "k")).await.routine_run_id;
    let failed = |text: &str| RoutineRunEnd { notice: Some(outbound(text, text)), ..end(id, RoutineRunStatus::Failed) };
    let (one, other) = two.race(NO_RUNS, two.one.settle(failed("one")), two.other.settle(failed("other"))).await;
    assert!(matches!(one.unwrap(), Settled::Now { .. }));
    assert_eq!(other.unwrap(), Settled::Before);
    assert_eq!(two.one.routine("a").await.unwrap().unwrap().failures, 1);
    assert_eq!(told(&two.one).await, ["one"]);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_failures_that_end_together_count_as_two() {
    let Some(two) = two().await else { return };
    put(&two.one, routine("a")).await;
    let failed = |id| end(id, RoutineRunStatus::Failed);
    let (first, second) = (claim(&two.one, routine_run("a", "k")).await, claim(&two.one, routine_run("a", "l")).await);
    let (one, other) = two
        .race(
            NO_ROUTINES,
            two.one.settle(failed(first.routine_run_id)),
            two.other.settle(failed(second.routine_run_id)),
        )
        .await;
    assert!(matches!(one.unwrap(), Settled::Now { disabled: false, .. }));
    assert!(matches!(other.unwrap(), Settled::Now { disabled: true, .. }));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_routine_is_not_deferred_for_a_routine_run_that_is_just_ending() {
    let Some(two) = two().await else { return };
    let mut new = scheduled("tick", 60_000);
    new.spec.guard.max_concurrent = 1;
    let id = put(&two.one, new).await.routine_id;
    let running = claim(&two.one, routine_run("tick", "k")).await.routine_run_id;
    let aside = Deferral { waits_for: at(60_000), until: at(90_000), at_work: 1 };
    let (ended, deferred) = two
        .race(
            "SELECT 1 FROM routines FOR UPDATE",
            two.one.settle(end(running, RoutineRunStatus::Ok)),
            two.other.defer(id, aside),
        )
        .await;
    assert!(matches!(ended.unwrap(), Settled::Now { .. }));
    deferred.unwrap();
    assert_eq!(RoutineSchedule::next_due(&two.one).await.unwrap(), Some(at(60_000)));
    two.close().await;
}

/// A claim holds the routine when it inserts its routine run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_for_the_session_and_the_routine_without_holding_the_routine_run() {
    let Some(two) = two().await else { return };
    let Two { one, other, database, .. } = &two;
    open(other, "s").await;
    other.ping().await.unwrap(); // the session is committed with it
    put(one, routine("a")).await;
    for (key, held, free) in [("k", "sessions", "routines"), ("l", "routines", "routine_runs")] {
        let id = claim(one, routine_run("a", key)).await.routine_run_id;
        let notice = SessionNotice { session: "s".into(), text: "it is 42".into() };
        let end = RoutineRunEnd { told_in: Some(notice), ..end(id, RoutineRunStatus::Ok) };
        let holder = Holder::hold(database, &format!("SELECT 1 FROM {held} FOR UPDATE")).await;
        let ended = std::cell::Cell::new(0);
        let lock = async {
            holder.until_waiting(1, &ended).await;
            holder.execute(&format!("SELECT 1 FROM {free} FOR UPDATE NOWAIT")).await;
            holder.release().await;
        };
        let (settled, ()) = tokio::join!(count(one.settle(end), &ended), lock);
        holder.close().await;
        assert!(matches!(settled.unwrap(), Settled::Now { .. }));
    }
    two.close().await;
}
