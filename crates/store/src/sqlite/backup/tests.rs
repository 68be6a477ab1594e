#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails there")]

use std::os::unix::fs::PermissionsExt;

use belay_protocol::{
    BlobStore, BootId, FreezeStore, LaneClaim, LaneStore, SessionFilter, SessionLifetime, SessionReader, StoreHealth,
    UnixMillis,
};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::restore::restore_by;
use super::swap::{Journal, Move};
use super::*;
use crate::{Blobs, SqlStore, StoreOptions};

const NOW: UnixMillis = UnixMillis(1_795_000_000_000);

const LABEL: Label<'static> = Label { program: "1.0", reason: Reason::Request, now: NOW };

/// A data directory with a session, a file of a message, a key and a settings file.
struct Data {
    directory: TempDir,
    store: SqlStore,
    digest: String,
}

impl Data {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
        store.open_lane(&"anna".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), NOW).await.unwrap();
        store.ping().await.unwrap(); // commits the relaxed write before it
        let blobs = Blobs::in_directory(directory.path().join("attachments"));
        let mut writer = blobs.begin().await.unwrap();
        writer.write(&bytes::Bytes::from_static(b"a file")).await.unwrap();
        let digest = writer.finish().await.unwrap().as_str().to_owned();
        std::fs::write(directory.path().join("secret.key"), [7; 32]).unwrap();
        std::fs::write(directory.path().join("belay.toml"), "# settings").unwrap();
        Self { directory, store, digest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sources(&self) -> Sources {
        Sources {
            database: self.path("belay.db"),
            files: self.path("attachments"),
            key: None,
            settings: vec![self.path("belay.toml"), self.path("no-such.toml")],
        }
    }

    fn backup(&self, name: &str) -> Result<Created, BackupError> {
        create(&self.sources(), &self.path("backups").join(name), LABEL, &Stop::default(), &mut |_, _| {})
    }

    fn leftovers(&self) -> Vec<String> {
        let names = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten();
        let all = names(self.path("")).chain(names(self.path("backups")));
        all.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.starts_with('.')).collect()
    }
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_verified_and_restores_everything_frozen() {
    let data = Data::new().await;
    let created = data.backup("one.tar.gz").unwrap();
    data.store.open_lane(&"later".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), NOW).await.unwrap();
    data.store.ping().await.unwrap(); // commits the relaxed write before it
    assert_eq!(std::fs::metadata(&created.path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(verify(&created.path).unwrap(), created.manifest);
    assert_eq!(manifest_of(&created.path).unwrap(), created.manifest);
    assert!(!created.manifest.has_key());
    let names: Vec<_> = created.manifest.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, ["belay.db".to_owned(), "settings/0.toml".into(), format!("attachments/{}", data.digest)]);
    assert!(data.leftovers().is_empty(), "{:?}", data.leftovers());
    assert!(matches!(data.backup("one.tar.gz"), Err(BackupError::Exists(_))));

    let to = tempfile::tempdir().unwrap();
    let restored = restore(&created.path, &Place::in_directory(to.path()), false, NOW).unwrap();
    assert_eq!((restored.former, restored.undelivered), (None, 0));
    assert_eq!(std::fs::read_to_string(restored.settings.unwrap().join("0.toml")).unwrap(), "# settings");
    assert_eq!(std::fs::read(to.path().join("attachments").join(&data.digest)).unwrap(), b"a file");
    let copy = SqlStore::open(&to.path().join("belay.db"), StoreOptions::default()).unwrap();
    let sessions = copy.sessions(SessionFilter::lasting(9)).await.unwrap();
    assert_eq!(sessions.iter().map(|session| session.session.as_str()).collect::<Vec<_>>(), ["anna"]);
    assert_eq!(copy.freezes().await.unwrap().len(), 1, "it starts frozen");
}

