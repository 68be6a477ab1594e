//! Tests against a server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::connection::PgConnection;
use super::fault::{Cause, Ended};
use super::params::value;
use super::testing::{LIMITS, Server};
use super::url::PostgresUrl;
use crate::value::{Kind, Param, Params, Value, ValueRef, named_params, params};

/// The values of all rows.
fn values(conn: &mut PgConnection, sql: &str, params: &[Param<'_>]) -> Vec<Vec<Value>> {
    use crate::value::FromValue;
    let rows = conn.query(sql, &[], params).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let read = |row| (0..).map_while(|at| value(row, at).ok()).map(|value| Value::from_value(value).unwrap()).collect();
    rows.iter().map(read).collect()
}

#[test]
fn values_come_back_as_they_were_written() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE TABLE t (i BIGINT, r FLOAT8, t TEXT COLLATE \"C\", b BYTEA)").unwrap();
    let id = uuid::Uuid::now_v7();
    let long = "é".repeat(100_000);
    for written in [
        params![i64::MIN, 1.5, "a'b\\c\n", id],
        params![i64::MAX, -0.0, long.as_str(), vec![0_u8, 255]],
        params![None::<i64>, None::<f64>, None::<String>, None::<uuid::Uuid>],
        params![true, 2.0, "", Vec::<u8>::new()],
    ] {
        assert_eq!(conn.execute("INSERT INTO t (i, r, t, b) VALUES (?1, ?2, ?3, ?4)", &[], &written), Ok(1));
        let found = values(&mut conn, "DELETE FROM t RETURNING i, r, t, b", &[]);
        let expected: Vec<Value> = written
            .iter()
            .map(|param| match param {
                Param::Null(_) => Param::Null(Kind::Text),
                Param::Int(int) => Param::Int(*int),
                Param::Real(real) => Param::Real(*real),
                Param::Text(text) => Param::Text(text.clone().into_owned().into()),
                Param::Blob(bytes) => Param::Blob(bytes.clone().into_owned().into()),
                Param::Id(id) => Param::Blob(id.as_bytes().to_vec().into()),
            })
            .collect();
        assert_eq!(found, [expected]);
    }
    conn.execute("INSERT INTO t (t) VALUES (?1)", &[], &params!["a\0b"]).unwrap();
    assert_eq!(values(&mut conn, "SELECT t FROM t", &[]), [[Param::Text("a\u{fffd}b".into())]]);
    let others = "SELECT CAST(1 AS SMALLINT), CAST(2 AS INT4), TRUE, CAST(0.5 AS FLOAT4), CAST('n' AS NAME), SUM(x)
                  FROM (VALUES (?1), (?1)) AS v (x)";
    let expected =
        [Param::Int(1), Param::Int(2), Param::Int(1), Param::Real(0.5), Param::Text("n".into()), Param::Int(-80_000)];
    assert_eq!(values(&mut conn, others, &params![-40_000_i64]), [expected]);
    let row = conn.query("SELECT SUM(x) FROM (VALUES (?1), (?1)) AS v (x)", &[], &params![i64::MAX]).unwrap();
    assert_eq!(value(&row[0], 0).unwrap_err().cause(), Cause::Value);
    assert!(value(&row[0], 7).is_err());
}

#[test]
fn a_statement_is_prepared_once_for_each_kind_of_parameters() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    let before = conn.prepared_statements();
    for _ in 0..3 {
        conn.query("SELECT ?1", &[], &params![1_i64]).unwrap();
        conn.query("SELECT ?1", &[], &params![None::<i64>]).unwrap();
        conn.query("SELECT ?1", &[], &params!["a"]).unwrap();
    }
    assert_eq!(conn.prepared_statements() - before, 2);
    for n in 0..600 {
        conn.query(&format!("SELECT {n}"), &[], &[]).unwrap();
    }
    assert_eq!(conn.prepared_statements(), 512);
    let kept = values(&mut conn, "SELECT COUNT(*) FROM pg_prepared_statements", &[]);
    assert!(matches!(kept[0][0], Param::Int(500..=513)), "{kept:?}");
    assert_eq!(values(&mut conn, "SELECT ?1", &params!["still"]), [[Param::Text("still".into())]]);
    let named = named_params! { ":a": 1_i64, ":b": "x" };
    let rows = conn.query("SELECT :b, :a, :b", named.names(), named.values()).unwrap();
    assert_eq!(value(&rows[0], 1), Ok(ValueRef::Int(1)));
    assert_eq!(value(&rows[0], 2), Ok(ValueRef::Text("x")));
    let turned = named_params! { ":b": 2_i64, ":a": "y" };
    let rows = conn.query("SELECT :b, :a, :b", turned.names(), turned.values()).unwrap();
    assert_eq!(value(&rows[0], 2), Ok(ValueRef::Int(2)));
}

