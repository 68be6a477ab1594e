//! The files of a database that are deleted, replaced or overwritten, while it is open and while it is closed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use belay_protocol::{Archive, RunId, RunReader, StoreError, StoreHealth};
use belay_store::backup::{Label, Reason, Sources, Stop, create};
use belay_store::{OpenError, SqlStore, StoreOptions, inspect};
use tempfile::TempDir;

use crate::kit::*;

/// The longest wait for a check. Generous: it only decides how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The files of a database that was not closed.
const FILES: [&str; 3] = ["belay.db", "belay.db-wal", "belay.db-mark"];

fn reopened(path: &Path) -> Result<SqlStore, OpenError> {
    SqlStore::open(path, StoreOptions::default())
}

/// A store with a message in its file, one in its log, and an older copy of the file beside it.
async fn two_messages() -> (SqlStore, TempDir, [RunId; 2]) {
    let (store, directory) = sqlite();
    let path = directory.path().join("belay.db");
    store.close().await;
    std::fs::copy(&path, directory.path().join("older.db")).unwrap();
    let store = reopened(&path).unwrap();
    let first = message(&store).await;
    store.close().await;
    let store = reopened(&path).unwrap();
    let second = message(&store).await;
    (store, directory, [first, second])
}

async fn message(store: &SqlStore) -> RunId {
    let lease = open(store, "s").await.lease;
    accept(store, &lease, queued("hi")).await
}

/// Another database with a log, as a kill leaves it.
async fn another() -> (TempDir, RunId) {
    let (store, directory) = sqlite();
    let run = message(&store).await;
    let copy = at_death(directory.path());
    store.close().await;
    (copy, run)
}

