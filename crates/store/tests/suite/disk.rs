//! Files, locks and full disks.

use belay_protocol::{
    Archive, ConversationReader, EventLog, EventQuery, JournalStore, LaneStore, Message, NewInput, NoteStore, Outbox,
    RunReader, RunStatus, RunStore, Seq, StoreError, StoreHealth,
};
use belay_store::{OpenError, SqlStore, StoreOptions};

use crate::kit::*;

#[tokio::test]
async fn a_second_open_of_one_file_is_told_who_has_it() {
    let (store, directory) = sqlite();
    let path = directory.path().join("belay.db");
    let error = SqlStore::open(&path, StoreOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { pid: Some(pid) } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    store.close().await;
    SqlStore::open(&path, StoreOptions::default()).unwrap();
}

#[tokio::test]
async fn a_dropped_store_gives_its_lock_back() {
    let (store, directory) = sqlite();
    drop(store);
    SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_untouched() {
    let (store, directory) = sqlite();
    store.close().await;
    let path = directory.path().join("belay.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    let before = std::fs::read(&path).unwrap();
    let error = SqlStore::open(&path, StoreOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, oldest: 99, known: 1 }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_run_whose_state_or_history_cannot_be_read_does_not_keep_its_lane_shut() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let state = Some(serde_json::json!({"iteration": 3}));
    let history = vec![Message::user("before")];
    let damaged =
        accept(&store, &lease, NewInput { state: state.clone(), history: history.clone(), ..queued("one") }).await;
    let whole =
        accept(&store, &lease, NewInput { state: state.clone(), history: history.clone(), ..queued("two") }).await;
    store.close().await;
    let path = directory.path().join("belay.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    // One level more than is read back, and a text that was cut off.
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let sql = "UPDATE runs SET state = ?2, history = '[{' WHERE id = ?1";
    assert_eq!(conn.execute(sql, rusqlite::params![damaged.as_uuid(), deep]).unwrap(), 1);
    drop(conn);

    let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
    let opened = open(&store, "s").await;
    let kept: Vec<_> =
        opened.unfinished.into_iter().map(|run| (run.run_id, run.text, run.state, run.history)).collect();
    assert_eq!(kept, [(damaged, "one".to_owned(), None, vec![]), (whole, "two".to_owned(), state, history)]);
    // It begins and ends like any other.
    store.start_run(&opened.lease, damaged, at(3_000)).await.unwrap();
    store.finish_runs(&opened.lease, vec![finished(damaged, "done")]).await.unwrap();
    assert_eq!(open(&store, "s").await.unfinished.len(), 1);
    store.close().await;
}

#[tokio::test]
async fn who_has_spoken_is_looked_for_among_so_many_runs_and_no_more() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    accept(&store, &lease, input("hello")).await;
    store.close().await;
    let path = directory.path().join("belay.db");
    // Runs of timers, for months.
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               INSERT INTO runs (id, session, status, accepted_at, ended_at, reason, work, channel, principal, authority, relayed,
                                 text, from_person)
               SELECT randomblob(16), 't', 'completed', 2000, 2000, 'response', json_object('kind', 'chat'), 'c', 'p', 'operator', 0, '', 0
               FROM n";
    for (more, spoken) in [(99_999_u32, true), (1, false)] {
        let conn = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(conn.execute(sql, [more]).unwrap(), more as usize);
        drop(conn);
        let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
        let seen = store.presence(None, at(0)).await.unwrap();
        assert_eq!((seen.spoken, seen.at_work), (spoken, true), "{more} more");
        store.close().await;
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    std::fs::write(&path, "this is a letter to my grandmother, and quite a long one".repeat(100)).unwrap();
    let error = SqlStore::open(&path, StoreOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_path_that_cannot_be_is_reported_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = SqlStore::open(&file.join("belay.db"), StoreOptions::default()).unwrap_err();
    assert!(matches!(&error, OpenError::Io { .. }), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_and_new_directories_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a").join("b").join("belay.db");
    let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
    store.ping().await.unwrap();
    let mode = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a"), mode("a/b")), (0o700, 0o700));
    for name in ["a/b/belay.db", "a/b/belay.db-wal", "a/b/belay.db.lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_full_disk_is_told_to_whoever_waits_and_is_survived() {
    let (store, _directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    let big = "x".repeat(100_000);

    store.set_max_pages(1).await.unwrap(); // SQLite takes this as: no more than there are
    let outcome = store.accept(&lease, queued(&big)).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    let outcome = store.checkpoint(&lease, checkpoint(run, vec![Message::assistant(&*big)])).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    let outcome = store.enqueue(outbound("c", &big)).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");

    store.set_max_pages(1_000_000).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(texts(&open(&store, "s").await.thread.messages), ["hi", "yo"], "nothing of what failed is there");
    assert_eq!(store.due(at(0), &[], None, 10, 10).await.unwrap(), []);
    let lease = open(&store, "s").await.lease;
    accept(&store, &lease, queued(&big)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_disk_is_full_only_what_does_not_fit_is_refused() {
    let (store, _directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, queued("hi")).await;
    store.set_max_pages(1).await.unwrap();
    // Small work that fits the pages there are, around a message that does not, mostly in one transaction.
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    let big = "x".repeat(100_000);
    let (refused, done) =
        tokio::join!(store.accept(&lease, queued(&big)), store.finish_runs(&lease, vec![finished(run, "yo")]),);
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    done.unwrap();
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempt), (RunStatus::Completed, 1));
    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    assert_eq!(events.len(), 3, "each once: {events:?}");
}

#[tokio::test]
async fn waiting_writes_share_a_commit() {
    let (store, _directory) = sqlite();
    let before = store.stats();
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..100 {
        let store = store.clone();
        writes.spawn(async move { store.remember(new_note(&person("a"), &n.to_string(), "x", n)).await.unwrap() });
    }
    writes.join_all().await;
    let after = store.stats();
    assert_eq!(after.jobs - before.jobs, 100);
    assert!(after.commits - before.commits < 50, "{before:?} {after:?}");
}

#[tokio::test]
async fn each_statement_of_a_read_is_counted() {
    let (file, _directory) = sqlite();
    for store in [file, SqlStore::in_memory().unwrap()] {
        let lease = open(&store, "s").await.lease;
        turn(&store, &lease, "hi").await;
        let before = store.stats();
        assert_eq!(store.read(EventQuery::default()).await.unwrap().len(), 3);
        // The thread that reads counts after it has answered, so the count is polled.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
        while store.stats().read_statements == before.read_statements && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        let read = store.stats().read_statements - before.read_statements;
        assert_eq!((read, store.stats().statements), (1, before.statements));
    }
}

/// Five statements to take it, three for a step, and five for its end. A message that asks nothing pays nothing for those that do.
#[tokio::test]
async fn a_message_that_asks_nothing_costs_no_statement_more_for_it() {
    let (store, _directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "the first message of its sender, who is noted with it").await;
    let before = store.stats().statements;
    let run = accept(&store, &lease, input("hi")).await;
    store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("step")])).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(store.stats().statements - before, 13);
}

#[tokio::test]
async fn numbers_of_events_go_on_after_a_restart() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "hi").await;
    store.close().await;
    let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    assert_eq!(*store.tip().borrow(), Seq(3));
    turn(&store, &open(&store, "s").await.lease, "again").await;
    assert_eq!(*store.tip().borrow(), Seq(6));
}

#[tokio::test]
async fn a_session_whose_options_cannot_be_read_opens_without_them() {
    let (store, directory) = sqlite();
    turn(&store, &open(&store, "s").await.lease, "hi").await;
    store.close().await;
    let path = directory.path().join("belay.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("UPDATE sessions SET options = '{\"of a later version\": 1}'", []).unwrap();
    drop(conn);
    let store = SqlStore::open(&path, StoreOptions::default()).unwrap();
    let opened = open(&store, "s").await;
    assert!(opened.options.is_default());
    assert_eq!(texts(&opened.thread.messages), ["hi", "re: hi"]);
}

#[tokio::test]
async fn what_deletions_free_goes_back_to_the_disk() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    for _ in 0..40 {
        turn(&store, &lease, &"many words ".repeat(2_000)).await;
    }
    let size = async || {
        let conn = rusqlite::Connection::open(directory.path().join("belay.db")).unwrap();
        conn.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = size().await;
    store.delete_session(&lease, at(3_000)).await.unwrap();
    let freed = size().await;
    assert!(freed > before / 2, "{before} {freed}: nothing is given back by itself");
    for _ in 0..200 {
        store.shrink(50).await.unwrap();
    }
    assert!(size().await < before / 4, "{before} {}", size().await);
    store.close().await;
    let conn = rusqlite::Connection::open(directory.path().join("belay.db")).unwrap();
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