#[test]
fn posted_statements_are_executed_in_order_and_commit_together() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    let mut other = server.connect(&name).unwrap();
    conn.batch("CREATE TABLE t (n BIGINT PRIMARY KEY)").unwrap();
    conn.begin().unwrap();
    for n in 0..1000_i64 {
        conn.post("INSERT INTO t VALUES (?1)", &[], &params![n]).unwrap();
        assert!(conn.posted() <= 256);
    }
    assert!(conn.posted() > 100, "they wait for no answer");
    assert_eq!(values(&mut conn, "SELECT COUNT(*), MAX(n) FROM t", &[]), [[Param::Int(1000), Param::Int(999)]]);
    assert_eq!(values(&mut other, "SELECT COUNT(*) FROM t", &[]), [[Param::Int(0)]]);
    conn.post("DELETE FROM t WHERE n < ?1", &[], &params![10_i64]).unwrap();
    conn.commit().unwrap();
    assert_eq!(values(&mut other, "SELECT COUNT(*) FROM t", &[]), [[Param::Int(990)]]);
    assert!(conn.post("DELETE FROM t", &[], &[]).is_err(), "outside a transaction nothing is posted");
    let large = "x".repeat(700_000);
    conn.batch("CREATE TABLE l (t TEXT)").unwrap();
    conn.begin().unwrap();
    for _ in 0..10 {
        conn.post("INSERT INTO l VALUES (?1)", &[], &params![large.as_str()]).unwrap();
        assert!(conn.posted() <= 3, "large ones wait earlier"); // with BEGIN
    }
    conn.commit().unwrap();
    assert_eq!(values(&mut conn, "SELECT SUM(length(t)) FROM l", &[]), [[Param::Int(7_000_000)]]);
}

/// The server counts the time in which a large parameter arrives as a pause of the transaction.
#[test]
fn a_transaction_with_large_parameters_may_pause_for_longer() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE TABLE l (t TEXT)").unwrap();
    let setting = "current_setting('idle_in_transaction_session_timeout')";
    let insert = format!("INSERT INTO l VALUES (?1) RETURNING {setting}");
    let pause = |conn: &mut PgConnection, text: &str| {
        let found = values(conn, &insert, &params![text]);
        let [Param::Text(pause)] = &found[0][..] else { panic!("{found:?}") };
        pause.clone().into_owned()
    };
    let (small, large) = ("x".repeat(1000), "x".repeat(3 * 1024 * 1024));
    conn.begin().unwrap();
    assert_eq!(pause(&mut conn, &small), "1min");
    assert_eq!(pause(&mut conn, &large), "63s");
    assert_eq!(pause(&mut conn, &small), "1min", "it has arrived");
    conn.post("INSERT INTO l VALUES (?1)", &[], &params![&large[..1_000_000]]).unwrap();
    assert_eq!(pause(&mut conn, &large), "63s", "those that are sent together count together");
    conn.commit().unwrap();
    assert_eq!(pause(&mut conn, &large), "1min", "it ends with the transaction");
    conn.begin().unwrap();
    assert_eq!(pause(&mut conn, &large), "63s");
    conn.savepoint().unwrap();
    assert_eq!(pause(&mut conn, &small), "1min");
    conn.rollback_to_savepoint().unwrap();
    assert_eq!(pause(&mut conn, &small), "1min", "not that of the savepoint");
    conn.savepoint().unwrap();
    assert_eq!(pause(&mut conn, &large), "63s");
    conn.rollback_to_savepoint().unwrap();
    assert_eq!(pause(&mut conn, &large), "63s", "and it is granted again");
    conn.rollback().unwrap();
    conn.begin().unwrap();
    conn.may_pause(Duration::from_secs(2));
    assert_eq!(pause(&mut conn, &small), "62s");
    assert_eq!(pause(&mut conn, &large), "63s");
    assert_eq!(pause(&mut conn, &small), "62s");
    conn.commit().unwrap();
    assert_eq!(pause(&mut conn, &small), "1min");
}

