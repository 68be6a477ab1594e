//! Rows that another hand has spoilt: they stop no others, and what becomes of them is said.

use belay_protocol::{
    Claim, PutBy, PutRule, RoutinePut, RoutineReader, RoutineRecord, RoutineRunFilter, RoutineRunStatus,
    RoutineRunStore, RoutineSchedule, RoutineStore, Settled,
};
use belay_store::{SqlStore, StoreOptions};
use rusqlite::Connection;

use crate::kit::*;

fn names(routines: &[RoutineRecord]) -> Vec<&str> {
    routines.iter().map(|routine| routine.spec.name.as_str()).collect()
}

#[tokio::test]
async fn a_routine_that_cannot_be_read_is_switched_off_and_the_others_fire() {
    let (store, directory) = sqlite();
    for (name, next) in [("first", 2_000), ("second", 3_000), ("third", 4_000), ("fourth", 5_000)] {
        put(&store, scheduled(name, next)).await;
    }
    let running = claim(&store, routine_run("fourth", "k")).await;
    let changes = store.changes().await.unwrap();
    let conn = Connection::open(directory.path().join("belay.db")).unwrap();
    let spoil = |sql: &str| assert_eq!(conn.execute(sql, []).unwrap(), 1, "{sql}");
    spoil("UPDATE routines SET spec = '{\"name\":7}' WHERE name = 'first'");
    spoil("UPDATE routines SET id = x'00' WHERE name = 'second'");
    spoil("UPDATE routines SET origin = '\"elsewhere\"' WHERE name = 'fourth'");

    let due = RoutineSchedule::due(&store, at(9_000), 10).await.unwrap();
    assert_eq!(names(&due), ["third"]);
    assert_eq!(RoutineSchedule::next_due(&store).await.unwrap(), Some(at(4_000)), "no page is filled with them");
    assert_ne!(store.changes().await.unwrap(), changes, "who keeps them in mind looks anew");
    assert_eq!(names(&store.routines().await.unwrap()), ["third"]);
    assert_eq!(store.routine("first").await.unwrap(), None);
    assert_eq!(store.enable(routine_id("first"), true, "", None, at(9_000)).await.unwrap(), None);
    let off: String = conn
        .query_row("SELECT disabled_detail FROM routines WHERE name = 'first' AND enabled = 0", [], |row| row.get(0))
        .unwrap();
    assert!(off.starts_with("what is stored of it cannot be read: damaged: JSON"), "{off}");

    // Its routine run ends all the same, and nothing sets it off.
    let settled = RoutineRunStore::settle(&store, end(running.routine_run_id, RoutineRunStatus::Failed)).await.unwrap();
    assert!(matches!(settled, Settled::Now { disabled: false, .. }), "{settled:?}");
    let off = store.claim(routine_run("fourth", "next"), 10).await.unwrap();
    assert!(matches!(off, Claim::Off(_)), "{off:?}");
    // Its name is nobody's to take but an operator's, who makes it anew.
    let rule = |by| PutRule { fresh: false, by };
    let taken = store.put(routine("first"), rule(PutBy::Owner { most: 9 })).await.unwrap();
    assert!(matches!(&taken, RoutinePut::Forbidden(why) if why.contains("cannot be read")), "{taken:?}");
    assert!(matches!(store.put(routine("first"), rule(PutBy::Operator)).await.unwrap(), RoutinePut::Done(_)));
    assert!(store.delete("second", None).await.unwrap());
    assert_eq!(names(&store.routines().await.unwrap()), ["first", "third"]);
    store.close().await;
}

#[tokio::test]
async fn a_routine_run_that_cannot_be_read_takes_no_place() {
    let (store, directory) = sqlite();
    put(&store, routine("hook")).await;
    let bad = claim(&store, routine_run("hook", "bad")).await.routine_run_id;
    let good = claim(&store, routine_run("hook", "good")).await;
    let path = directory.path().join("belay.db");
    let conn = Connection::open(&path).unwrap();
    let sql = "UPDATE routine_runs SET run_id = x'00' WHERE id = ?1";
    assert_eq!(conn.execute(sql, [bad.as_uuid()]).unwrap(), 1);
    let nameless = claim(&store, routine_run("hook", "nameless")).await.routine_run_id;
    assert_eq!(conn.execute("UPDATE routine_runs SET id = x'01' WHERE id = ?1", [nameless.as_uuid()]).unwrap(), 1);
    store.close().await;

    let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
    assert_eq!(store.open_routine_runs(boot()).await.unwrap(), std::slice::from_ref(&good));
    assert_eq!(store.routine_runs(RoutineRunFilter::default()).await.unwrap(), std::slice::from_ref(&good));
    let page = store.routine_runs(RoutineRunFilter { limit: 1, ..RoutineRunFilter::default() }).await.unwrap();
    assert_eq!(page, std::slice::from_ref(&good), "the newest row is damaged, and the page is full all the same");
    let held = store.claim(routine_run("hook", "more"), 2).await.unwrap();
    assert!(matches!(held, Claim::Claimed(_)), "of two places one is free: {held:?}");
    let (status, why): (String, String) = conn
        .query_row("SELECT status, summary FROM routine_runs WHERE id = ?1", [bad.as_uuid()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert!(status == "failed" && why.ends_with("damaged: run_id"), "{status} {why}");
    let why: String =
        conn.query_row("SELECT summary FROM routine_runs WHERE id = x'01'", [], |row| row.get(0)).unwrap();
    assert!(why.ends_with("damaged: id"), "{why}");
    store.close().await;
}
