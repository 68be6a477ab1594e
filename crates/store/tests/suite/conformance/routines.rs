//! Routines: put, switched, waited for, deleted.

use std::sync::Arc;

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{
    Deferral, NewRoutine, NewRoutineRun, PutBy, PutRule, RoutineId, RoutineOrigin, RoutinePut, RoutineRecord,
    RoutineRunStatus, RoutineRunStore, RoutineSchedule, Trigger, UnixMillis,
};
use tokio::task::JoinSet;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_routine_is_kept_as_it_was_put
    a_name_and_a_path_are_taken_once
    the_same_routine_again_forgets_no_time
    a_changed_routine_begins_anew
    a_routine_that_is_off_stays_off_when_it_is_changed
    a_routine_is_switched_off_and_on
    those_are_due_whose_time_has_come
    a_deleted_routine_is_gone
    a_routine_is_changed_by_its_owner_by_operators_and_by_nobody_else
    a_person_has_no_more_routines_than_they_may
    a_burst_of_one_person_passes_neither_the_cap_nor_a_name
    one_that_is_laid_aside_is_due_later_and_keeps_nobody_waiting
    being_laid_aside_ends_with_what_it_was_for
    what_has_moved_on_meanwhile_is_not_laid_aside
    one_that_was_made_anew_is_neither_switched_nor_deleted_for_the_other
    what_comes_from_elsewhere_is_another_routine
    whatever_sets_routines_off_changes_the_number_of_changes_and_routine_runs_do_not
}

type Store = Arc<dyn Everything>;

const FRESH: PutRule = PutRule { fresh: true, ..FREELY };

fn record(new: NewRoutine) -> RoutineRecord {
    RoutineRecord {
        routine_id: new.id,
        spec: new.spec,
        creator: new.creator,
        channel: new.channel,
        made_in: new.made_in,
        reply_to: new.reply_to,
        origin: new.origin,
        enabled: true,
        disabled_detail: String::new(),
        revision: 1,
        next_at: new.next_at,
        claimed_to: None,
        fired_at: None,
        set_off_at: None,
        routine_runs: 0,
        failures: 0,
        created_at: at(1_000),
        changed_at: at(1_000),
    }
}

async fn refused(store: &Store, new: NewRoutine, fresh: bool) -> String {
    match store.put(new, PutRule { fresh, ..FREELY }).await.unwrap() {
        RoutinePut::Refused(why) | RoutinePut::Forbidden(why) => why,
        RoutinePut::Done(record) => panic!("it is there: {record:?}"),
    }
}

async fn a_routine_is_kept_as_it_was_put(store: Store) {
    let (by_hand, by_time) = (routine("by-hand"), scheduled("by-time", 60_000));
    let expected = [
        record(by_hand.clone()),
        RoutineRecord { claimed_to: Some(at(1_000)), ..record(by_time.clone()) }, // nothing before it was made
    ];
    assert_eq!(put(&*store, by_time).await, expected[1]);
    assert_eq!(put(&*store, by_hand).await, expected[0]);
    assert_eq!(store.routines().await.unwrap(), expected, "by name");
    assert_eq!(store.routine("by-time").await.unwrap().as_ref(), Some(&expected[1]));
    assert_eq!(store.routine("other").await.unwrap(), None);
}

fn webhook(name: &str, path: &str) -> NewRoutine {
    let mut new = routine(name);
    new.spec.trigger = Trigger::Webhook { path: path.into(), secret_sha256: "ab".into() };
    new
}

async fn a_name_and_a_path_are_taken_once(store: Store) {
    assert!(matches!(store.put(webhook("one", "p"), FRESH).await.unwrap(), RoutinePut::Done(_)));
    assert!(refused(&store, routine("one"), true).await.contains("named one"));
    assert!(refused(&store, webhook("two", "p"), false).await.contains("the routine one has the webhook path p"));
    put(&*store, webhook("two", "q")).await;
    assert!(refused(&store, webhook("two", "p"), false).await.contains("path p"));
    put(&*store, webhook("one", "p")).await; // its own
    put(&*store, webhook("one", "r")).await;
    put(&*store, webhook("two", "p")).await; // free now
    for (path, name) in [("p", Some("two")), ("r", Some("one")), ("q", None), ("", None)] {
        let at = store.routine_at(path).await.unwrap();
        assert_eq!(at.as_ref().map(|routine| routine.spec.name.as_str()), name, "{path}");
    }
}