#[test]
fn the_rows_of_a_query_that_was_asked_are_read_after_a_later_statement() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE TABLE t (n BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let first = |rows: Vec<tokio_postgres::Row>| match value(&rows[0], 0) {
        Ok(ValueRef::Int(n)) => n,
        other => panic!("{other:?}"),
    };
    for (commits, prepared) in [(true, false), (true, true), (false, true)] {
        conn.begin().unwrap();
        let one = conn.ask("SELECT MAX(n) FROM t WHERE n = ?1", &[], &params![1_i64]).unwrap();
        let none = conn.ask("SELECT n FROM t WHERE n = ?1", &[], &params![9_i64]).unwrap();
        assert!(!prepared || (conn.posted() >= 2 && !conn.has_answer(one)), "they wait for no answer");
        conn.execute("UPDATE t SET n = n + 1", &[], &[]).unwrap();
        assert!(conn.has_answer(one) && conn.has_answer(none));
        assert_eq!(conn.answer(none).unwrap().len(), 0);
        assert_eq!(first(conn.answer(one).unwrap()), 1, "as it was before the later statement");
        assert!(conn.answer(one).is_err(), "an answer is read once");
        let alone = conn.ask("SELECT n FROM t", &[], &[]).unwrap();
        assert_eq!(first(conn.answer(alone).unwrap()), 2, "it waits");
        let unread = conn.ask("SELECT n FROM t", &[], &[]).unwrap();
        if commits {
            conn.execute("UPDATE t SET n = 1", &[], &[]).unwrap();
            conn.commit().unwrap();
        } else {
            let failing = conn.ask("SELECT 1 / (n - 2) FROM t", &[], &[]).unwrap();
            assert!(conn.answer(failing).is_err());
            assert!(conn.commit().is_err(), "the failure of a query ends the transaction");
            conn.rollback().unwrap();
        }
        conn.begin().unwrap();
        assert!(conn.answer(unread).is_err(), "it belongs to the transaction before");
        conn.rollback().unwrap();
    }
    assert_eq!(values(&mut conn, "SELECT n FROM t", &[]), [[Param::Int(1)]]);
    assert!(conn.ask("SELECT 1", &[], &[]).is_err(), "outside a transaction nothing is asked");
}

#[test]
fn the_failure_of_a_posted_statement_is_returned_and_nothing_is_committed() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE TABLE t (n BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let insert = "INSERT INTO t VALUES (?1)";
    for by_commit in [true, false] {
        conn.begin().unwrap();
        conn.post(insert, &[], &params![2_i64]).unwrap();
        conn.post(insert, &[], &params![1_i64]).unwrap();
        conn.post(insert, &[], &params![3_i64]).unwrap();
        let error = if by_commit {
            conn.commit().unwrap_err()
        } else {
            let error = conn.query("SELECT 1", &[], &[]).unwrap_err();
            // The server would answer this with a rollback, and no error.
            assert_eq!(conn.commit().unwrap_err().cause(), Cause::Aborted);
            error
        };
        assert_eq!(
            (error.cause(), error.ended(), error.code()),
            (Cause::Constraint, Ended::Transaction, Some("23505"))
        );
        assert!(!error.may_be_committed());
        assert_eq!(values(&mut conn, "SELECT n FROM t", &[]), [[Param::Int(1)]]);
    }
}

#[test]
fn a_failed_job_is_rolled_back_to_its_savepoint() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE TABLE t (n BIGINT PRIMARY KEY)").unwrap();
    let insert = "INSERT INTO t VALUES (?1)";
    conn.begin().unwrap();
    for (n, good) in [(1_i64, true), (1, false), (2, true)] {
        conn.savepoint().unwrap();
        assert_eq!(conn.execute(insert, &[], &params![n]).is_ok(), good, "{n}");
        if good { conn.release_savepoint().unwrap() } else { conn.rollback_to_savepoint().unwrap() }
    }
    conn.commit().unwrap();
    assert_eq!(values(&mut conn, "SELECT n FROM t ORDER BY n", &[]), [[Param::Int(1)], [Param::Int(2)]]);
    conn.begin().unwrap();
    conn.post(insert, &[], &params![9_i64]).unwrap();
    conn.rollback().unwrap();
    assert_eq!(values(&mut conn, "SELECT COUNT(*) FROM t", &[]), [[Param::Int(2)]]);
}

#[test]
fn limits_of_locks_and_statements_end_a_statement() {
    let Some(server) = Server::shared() else { return };
    let (mut holder, name) = server.fresh();
    holder.batch("CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1)").unwrap();
    holder.begin().unwrap();
    holder.execute("UPDATE t SET n = 2", &[], &[]).unwrap();
    let url = PostgresUrl::parse(&server.url(&name)).unwrap();
    let limits = super::connect::Limits { lock: Duration::from_millis(50), ..LIMITS };
    let mut waiter = PgConnection::connect(&url, &limits, "waiter").unwrap();
    let error = waiter.execute("UPDATE t SET n = 3", &[], &[]).unwrap_err();
    assert_eq!(error.cause(), Cause::LockTimeout);
    let limits = super::connect::Limits { statement: Duration::from_millis(50), ..LIMITS };
    let mut slow = PgConnection::connect(&url, &limits, "slow").unwrap();
    let error = slow.query("SELECT CAST(pg_sleep(60) AS TEXT)", &[], &[]).unwrap_err();
    assert_eq!(error.cause(), Cause::Timeout);
    assert!(!slow.is_broken());
}

