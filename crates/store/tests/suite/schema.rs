//! What the schema holds to by itself, and files of another one.

use belay_store::{OpenError, SqlStore, StoreOptions, inspect};
use rusqlite::types::Null;
use rusqlite::{Connection, params_from_iter};

use crate::kit::*;

/// Before the first release the one schema is edited in place: its number stays, its edition does not.
#[tokio::test]
async fn a_store_of_an_unreleased_schema_is_refused_with_the_next_step_and_left_untouched() {
    for (edition, schema) in [(0, 1), (0, 14), (7, 1), (7, 99)] {
        let (store, directory) = sqlite();
        store.close().await;
        let path = directory.path().join("belay.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "application_id", edition).unwrap();
        conn.pragma_update(None, "user_version", schema).unwrap();
        let seen = inspect(&path).unwrap_err();
        assert!(matches!(seen, OpenError::Unreleased), "in the log: {seen}");
        drop(conn);
        let before = std::fs::read(&path).unwrap();
        let seen = inspect(&path).unwrap_err();
        assert!(matches!(seen, OpenError::Unreleased), "in the file: {seen}");
        let refused = SqlStore::open(&path, StoreOptions::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Unreleased) && refused.to_string().contains("move the file"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
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
        "UPDATE approvals SET state = 'Approved'",
        "UPDATE approvals SET state = NULL",
        "UPDATE approvals SET kind = 'credential'",
        "UPDATE approvals SET secret_name = 'x'",
        "UPDATE approvals SET authority = 'root'",
        "UPDATE approvals SET decided_by = 'ann'",
        "UPDATE runs SET authority = 'root'",
        "UPDATE runs SET relayed = 2",
    ] {
        let outcome = conn.execute(sql, []);
        assert!(
            matches!(&outcome, Err(error) if error.to_string().contains("constraint failed")),
            "{sql}: {outcome:?}"
        );
    }
    assert_eq!(conn.execute("UPDATE approvals SET state = 'denied', decided_by = 'a', decided_at = 1", []).unwrap(), 1);
}

/// A check with `IN` and more than two words makes one in every statement that writes its column.
#[tokio::test]
async fn no_check_builds_a_temporary_b_tree_when_a_row_is_written() {
    let (store, directory) = sqlite();
    store.close().await;
    let conn = Connection::open(directory.path().join("belay.db")).unwrap();
    let list = |sql: &str, column: usize| -> Vec<String> {
        let mut statement = conn.prepare(sql).unwrap();
        let values = vec![Null; statement.parameter_count()];
        statement.query_map(params_from_iter(values), |row| row.get(column)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let tables = list("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'", 0);
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables.iter().filter(|table| !table.starts_with("sqlite_") && !table.contains("_index_")) {
        let columns = list(&format!("PRAGMA table_info({table})"), 1);
        let values = vec!["?"; columns.len()].join(", ");
        let codes = list(&format!("EXPLAIN INSERT INTO {table} ({}) VALUES ({values})", columns.join(", ")), 1);
        assert!(!codes.iter().any(|code| code == "OpenEphemeral"), "{table}: {codes:?}");
    }
}
