//! PostgreSQL that fails: lost connections, lost answers, a killed server, poolers, standbys, and addresses that are wrong.

mod commits;
mod outages;
mod poolers;
mod refusals;
mod silence;
mod standbys;
mod statements;
mod takeover;
mod values;

use std::time::Duration;

use belay_protocol::StoreError;
use belay_store::{OpenError, PostgresLimits, SqlStore, StoreOptions, StoreUrl, parse_url};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_testkit::proxy::{Action, Direction, Fault, TcpProxy};

/// The message of the client that commits, and the answer of the server to it.
const COMMIT: &[u8] = b"COMMIT\0";

/// Short limits: a silent server is noticed after 8 s.
const SHORT: PostgresLimits =
    PostgresLimits { connections: 1, statement: Duration::from_secs(3), lock: Duration::from_millis(300) };

/// Limits that no statement reaches.
const LONG: PostgresLimits =
    PostgresLimits { connections: 1, statement: Duration::from_secs(60), lock: Duration::from_secs(60) };

/// A store whose connections pass a proxy.
struct Proxied {
    store: SqlStore,
    proxy: TcpProxy,
    database: TestDatabase<'static>,
}

/// `None`: there is no PostgreSQL here.
fn shared() -> Option<&'static PostgresServer> {
    Some(PostgresServer::shared(&Programs::for_test().unwrap()?).unwrap())
}

/// The address of a database, without TLS, with another port.
fn address(server: &PostgresServer, database: &str, port: u16) -> String {
    let own = format!(":{}/", server.port());
    format!("{}?sslmode=disable&connect_timeout=5", server.url(database).replace(&own, &format!(":{port}/")))
}

async fn connect(address: &str, limits: PostgresLimits) -> Result<SqlStore, OpenError> {
    let Ok(StoreUrl::Postgres(url)) = parse_url(address) else { panic!("not an address: {address}") };
    tokio::task::spawn_blocking(move || SqlStore::connect(&url, limits, StoreOptions::default())).await.unwrap()
}

async fn proxied(limits: PostgresLimits) -> Option<Proxied> {
    let server = shared()?;
    let database = TestDatabase::new(server).unwrap();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let store = connect(&address(server, database.name(), proxy.port()), limits).await.unwrap();
    Some(Proxied { store, proxy, database })
}

fn at_commit(direction: Direction, action: Action) -> Fault {
    Fault { direction, bytes: COMMIT.to_vec(), nth: 1, action }
}

fn is_unavailable<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Unavailable(_)))
}