#[test]
fn a_connection_that_the_server_ends_is_reported_as_lost() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    let mut other = server.connect(&name).unwrap();
    let end = |conn: &mut PgConnection, other: &mut PgConnection| {
        let pid = values(conn, "SELECT pg_backend_pid()", &[])[0][0].clone();
        other.query("SELECT pg_terminate_backend(CAST(?1 AS INT4), 60000)", &[], &[pid]).unwrap();
    };
    end(&mut conn, &mut other);
    let error = conn.query("SELECT 1", &[], &[]).unwrap_err();
    assert_eq!((error.cause(), error.ended()), (Cause::Lost, Ended::Connection), "{error}");
    assert!(conn.is_broken() && !error.may_be_committed());
    assert_eq!(conn.begin().and_then(|()| conn.commit()).unwrap_err().ended(), Ended::Connection);
    // During a commit, nobody knows.
    let (mut conn, _) = server.fresh();
    conn.begin().unwrap();
    end(&mut conn, &mut other);
    let error = conn.commit().unwrap_err();
    assert!(error.may_be_committed() && error.ended() == Ended::Connection, "{error}");
}

#[test]
fn deadlocks_and_read_only_transactions_are_told_apart() {
    let Some(server) = Server::shared() else { return };
    let counted = Arc::<AtomicU64>::default();
    let (first, name) = server.fresh();
    let mut first = first.counting(counted.clone());
    let mut second = server.connect(&name).unwrap().counting(counted.clone());
    first.batch("CREATE TABLE t (n BIGINT PRIMARY KEY, v BIGINT); INSERT INTO t VALUES (1, 0), (2, 0)").unwrap();
    let update = "UPDATE t SET v = v + 1 WHERE n = ?1";
    first.begin().unwrap();
    second.begin().unwrap();
    first.execute(update, &[], &params![1_i64]).unwrap();
    second.execute(update, &[], &params![2_i64]).unwrap();
    let blocked = std::thread::spawn(move || first.execute(update, &[], &params![2_i64]).map(|_| first));
    let own = second.execute(update, &[], &params![1_i64]);
    let _ = second.rollback();
    let other = blocked.join().unwrap();
    let error = own.err().or(other.err()).expect("one of both fails");
    assert_eq!(error.cause(), Cause::Conflict);
    assert_eq!(counted.load(Ordering::Relaxed), 1, "the server ends one of both");
    second.batch("SET default_transaction_read_only = on").unwrap();
    let error = second.execute(update, &[], &params![1_i64]).unwrap_err();
    assert_eq!(error.cause(), Cause::ReadOnly);
}

#[test]
fn failures_to_connect_say_the_next_step_and_no_password() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    conn.batch("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'").unwrap();
    conn.batch("CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on").unwrap();
    conn.batch("CREATE ROLE group_of NOLOGIN").unwrap();
    // What a session of a pooler in transaction mode looks like.
    conn.batch("CREATE ROLE pooled LOGIN; ALTER ROLE pooled SET belay.session = 'set'").unwrap();
    let good = server.url(&name);
    for (address, cause, word) in [
        ("postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable".to_owned(), Cause::Unreachable, "127.0.0.1:1"),
        (good.replace("/postgres?", "/missing?"), Cause::NoDatabase, "CREATE DATABASE"),
        (good.replace("/postgres?", "/latin?"), Cause::Other, "UTF8"),
        (good.replace("belay@", "nobody:hunter2@"), Cause::Login, "the user and the password"),
        (good.replace("belay@", "group_of:hunter2@"), Cause::Login, "not permitted to log in"),
        (good.replace("belay@", "reader@"), Cause::ReadOnly, "primary"),
        (good.replace("belay@", "pooled@"), Cause::Pooler, "pool_mode = session"),
        (format!("{good}&passfile=/missing"), Cause::Login, "passfile"),
    ] {
        let url = PostgresUrl::parse(&address).unwrap();
        let error = PgConnection::connect(&url, &LIMITS, "belay test").err().unwrap_or_else(|| panic!("{address}"));
        assert_eq!(error.cause(), cause, "{address}: {error}");
        assert!(error.to_string().contains(word) && !error.to_string().contains("hunter2"), "{address}: {error}");
    }
    // The second server is used when the first one is away.
    let two = good.replace("host=", "host=/missing,");
    assert!(PgConnection::connect(&PostgresUrl::parse(&two).unwrap(), &LIMITS, "belay test").is_ok());
}