async fn the_same_routine_again_forgets_no_time(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    claim(&*store, on_time("tick", 60_000, 120_000)).await;
    let before = store.routine("tick").await.unwrap().unwrap();
    let mut again = NewRoutine { at: at(300_000), ..scheduled("tick", 360_000) };
    again.creator.principal = "bob".into();
    let creator = again.creator.clone();
    assert_eq!(put(&*store, again).await, RoutineRecord { creator, ..before });
}

async fn a_changed_routine_begins_anew(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    let routine_run = claim(&*store, on_time("tick", 60_000, 120_000)).await.routine_run_id;
    RoutineRunStore::settle(&*store, end(routine_run, belay_protocol::RoutineRunStatus::Failed)).await.unwrap();
    let before = store.routine("tick").await.unwrap().unwrap();
    assert_eq!((before.failures, before.routine_runs), (1, 1));
    let mut changed = NewRoutine { at: at(300_000), ..scheduled("tick", 360_000) };
    changed.spec.description = "another".into();
    let expected = RoutineRecord {
        revision: 2,
        claimed_to: Some(at(300_000)),
        fired_at: Some(at(60_000)),
        set_off_at: Some(at(60_000)),
        routine_runs: 1,
        changed_at: at(300_000),
        ..record(changed.clone())
    };
    assert_eq!(put(&*store, changed).await, expected);
    assert_eq!(store.routine("tick").await.unwrap(), Some(expected));
}

async fn a_routine_that_is_off_stays_off_when_it_is_changed(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    store.enable(routine_id("tick"), false, "ann said so", None, at(2_000)).await.unwrap();
    let mut changed = scheduled("tick", 90_000);
    changed.spec.description = "another".into();
    let put = put(&*store, changed).await;
    assert_eq!((put.enabled, &*put.disabled_detail, put.next_at, put.revision), (false, "ann said so", None, 2));
    assert_eq!(RoutineSchedule::next_due(&*store).await.unwrap(), None);
}

async fn a_routine_is_switched_off_and_on(store: Store) {
    let made = put(&*store, scheduled("tick", 60_000)).await;
    let off = store.enable(routine_id("tick"), false, "ann said so", Some(at(60_000)), at(2_000)).await.unwrap();
    let expected = RoutineRecord {
        enabled: false,
        disabled_detail: "ann said so".into(),
        next_at: None,
        changed_at: at(2_000),
        ..made.clone()
    };
    assert_eq!(off, Some(expected));
    let on = store.enable(routine_id("tick"), true, "", Some(at(120_000)), at(70_000)).await.unwrap();
    let expected = RoutineRecord {
        next_at: Some(at(120_000)),
        claimed_to: Some(at(70_000)), // what passed while it was off is not missed
        changed_at: at(70_000),
        ..made
    };
    assert_eq!(on, Some(expected.clone()));
    assert_eq!(store.routine("tick").await.unwrap(), Some(expected));
    assert_eq!(store.enable(routine_id("other"), true, "", None, at(2_000)).await.unwrap(), None);
}

async fn due(store: &Store, now: i64, limit: u32) -> Vec<String> {
    let due = RoutineSchedule::due(&**store, at(now), limit).await.unwrap();
    due.into_iter().map(|routine| routine.spec.name).collect()
}