#[tokio::test]
async fn replies_that_wait_for_delivery_are_not_sent_by_the_copy() {
    let data = Data::new().await;
    let conn = Connection::open(data.path("belay.db")).unwrap();
    let columns: Vec<String> = conn
        .prepare("SELECT name FROM pragma_table_info('outbox') WHERE \"notnull\" = 1 AND dflt_value IS NULL AND pk = 0")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (number, state) in [(1, "waiting"), (2, "sending"), (3, "sent"), (4, "failed")] {
        let values = columns.iter().map(|name| match name.as_str() {
            "id" => format!("x'{number:032x}'"),
            "state" => format!("'{state}'"),
            _ => "'x'".to_owned(),
        });
        let sql = format!(
            "INSERT INTO outbox ({}, state) VALUES ({}, '{state}')",
            columns.join(", "),
            values.collect::<Vec<_>>().join(", ")
        );
        conn.execute(&sql, []).unwrap();
    }
    let created = data.backup("one.tar.gz").unwrap();
    let to = tempfile::tempdir().unwrap();
    assert_eq!(restore(&created.path, &Place::in_directory(to.path()), false, NOW).unwrap().undelivered, 2);
    let conn = Connection::open(to.path().join("belay.db")).unwrap();
    let count =
        |state| conn.query_row("SELECT COUNT(*) FROM outbox WHERE state = ?1", [state], |row| row.get::<_, u32>(0));
    assert_eq!(
        ["ambiguous", "waiting", "sending", "sent", "failed"].map(|state| count(state).unwrap()),
        [2, 0, 0, 1, 1]
    );
}

#[tokio::test]
async fn damage_anywhere_is_found_and_a_restore_of_it_leaves_the_old_data() {
    let data = Data::new().await;
    let created = data.backup("one.tar.gz").unwrap();
    let whole = std::fs::read(&created.path).unwrap();
    let bad = data.path("bad.tar.gz");
    let old = tempfile::tempdir().unwrap();
    restore(&created.path, &Place::in_directory(old.path()), false, NOW).unwrap();
    let before = std::fs::read(old.path().join("belay.db")).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&bad, bytes).unwrap();
        assert!(verify(&bad).is_err(), "{what}");
        assert!(restore(&bad, &Place::in_directory(old.path()), true, NOW).is_err(), "{what}");
        assert_eq!(std::fs::read(old.path().join("belay.db")).unwrap(), before, "{what}");
    };
    let step = whole.len() / 23;
    for at in (0..10).chain((10..whole.len()).step_by(step)).chain([whole.len() - 1, whole.len() - 5]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        refused(&bytes, &format!("byte {at} flipped"));
    }
    for length in (0..whole.len()).step_by(step).chain([whole.len() - 1]) {
        refused(&whole[..length], &format!("cut to {length}"));
    }
    refused(&[&whole[..], b"x"].concat(), "a byte more");
    let left: Vec<_> = std::fs::read_dir(old.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".belay")), "{left:?}");
}

/// Writes a file that is built as a backup, with these entries.
fn forged(path: &Path, entries: &[(&str, EntryType, &[u8], Option<u64>)]) {
    let gzip = GzBuilder::new().mtime(0).write(std::fs::File::create(path).unwrap(), Compression::fast());
    let mut tar = Builder::new(gzip);
    for (name, kind, data, size) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(size.unwrap_or(data.len() as u64));
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes()); // the library refuses ".."
        if *kind == EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
}

#[tokio::test]
async fn hostile_archives_are_refused_and_write_nothing_outside() {
    let data = Data::new().await;
    let bad = data.path("bad.tar.gz");
    let manifest = |name: &str, bytes: u64| {
        format!(
            r#"{{"format":1,"program":"1","schema":1,"created_ms":1,"entries":[{{"name":"belay.db","bytes":1,"sha256":"x"}},{{"name":"{name}","bytes":{bytes},"sha256":"x"}}]}}"#
        )
    };
    let plain = EntryType::Regular;
    let newer = r#"{"format":2}"#;
    let digest = format!("attachments/{}", data.digest);
    for (what, manifest, entries) in [
        ("no manifest", "", vec![("belay.db", plain, &b"x"[..], None)]),
        ("traversal", manifest("../../outside", 1).as_str(), vec![("../../outside", plain, b"x", None)]),
        ("absolute", manifest("/tmp/outside", 1).as_str(), vec![("/tmp/outside", plain, b"x", None)]),
        ("dots in a digest", manifest("attachments/../x", 1).as_str(), vec![]),
        ("a link", manifest(&digest, 0).as_str(), vec![("belay.db", EntryType::Symlink, b"", None)]),
        ("a hard link", manifest(&digest, 0).as_str(), vec![("belay.db", EntryType::Link, b"", None)]),
        ("another name", manifest(&digest, 1).as_str(), vec![("evil", plain, b"x", None)]),
        ("larger than its manifest", manifest(&digest, 1).as_str(), vec![("belay.db", plain, b"xxxx", None)]),
        ("no database", manifest("belay.db", 1).as_str(), vec![("belay.db", plain, b"x", None)]),
        ("newer", newer, vec![]),
    ] {
        let mut all = vec![("manifest.json", plain, manifest.as_bytes(), None)];
        if manifest.is_empty() {
            all.clear();
        }
        all.extend(entries);
        forged(&bad, &all);
        let to = data.path("to");
        assert!(verify(&bad).is_err(), "{what}");
        assert!(restore(&bad, &Place::in_directory(&to), false, NOW).is_err(), "{what}");
        assert!(!data.path("outside").exists() && !to.join("belay.db").exists(), "{what}");
        let _ = std::fs::remove_dir_all(&to);
    }
    // A bomb: 4 GiB of zeros behind a manifest that promises more than the disk has.
    forged(&bad, &[("manifest.json", plain, manifest(&digest, u64::MAX / 2).as_bytes(), None)]);
    assert!(matches!(
        restore(&bad, &Place::in_directory(&data.path("to")), false, NOW),
        Err(BackupError::NoSpace { .. })
    ));
}