#[test]
fn the_session_has_its_parameters() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, name) = server.fresh();
    let setting = "SELECT current_setting(?1)";
    for (parameter, expected) in [
        ("search_path", name.as_str()),
        ("statement_timeout", "1min"),
        ("lock_timeout", "1min"),
        ("idle_in_transaction_session_timeout", "1min"),
        ("default_transaction_isolation", "read committed"),
        ("synchronous_commit", "on"),
        ("client_encoding", "UTF8"),
        ("application_name", "belay test"),
    ] {
        let found = values(&mut conn, setting, &params![parameter]);
        assert_eq!(found, [[Param::Text(expected.to_owned().into())]], "{parameter}");
    }
}

#[test]
fn the_certificate_and_the_name_of_the_server_are_verified() {
    let Some(server) = Server::with_tls() else { return };
    let full = server.url("postgres");
    let (address, _) = full.split_once('?').unwrap();
    let root = |path: &Path| format!("sslrootcert={}", path.display());
    let (good, other) = (server.root_certificate().unwrap(), server.wrong_root_certificate().unwrap());
    for (host, parameter, expected) in [
        ("localhost", root(good), None),
        ("localhost", root(&other), Some("UnknownIssuer")),
        ("localhost", "sslmode=verify-full".into(), Some("UnknownIssuer")),
        // Another name of 127.0.0.1, which the certificate does not have.
        ("0x7f000001", root(good), Some("not valid for name")),
        ("localhost", root(&good.with_extension("missing")), Some("root.missing")),
        ("localhost", root(&good.with_extension("key")), Some("no certificate")),
    ] {
        let url = PostgresUrl::parse(&format!("{}?{parameter}", address.replace("127.0.0.1", host))).unwrap();
        match (PgConnection::connect(&url, &LIMITS, "belay test"), expected) {
            (Ok(mut conn), None) => {
                let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                assert_eq!(values(&mut conn, encrypted, &[]), [[Param::Int(1)]]);
            }
            (Err(error), Some(word)) => {
                assert_eq!(error.cause(), Cause::Tls, "{host} {parameter}: {error}");
                assert!(error.to_string().contains(word), "{host} {parameter}: {error}");
            }
            (found, _) => panic!("{host} {parameter}: {:?}", found.err()),
        }
    }
}

#[test]
fn the_password_comes_from_the_address_or_from_a_file() {
    let Some(server) = Server::shared() else { return };
    let port = server.port();
    let (mut conn, _) = server.fresh();
    conn.batch("CREATE ROLE scram LOGIN PASSWORD 'a:b@c/d'").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "localhost:*:*:scram:a\\:b@c/d\n").unwrap();
    let passfile = format!("&passfile={}", file.path().display());
    for (login, rest, good) in [
        ("scram:a%3Ab%40c%2Fd", "", true),
        ("scram", passfile.as_str(), true),
        ("scram:hunter2", "", false),
        ("scram", "", false),
    ] {
        let address = format!("postgres://{login}@localhost:{port}/postgres?sslmode=disable{rest}");
        match PgConnection::connect(&PostgresUrl::parse(&address).unwrap(), &LIMITS, "belay test") {
            Ok(_) => assert!(good, "{address}"),
            Err(error) => {
                assert!(!good && error.cause() == Cause::Login, "{address}: {error}");
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
        }
    }
}

#[test]
fn a_server_that_does_not_answer_loses_the_connection() {
    let Some(server) = Server::shared() else { return };
    let (mut conn, _) = server.fresh();
    conn.set_answer_limit(Duration::from_millis(50));
    let error = conn.query("SELECT CAST(pg_sleep(600) AS TEXT)", &[], &[]).unwrap_err();
    assert_eq!((error.cause(), error.ended(), conn.is_broken()), (Cause::Silent, Ended::Connection, true), "{error}");
    // The answer that comes later is nobody's.
    assert_eq!(conn.query("SELECT 1", &[], &[]).unwrap_err().cause(), Cause::Silent);
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("postgres://u@{}/d?sslmode=disable&connect_timeout=1", deaf.local_addr().unwrap());
    let error = PgConnection::connect(&PostgresUrl::parse(&address).unwrap(), &LIMITS, "belay test").err().unwrap();
    assert_eq!(error.cause(), Cause::Unreachable, "{error}");
}