async fn those_are_due_whose_time_has_come(store: Store) {
    assert_eq!(RoutineSchedule::next_due(&*store).await.unwrap(), None);
    for (name, next) in [("late", 9_000), ("b", 5_000), ("a", 5_000), ("first", 4_000), ("off", 3_000)] {
        put(&*store, scheduled(name, next)).await;
    }
    put(&*store, routine("by-hand")).await;
    store.enable(routine_id("off"), false, "", None, at(2_000)).await.unwrap();
    assert_eq!(RoutineSchedule::next_due(&*store).await.unwrap(), Some(at(4_000)));
    assert_eq!(due(&store, 3_999, 10).await, Vec::<String>::new());
    assert_eq!(due(&store, 5_000, 10).await, ["first", "a", "b"]);
    assert_eq!(due(&store, 9_000, 2).await, ["first", "a"]);
}

/// Puts these routines at once: "r" with the number, and a next time of a minute and the number in milliseconds.
async fn put_numbered(store: &Store, numbers: std::ops::Range<u32>) {
    let mut putting = JoinSet::new();
    for n in numbers {
        let (store, new) = (store.clone(), scheduled(&format!("r{n}"), 60_000 + i64::from(n)));
        putting.spawn(async move { matches!(store.put(new, FRESH).await.unwrap(), RoutinePut::Done(_)) });
    }
    assert!(putting.join_all().await.into_iter().all(|done| done));
}

/// What a store shows that has as many numbered routines as may be.
async fn is_full(store: &Store) {
    assert!(refused(store, routine("more"), true).await.contains("20000 routines"));
    put(&**store, scheduled("r7", 50_000)).await; // one that is there may be changed
    assert_eq!(RoutineSchedule::next_due(&**store).await.unwrap(), Some(at(60_000)));
    assert_eq!(due(store, 60_002, 10).await, ["r0", "r1", "r2"]);
    let all = RoutineSchedule::due(&**store, UnixMillis(i64::MAX), MAX_ROUTINES).await.unwrap();
    assert_eq!(all.len(), MAX_ROUTINES as usize);
}

#[tokio::test]
async fn there_are_no_more_routines_in_memory_than_may_be() {
    let store: Store = memory();
    put_numbered(&store, 0..MAX_ROUTINES).await;
    is_full(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_routines_in_sqlite_than_may_be() {
    let (opened, _directory) = sqlite();
    let store: Store = Arc::new(opened.clone());
    put_numbered(&store, 0..MAX_ROUTINES).await;
    is_full(&store).await;
    opened.close().await;
}

/// One statement makes most of them: as single puts they would take half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_routines_in_postgres_than_may_be() {
    let Some((opened, database)) = postgres().await else { return };
    let store: Store = Arc::new(opened.clone());
    put_numbered(&store, 0..200).await;
    let (first, last) = (200, MAX_ROUTINES - 200);
    let columns =
        "path, channel, principal, authority, relayed, created_in, reply_to, origin, enabled, disabled_detail,
        revision, not_before, claimed_to, last_run_at, triggered_at, run_count, failures, created_at, changed_at";
    let copies = format!(
        "insert into belay.routines (name, id, spec, next_at, {columns})
         select 'r' || n, decode(lpad(to_hex(n), 32, '0'), 'hex'), replace(spec, '\"r0\"', '\"r' || n || '\"'), 60000 + n, {columns}
         from belay.routines, generate_series({first}, {last} - 1) n where name = 'r0'"
    );
    database.sql(&copies).unwrap();
    put_numbered(&store, last..MAX_ROUTINES).await;
    is_full(&store).await;
    opened.close().await;
}

async fn a_deleted_routine_is_gone(store: Store) {
    put(&*store, webhook("tick", "p")).await;
    let routine_run = claim(&*store, routine_run("tick", "k")).await;
    assert!(store.delete("tick", None).await.unwrap());
    assert!(!store.delete("tick", None).await.unwrap());
    assert_eq!(store.routine("tick").await.unwrap(), None);
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), [routine_run], "its routine_runs stay");
    put(&*store, webhook("other", "p")).await; // its path is free
    assert_eq!(put(&*store, webhook("tick", "q")).await.revision, 1);
}

fn owned(by: &str, name: &str) -> NewRoutine {
    let mut new = NewRoutine { id: RoutineId::new(), ..routine(name) };
    new.creator.principal = by.into();
    new
}