#[tokio::test]
async fn a_stopped_backup_leaves_nothing_and_the_leftovers_of_a_killed_one_are_removed() {
    let data = Data::new().await;
    let target = data.path("backups/one.tar.gz");
    // Before, while the files are written, and at the last of their bytes, which is before the verification.
    for from in [None, Some(0), Some(1)] {
        let stop = Stop::default();
        if from.is_none() {
            stop.stop();
        }
        let mut progress = |done: u64, _: u64| {
            if from.is_some_and(|from| done >= from) {
                stop.stop();
            }
        };
        let stopped = create(&data.sources(), &target, LABEL, &stop, &mut progress);
        assert!(matches!(stopped, Err(BackupError::Stopped)), "{from:?}: {stopped:?}");
        assert!(!target.exists() && data.leftovers().is_empty(), "{:?}", data.leftovers());
    }
    std::fs::create_dir(data.path(".backup-staging-belay.db-x")).unwrap();
    std::fs::write(data.path("backups/.belay-backup-old.tar.gz.part"), "half").unwrap();
    data.backup("one.tar.gz").unwrap();
    assert!(data.leftovers().is_empty(), "{:?}", data.leftovers());
}

#[tokio::test]
async fn a_restore_refuses_a_store_in_use_and_data_without_force_and_keeps_the_former_data() {
    let data = Data::new().await;
    let created = data.backup("one.tar.gz").unwrap();
    let used = restore(&created.path, &Place::in_directory(data.directory.path()), true, NOW);
    assert!(matches!(used, Err(BackupError::Open(OpenError::Locked { .. }))), "{used:?}");
    data.store.open_lane(&"later".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), NOW).await.unwrap();
    data.store.ping().await.unwrap(); // commits the relaxed write before it
    data.store.close().await;
    let occupied = restore(&created.path, &Place::in_directory(data.directory.path()), false, NOW);
    assert!(matches!(occupied, Err(BackupError::NotEmpty(_))), "{occupied:?}");
    let former =
        restore(&created.path, &Place::in_directory(data.directory.path()), true, NOW).unwrap().former.unwrap();
    let sessions = async |path: &Path| {
        let store = SqlStore::open(path, StoreOptions::default()).unwrap();
        let count = store.sessions(SessionFilter::lasting(9)).await.unwrap().len();
        store.close().await;
        count
    };
    assert_eq!(sessions(&data.path("belay.db")).await, 1);
    assert_eq!(sessions(&former.join("belay.db")).await, 2, "also what was in the log");
    assert_eq!(std::fs::read(former.join("attachments").join(&data.digest)).unwrap(), b"a file");
    assert_eq!(std::fs::read(data.path("secret.key")).unwrap(), [7; 32], "the backup has none");
}

#[tokio::test]
async fn a_log_and_a_key_without_their_database_are_kept_and_not_applied() {
    let data = Data::new().await;
    let created = data.backup("one.tar.gz").unwrap();
    let to = tempfile::tempdir().unwrap();
    for (name, content) in [("belay.db-wal", "an old log"), ("secret.key", "the only key")] {
        std::fs::write(to.path().join(name), content).unwrap();
    }
    let former =
        restore(&created.path, &Place::in_directory(to.path()), true, NOW).unwrap().former.expect("the former files");
    assert_eq!(std::fs::read(former.join("secret.key")).unwrap(), b"the only key");
    assert_eq!(std::fs::read(former.join("belay.db-wal")).unwrap(), b"an old log");
    assert!(!to.path().join("belay.db-wal").exists());
}

