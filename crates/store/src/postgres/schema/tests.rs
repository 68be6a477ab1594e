use std::collections::BTreeSet;

use super::super::testing::Server;
use super::*;

/// Tables and their columns.
type Columns = BTreeSet<(String, String)>;

fn columns_of_postgres(conn: &mut PgConnection, name: &str) -> Columns {
    let sql = "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT) FROM information_schema.columns WHERE table_schema = ?1";
    let rows = conn.query(sql, &[], &params![name]).unwrap();
    rows.iter().map(|row| (column(row, 0).unwrap(), column(row, 1).unwrap())).collect()
}

fn columns_of_sqlite() -> Columns {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../sqlite/migrations/0001_schema.sql")).unwrap();
    let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c
               WHERE t.type = 'table' AND t.name NOT LIKE 'message_index%' AND t.name NOT LIKE 'sqlite_%'";
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The names of the indexes that a schema creates. The constraints have indexes too.
fn indexes_of(schema: &str) -> BTreeSet<&str> {
    let created =
        schema.lines().filter(|line| line.starts_with("CREATE INDEX") || line.starts_with("CREATE UNIQUE INDEX"));
    created.filter_map(|line| line.split(" INDEX ").nth(1)?.split(' ').next()).collect()
}

#[test]
fn both_engines_have_the_same_tables_columns_and_indexes() {
    let own = |columns: &Columns| {
        let of_postgres = ["belay_schema", "message_index", "writers"];
        let own = columns.iter().filter(|(table, _)| !of_postgres.contains(&table.as_str()));
        own.cloned().collect::<Columns>()
    };
    let sqlite = include_str!("../../sqlite/migrations/0001_schema.sql");
    let mut indexes = indexes_of(SCHEMA);
    assert!(indexes.remove("message_index_words"));
    assert_eq!(indexes, indexes_of(sqlite));
    let checks = |text: &str| text.matches("CHECK (").count();
    assert_eq!(checks(SCHEMA), checks(sqlite) + 2, "belay_schema has two more");
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    open(&mut conn, &name, Opening::ALONE).unwrap();
    assert_eq!(own(&columns_of_postgres(&mut conn, &name)), columns_of_sqlite());
}

#[test]
fn a_schema_is_created_once_also_by_daemons_that_start_together() {
    let Some(server) = Server::shared() else { return };
    let (mut first, name) = server.fresh();
    first.batch(&format!("DROP SCHEMA {name}")).unwrap(); // it may be missing, too
    let opened: Vec<Opened> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| open(&mut server.connect(&name).unwrap(), &name, Opening::ALONE).unwrap()))
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|opened| opened.created).count(), 1, "{opened:?}");
    assert!(opened.iter().all(|one| one.cluster == opened[0].cluster && one.version == 1), "{opened:?}");
}

#[test]
fn an_unsuitable_schema_is_refused_in_words() {
    let Some(server) = Server::shared() else { return };
    for (change, word) in [
        (
            "UPDATE belay_schema SET version = 99, oldest_program = 99",
            "schema 99, which needs a belay with schema 99 or newer",
        ),
        ("UPDATE belay_schema SET edition = 1", "unreleased"),
        ("DROP TABLE pings", "lacks the tables pings"),
        ("ALTER TABLE outbox SET UNLOGGED", "unlogged"),
        ("CREATE TABLE customers (id BIGINT)", "not Belay's (customers)"),
        ("CREATE VIEW customers AS SELECT 1", "not Belay's (customers)"),
        ("TRUNCATE indexed", "table indexed"),
        ("TRUNCATE belay_schema", "table belay_schema"),
        ("DROP TABLE belay_schema", "not Belay's"),
    ] {
        let (mut conn, name) = server.fresh();
        open(&mut conn, &name, Opening::ALONE).unwrap();
        conn.batch(change).unwrap();
        let error = open(&mut conn, &name, Opening::ALONE).expect_err(change).to_string();
        assert!(error.contains(word) && error.contains(&name) | error.contains("schema 99"), "{change}: {error}");
        // The connection is usable, and the refusal has changed nothing.
        assert_eq!(open(&mut conn, &name, Opening::ALONE).expect_err(change).to_string(), error);
    }
}

#[test]
fn triggers_delete_what_a_deleted_row_needs() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    open(&mut conn, &name, Opening::ALONE).unwrap();
    conn.batch(
        "INSERT INTO outbox (id, channel, conversation, text, file) VALUES ('\\x01', 'c', 'd', 't', '{}'), ('\\x02', 'c', 'd', 't', NULL);
         INSERT INTO blob_references VALUES ('\\x01', 'a'), ('\\x02', 'b');
         INSERT INTO notes (kind, channel, owner, at, untrusted, session, text) VALUES ('person', 'c', 'o', 1, 0, 's', 't');
         INSERT INTO note_embeddings VALUES (1, 'm', 1, '\\x00');
         DELETE FROM outbox; DELETE FROM notes",
    )
    .unwrap();
    let left = conn.query("SELECT digest FROM blob_references", &[], &[]).unwrap();
    assert_eq!(left.iter().map(|row| column::<String>(row, 0).unwrap()).collect::<Vec<_>>(), ["b"]);
    assert!(conn.query("SELECT 1 FROM note_embeddings", &[], &[]).unwrap().is_empty());
}