async fn a_routine_is_changed_by_its_owner_by_operators_and_by_nobody_else(store: Store) {
    let (owner, operator) = (PutBy::Owner { most: 10 }, PutBy::Operator);
    let rule = |by| PutRule { fresh: false, by };
    let made = owned("ann", "tea");
    assert!(matches!(store.put(made.clone(), rule(owner)).await.unwrap(), RoutinePut::Done(_)));
    let elsewhere = NewRoutine { channel: "telegram".into(), ..made.clone() };
    for (new, by) in [(owned("bob", "tea"), owner), (elsewhere, owner)] {
        let taken = store.put(new, rule(by)).await.unwrap();
        assert!(matches!(&taken, RoutinePut::Forbidden(why) if why.contains("tea is taken")), "{taken:?}");
    }
    let fresh = store.put(owned("ann", "tea"), PutRule { fresh: true, by: owner }).await.unwrap();
    assert!(matches!(fresh, RoutinePut::Refused(_)), "{fresh:?}");

    // An operator's change is the owner's routine still: theirs to pay for, and answered where they are.
    let mut changed = NewRoutine { made_in: "o".into(), reply_to: None, ..owned("root", "tea") };
    changed.spec.description = "green".into();
    let RoutinePut::Done(now) = store.put(changed, rule(operator)).await.unwrap() else { panic!() };
    assert_eq!((now.routine_id, now.revision, &*now.spec.description), (made.id, 2, "green"));
    assert_eq!((now.creator, now.made_in, now.reply_to), (made.creator, made.made_in, made.reply_to));

    // What the configuration says is changed there, and it takes any name over.
    let config = NewRoutine { origin: RoutineOrigin::Config, ..owned("config", "tea") };
    assert_eq!(put(&*store, config).await.creator.principal, "config");
    for (new, by) in [(owned("root", "tea"), operator), (owned("config", "tea"), owner)] {
        let refused = store.put(new, rule(by)).await.unwrap();
        assert!(matches!(&refused, RoutinePut::Forbidden(why) if why.contains("configuration")), "{refused:?}");
    }
}

async fn a_person_has_no_more_routines_than_they_may(store: Store) {
    let rule = PutRule { fresh: false, by: PutBy::Owner { most: 2 } };
    let done = async |new, rule| matches!(store.put(new, rule).await.unwrap(), RoutinePut::Done(_));
    assert!(done(owned("ann", "a"), rule).await && done(owned("ann", "b"), rule).await);
    let refused = store.put(owned("ann", "c"), rule).await.unwrap();
    assert!(matches!(&refused, RoutinePut::Refused(why) if why.contains("you have 2 routines")), "{refused:?}");
    assert!(done(owned("ann", "a"), rule).await, "one that is there may be changed");
    assert!(done(NewRoutine { channel: "telegram".into(), ..owned("ann", "d") }, rule).await, "who is somebody else");
    assert!(done(owned("ann", "e"), PutRule { by: PutBy::Operator, ..rule }).await, "an operator");
    store.delete("a", None).await.unwrap();
    store.delete("e", None).await.unwrap();
    assert!(done(owned("ann", "c"), rule).await);
    // Those of the configuration are nobody's.
    put(&*store, NewRoutine { origin: RoutineOrigin::Config, ..owned("bob", "f") }).await;
    assert!(done(owned("bob", "g"), rule).await && done(owned("bob", "h"), rule).await);
}

async fn a_burst_of_one_person_passes_neither_the_cap_nor_a_name(store: Store) {
    let rule = PutRule { fresh: false, by: PutBy::Owner { most: 10 } };
    let mut putting = JoinSet::new();
    for n in 0..100 {
        let new = if n % 2 == 0 { owned("ann", &format!("r{n}")) } else { owned(&format!("p{n}"), "wanted") };
        let store = store.clone();
        putting.spawn(async move { (n, store.put(new, rule).await.unwrap()) });
    }
    let done = putting.join_all().await;
    let done: Vec<_> = done.iter().filter(|(_, put)| matches!(put, RoutinePut::Done(_))).collect();
    assert_eq!(done.iter().filter(|(n, _)| n % 2 == 0).count(), 10);
    assert_eq!(done.iter().filter(|(n, _)| n % 2 == 1).count(), 1, "of all who want a name one has it");
}