#[tokio::test]
async fn a_snapshot_before_a_migration_is_the_way_back_and_two_are_kept() {
    let data = Data::new().await;
    let database = data.path("belay.db");
    data.store.close().await;
    let conn = Connection::open(&database).unwrap();
    for schema in 2..=4 {
        snapshot_before_migration(&conn, &database, schema).unwrap();
    }
    let found: Vec<_> = snapshots(&database).unwrap().into_iter().map(|(schema, _)| schema).collect();
    assert_eq!(found, [3, 4]);
    // A migration to a schema that this program does not know.
    conn.execute_batch("DROP TABLE freezes; PRAGMA user_version = 4;").unwrap();
    drop(conn);
    let newer = SqlStore::open(&database, StoreOptions::default());
    assert!(matches!(newer, Err(OpenError::Newer { found: 4, .. })), "{newer:?}");
    let put_back = restore_before_migration(&Place::in_directory(data.directory.path()), NOW).unwrap();
    assert!(put_back.snapshot.exists() && put_back.former.unwrap().join("belay.db").exists());
    let store = SqlStore::open(&database, StoreOptions::default()).unwrap();
    assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1);
    let freezes = store.freezes().await.unwrap();
    let details: Vec<_> = freezes.iter().map(|freeze| freeze.detail.as_deref().unwrap_or_default()).collect();
    assert_eq!(details, ["put back from before the migration to schema 4"], "the newer version may have sent replies");
}

/// The files of a store with their contents. The lock is left out.
fn contents(directory: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(contents(&entry.path()).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else if !name.ends_with(".lock") {
            found.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// A backup with a key, and a directory with another store, whose log cannot be moved into its database.
async fn backup_and_other_store() -> (Data, Created, TempDir) {
    let data = Data::new().await;
    let sources = Sources { key: Some(data.path("secret.key")), ..data.sources() };
    let created = create(&sources, &data.path("backups/one.tar.gz"), LABEL, &Stop::default(), &mut |_, _| {}).unwrap();
    let to = tempfile::tempdir().unwrap();
    for name in ["belay.db", "belay.db-wal", "belay.db-shm", "secret.key"] {
        std::fs::write(to.path().join(name), format!("the former {name}")).unwrap();
    }
    std::fs::create_dir(to.path().join("attachments")).unwrap();
    std::fs::write(to.path().join("attachments").join(&data.digest), b"damaged").unwrap();
    (data, created, to)
}

#[tokio::test]
async fn an_error_at_any_rename_of_a_restore_leaves_the_former_store() {
    let (_data, created, to) = backup_and_other_store().await;
    let (place, before) = (Place::in_directory(to.path()), contents(to.path()));
    for failing in 0.. {
        let mut renames = 0;
        let mut rename = |from: &Path, target: &Path| {
            renames += 1;
            if renames > failing { Err(io::Error::other("the disk fails")) } else { std::fs::rename(from, target) }
        };
        let restored = restore_by(&created.path, &place, true, NOW, &mut rename);
        if restored.is_ok() {
            assert_eq!(failing, 9, "the log, its index, the settings, and twice the key, the database and the file");
            break;
        }
        assert!(matches!(restored, Err(BackupError::Io { .. })), "{restored:?}");
        assert_eq!(contents(to.path()), before, "rename {failing} failed");
    }
    assert_eq!(std::fs::read(to.path().join("secret.key")).unwrap(), [7; 32]);
    assert!(!to.path().join("belay.db-wal").exists());
}

#[tokio::test]
async fn a_crash_at_any_rename_of_a_restore_is_recognised_and_rolled_back() {
    let (_data, created, to) = backup_and_other_store().await;
    let (place, before) = (Place::in_directory(to.path()), contents(to.path()));
    for crash in 0..9 {
        let mut renames = 0;
        let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = restore_by(&created.path, &place, true, NOW, &mut |from, target| {
                assert!(renames < crash, "the process is killed here");
                renames += 1;
                std::fs::rename(from, target)
            });
        }));
        assert!(crashed.is_err());
        let opened = SqlStore::open(&place.database, StoreOptions::default()).err();
        assert!(matches!(opened, Some(OpenError::InterruptedRestore { .. })), "{opened:?}");
        let inspected = crate::inspect(&place.database);
        assert!(matches!(inspected, Err(OpenError::InterruptedRestore { .. })), "{inspected:?}");
        let sources = Sources { database: place.database.clone(), files: PathBuf::new(), key: None, settings: vec![] };
        let backup = create(&sources, &to.path().join("a.tar.gz"), LABEL, &Stop::default(), &mut |_, _| {});
        assert!(matches!(backup, Err(BackupError::Open(OpenError::InterruptedRestore { .. }))), "{backup:?}");
        assert!(roll_back(&place.database).unwrap() && !roll_back(&place.database).unwrap());
        assert_eq!(contents(to.path()), before, "killed at rename {crash}");
    }
    // The next restore rolls back by itself.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = restore_by(&created.path, &place, true, NOW, &mut |_, _| panic!("the process is killed here"));
    }));
    let occupied = restore(&created.path, &place, false, NOW);
    assert!(matches!(occupied, Err(BackupError::NotEmpty(_))), "{occupied:?}");
    let former = restore(&created.path, &place, true, NOW).unwrap().former.unwrap();
    assert_eq!(std::fs::read(former.join("belay.db-wal")).unwrap(), b"the former belay.db-wal");
    SqlStore::open(&place.database, StoreOptions::default()).unwrap().close().await;
}

