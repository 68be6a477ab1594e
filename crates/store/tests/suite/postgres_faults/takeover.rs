//! The lock that keeps a second daemon away.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use belay_protocol::StoreHealth;

use super::*;
use crate::kit::*;

/// The address of the store of [`first_daemon`].
const ADDRESS: &str = "BELAY_TEST_FIRST_DAEMON";

/// The other process of the next test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_daemon() {
    let Some(address) = std::env::var_os(ADDRESS) else { return };
    let store = connect(address.to_str().unwrap(), LONG).await.unwrap();
    open(&store, "s").await;
    println!("\nopen");
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_is_refused_until_the_first_is_killed() {
    let Some(server) = shared() else { return };
    let database = TestDatabase::new(server).unwrap();
    let address = address(server, database.name(), server.port());
    let mut first = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres_faults::takeover::first_daemon", "--nocapture"])
        .env(ADDRESS, &address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    while lines.next().expect("it opens the store").unwrap() != "open" {}
    let refused = connect(&address, LONG).await.unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    first.kill().unwrap();
    let second = connect(&address, LONG).await.unwrap();
    assert_eq!(open(&second, "s").await.lease.epoch, 2, "the lane of the first");
    first.wait().unwrap();
    second.close().await;
    // An orderly end leaves no lock either.
    connect(&address, LONG).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_old_session_still_has_the_lock_takes_it_back() {
    let Some(Proxied { store, proxy, database }) = proxied(SHORT).await else { return };
    let lease = open(&store, "s").await.lease;
    // Neither side hears of the other any more; the server keeps the session, with its lock.
    proxy.freeze_open();
    accept(&store, &lease, queued("hi")).await;
    let count = "select count(*) from pg_locks where locktype = 'advisory' and granted and objsubid = 1
                 and database = (select oid from pg_database where datname = current_database())";
    assert_eq!(database.sql(count).unwrap(), "1");
    assert_eq!(database.sql("select count(*) from belay.runs").unwrap(), "1");
    store.ping().await.unwrap();
    store.close().await;
}

/// Another daemon got the lock while the network was down: this one must not write any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_another_one_has_replaced_gets_errors_until_that_one_ends() {
    let Some(Proxied { store, proxy, database }) = proxied(LONG).await else { return };
    let server = shared().unwrap();
    let lease = open(&store, "s").await.lease;
    proxy.refuse();
    proxy.cut_all();
    let other = loop {
        match connect(&address(server, database.name(), server.port()), LONG).await {
            Ok(other) => break other,
            Err(error) => assert!(matches!(error, OpenError::Locked { .. }), "{error}"),
        }
    };
    proxy.accept();
    let words = loop {
        let words = store.ping().await.unwrap_err().to_string();
        if words.contains("another daemon") {
            break words;
        }
    };
    assert!(words.contains("writes into the database"), "{words}");
    let now = open(&other, "s").await.lease;
    other.close().await;
    while is_unavailable(&store.ping().await) {}
    let stale = belay_protocol::LaneStore::accept(&store, &lease, queued("late")).await;
    assert!(matches!(stale, Err(StoreError::LeaseLost(_))), "{stale:?} {now:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_writers_of_long_ago_are_deleted_and_younger_ones_stay() {
    let Some(server) = shared() else { return };
    let database = TestDatabase::new(server).unwrap();
    let address = address(server, database.name(), server.port());
    connect(&address, LONG).await.unwrap().close().await;
    // Ids begin with the milliseconds since 1970: 1 January 2020.
    database.sql("insert into belay.writers values (decode('016f5e66e800700080000000000000aa', 'hex'), 7)").unwrap();
    connect(&address, LONG).await.unwrap().close().await;
    assert_eq!(database.sql("select count(*) from belay.writers").unwrap(), "2");
}