async fn next_due(store: &Store) -> Option<i64> {
    RoutineSchedule::next_due(&**store).await.unwrap().map(|at| at.0)
}

fn aside_until(waits_for: i64, until: i64) -> Deferral {
    Deferral { waits_for: at(waits_for), until: at(until), at_work: 0 }
}

async fn one_that_is_laid_aside_is_due_later_and_keeps_nobody_waiting(store: Store) {
    for (name, next) in [("late", 2_000), ("later", 3_000), ("tick", 50_000)] {
        put(&*store, scheduled(name, next)).await;
    }
    put(&*store, routine("by-hand")).await;
    for name in ["late", "by-hand", "nobody"] {
        store.defer(routine_id(name), aside_until(2_000, 60_000)).await.unwrap();
    }
    assert_eq!(due(&store, 55_000, 1).await, ["later"]);
    assert_eq!(due(&store, 55_000, 10).await, ["later", "tick"]);
    assert_eq!(due(&store, 60_000, 10).await, ["later", "tick", "late"]);
    assert_eq!(next_due(&store).await, Some(3_000));
    store.delete("later", None).await.unwrap();
    store.delete("tick", None).await.unwrap();
    assert_eq!(next_due(&store).await, Some(60_000));
    // To an earlier date than its own time it is not moved.
    store.defer(routine_id("late"), aside_until(2_000, 1_000)).await.unwrap();
    assert_eq!(next_due(&store).await, Some(2_000));
}

async fn being_laid_aside_ends_with_what_it_was_for(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    let by_time = claim(&*store, on_time("tick", 60_000, 120_000)).await.routine_run_id;
    let aside = async || {
        let waits_for = store.routine("tick").await.unwrap().unwrap().next_at.unwrap();
        store.defer(routine_id("tick"), aside_until(waits_for.0, 900_000)).await.unwrap();
        assert_eq!(next_due(&store).await, Some(900_000));
    };
    // Putting the same again is no reason, and something else that sets it off is none.
    aside().await;
    put(&*store, scheduled("tick", 60_000)).await;
    let hand = claim(&*store, NewRoutineRun { by_hand: true, ..routine_run("tick", "hand") }).await.routine_run_id;
    assert_eq!(next_due(&store).await, Some(900_000));
    for id in [by_time, hand] {
        aside().await;
        RoutineRunStore::settle(&*store, end(id, RoutineRunStatus::Ok)).await.unwrap();
        assert_eq!(next_due(&store).await, Some(120_000), "a place is free");
    }
    aside().await;
    claim(&*store, on_time("tick", 120_000, 180_000)).await;
    assert_eq!(next_due(&store).await, Some(180_000), "it goes on");
    aside().await;
    store.miss(routine_id("tick"), vec![at(180_000)], Some(at(240_000)), at(180_000)).await.unwrap();
    assert_eq!(next_due(&store).await, Some(240_000));
    aside().await;
    store.enable(routine_id("tick"), true, "", Some(at(240_000)), at(200_000)).await.unwrap();
    assert_eq!(next_due(&store).await, Some(240_000));
    aside().await;
    let mut changed = scheduled("tick", 300_000);
    changed.spec.description = "another".into();
    put(&*store, changed).await;
    assert_eq!(next_due(&store).await, Some(300_000));
}