#[test]
fn a_rollback_moves_a_relative_link_back_with_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for directory in ["real", "former", "staged"] {
        std::fs::create_dir(at(directory)).unwrap();
    }
    for (name, text) in [("real/belay.db", "former"), ("belay.db-wal", "log"), ("staged/belay.db", "restored")] {
        std::fs::write(at(name), text).unwrap();
    }
    std::os::unix::fs::symlink("real/belay.db", at("belay.db")).unwrap();
    let moved = |name: &str, staged: Option<&str>| Move {
        place: name.into(),
        former: Some(Path::new("former").join(name)),
        staged: staged.map(PathBuf::from),
    };
    let moves = vec![moved("belay.db-wal", None), moved("belay.db", Some("staged/belay.db"))];
    let journal = Journal { moves, directories: vec!["former".into(), "staged".into()] };
    let mut renames = 0;
    let swapped = swap::swap(&at("belay.db"), &journal, &mut |from, target| {
        renames += 1;
        if renames == 3 { Err(io::Error::other("the disk fails")) } else { std::fs::rename(from, target) }
    });
    assert!(matches!(swapped, Err(BackupError::Io { .. })), "{swapped:?}");
    assert_eq!(std::fs::read_link(at("belay.db")).unwrap(), Path::new("real/belay.db"));
    assert_eq!(std::fs::read(at("belay.db")).unwrap(), b"former");
    assert_eq!(std::fs::read(at("belay.db-wal")).unwrap(), b"log");
}

#[tokio::test]
async fn a_linked_database_is_refused_and_a_linked_key_is_replaced_at_its_target() {
    let (_data, created, to) = backup_and_other_store().await;
    let place = Place::in_directory(to.path());
    std::fs::create_dir(to.path().join("real")).unwrap();
    for name in ["secret.key", "belay.db"] {
        std::fs::rename(to.path().join(name), to.path().join("real").join(name)).unwrap();
        std::os::unix::fs::symlink(Path::new("real").join(name), to.path().join(name)).unwrap();
    }
    let refused = restore(&created.path, &place, true, NOW);
    assert!(matches!(refused, Err(BackupError::Link(_))), "{refused:?}");
    let refused = restore_before_migration(&place, NOW);
    assert!(matches!(refused, Err(BackupError::Link(_))), "{refused:?}");

    std::fs::rename(to.path().join("real/belay.db"), to.path().join("belay.db")).unwrap();
    restore(&created.path, &place, true, NOW).unwrap();
    assert!(place.key.is_symlink());
    assert_eq!(std::fs::read(to.path().join("real/secret.key")).unwrap(), [7; 32]);
    let former = to.path().join(format!("real/before-restore-{}/secret.key", NOW.0));
    assert_eq!(std::fs::read(former).unwrap(), b"the former secret.key");
}

