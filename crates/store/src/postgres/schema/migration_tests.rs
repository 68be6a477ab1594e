//! Migrations of a program that does not exist yet, beside nodes of this one.

use std::sync::mpsc;
use std::thread;

use belay_protocol::store::ClusterStore;
use belay_protocol::{BootId, EventKind, EventLog, NewEvent, StoreError, UnixMillis};

use super::super::register::{NewNode, register_as};
use super::super::testing::{LIMITS, Server};
use super::*;
use crate::sql::{ClusterOptions, PostgresLimits, SqlStore, StoreOptions};

/// A migration that older programs can live with.
const ADDS: Migration = Migration {
    sql: "CREATE TABLE extras (id BIGINT PRIMARY KEY);
          ALTER TABLE events ADD COLUMN extra BIGINT NOT NULL DEFAULT 7",
    oldest_beside: 1,
};

/// A migration that they cannot live with.
const REMOVES: Migration = Migration { sql: "DROP TABLE handled_inputs", oldest_beside: 2 };

/// The first migration, and another one.
fn with(second: Migration) -> [Migration; 2] {
    [Migration { sql: SCHEMA, oldest_beside: 1 }, second]
}

const IN_CLUSTER: Opening = Opening { exclusive: false, ..Opening::ALONE };

const HOUR: Duration = Duration::from_secs(3_600);

fn node(name: &str) -> NewNode {
    NewNode { boot: BootId::new(), name: name.into(), version: "1.2.3".into(), settings: "same".into() }
}

/// Writes an event, and waits for its commit.
async fn write(store: &SqlStore) -> Result<(), StoreError> {
    let kind = EventKind::ToolStateChanged {
        name: "clock".into(),
        on: true,
        actor: "rule".into(),
        detail: String::new(),
        until_ms: None,
    };
    store.append(vec![NewEvent { at: UnixMillis(1), session: None, run_id: None, kind }]).await?;
    // It waits for the transactions before its own.
    store.begin_drain(BootId::new()).await
}

/// A schema of this program on the shared server.
struct Place {
    server: Server,
    name: String,
    url: PostgresUrl,
}

/// The place, and a connection of the test.
struct Database {
    place: Place,
    conn: PgConnection,
}

impl Database {
    /// `None`: there is no PostgreSQL here.
    fn new() -> Option<Self> {
        let server = Server::shared()?;
        let (mut conn, name) = server.fresh();
        open(&mut conn, &name, Opening::ALONE).unwrap();
        let url = PostgresUrl::parse(&server.url(&name)).unwrap();
        Some(Self { place: Place { server, name, url }, conn })
    }

    /// The first column of the first row.
    fn number(&mut self, sql: &str) -> i64 {
        column(&self.conn.query(sql, &[], &[]).unwrap()[0], 0).unwrap()
    }

    fn version(&mut self) -> (i64, i64) {
        (self.number("SELECT version FROM belay_schema"), self.number("SELECT oldest_program FROM belay_schema"))
    }
}

impl Place {
    fn connect(&self) -> PgConnection {
        self.server.connect(&self.name).unwrap()
    }

    /// As `belay upgrade check` of the program with these migrations.
    fn inspect(&self, migrations: &[Migration]) -> Result<Inspected, OpenError> {
        inspect_as(&mut self.connect(), &self.name, migrations)
    }

    fn register(&self, program: Program, name: &str) -> Result<(), OpenError> {
        register_as(&self.url, program, &node(name), HOUR).map(drop)
    }

    /// A start of the program with these migrations.
    fn start(&self, migrations: &[Migration], opening: Opening) -> Result<Opened, OpenError> {
        open_as(&mut self.connect(), &self.name, migrations, opening)
    }

    /// As [`start`](Self::start), which waits for older nodes. `waits` hears of each attempt.
    fn start_after(&self, migrations: &[Migration], waits: &mpsc::Sender<String>) -> Opened {
        let mut conn = self.connect();
        loop {
            match open_as(&mut conn, &self.name, migrations, IN_CLUSTER) {
                Err(OpenError::OlderNodes { nodes, .. }) => waits.send(nodes).unwrap(),
                Err(OpenError::Locked { .. }) => {} // the connection of an inspection has not ended yet
                opened => return opened.unwrap(),
            }
        }
    }

