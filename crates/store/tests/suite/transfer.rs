//! Migration from one engine to the other.

mod filler;
mod memory;

use std::path::Path;

use belay_protocol::{NoteStore, Outbox, SearchQuery, StoreHealth};
use belay_store::transfer::{Migrated, Phase, Progress, TransferError, migrate};
use belay_store::{OpenError, PostgresLimits, SqlStore, StoreOptions, StoreUrl, inspect, parse_url};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use rusqlite::Connection;
use tempfile::TempDir;

use self::filler::{HIGHEST_NOTE, fill};
use crate::kit::*;

/// A directory with a filled store in a file, which is closed.
async fn filled() -> (StoreUrl, TempDir) {
    let (store, directory) = sqlite();
    fill(&store).await;
    store.close().await;
    rows_of_a_cluster(&directory.path().join("belay.db"));
    (file(&directory, "belay.db"), directory)
}

/// What nodes of a cluster have written before all of them ended.
fn rows_of_a_cluster(path: &Path) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(
        "INSERT INTO nodes VALUES (x'01', 'a', '0.1.0', 1, 1, 'd', 5, 20, 0, 21, 'lease');
         INSERT INTO work_leases VALUES ('channel', 'telegram', x'01', 3);
         INSERT INTO stop_orders VALUES (7, x'02', 6, NULL, 's', '{}', x'01');
         INSERT INTO stop_acks VALUES (x'02', x'01', '{}');
         INSERT INTO node_mail VALUES (9, x'03', 's', x'01', x'04', 6, NULL, NULL, NULL, 1, '{}', 'user_stop', '{}', 7);
         INSERT INTO budgets VALUES (20000, '', 500);
         INSERT INTO budget_slices VALUES (20000, '', x'01', 500, 1);
         INSERT INTO blobs VALUES ('d', 0, 6, x'00ff'), ('d', 1, 6, x'');
         INSERT INTO kept_outputs VALUES (x'04', 1, 0, 'c', 6, 2, x'00ff'), (x'04', 2, 0, 'c', 6, NULL, x'01');
         INSERT INTO mcp_pins VALUES (1, '{}');
         INSERT INTO cursors VALUES ('matrix', 'since', 's1');
         INSERT INTO moved_conversations VALUES ('telegram', '-1', '-1001', 1);
         INSERT INTO sign_in_links VALUES ('d', 9);",
    )
    .unwrap();
}

fn file(directory: &TempDir, name: &str) -> StoreUrl {
    StoreUrl::Sqlite(directory.path().join(name))
}

fn path(url: &StoreUrl) -> &Path {
    match url {
        StoreUrl::Sqlite(path) => path,
        _ => panic!("not a file"),
    }
}

/// An empty database. `None`: there is no PostgreSQL here.
async fn database() -> Option<(StoreUrl, TestDatabase<'static>)> {
    let made = tokio::task::spawn_blocking(|| {
        let programs = Programs::for_test().unwrap()?;
        let database = TestDatabase::new(PostgresServer::shared(&programs).unwrap()).unwrap();
        Some((parse_url(&format!("{}?sslmode=disable", database.url())).unwrap(), database))
    });
    made.await.unwrap()
}

async fn open_store(url: &StoreUrl) -> Result<SqlStore, OpenError> {
    let url = url.clone();
    let opened = tokio::task::spawn_blocking(move || match &url {
        StoreUrl::Postgres(url) => {
            let seconds = std::time::Duration::from_secs(30);
            let limits = PostgresLimits { connections: 1, statement: seconds, lock: seconds };
            SqlStore::connect(url, limits, StoreOptions::default())
        }
        url => SqlStore::open(path(url), StoreOptions::default()),
    });
    opened.await.unwrap()
}

async fn run(from: &StoreUrl, to: &StoreUrl) -> Result<Migrated, TransferError> {
    watched(from, to, |_| ()).await
}

/// A migration whose progress is watched.
async fn watched(
    from: &StoreUrl,
    to: &StoreUrl,
    mut watch: impl FnMut(Progress) + Send + 'static,
) -> Result<Migrated, TransferError> {
    let (from, to) = (from.clone(), to.clone());
    tokio::task::spawn_blocking(move || migrate(&from, &to, &mut watch)).await.unwrap()
}

/// The rows and digests of a target.
fn digests(migrated: &Migrated) -> Vec<(&'static str, u64, Option<String>)> {
    migrated.tables.iter().map(|table| (table.name, table.target_rows, table.target_digest.clone())).collect()
}

async fn hits(store: &SqlStore, words: &str) -> usize {
    use belay_protocol::Archive;
    store.search(SearchQuery { words: words.into(), ..SearchQuery::default() }).await.unwrap().len()
}