#[tokio::test]
async fn a_restore_and_a_backup_leave_the_temporary_files_of_a_store_in_the_same_directory() {
    let (_data, created, to) = backup_and_other_store().await;
    let of_another = [".belay-restore-other.db-1", ".belay-restore-belay.db-2-1", ".backup-staging-other.db-x"];
    for name in of_another.iter().chain(&[".belay-restore-belay.db-1"]) {
        std::fs::create_dir(to.path().join(name)).unwrap();
    }
    let place = Place::in_directory(to.path());
    restore(&created.path, &place, true, NOW).unwrap();
    sweep(&place.database, to.path()).unwrap();
    assert!(of_another.iter().all(|name| to.path().join(name).is_dir()));
    assert!(!to.path().join(".belay-restore-belay.db-1").exists());
}

#[tokio::test]
async fn a_file_of_a_message_that_may_not_be_read_is_left_out_and_told() {
    let data = Data::new().await;
    let to = tempfile::tempdir().unwrap();
    for errno in [rustix::io::Errno::ACCESS, rustix::io::Errno::BADMSG, rustix::io::Errno::IO] {
        let link = |_: &Path, _: &Path| Err(io::Error::from(errno));
        let left = links::link_files(&data.path("attachments"), to.path(), &Stop::default(), &link).unwrap();
        assert_eq!(left.iter().map(|digest| digest.as_str()).collect::<Vec<_>>(), [data.digest.as_str()]);
    }
    let full = |_: &Path, _: &Path| Err(io::Error::from(rustix::io::Errno::NOSPC));
    let full = links::link_files(&data.path("attachments"), to.path(), &Stop::default(), &full);
    assert!(matches!(full, Err(BackupError::Io { .. })), "{full:?}");
}

