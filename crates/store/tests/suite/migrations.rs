//! Stores that an earlier Belay has written.

use std::path::Path;

use belay_protocol::store::input_digest;
use belay_protocol::{
    Acceptance, ActedOn, Archive, Asker, Claim, FiringFilter, GateState, GateStore, Message, NewFiring, NewInput,
    Outbox, Place, Purpose, RoutineStore, RunId, RunReader, RunStatus, SearchQuery, SpendLedger, ThreadState,
    ThreadStore,
};
use belay_store::{SqliteStore, StoreOptions};
use rusqlite::{Connection, params};

use crate::kit::*;

/// The steps that made the schemas of earlier versions.
const STEPS: [&str; 15] = [
    include_str!("../../src/sqlite/migrations/0001.sql"),
    include_str!("../../src/sqlite/migrations/0002.sql"),
    include_str!("../../src/sqlite/migrations/0003.sql"),
    include_str!("../../src/sqlite/migrations/0004.sql"),
    include_str!("../../src/sqlite/migrations/0005.sql"),
    include_str!("../../src/sqlite/migrations/0006.sql"),
    include_str!("../../src/sqlite/migrations/0007.sql"),
    include_str!("../../src/sqlite/migrations/0008.sql"),
    include_str!("../../src/sqlite/migrations/0009.sql"),
    include_str!("../../src/sqlite/migrations/0010.sql"),
    include_str!("../../src/sqlite/migrations/0011.sql"),
    include_str!("../../src/sqlite/migrations/0012.sql"),
    include_str!("../../src/sqlite/migrations/0013.sql"),
    include_str!("../../src/sqlite/migrations/0014.sql"),
    include_str!("../../src/sqlite/migrations/0015.sql"),
];

/// An empty store of that schema.
fn of_schema(path: &Path, schema: usize) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    STEPS[..schema].iter().for_each(|step| conn.execute_batch(step).unwrap());
    conn.pragma_update(None, "user_version", i64::try_from(schema).unwrap()).unwrap();
    conn
}

/// A store of schema 2 or later with a session in which one run has ended, one is at work and one waits.
fn old_store(path: &Path, schema: usize) -> [RunId; 3] {
    let conn = of_schema(path, schema);
    conn.execute_batch(
        "INSERT INTO sessions (session, owner, epoch, thread)
             VALUES ('s', '01890000-0000-7000-8000-000000000001', 4, '01890000-0000-7000-8000-000000000002');
         INSERT INTO threads (id, session, state, turns, last_active_at)
             VALUES ('01890000-0000-7000-8000-000000000002', 's', 'processing', 2, 1000);
         INSERT INTO outbox (id, channel, conversation, text)
             VALUES ('01890000-0000-7000-8000-000000000003', 'telegram', 'c', 'an old answer');",
    )
    .unwrap();
    let runs = [(); 3].map(|()| RunId::new());
    let begun = Some("01890000-0000-7000-8000-000000000002");
    let none = None::<i64>;
    for (run, status, thread, turn, ended_at, reason) in [
        (runs[0], "completed", begun, Some(1), Some(900), Some("final_text")),
        (runs[1], "running", begun, Some(2), none, None),
        (runs[2], "queued", None, None, none, None),
    ] {
        conn.execute(
            "INSERT INTO runs (id, session, status, thread, turn, attempt, accepted_at, started_at, ended_at, reason,
                               channel, principal, text)
             VALUES (?1, 's', ?2, ?3, ?4, ?4 IS NOT NULL, 500, CASE WHEN ?4 THEN 500 END, ?5, ?6, 'http', 'ann', 'hi')",
            params![run.to_string(), status, thread, turn, ended_at, reason],
        )
        .unwrap();
    }
    runs
}

#[tokio::test]
async fn an_old_store_is_brought_up_to_date_with_its_runs() {
    for schema in 2..=STEPS.len() {
        brought_up_to_date(schema).await;
    }
}

