//! Routines: names, limits, changes and grants.

use belay_protocol::{
    Claim, NewRoutine, PutBy, PutRule, RoutineId, RoutinePut, RoutineReader, RoutineRunStore, RoutineStore, WorkGrant,
};

use super::two::two;
use crate::kit::*;

/// Nobody writes routines, but everybody reads and locks them.
const NO_WRITES: &str = "LOCK TABLE routines IN SHARE MODE";

fn is_done(put: &RoutinePut) -> bool {
    matches!(put, RoutinePut::Done(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_routines_of_a_person_holds_for_both_together() {
    let Some(two) = two().await else { return };
    let rule = PutRule { fresh: true, by: PutBy::Owner { most: 1 } };
    let (one, other) = two.race(NO_WRITES, two.one.put(routine("a"), rule), two.other.put(routine("b"), rule)).await;
    assert_eq!((is_done(&one.unwrap()), is_done(&other.unwrap())), (true, false));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_routine_replaces_none_that_another_daemon_has_just_stored() {
    let Some(two) = two().await else { return };
    let rule = PutRule { fresh: true, by: PutBy::Operator };
    let second = NewRoutine { id: RoutineId::new(), ..routine("a") };
    let (one, other) = two.race(NO_WRITES, two.one.put(routine("a"), rule), two.other.put(second, rule)).await;
    assert_eq!((is_done(&one.unwrap()), is_done(&other.unwrap())), (true, false));
    assert_eq!(two.other.routine("a").await.unwrap().unwrap().routine_id, routine_id("a"));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storing_a_routine_again_keeps_the_count_of_a_claim() {
    let Some(two) = two().await else { return };
    put(&two.one, routine("hook")).await;
    let mut changed = routine("hook");
    changed.spec.description = "another".into();
    let (claimed, stored) =
        two.race(NO_WRITES, two.one.claim(routine_run("hook", "k"), 10), two.other.put(changed, FREELY)).await;
    assert!(matches!(claimed.unwrap(), Claim::Claimed(_)));
    assert!(is_done(&stored.unwrap()));
    let now = two.one.routine("hook").await.unwrap().unwrap();
    assert_eq!((now.routine_runs, now.revision, now.fired_at), (1, 2, Some(at(2_000))));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabling_a_routine_keeps_the_count_of_a_claim() {
    let Some(two) = two().await else { return };
    let id = put(&two.one, routine("hook")).await.routine_id;
    let (claimed, disabled) = two
        .race(
            NO_WRITES,
            two.one.claim(routine_run("hook", "k"), 10),
            two.other.enable(id, false, "enough", None, at(3_000)),
        )
        .await;
    assert!(matches!(claimed.unwrap(), Claim::Claimed(_)));
    assert_eq!(disabled.unwrap().map(|now| (now.enabled, now.routine_runs)), Some((false, 1)));
    let now = two.one.routine("hook").await.unwrap().unwrap();
    assert_eq!((now.routine_runs, now.enabled), (1, false));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_grants_that_are_revoked_together_are_both_revoked() {
    let Some(two) = two().await else { return };
    let mut new = routine("hook");
    let grants = ["run_command: cargo test", "run_command: cargo build"];
    new.spec.allow = grants.map(|text| WorkGrant::parse(text).unwrap()).to_vec();
    let id = put(&two.one, new).await.routine_id;
    let (one, other) = two
        .race(NO_WRITES, two.one.revoke_grant(id, 1, "ann", at(4_000)), two.other.revoke_grant(id, 2, "ann", at(4_000)))
        .await;
    assert!(one.unwrap().is_some() && other.unwrap().is_some());
    let allow = two.one.routine("hook").await.unwrap().unwrap().spec.allow;
    assert!(allow.iter().all(|grant| grant.revoked), "{allow:?}");
    two.close().await;
}
