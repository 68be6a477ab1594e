//! Routines: put, switched, waited for, deleted.

use std::sync::Arc;

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{NewRoutine, RoutinePut, RoutineRecord, RoutineStore, Trigger, UnixMillis};
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
    there_are_no_more_routines_than_may_be
    a_deleted_routine_is_gone
}

type Store = Arc<dyn Everything>;

fn record(new: NewRoutine) -> RoutineRecord {
    RoutineRecord {
        spec: new.spec,
        creator: new.creator,
        channel: new.channel,
        made_in: new.made_in,
        reply_to: new.reply_to,
        origin: new.origin,
        enabled: true,
        disabled_why: String::new(),
        revision: 1,
        next_at: new.next_at,
        claimed_to: None,
        fired_at: None,
        firings: 0,
        failures: 0,
        created_at: at(1_000),
        changed_at: at(1_000),
    }
}

async fn refused(store: &Store, new: NewRoutine, fresh: bool) -> String {
    match store.put(new, fresh).await.unwrap() {
        RoutinePut::Refused(why) => why,
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
    assert!(matches!(store.put(webhook("one", "p"), true).await.unwrap(), RoutinePut::Done(_)));
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
    let firing = claim(&*store, on_time("tick", 60_000, 120_000)).await.firing_id;
    RoutineStore::settle(&*store, end(firing, belay_protocol::FiringStatus::Failed)).await.unwrap();
    let before = store.routine("tick").await.unwrap().unwrap();
    assert_eq!((before.failures, before.firings), (1, 1));
    let mut changed = NewRoutine { at: at(300_000), ..scheduled("tick", 360_000) };
    changed.spec.description = "another".into();
    let expected = RoutineRecord {
        revision: 2,
        claimed_to: Some(at(300_000)),
        fired_at: Some(at(60_000)),
        firings: 1,
        changed_at: at(300_000),
        ..record(changed.clone())
    };
    assert_eq!(put(&*store, changed).await, expected);
    assert_eq!(store.routine("tick").await.unwrap(), Some(expected));
}

async fn a_routine_that_is_off_stays_off_when_it_is_changed(store: Store) {
    put(&*store, scheduled("tick", 60_000)).await;
    store.enable("tick", false, "ann said so", None, at(2_000)).await.unwrap();
    let mut changed = scheduled("tick", 90_000);
    changed.spec.description = "another".into();
    let put = put(&*store, changed).await;
    assert_eq!((put.enabled, &*put.disabled_why, put.next_at, put.revision), (false, "ann said so", None, 2));
    assert_eq!(RoutineStore::next_due(&*store).await.unwrap(), None);
}

async fn a_routine_is_switched_off_and_on(store: Store) {
    let made = put(&*store, scheduled("tick", 60_000)).await;
    let off = store.enable("tick", false, "ann said so", Some(at(60_000)), at(2_000)).await.unwrap();
    let expected = RoutineRecord {
        enabled: false,
        disabled_why: "ann said so".into(),
        next_at: None,
        changed_at: at(2_000),
        ..made.clone()
    };
    assert_eq!(off, Some(expected));
    let on = store.enable("tick", true, "", Some(at(120_000)), at(70_000)).await.unwrap();
    let expected = RoutineRecord {
        next_at: Some(at(120_000)),
        claimed_to: Some(at(70_000)), // what passed while it was off is not missed
        changed_at: at(70_000),
        ..made
    };
    assert_eq!(on, Some(expected.clone()));
    assert_eq!(store.routine("tick").await.unwrap(), Some(expected));
    assert_eq!(store.enable("other", true, "", None, at(2_000)).await.unwrap(), None);
}

async fn due(store: &Store, now: i64, limit: u32) -> Vec<String> {
    let due = RoutineStore::due(&**store, at(now), limit).await.unwrap();
    due.into_iter().map(|routine| routine.spec.name).collect()
}

async fn those_are_due_whose_time_has_come(store: Store) {
    assert_eq!(RoutineStore::next_due(&*store).await.unwrap(), None);
    for (name, next) in [("late", 9_000), ("b", 5_000), ("a", 5_000), ("first", 4_000), ("off", 3_000)] {
        put(&*store, scheduled(name, next)).await;
    }
    put(&*store, routine("by-hand")).await;
    store.enable("off", false, "", None, at(2_000)).await.unwrap();
    assert_eq!(RoutineStore::next_due(&*store).await.unwrap(), Some(at(4_000)));
    assert_eq!(due(&store, 3_999, 10).await, Vec::<String>::new());
    assert_eq!(due(&store, 5_000, 10).await, ["first", "a", "b"]);
    assert_eq!(due(&store, 9_000, 2).await, ["first", "a"]);
}

async fn there_are_no_more_routines_than_may_be(store: Store) {
    let mut putting = JoinSet::new();
    for n in 0..MAX_ROUTINES {
        let (store, new) = (store.clone(), scheduled(&format!("r{n}"), 60_000 + i64::from(n)));
        putting.spawn(async move { matches!(store.put(new, true).await.unwrap(), RoutinePut::Done(_)) });
    }
    assert!(putting.join_all().await.into_iter().all(|done| done));
    assert!(refused(&store, routine("more"), true).await.contains("20000 routines"));
    put(&*store, scheduled("r7", 50_000)).await; // one that is there may be changed
    assert_eq!(RoutineStore::next_due(&*store).await.unwrap(), Some(at(60_000)));
    assert_eq!(due(&store, 60_002, 10).await, ["r0", "r1", "r2"]);
    let all = RoutineStore::due(&*store, UnixMillis(i64::MAX), MAX_ROUTINES).await.unwrap();
    assert_eq!(all.len(), MAX_ROUTINES as usize);
}

async fn a_deleted_routine_is_gone(store: Store) {
    put(&*store, webhook("tick", "p")).await;
    let firing = claim(&*store, firing("tick", "k")).await;
    assert!(store.delete("tick").await.unwrap());
    assert!(!store.delete("tick").await.unwrap());
    assert_eq!(store.routine("tick").await.unwrap(), None);
    assert_eq!(store.open_firings().await.unwrap(), [firing], "its firings stay");
    put(&*store, webhook("other", "p")).await; // its path is free
    assert_eq!(put(&*store, webhook("tick", "q")).await.revision, 1);
}
