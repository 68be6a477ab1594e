//! A look from outside.

use std::collections::BTreeMap;
use std::path::Path;

use belay_store::{Held, Inspection, OpenError, inspect};

use crate::kit::*;

/// Every file of a directory with its content.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[tokio::test]
async fn a_look_says_which_schema_there_is_and_who_has_it_and_changes_nothing() {
    let (store, directory) = sqlite();
    let path = directory.path().join("belay.db");
    let held = Held::By { pid: Some(std::process::id()) };
    assert_eq!(
        inspect(&path).unwrap(),
        Inspection { schema: Some(1), known: 1, held, lost: None, waits_for: Vec::new() },
        "while it is open"
    );
    store.close().await;
    let before = files(directory.path());
    let closed = Inspection { schema: Some(1), known: 1, held: Held::ByNobody, lost: None, waits_for: Vec::new() };
    assert_eq!(inspect(&path).unwrap(), closed, "and after");
    assert_eq!(files(directory.path()), before);
}

#[test]
fn a_look_at_nothing_makes_nothing_and_an_empty_file_has_no_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    let none = Inspection { schema: None, known: 1, held: Held::ByNobody, lost: None, waits_for: Vec::new() };
    assert_eq!(inspect(&path).unwrap(), none);
    assert_eq!(inspect(&directory.path().join("a/b/belay.db")).unwrap(), none);
    assert!(files(directory.path()).is_empty());
    std::fs::write(&path, "").unwrap();
    assert_eq!(inspect(&path).unwrap(), Inspection { schema: Some(0), ..none });
}

#[tokio::test]
async fn a_newer_schema_is_seen_in_the_file_and_in_a_log_that_is_not_merged_yet() {
    let (store, directory) = sqlite();
    store.close().await;
    let path = directory.path().join("belay.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    assert!(path.with_file_name("belay.db-wal").metadata().unwrap().len() > 0, "it is in the log");
    let newer = |error: OpenError| matches!(error, OpenError::Newer { found: 99, oldest: 99, known: 1 });
    assert!(newer(inspect(&path).unwrap_err()));
    drop(conn);
    assert!(!path.with_file_name("belay.db-wal").exists(), "it is in the file");
    assert!(newer(inspect(&path).unwrap_err()));
}

#[test]
fn a_file_that_is_no_database_or_cannot_be_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belay.db");
    for content in ["SQLite format 3\0 cut off", "short", &"a letter to my grandmother, and quite a long one".repeat(9)]
    {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(inspect(&path), Err(OpenError::Damaged { .. })), "{content}");
    }
    assert!(matches!(inspect(&path.join("below/belay.db")), Err(OpenError::Io { .. })));
}