/// What a kill leaves of an open database.
fn at_death(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in FILES {
        std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// Runs a program. To read a database file in this process would drop the locks of SQLite.
fn run(program: &str, args: &[&Path]) {
    assert!(Command::new(program).args(args).status().unwrap().success(), "{program} {args:?}");
}

/// Writes until a write is refused.
async fn refusal(store: &SqlStore) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        match store.ping().await {
            Err(StoreError::Unavailable(detail)) => return detail,
            other => assert!(Instant::now() < until, "it still writes: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // the time of the file system cannot be paused
    }
}

/// Damage to the database file, and the words for it.
type Damage = (&'static str, &'static str, fn(&Path, &Path));

const DAMAGE: [Damage; 6] = [
    ("deleted", "was deleted", |path, _| std::fs::remove_file(path).unwrap()),
    ("renamed away", "was deleted", |path, _| std::fs::rename(path, path.with_extension("old")).unwrap()),
    ("renamed over", "was replaced by another file", |path, other| std::fs::rename(other, path).unwrap()),
    ("an older copy written over it", "was overwritten", |path, _| {
        run("cp", &[&path.with_file_name("older.db"), path])
    }),
    ("another database written over it", "was overwritten", |path, other| run("cp", &[other, path])),
    ("emptied", "was overwritten", |path, _| run("cp", &[Path::new("/dev/null"), path])),
];

#[tokio::test]
async fn nothing_is_acknowledged_after_the_database_file_was_deleted_replaced_or_overwritten() {
    for (how, words, damage) in DAMAGE {
        let ((store, directory, _), (other, _)) = (two_messages().await, another().await);
        let path = directory.path().join("belay.db");
        assert_eq!(StoreHealth::trouble(&store), None);
        damage(&path, &other.path().join("belay.db"));
        let in_place = path.exists().then(|| std::fs::read(&path).unwrap());
        let detail = refusal(&store).await;
        assert!(detail.contains(&format!("{} {words}", path.display())), "{how}: {detail}");
        assert!(detail.contains("belay backup restore"), "{how}: {detail}");
        assert_eq!(StoreHealth::trouble(&store), Some(detail), "{how}");
        assert!(matches!(store.shrink(1).await, Err(StoreError::Unavailable(_))), "{how}");

        store.close().await;
        assert_eq!(
            path.exists().then(|| std::fs::read(&path).unwrap()),
            in_place,
            "{how}: the log is not written into it"
        );
        // The log of the former file is beside it.
        let refused = reopened(&path).map(|_| ());
        let is_named = matches!(&refused, Err(OpenError::ForeignLog { log, .. }) if log.ends_with("belay.db-wal"));
        assert!(is_named, "{how}: {refused:?}");
    }
}

#[tokio::test]
async fn after_the_log_or_its_index_was_deleted_nothing_is_acknowledged_and_the_end_saves_everything() {
    for name in ["belay.db-wal", "belay.db-shm"] {
        let (store, directory, runs) = two_messages().await;
        let path = directory.path().join("belay.db");
        std::fs::remove_file(directory.path().join(name)).unwrap();
        let detail = refusal(&store).await;
        assert!(detail.contains(&format!("{name} was deleted")) && detail.contains("end it"), "{detail}");
        store.close().await;
        let store = reopened(&path).unwrap();
        for run in runs {
            assert!(store.run(run).await.unwrap().is_some(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_log_that_is_cut_under_an_open_database_is_noticed() {
    let (store, directory, _) = two_messages().await;
    let log = directory.path().join("belay.db-wal");
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(4000).unwrap();
    let detail = refusal(&store).await;
    assert!(detail.contains("belay.db-wal was overwritten"), "{detail}");
}

/// Another connection of this process: SQLite knows the file, and no lock is dropped.
fn beside(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

#[tokio::test]
async fn whatever_leaves_the_content_alone_is_no_damage() {
    let (store, directory, runs) = two_messages().await;
    let path = directory.path().join("belay.db");
    let to = |name: &str| directory.path().join(name);
    let target = to("one.tar.gz");
    let harmless: [(&str, &dyn Fn()); 10] = [
        ("chmod", &|| run("chmod", &[Path::new("640"), &path])),
        ("touch", &|| run("touch", &[&path])),
        ("a copy", &|| run("cp", &[&path, &to("copy.db")])),
        ("its own content", &|| {
            run("cp", &[&path, &to("own.db")]);
            run("cp", &[&to("own.db"), &path]);
        }),
        ("a hard link", &|| std::fs::hard_link(&path, to("link.db")).unwrap()),
        ("no hard link", &|| std::fs::remove_file(to("link.db")).unwrap()),
        ("an archive", &|| run("tar", &[Path::new("-cf"), &to("all.tar"), &path])),
        ("a backup", &|| {
            let sources = Sources { database: path.clone(), files: PathBuf::new(), key: None, settings: vec![] };
            let label = Label { program: "test", reason: Reason::Request, now: at(0) };
            create(&sources, &target, label, &Stop::default(), &mut |_, _| {}).unwrap();
        }),
        ("a checkpoint of another program", &|| {
            beside(&path).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }),
        ("a vacuum of another program", &|| {
            // It moves the page by which an overwritten file is known.
            beside(&path).execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }),
    ];
    for (what, harm) in harmless {
        harm();
        // Past the shortest time between two looks at the files, which is no time that a test could pause.
        let until = Instant::now() + Duration::from_millis(150);
        while Instant::now() < until {
            store.ping().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    message(&store).await;
    store.close().await;
    let store = reopened(&path).unwrap();
    for run in runs {
        assert!(store.run(run).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn checkpoints_of_every_kind_beside_readers_and_pruning_are_no_damage() {
    let (store, directory, _) = two_messages().await;
    let path = directory.path().join("belay.db");
    let lease = open(&store, "load").await.lease;
    let mut reader = None;
    for round in 0..240 {
        let text = "words ".repeat(if round % 7 == 0 { 4_000 } else { 40 });
        accept(&store, &lease, queued(&text)).await;
        match round % 12 {
            1 => {
                // A reader that keeps the log from being begun anew.
                let conn = beside(&path);
                conn.execute_batch("BEGIN; SELECT COUNT(*) FROM runs").unwrap();
                reader = Some(conn);
            }
            5 | 9 => {
                beside(&path).execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
            }
            7 => reader = None,
            8 => beside(&path).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap(),
            10 => beside(&path).execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap(),
            11 => store.shrink(100).await.unwrap(),
            _ => store.ping().await.unwrap(),
        }
        assert_eq!(StoreHealth::trouble(&store), None, "round {round}");
    }
    drop(reader);
    // What a kill leaves now is whole, too.
    let copy = at_death(directory.path());
    assert_eq!(inspect(&copy.path().join("belay.db")).unwrap().lost, None);
    reopened(&copy.path().join("belay.db")).unwrap().close().await;
}

#[tokio::test]
async fn a_log_that_is_missing_or_cut_after_a_kill_is_said_and_a_whole_one_is_not() {
    let (store, directory, runs) = two_messages().await;
    let lost = |directory: &TempDir| inspect(&directory.path().join("belay.db")).unwrap().lost;
    let log = |directory: &TempDir| directory.path().join("belay.db-wal");

    let whole = at_death(directory.path());
    assert_eq!(lost(&whole), None);
    let missing = at_death(directory.path());
    std::fs::remove_file(log(&missing)).unwrap();
    let emptied = at_death(directory.path());
    std::fs::write(log(&emptied), "").unwrap();
    let cut = at_death(directory.path());
    let bytes = std::fs::metadata(log(&cut)).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(log(&cut)).unwrap().set_len(bytes - 1).unwrap();
    for (directory, words) in [(&missing, "is missing"), (&emptied, "is missing"), (&cut, "was cut")] {
        let said = lost(directory).unwrap_or_default();
        assert!(said.contains(&format!("{} {words}", log(directory).display())), "{words}: {said}");
        assert!(said.contains("belay backup restore"), "{said}");
    }
    // A start says it and starts.
    let after = reopened(&cut.path().join("belay.db")).unwrap();
    assert!(after.run(runs[0]).await.unwrap().is_some());
    after.close().await;
    assert_eq!(lost(&cut), None, "it is said once");

    // Another program has put the log into the file.
    let recovered = at_death(directory.path());
    drop(beside(&recovered.path().join("belay.db")).execute_batch("SELECT COUNT(*) FROM runs"));
    assert!(!log(&recovered).exists());
    assert_eq!(lost(&recovered), None);
    // So has another one, while the daemon lived.
    beside(&directory.path().join("belay.db")).execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let copied = at_death(directory.path());
    std::fs::remove_file(log(&copied)).unwrap();
    assert_eq!(lost(&copied), None);
    store.close().await;
    assert_eq!(lost(&directory), None);
    assert!(!log(&directory).exists() || log(&directory).metadata().unwrap().len() == 0);
}

#[tokio::test]
async fn a_log_that_is_not_of_its_database_is_named_before_it_is_applied() {
    let ((store, directory, _), (other, _)) = (two_messages().await, another().await);
    let closed = tempfile::tempdir().unwrap();
    let dead = || at_death(directory.path());
    let (of_other, replaced, older, smaller) = (dead(), dead(), dead(), dead());
    store.close().await;
    std::fs::copy(directory.path().join("belay.db"), closed.path().join("belay.db")).unwrap();
    std::fs::copy(directory.path().join("belay.db-mark"), closed.path().join("belay.db-mark")).unwrap();
    for place in [&of_other, &closed] {
        std::fs::copy(other.path().join("belay.db-wal"), place.path().join("belay.db-wal")).unwrap();
    }
    std::fs::copy(other.path().join("belay.db"), replaced.path().join("belay.db")).unwrap();
    std::fs::copy(directory.path().join("older.db"), older.path().join("belay.db")).unwrap();
    let conn = rusqlite::Connection::open(smaller.path().join("other.db")).unwrap();
    conn.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = WAL; CREATE TABLE t (x);").unwrap();
    std::fs::copy(smaller.path().join("other.db-wal"), smaller.path().join("belay.db-wal")).unwrap();

    for (place, words) in [
        (&of_other, "not the log that belay has written"),
        (&closed, "had closed the database"),
        (&replaced, "another database file"),
        (&older, "another database file"),
        (&smaller, "another size"),
    ] {
        let path = place.path().join("belay.db");
        let before = std::fs::read(&path).unwrap();
        for refused in [reopened(&path).map(|_| ()), inspect(&path).map(|_| ())] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, OpenError::ForeignLog { .. }), "{words}: {refused:?}");
            let text = refused.to_string();
            assert!(text.contains(words) && text.contains("belay.db-wal") && text.contains("move the log"), "{text}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
        // As the text says.
        for name in ["belay.db-wal", "belay.db-shm", "belay.db-mark"] {
            let _ = std::fs::rename(place.path().join(name), place.path().join(format!("away-{name}")));
        }
        reopened(&path).unwrap().close().await;
    }
}

#[tokio::test]
async fn a_mark_that_a_loss_of_power_made_old_accuses_no_log_of_being_foreign() {
    let (store, directory, _) = two_messages().await;
    let path = directory.path().join("belay.db");
    let lease = open(&store, "load").await.lease;
    // A reader that keeps a checkpoint from completing: a part of the log is in the file then, with the page of the mark.
    let reader = beside(&path);
    reader.execute_batch("BEGIN; SELECT COUNT(*) FROM runs").unwrap();
    accept(&store, &lease, queued("behind the reader")).await;
    beside(&path).execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    accept(&store, &lease, queued("notes the checkpoint in the mark")).await;
    let old = std::fs::read(directory.path().join("belay.db-mark")).unwrap();
    drop(reader);
    beside(&path).execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
    accept(&store, &lease, queued("begins another log")).await;

    let copy = at_death(directory.path());
    let now = std::fs::read(copy.path().join("belay.db-mark")).unwrap();
    let fields = |mark: &[u8]| String::from_utf8(mark.to_vec()).unwrap();
    let (before, after) = (fields(&old), fields(&now));
    let field = |mark: &str, at: usize| mark.split_whitespace().nth(at).unwrap().to_owned();
    assert_eq!(field(&before, 3), field(&after, 3), "the page in the file is the same");
    assert_ne!(field(&before, 4), field(&after, 4), "the log is another one");
    std::fs::write(copy.path().join("belay.db-mark"), &old).unwrap();
    assert_eq!(inspect(&copy.path().join("belay.db")).unwrap().lost, None);
    reopened(&copy.path().join("belay.db")).unwrap().close().await;
}
