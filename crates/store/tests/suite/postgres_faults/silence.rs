//! A daemon that stops inside a transaction, as when the system pauses its process, beside another one.

use belay_protocol::{Acceptance, LaneStore, StoreHealth};

use super::*;
use crate::kit::*;

/// Longer than a silent writer keeps its locks, and shorter than other connections do.
const LIMITS: PostgresLimits =
    PostgresLimits { connections: 1, statement: Duration::from_secs(40), lock: Duration::from_secs(30) };

async fn beside(address: String) -> SqlStore {
    let Ok(StoreUrl::Postgres(url)) = parse_url(&address) else { panic!("not an address: {address}") };
    let connect = move || SqlStore::connect_beside_another(&url, LIMITS, StoreOptions::default()).unwrap();
    tokio::task::spawn_blocking(connect).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_falls_silent_blocks_others_for_seconds_and_then_goes_on() {
    let Some(server) = shared() else { return };
    let database = TestDatabase::new(server).unwrap();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let silent = beside(address(server, database.name(), proxy.port())).await;
    let other = beside(address(server, database.name(), server.port())).await;
    let lease = open(&silent, "s").await.lease;
    silent.ping().await.unwrap(); // the opening is committed with it
    proxy.arm(at_commit(Direction::ToServer, Action::Hold));
    let (held, ()) = tokio::join!(silent.accept(&lease, queued("one")), async {
        proxy.until_happened(1).await;
        // Waits for the row of the session, which the silent writer has locked.
        accept(&other, &lease, queued("two")).await;
        proxy.release();
    });
    assert_eq!(held.unwrap(), Acceptance::New);
    accept(&silent, &lease, queued("three")).await;
    let texts = "select string_agg(text, ' ' order by seq) from belay.runs";
    assert_eq!(database.sql(texts).unwrap(), "two one three");
    silent.close().await;
    other.close().await;
}