    async fn store(&self) -> SqlStore {
        let (url, cluster) = (self.url.clone(), ClusterOptions { boot: BootId::new() });
        let limits = PostgresLimits { connections: 1, statement: LIMITS.statement, lock: LIMITS.lock };
        let connect = move || SqlStore::connect_cluster(&url, limits, StoreOptions::default(), cluster);
        tokio::task::spawn_blocking(connect).await.unwrap().unwrap()
    }
}

#[test]
fn a_migration_waits_for_older_nodes_and_two_newer_nodes_migrate_once() {
    let newer = with(REMOVES);
    for end in ["ended_at = 1, ended_by = 'drain'", "lease_until = 0"] {
        let Some(mut database) = Database::new() else { return };
        database.place.register(program(), "old").unwrap();
        let refused = database.place.start(&newer, IN_CLUSTER).unwrap_err();
        assert!(matches!(refused, OpenError::OlderNodes { found: 1, own: 2, .. }), "{refused}");
        assert!(
            refused.to_string().contains("from schema 1 to 2") && refused.to_string().contains("old (version 1.2.3)")
        );
        assert_eq!(database.place.inspect(&newer).unwrap().waits_for, ["old"]);

        let (first, second) = (mpsc::channel(), mpsc::channel());
        let mut other = database.place.connect();
        let (place, migrations) = (&database.place, &newer);
        let opened = thread::scope(|scope| {
            let starts = [&first, &second].map(|(waits, _)| scope.spawn(move || place.start_after(migrations, waits)));
            for (_, waits) in [&first, &second] {
                assert_eq!(waits.recv().unwrap(), "old (version 1.2.3)");
            }
            other.batch(&format!("UPDATE nodes SET {end}")).unwrap();
            starts.map(|start| start.join().unwrap())
        });
        let migrated: Vec<_> = opened.iter().filter_map(|opened| opened.migrated_from).collect();
        assert_eq!((migrated, opened.map(|opened| opened.version)), (vec![1], [2, 2]));
        assert_eq!(database.version(), (2, 2));
        assert_eq!(database.number("SELECT COUNT(*) FROM nodes WHERE ended_at IS NULL"), 0);

        let too_old = |error: &OpenError| matches!(error, OpenError::Newer { found: 2, oldest: 2, known: 1 });
        let refused = database.place.start(MIGRATIONS, IN_CLUSTER).unwrap_err();
        assert!(too_old(&refused) && refused.to_string().contains("belay upgrade check"), "{refused}");
        assert!(too_old(&database.place.register(program(), "old").unwrap_err()));
        assert!(too_old(&database.place.inspect(MIGRATIONS).unwrap_err()));
        database.place.register(program_of(&newer), "new").unwrap();
        let range = "SELECT schema_min * 10 + schema_max FROM nodes WHERE name = 'new'";
        assert_eq!(database.number(range), 12);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_only_adds_is_done_beside_older_nodes_which_keep_working() {
    let newer = with(ADDS);
    let Some(mut database) = tokio::task::block_in_place(Database::new) else { return };
    let store = database.place.store().await;
    write(&store).await.unwrap();
    tokio::task::block_in_place(|| {
        database.place.register(program(), "old").unwrap();
        let inspected = database.place.inspect(&newer).unwrap();
        assert_eq!((inspected.version, inspected.known, inspected.waits_for), (Some(1), 2, vec![]));
        let opened = database.place.start(&newer, IN_CLUSTER).unwrap();
        assert_eq!((opened.version, opened.migrated_from), (2, Some(1)));
        assert_eq!(database.version(), (2, 1));
    });
    // A node of this program that works, one that starts, and its inspection.
    write(&store).await.unwrap();
    let another = database.place.store().await;
    write(&another).await.unwrap();
    tokio::task::block_in_place(|| {
        assert_eq!(database.number("SELECT SUM(extra) FROM events"), 21);
        database.place.register(program(), "another").unwrap();
        let inspected = database.place.inspect(MIGRATIONS).unwrap();
        assert_eq!((inspected.version, inspected.known), (Some(2), 1));
        // A copy of all tables would lack the new one.
        let copied = database.place.start(MIGRATIONS, Opening { exact: true, ..IN_CLUSTER }).unwrap_err();
        assert!(matches!(copied, OpenError::Newer { found: 2, oldest: 2, known: 1 }), "{copied}");
        database.conn.batch("ALTER TABLE extras SET UNLOGGED").unwrap();
        assert!(matches!(database.place.start(MIGRATIONS, IN_CLUSTER), Err(OpenError::PostgresUnlogged { .. })));
    });
    store.close().await;
    another.close().await;
    tokio::task::block_in_place(|| drop(database));
}

#[test]
fn a_node_that_registers_during_a_migration_sees_its_result() {
    let newer = with(REMOVES);
    let Some(mut database) = Database::new() else { return };
    let mut migrating = database.place.connect();
    migrating.begin().unwrap();
    let opened = open_locked(&mut migrating, &database.place.name, &newer, IN_CLUSTER).unwrap();
    assert_eq!(opened.migrated_from, Some(1));
    let mut observer = database.place.connect();
    let place = &database.place;
    let refused = thread::scope(|scope| {
        let registration = scope.spawn(|| place.register(program(), "old"));
        let waiting = "SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                       WHERE l.locktype = 'advisory' AND NOT l.granted AND a.application_name = 'belay register'
                         AND (CAST(l.classid AS BIGINT) << 32) | CAST(l.objid AS BIGINT)
                             = hashtextextended(current_schema() || ' nodes', 0)";
        while column::<i64>(&observer.query(waiting, &[], &[]).unwrap()[0], 0).unwrap() == 0 {
            assert!(!registration.is_finished(), "it waits for the migration");
        }
        migrating.commit().unwrap();
        registration.join().unwrap().unwrap_err()
    });
    assert!(matches!(refused, OpenError::Newer { found: 2, oldest: 2, known: 1 }), "{refused}");
    assert_eq!(database.number("SELECT COUNT(*) FROM nodes"), 0);
}

#[test]
fn a_daemon_that_uses_the_database_alone_delays_each_migration_and_a_failed_one_changes_nothing() {
    let Some(mut database) = Database::new() else { return };
    let mut daemon = database.place.connect();
    for (lock, refused) in [("_shared", [true, false]), ("", [true, true])] {
        daemon.query(&format!("SELECT CAST(pg_advisory_lock{lock}({WRITER_LOCK}) AS TEXT)"), &[], &[]).unwrap();
        for (opening, refused) in [Opening::ALONE, IN_CLUSTER].into_iter().zip(refused) {
            let broken = with(Migration { sql: "DROP TABLE pings; SELECT 1 / 0", oldest_beside: 1 });
            let error = database.place.start(&broken, opening).unwrap_err();
            assert_eq!(matches!(error, OpenError::Locked { .. }), refused, "{lock} {opening:?}: {error}");
            assert_eq!(database.version(), (1, 1));
            assert_eq!(database.number("SELECT COUNT(*) FROM pings"), 1);
        }
        daemon.batch("SELECT pg_advisory_unlock_all()").unwrap();
    }
    // Rows of a cluster that was killed do not count for a daemon that has the database alone.
    database.place.register(program(), "old").unwrap();
    assert_eq!(database.place.start(&with(REMOVES), Opening::ALONE).unwrap().migrated_from, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_connects_again_after_a_migration_which_it_does_not_understand_writes_nothing() {
    let Some(mut database) = tokio::task::block_in_place(Database::new) else { return };
    let store = database.place.store().await;
    write(&store).await.unwrap();
    tokio::task::block_in_place(|| {
        let migrate = "UPDATE belay_schema SET version = 2, oldest_program = 2";
        database.conn.batch(migrate).unwrap();
        let end = "SELECT CASE WHEN pg_terminate_backend(pid, 60000) THEN 1 ELSE 0 END FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name LIKE 'belay write %'
                     AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'
                                 AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = ";
        assert_eq!(database.number(&format!("{end}{WRITER_LOCK})")), 1);
    });
    let mut refused = String::new();
    while !refused.contains("schema 2") {
        refused = write(&store).await.unwrap_err().to_string();
    }
    store.close().await;
    tokio::task::block_in_place(|| {
        assert_eq!(database.number("SELECT COUNT(*) FROM events"), 1);
        drop(database);
    });
}

#[test]
fn a_schema_of_a_newer_program_is_created_with_its_demand() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    let newer = with(REMOVES);
    let opened = open_as(&mut conn, &name, &newer, IN_CLUSTER).unwrap();
    assert_eq!((opened.version, opened.created, opened.migrated_from), (2, true, None));
    assert!(!open_as(&mut conn, &name, &newer, IN_CLUSTER).unwrap().created);
    let refused = open(&mut conn, &name, IN_CLUSTER).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 2, oldest: 2, known: 1 }), "{refused}");
}