async fn what_has_moved_on_meanwhile_is_not_laid_aside(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    let busy = Deferral { at_work: 1, ..aside_until(120_000, 900_000) };
    store.defer(routine_id("tick"), aside_until(120_000, 900_000)).await.unwrap();
    assert_eq!(next_due(&store).await, Some(60_000), "it waits for another time");
    let running = claim(&*store, on_time("tick", 60_000, 120_000)).await.routine_run_id;
    RoutineRunStore::settle(&*store, end(running, RoutineRunStatus::Ok)).await.unwrap();
    store.defer(routine_id("tick"), busy).await.unwrap();
    assert_eq!(next_due(&store).await, Some(120_000), "what it would wait for has ended");
    claim(&*store, routine_run("tick", "more")).await;
    store.defer(routine_id("tick"), busy).await.unwrap();
    assert_eq!(next_due(&store).await, Some(900_000));
}

async fn one_that_was_made_anew_is_neither_switched_nor_deleted_for_the_other(store: Store) {
    let old = put(&*store, routine("tick")).await.routine_id;
    assert!(store.delete("tick", Some(old)).await.unwrap());
    let new = put(&*store, NewRoutine { id: routine_id("another"), ..routine("tick") }).await;
    assert_eq!(store.enable(old, false, "for the other", None, at(2_000)).await.unwrap(), None);
    assert!(!store.delete("tick", Some(old)).await.unwrap());
    assert_eq!(store.routine("tick").await.unwrap(), Some(new));
}

async fn what_comes_from_elsewhere_is_another_routine(store: Store) {
    let old = put(&*store, scheduled("tick", 60_000)).await;
    let running = claim(&*store, on_time("tick", 60_000, 120_000)).await.routine_run_id;
    store.defer(old.routine_id, aside_until(120_000, 900_000)).await.unwrap();
    let config = NewRoutine { id: routine_id("config's"), origin: RoutineOrigin::Config, ..scheduled("tick", 120_000) };
    let new = put(&*store, config.clone()).await;
    assert_eq!(new, RoutineRecord { claimed_to: Some(at(1_000)), ..record(config.clone()) });
    assert_eq!(next_due(&store).await, Some(120_000), "it is not laid aside for the other's sake");
    RoutineRunStore::settle(&*store, end(running, RoutineRunStatus::Failed)).await.unwrap();
    assert_eq!(store.routine("tick").await.unwrap(), Some(new.clone()), "the other's routine_run is not its own");
    store.miss(old.routine_id, vec![at(120_000)], None, at(120_000)).await.unwrap();
    assert_eq!(store.routine("tick").await.unwrap(), Some(new.clone()), "by the id of the other it is not found");
    // Put again by the same hand it is the same one.
    assert_eq!(put(&*store, NewRoutine { id: routine_id("again"), ..config }).await, new);

    put(&*store, scheduled("off", 60_000)).await;
    store.enable(routine_id("off"), false, "ann said so", None, at(2_000)).await.unwrap();
    let config =
        NewRoutine { id: routine_id("off, config's"), origin: RoutineOrigin::Config, ..scheduled("off", 60_000) };
    assert!(put(&*store, config).await.enabled, "that somebody has switched theirs off is not about this one");
}

async fn whatever_sets_routines_off_changes_the_number_of_changes_and_routine_runs_do_not(store: Store) {
    let changes = async || store.changes().await.unwrap();
    let (mut seen, mut last) = (std::collections::BTreeSet::new(), changes().await);
    put(&*store, routine("hook")).await; // two failures
    seen.insert(std::mem::replace(&mut last, changes().await));
    for key in ["1", "2"] {
        let running = claim(&*store, routine_run("hook", key)).await.routine_run_id;
        assert_eq!(changes().await, last);
        RoutineRunStore::settle(&*store, end(running, RoutineRunStatus::Failed)).await.unwrap();
        if key == "1" {
            assert_eq!(changes().await, last);
        }
    }
    seen.insert(std::mem::replace(&mut last, changes().await));
    store.enable(routine_id("hook"), true, "", None, at(4_000)).await.unwrap();
    seen.insert(std::mem::replace(&mut last, changes().await));
    store.delete("nobody", None).await.unwrap();
    assert_eq!(changes().await, last);
    store.delete("hook", None).await.unwrap();
    seen.insert(std::mem::replace(&mut last, changes().await));
    seen.insert(last);
    assert_eq!(seen.len(), 5, "each of them is another number");
}