#[test]
fn a_journal_that_cannot_be_written_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let database = home.path().join("belay.db");
    std::fs::write(journal_path(&database), "in the way").unwrap();
    std::fs::create_dir(home.path().join("staged")).unwrap();
    let journal = Journal { moves: Vec::new(), directories: vec!["staged".into()] };
    let swapped = swap::swap(&database, &journal, &mut |_, _| Ok(()));
    assert!(matches!(swapped, Err(BackupError::Io { .. })), "{swapped:?}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_store_with_its_key_in_another_directory_is_restored_and_rolled_back() {
    let (_data, created, to) = backup_and_other_store().await;
    let key = to.path().join("data/secret.key");
    std::fs::create_dir(to.path().join("data")).unwrap();
    std::fs::rename(to.path().join("secret.key"), &key).unwrap();
    let place = Place { database: to.path().join("belay.db"), key: key.clone() };
    let before = contents(to.path());
    for failing in 0..9 {
        let mut renames = 0;
        let restored = restore_by(&created.path, &place, true, NOW, &mut |from, target| {
            renames += 1;
            if renames > failing { Err(io::Error::other("the disk fails")) } else { std::fs::rename(from, target) }
        });
        assert!(matches!(restored, Err(BackupError::Io { .. })), "{restored:?}");
        assert_eq!(contents(to.path()), before, "rename {failing} failed");
    }
    restore(&created.path, &place, true, NOW).unwrap();
    assert_eq!(std::fs::read(&key).unwrap(), [7; 32]);
    let former = to.path().join(format!("data/before-restore-{}/secret.key", NOW.0));
    assert_eq!(std::fs::read(former).unwrap(), b"the former secret.key");
    let left: Vec<_> = contents(to.path()).into_keys().filter(|name| name.contains(".belay-restore")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_damaged_file_of_a_message_stops_no_backup_and_a_restore_replaces_it() {
    let data = Data::new().await;
    let whole = data.backup("whole.tar.gz").unwrap();
    assert!(whole.manifest.damaged.is_empty());
    let file = data.path("attachments").join(&data.digest);
    std::fs::write(&file, b"a filf").unwrap();
    let created = data.backup("one.tar.gz").unwrap();
    let damaged: Vec<_> = created.manifest.damaged.iter().map(|digest| digest.as_str()).collect();
    assert_eq!(damaged, [data.digest.as_str()]);
    assert_eq!(verify(&created.path).unwrap(), created.manifest);
    assert!(!created.manifest.entries.iter().any(|entry| matches!(entry.name, EntryName::File(_))));

    data.store.close().await;
    let place = Place::in_directory(data.directory.path());
    let former = restore(&whole.path, &place, true, NOW).unwrap().former.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"a file", "the backup has the whole one");
    assert_eq!(std::fs::read(former.join("attachments").join(&data.digest)).unwrap(), b"a filf");
}

#[tokio::test]
async fn a_backup_of_a_version_that_wrote_no_cause_is_of_a_request() {
    let data = Data::new().await;
    let label = Label { reason: Reason::Schedule, ..LABEL };
    let created = create(&data.sources(), &data.path("one.tar.gz"), label, &Stop::default(), &mut |_, _| {}).unwrap();
    assert_eq!(manifest_of(&created.path).unwrap().reason, Reason::Schedule);
    let mut json = serde_json::to_value(&created.manifest).unwrap();
    assert_eq!(json["reason"], "schedule");
    json.as_object_mut().unwrap().remove("reason");
    assert_eq!(serde_json::from_value::<Manifest>(json).unwrap().reason, Reason::Request);
}

#[tokio::test]
async fn a_stop_ends_the_copy_of_the_database_the_check_and_the_verification() {
    let data = Data::new().await;
    let conn = Connection::open(data.path("belay.db")).unwrap();
    conn.execute_batch(
        "CREATE TABLE much (x);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
         INSERT INTO much SELECT randomblob(1000) FROM n;",
    )
    .unwrap();
    let (stop, to) = (Stop::default(), data.path("copy.db"));
    let (copying, from, copy) = (stop.clone(), data.path("belay.db"), to.clone());
    let copier = std::thread::spawn(move || snapshot(&from, &copy, &copying));
    while !std::fs::metadata(&to).is_ok_and(|found| found.len() > 0) && !copier.is_finished() {
        std::thread::yield_now();
    }
    while !copier.is_finished() {
        stop.stop();
        std::thread::yield_now();
    }
    let stopped = copier.join().unwrap();
    assert!(matches!(stopped, Err(BackupError::Stopped)), "{stopped:?}");
    let whole = std::fs::metadata(data.path("belay.db")).unwrap().len();
    assert!(std::fs::metadata(&to).map_or(0, |found| found.len()) < whole, "it ended before the copy was complete");

    conn.execute_batch("DROP TABLE much").unwrap();
    let created = data.backup("one.tar.gz").unwrap();
    for stopped in [
        read::verify_at(&created.path, data.directory.path(), &stop).map(|_| ()),
        read::check_database(&data.path("belay.db"), &created.path, &stop).map(|_| ()),
        snapshot(&data.path("belay.db"), &data.path("another.db"), &stop),
    ] {
        assert!(matches!(stopped, Err(BackupError::Stopped)), "{stopped:?}");
    }
}

#[tokio::test]
async fn without_hard_links_files_are_copied_and_a_backup_gets_its_name_by_a_rename_that_replaces_nothing() {
    use rustix::io::Errno;
    let data = Data::new().await;
    for (number, errno) in [Errno::PERM, Errno::OPNOTSUPP].into_iter().enumerate() {
        let link = |_: &Path, _: &Path| Err(io::Error::from(errno));
        let to = data.path(&format!("copies-{number}"));
        std::fs::create_dir(&to).unwrap();
        for _ in 0..2 {
            links::link_files(&data.path("attachments"), &to, &Stop::default(), &link).unwrap();
        }
        assert_eq!(std::fs::read(to.join(&data.digest)).unwrap(), b"a file");
        let (new, name) = (data.path("new.part"), data.path(&format!("new-{number}.tar.gz")));
        std::fs::write(&new, "new").unwrap();
        links::publish(&new, &name, &link).unwrap();
        std::fs::write(&new, "another").unwrap();
        assert_eq!(links::publish(&new, &name, &link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&name).unwrap(), b"new");
    }
    let full = links::link_files(&data.path("attachments"), &data.path("backups"), &Stop::default(), &|_, _| {
        Err(io::ErrorKind::StorageFull.into())
    });
    assert!(matches!(full, Err(BackupError::Io { .. })), "{full:?}");
}

/// Runs in a thread and fails if it blocks.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    result.recv_timeout(std::time::Duration::from_secs(300)).expect("it does not block")
}