async fn brought_up_to_date(schema: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let [ended, working, waiting] = old_store(&path, schema);

    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    let opened = open(&store, "s").await;
    assert_eq!((opened.lease.epoch, opened.thread.state), (5, ThreadState::Processing));
    assert!(opened.options.is_default() && opened.loop_detection && !opened.fresh);
    assert!(opened.unfinished.iter().all(|run| run.options.is_default()), "nothing was asked of them");
    let pending: Vec<_> =
        opened.unfinished.into_iter().map(|run| (run.run_id, run.status, run.asker, run.gate)).collect();
    let asker = Asker { principal: "ann".into(), place: Place::Conversation, relayed: false };
    let expected = [(working, RunStatus::Running, asker.clone(), None), (waiting, RunStatus::Queued, asker, None)];
    assert_eq!(pending, expected);
    let record = store.run(ended).await.unwrap().unwrap();
    assert_eq!((record.status, record.waiting_for), (RunStatus::Completed, None));
    let due = Outbox::due(&store, at(0), &[], 10).await.unwrap();
    assert_eq!(
        due.iter().map(|row| (&*row.message.text, &row.message.question, &row.message.preview)).collect::<Vec<_>>(),
        [("an old answer", &None, &None)]
    );

    // An old run can ask like any other.
    let gate = pause(&store, &opened.lease, working).await;
    answer(&store, gate.id, GateState::Approved).await;
    assert_eq!(store.gate(gate.id).await.unwrap().map(|gate| gate.state), Some(GateState::Approved));
    store.start_run(&opened.lease, working, at(3_000)).await.unwrap();
    store.finish_runs(&opened.lease, vec![finished(working, "done"), finished(waiting, "done")]).await.unwrap();
    store.close().await;

    let conn = Connection::open(&path).unwrap();
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Keys that were used before there was more than a text to compare are used still.
#[tokio::test]
async fn keys_of_an_old_store_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let [_, working, _] = old_store(&path, 7);
    let conn = Connection::open(&path).unwrap();
    conn.execute(
        "UPDATE runs SET key_channel = 'http', key_account = 'a', key_message = 'm', digest = ?2 WHERE id = ?1",
        params![working.to_string(), input_digest("hi")],
    )
    .unwrap();
    conn.execute("INSERT INTO acted_on (key_channel, key_account, key_message, at) VALUES ('http', 'a', 'c', 500)", [])
        .unwrap();
    drop(conn);

    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    let lease = open(&store, "s").await.lease;
    let again = store.accept(&lease, NewInput { key: Some(key("m")), ..queued("hi") }).await.unwrap();
    assert!(matches!(&again, Acceptance::Known(known) if known.run_id == working), "{again:?}");
    // What came beside the text was not compared then, so the same message has another digest now.
    let asked = |text: &str| NewInput {
        digest: Some("of all that was sent".into()),
        text_digest: Some(input_digest(text)),
        key: Some(key("m")),
        ..queued("made of it by a hook")
    };
    for (text, known) in [("hi", true), ("ho", false)] {
        let again = store.accept(&lease, asked(text)).await.unwrap();
        assert_eq!(matches!(&again, Acceptance::Known(_)), known, "{text}: {again:?}");
    }
    let recent = store.recent_inputs().await.unwrap();
    assert_eq!(
        recent.iter().map(|(key, known)| (key.clone(), known.run_id)).collect::<Vec<_>>(),
        [(key("m"), working)]
    );
    assert_eq!(store.acted_on().await.unwrap(), [ActedOn { key: key("c"), digest: None, refused: false }]);
    // A message of its own is compared as a whole.
    let fresh = |digest: &str| NewInput { key: Some(key("new")), digest: Some(digest.into()), ..asked("hi") };
    for (digest, expected) in [("one", "New"), ("one", "Known"), ("two", "Conflict")] {
        let outcome = store.accept(&lease, NewInput { run_id: RunId::new(), ..fresh(digest) }).await.unwrap();
        assert!(format!("{outcome:?}").starts_with(expected), "{digest}: {outcome:?}");
    }
    store.close().await;
}

/// Before money was told apart there were only chats. A reservation of then is settled now.
#[tokio::test]
async fn money_of_an_old_store_went_for_chats() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let conn = of_schema(&path, 9);
    conn.execute_batch(
        "INSERT INTO spend_days (utc_day, micro_usd) VALUES (3, 70), (4, 5);
         INSERT INTO reservations (id, utc_day, run_id, micro_usd) VALUES (1, 3, 'r', 20);",
    )
    .unwrap();
    drop(conn);

    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    store.reserve(RunId::new(), Purpose::Job, 3, 8).await.unwrap();
    SpendLedger::settle(&store, 1, 10).await.unwrap();
    let spent = store.spent(3).await.unwrap();
    assert_eq!(spent.each().collect::<Vec<_>>(), [(Purpose::Chat, 60), (Purpose::Job, 8)]);
    assert_eq!(store.spent(4).await.unwrap().of(Purpose::Chat), 5);
    store.close().await;
}