/// A store that was migrated finds its messages, goes on with the numbers, and takes new messages.
async fn works(url: &StoreUrl) {
    let store = open_store(url).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!((hits(&store, "weather").await, hits(&store, "nowhere").await), (8, 0), "{url:?}");
    store.remember(new_note(&person("new"), "k", "text", 9)).await.unwrap();
    let notes = store.recall(&person("new"), "", 9).await.unwrap();
    assert!(notes[0].id > HIGHEST_NOTE, "the number of a deleted note is used again: {notes:?}");
    let before = store.due(at(i64::MAX), &[], None, 100, 100).await.unwrap().len();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "the weather again").await;
    store.enqueue(outbound("c9", "late")).await.unwrap();
    assert_eq!(store.due(at(i64::MAX), &[], None, 100, 100).await.unwrap().len(), before + 1);
    store.close().await;
    let store = open_store(url).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(hits(&store, "weather").await, 10, "{url:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_to_postgresql_and_back_with_equal_digests() {
    let Some((server, _database)) = database().await else { return };
    let (original, directory) = filled().await;
    let there = run(&original, &server).await.unwrap();
    let empty: Vec<_> = there.tables.iter().filter(|table| table.rows == 0).map(|table| table.name).collect();
    assert!(empty.is_empty(), "the filler leaves tables empty: {empty:?}");
    assert!(there.is_equal() && !there.restarted, "{there:?}");
    let replaced: Vec<_> =
        there.tables.iter().filter(|t| t.replaced_nul > 0).map(|t| (t.name, t.replaced_nul)).collect();
    assert_eq!(replaced, [("runs", 2)]);

    let back = file(&directory, "back.db");
    let again = run(&server, &back).await.unwrap();
    assert!(again.is_equal(), "{again:?}");
    assert_eq!(digests(&again), digests(&there));
    // Within one engine, too, and without the replacement of characters.
    let copy = file(&directory, "copy.db");
    let same = run(&original, &copy).await.unwrap();
    assert!(same.is_equal() && same.tables.iter().all(|table| table.replaced_nul == 0), "{same:?}");
    let differing: Vec<_> =
        same.tables.iter().zip(&there.tables).filter(|(a, b)| a.digest != b.digest).map(|(a, _)| a.name).collect();
    assert_eq!(differing, ["runs"], "only its NUL characters differ");
    for store in [&server, &back, &copy, &original] {
        works(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_was_interrupted_leaves_a_refused_store_and_begins_anew() {
    let Some((server, database)) = database().await else { return };
    let (original, directory) = filled().await;
    let name = database.name().to_owned();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'belay migrate%'";
    let programs = Programs::find().unwrap();
    let to_server = watched(&original, &server, move |progress| {
        if progress.table == "messages" {
            PostgresServer::shared(&programs).unwrap().sql(&name, kill).unwrap();
        }
    });
    let interrupted = to_server.await.unwrap_err();
    assert!(interrupted.to_string().contains("Migrate again"), "{interrupted}");
    assert_ne!(database.sql("SELECT count(*) FROM belay.messages").unwrap().trim(), "0");
    assert!(matches!(open_store(&server).await, Err(OpenError::Unfinished)));

    let half = file(&directory, "half.db");
    let refused = run(&server, &half).await.unwrap_err();
    assert!(matches!(&refused, TransferError::Source(OpenError::Unfinished)), "{refused}");
    assert!(!path(&half).exists(), "the source is checked first");

    let again = run(&original, &server).await.unwrap();
    assert!(again.is_equal() && again.restarted, "{again:?}");
    works(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_named_and_the_file_is_refused_until_it_is_migrated_again() {
    let (original, directory) = filled().await;
    let damage = |sql: &str| assert_eq!(Connection::open(path(&original)).unwrap().execute(sql, []).unwrap(), 1);
    damage("UPDATE notes SET text = CAST(x'ff' AS TEXT) WHERE id = 1");
    let target = file(&directory, "target.db");
    let error = run(&original, &target).await.unwrap_err();
    assert!(matches!(&error, TransferError::Row { table: "notes", key, .. } if key == "1"), "{error}");
    assert!(error.to_string().contains("text") && error.to_string().contains("not UTF-8"), "{error}");
    assert!(matches!(open_store(&target).await, Err(OpenError::Unfinished)));
    assert!(matches!(inspect(path(&target)), Err(OpenError::Unfinished)));

    damage("UPDATE notes SET text = 'repaired' WHERE id = 1");
    let again = run(&original, &target).await.unwrap();
    assert!(again.is_equal() && again.restarted, "{again:?}");
    works(&target).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_beyond_the_limits_of_postgresql_is_named() {
    let Some((server, _database)) = database().await else { return };
    let (store, directory) = sqlite();
    open(&store, "short").await;
    // Long, and without repetitions that could be compressed.
    let long: String = (0..2000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    open(&store, &long).await;
    store.close().await;
    let error = run(&file(&directory, "belay.db"), &server).await.unwrap_err();
    assert!(
        matches!(&error, TransferError::Row { table: "sessions", key, .. } if key.contains(&long[..40])),
        "{error}"
    );
    assert!(error.to_string().contains("index") && error.to_string().len() < 600, "{error}");
    assert!(matches!(open_store(&server).await, Err(OpenError::Unfinished)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_difference_that_the_verification_finds_leaves_a_refused_store() {
    let Some((server, database)) = database().await else { return };
    let (original, _directory) = filled().await;
    let name = database.name().to_owned();
    let programs = Programs::find().unwrap();
    let changed = watched(&original, &server, move |progress| {
        if progress.phase == Phase::Verify && progress.table == "sessions" {
            let sql = "UPDATE belay.notes SET text = text || '.' WHERE id = 1; DELETE FROM belay.message_index WHERE rowid = 1";
            PostgresServer::shared(&programs).unwrap().sql(&name, sql).unwrap();
        }
    });
    let changed = changed.await.unwrap();
    let different: Vec<_> = changed.tables.iter().filter(|table| !table.is_equal()).map(|table| table.name).collect();
    assert_eq!((different, changed.is_equal()), (vec!["notes", "message_index"], false));
    assert!(matches!(open_store(&server).await, Err(OpenError::Unfinished)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_with_data_is_refused_and_stays_as_it_is() {
    let (original, directory) = filled().await;
    let mut targets = vec![file(&directory, "target.db")];
    let server = database().await;
    targets.extend(server.iter().map(|(url, _)| url.clone()));
    for target in &targets {
        let store = open_store(target).await.unwrap();
        store.ping().await.unwrap();
        store.close().await;
        assert!(run(&original, target).await.unwrap().is_equal(), "a store that was only opened is empty");
        let error = run(&original, target).await.unwrap_err();
        assert!(matches!(error, TransferError::NotEmpty(_)), "{error}");
        assert!(error.to_string().contains("(sessions: 3 rows, threads:"), "{error}");
        works(target).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_refused_on_either_side() {
    let (original, directory) = filled().await;
    let target = file(&directory, "target.db");
    let user = open_store(&original).await.unwrap();
    let error = run(&original, &target).await.unwrap_err();
    assert!(matches!(error, TransferError::Source(OpenError::Locked { .. })), "{error}");
    assert!(!path(&target).exists(), "the target is not created");
    user.close().await;
    let user = open_store(&target).await.unwrap();
    let error = run(&original, &target).await.unwrap_err();
    assert!(matches!(error, TransferError::Target(OpenError::Locked { .. })), "{error}");
    user.close().await;

    let Some((server, _database)) = database().await else { return };
    let user = open_store(&server).await.unwrap();
    let error = run(&original, &server).await.unwrap_err();
    assert!(matches!(error, TransferError::Target(OpenError::Locked { .. })), "{error}");
    let error = run(&server, &file(&directory, "other.db")).await.unwrap_err();
    assert!(matches!(error, TransferError::Source(OpenError::Locked { .. })), "{error}");
    user.close().await;
    // Nobody can open a store while it is migrated.
    let (from, to) = (original.clone(), server.clone());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let opened = seen.clone();
    let handle = tokio::runtime::Handle::current();
    let migrated = watched(&original, &server, move |progress| {
        if progress.table == "pings" {
            let tries = handle.block_on(async { [open_store(&from).await.err(), open_store(&to).await.err()] });
            opened.lock().unwrap().extend(tries);
        }
    });
    assert!(migrated.await.unwrap().is_equal());
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), 4, "in both phases");
    assert!(matches!(&seen[0], Some(OpenError::Locked { .. })), "{seen:?}");
    assert!(seen.iter().all(Option::is_some), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_source_or_target_is_refused_in_words() {
    let (original, directory) = filled().await;
    let missing = file(&directory, "missing.db");
    let new = file(&directory, "new.db");
    std::fs::write(directory.path().join("text.db"), "this is no database".repeat(100)).unwrap();
    let text = file(&directory, "text.db");
    let mut cases = vec![
        (missing.clone(), new.clone(), "there is no store at"),
        (StoreUrl::Memory, new.clone(), "in memory"),
        (original.clone(), StoreUrl::Memory, "in memory"),
        (original.clone(), original.clone(), "the same store"),
        (text.clone(), new.clone(), "the source cannot be opened"),
        (original.clone(), text, "the target cannot be opened"),
    ];
    let server = database().await;
    if let Some((url, _)) = &server {
        cases.push((url.clone(), new.clone(), "there is no store at"));
    }
    for (from, to, words) in cases {
        let error = run(&from, &to).await.unwrap_err().to_string();
        assert!(error.contains(words), "{from:?} {to:?}: {error}");
    }
    assert!(!path(&missing).exists() && !path(&new).exists());
    if let Some((_, database)) = &server {
        let schemas = database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'belay'").unwrap();
        assert_eq!(schemas.trim(), "0", "a source is not created");
    }
}