#[tokio::test]
async fn a_pipe_in_place_of_a_file_blocks_no_backup() {
    let data = Data::new().await;
    std::fs::create_dir(data.path("backups")).unwrap();
    let pipes = ["backups/.belay-backup-x.tar.gz.part", "pipe.toml", ".backup-staging-belay.db-x", "pipe.tar.gz"];
    for pipe in pipes.map(|name| data.path(name)) {
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }
    let sources = Sources { settings: vec![data.path("pipe.toml"), data.path("belay.toml")], ..data.sources() };
    let target = data.path("backups/one.tar.gz");
    let created = in_time(move || create(&sources, &target, LABEL, &Stop::default(), &mut |_, _| {})).unwrap();
    let settings = created.manifest.entries.iter().filter(|entry| entry.origin.is_some()).count();
    assert_eq!(settings, 1, "the regular file");
    let pipe = data.path("pipe.tar.gz");
    assert!(matches!(in_time(move || manifest_of(&pipe)), Err(BackupError::Damaged { .. })));
}

#[tokio::test]
async fn triggers_and_views_that_the_schema_does_not_have_are_refused() {
    let data = Data::new().await;
    let known = data.backup("known.tar.gz").unwrap();
    verify(&known.path).unwrap(); // the schema has triggers
    let text: String = Connection::open(data.path("belay.db"))
        .unwrap()
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'notes_deleted'", [], |row| row.get(0))
        .unwrap();
    for (sql, undo, named) in [
        ("CREATE TRIGGER t AFTER INSERT ON freezes BEGIN DELETE FROM freezes; END", "DROP TRIGGER t", "trigger \"t\""),
        ("CREATE VIEW v AS SELECT 1", "DROP VIEW v", "view \"v\""),
        (
            "DROP TRIGGER notes_deleted; CREATE TRIGGER notes_deleted AFTER DELETE ON notes BEGIN SELECT 1; END",
            "DROP TRIGGER notes_deleted",
            "trigger \"notes_deleted\"",
        ),
    ] {
        let conn = Connection::open(data.path("belay.db")).unwrap();
        conn.execute_batch(sql).unwrap();
        let refused = read::check_database(&data.path("belay.db"), &known.path, &Stop::default()).unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. }), "{refused:?}");
        assert!(refused.to_string().contains(named), "{refused}");
        conn.execute_batch(undo).unwrap();
    }
    let conn = Connection::open(data.path("belay.db")).unwrap();
    conn.execute_batch(&text).unwrap();
    read::check_database(&data.path("belay.db"), &known.path, &Stop::default()).unwrap();
}

#[tokio::test]
async fn a_database_without_a_table_a_column_or_an_index_of_its_schema_is_refused_and_restored_nowhere() {
    let data = Data::new().await;
    data.store.close().await;
    let whole = std::fs::read(data.path("belay.db")).unwrap();
    let one: String = Connection::open(data.path("belay.db"))
        .unwrap()
        .query_row("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL", [], |row| row.get(0))
        .unwrap();
    for (sql, named) in [
        ("DROP TABLE uploads".to_owned(), "not the table \"uploads\""),
        ("ALTER TABLE freezes DROP COLUMN receipt".to_owned(), "another form of the table \"freezes\""),
        ("ALTER TABLE freezes RENAME COLUMN detail TO details".to_owned(), "another form of the table \"freezes\""),
        (format!("DROP INDEX {one}"), "not the index"),
    ] {
        let changed = data.path("changed.db");
        std::fs::write(&changed, &whole).unwrap();
        Connection::open(&changed).unwrap().execute_batch(&sql).unwrap();
        let refused = read::check_database(&changed, &changed, &Stop::default()).unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. }), "{refused:?}");
        assert!(refused.to_string().contains(named) && refused.to_string().contains("schema 1"), "{refused}");
        // The same as the snapshot of a migration: nothing is replaced.
        let to = tempfile::tempdir().unwrap();
        std::fs::rename(&changed, to.path().join("belay.db.before-v2")).unwrap();
        let refused = restore_before_migration(&Place::in_directory(to.path()), NOW);
        assert!(matches!(refused, Err(BackupError::Damaged { .. })), "{refused:?}");
        assert!(!to.path().join("belay.db").exists());
    }
    // What people add themselves, and statistics, are no damage.
    let conn = Connection::open(data.path("belay.db")).unwrap();
    conn.execute_batch("CREATE TABLE mine (x); ANALYZE").unwrap();
    read::check_database(&data.path("belay.db"), &data.path("belay.db"), &Stop::default()).unwrap();
}