/// Before routines had ids, a firing belonged to the routine of its name.
#[tokio::test]
async fn firings_of_an_old_store_are_the_routines_of_their_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let conn = of_schema(&path, 10);
    let new = scheduled("tick", 120_000);
    for name in ["tick", "tock"] {
        conn.execute(
            "INSERT INTO routines (name, spec, channel, principal, asker_place, relayed, made_in, origin, enabled, disabled_why,
                                   revision, next_at, claimed_to, firings, failures, created_at, changed_at)
             VALUES (?1, ?2, 'http', 'ann', 'token', 0, 's', '\"made\"', 1, '', 3, 120000, 60000, 1, 0, 1, 1)",
            params![name, serde_json::to_string(&new.spec).unwrap()],
        )
        .unwrap();
    }
    for (routine, key, status, ended) in
        [("tick", "k", "running", None), ("gone", "a", "ok", Some(9)), ("gone", "b", "ok", Some(9))]
    {
        conn.execute(
            "INSERT INTO firings (id, session, routine, key, revision, set_off_by, status, claimed_at, ended_at, detail)
             VALUES (?1, 's', ?2, ?3, 3, 'webhook', ?4, 5, ?5, '')",
            params![RunId::new().to_string(), routine, key, status, ended],
        )
        .unwrap();
    }
    drop(conn);

    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    let routines = store.routines().await.unwrap();
    let ids: Vec<_> = routines.iter().map(|routine| routine.routine_id).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    let open = store.open_firings().await.unwrap();
    assert_eq!(open.iter().map(|firing| firing.routine_id).collect::<Vec<_>>(), [ids[0]]);
    let all = store.firings(FiringFilter::default()).await.unwrap();
    assert!(all.len() == 3 && all[0].routine_id == all[1].routine_id && !ids.contains(&all[0].routine_id), "{all:#?}");
    let known = store.claim(NewFiring { routine_id: ids[0], ..firing("tick", "k") }, 10).await.unwrap();
    assert!(matches!(known, Claim::Known(_)), "{known:?}");
    let due = RoutineStore::due(&store, at(120_000), 10).await.unwrap();
    assert_eq!(due.len(), 2);
    store.close().await;
}

/// What an earlier version has stored is found too, once it was looked through in the background, and found once.
#[tokio::test]
async fn old_messages_become_findable_piece_by_piece() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let conn = of_schema(&path, 4);
    for (thread, position, scope, text) in (1..=7)
        .map(|n| (n % 3, n, "thread", format!("tea {n}")))
        .chain([(1, 8, "run", "tea, for the run alone".to_owned()), (1, 9, "thread", String::new())])
    {
        let thread = format!("01890000-0000-7000-8000-00000000000{thread}");
        let message = Message::assistant(text);
        let message = if scope == "run" { message.for_run() } else { message };
        conn.execute(
            "INSERT INTO threads (id, session, state, last_active_at) VALUES (?1, 's', 'completed', 1)
             ON CONFLICT DO NOTHING",
            params![thread],
        )
        .unwrap();
        conn.execute(
            "INSERT INTO messages (thread, position, turn, role, scope, at, body) VALUES (?1, ?2, 1, 'assistant', ?3, 1, ?4)",
            params![thread, position, scope, serde_json::to_string(&message).unwrap()],
        )
        .unwrap();
    }
    drop(conn);

    let found = async |store: &SqliteStore| {
        let query = SearchQuery { words: "tea".into(), limit: 100, ..SearchQuery::default() };
        store.search(query).await.unwrap().len()
    };
    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "new tea").await;
    assert_eq!(found(&store).await, 2);
    assert!(store.index(4).await.unwrap());
    store.close().await;
    // The next start goes on where this one was.
    let store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
    let mut rounds = 0;
    while store.index(4).await.unwrap() {
        rounds += 1;
    }
    assert_eq!((found(&store).await, rounds), (9, 1));
    assert!(!store.index(4).await.unwrap());
    store.close().await;
}

/// The words are checked by the database too: another program that writes the file cannot make an approval of a typing
/// mistake.
#[tokio::test]
async fn a_state_or_a_place_that_is_no_word_of_ours_cannot_be_written() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    pause(&store, &lease, run).await;
    store.close().await;
    let conn = Connection::open(directory.path().join("belay.db")).unwrap();
    for sql in [
        "UPDATE gates SET state = 'Approved'",
        "UPDATE gates SET state = NULL",
        "UPDATE gates SET kind = 'credential'",
        "UPDATE gates SET secret_name = 'x'",
        "UPDATE gates SET asker_place = 'root'",
        "UPDATE gates SET decided_by = 'ann'",
        "UPDATE runs SET asker_place = 'root'",
        "UPDATE runs SET relayed = 2",
    ] {
        let outcome = conn.execute(sql, []);
        assert!(
            matches!(&outcome, Err(error) if error.to_string().contains("constraint failed")),
            "{sql}: {outcome:?}"
        );
    }
    assert_eq!(conn.execute("UPDATE gates SET state = 'denied', decided_by = 'a', decided_at = 1", []).unwrap(), 1);
}
