//! The server of the tests of this module: the one that the tests of this process share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use belay_testkit::postgres::{Durability, PostgresOptions, PostgresServer, Programs, Transport};

use super::connect::Limits;
use super::connection::PgConnection;
use super::fault::PgError;
use super::url::PostgresUrl;

/// Limits that no test reaches by chance.
pub(super) const LIMITS: Limits =
    Limits { statement: Duration::from_secs(60), lock: Duration::from_secs(60), idle: Duration::from_secs(60) };

/// A server with a socket, on which everybody who may open it is trusted.
pub(super) struct Server(&'static PostgresServer);

impl Server {
    /// The server of all tests. `None`: PostgreSQL is not installed, and the test is skipped.
    pub(super) fn shared() -> Option<Self> {
        let programs = Programs::for_test().expect("PostgreSQL in continuous integration")?;
        Some(Self(PostgresServer::shared(&programs).expect("a server")))
    }

    /// A server that speaks TLS. `None`: as for [`shared`](Self::shared).
    pub(super) fn with_tls() -> Option<PostgresServer> {
        let programs = Programs::for_test().expect("PostgreSQL in continuous integration")?;
        let options = PostgresOptions {
            durability: Durability::NoFsync,
            transport: Transport::Tls,
            ..PostgresOptions::default()
        };
        Some(PostgresServer::start(&programs, &options).expect("a server"))
    }

    /// The address of a schema, over the socket.
    pub(super) fn url(&self, schema: &str) -> String {
        let (folder, port) = (self.0.socket_folder().display(), self.port());
        format!("postgres://belay@/postgres?host={folder}:{port}&schema={schema}")
    }

    /// The TCP port on 127.0.0.1, where a password is necessary.
    pub(super) fn port(&self) -> u16 {
        self.0.port()
    }

    /// A connection for a schema.
    pub(super) fn connect(&self, schema: &str) -> Result<PgConnection, PgError> {
        PgConnection::connect(&PostgresUrl::parse(&self.url(schema)).expect("an address"), &LIMITS, "belay test")
    }

    /// A connection for a schema of its own, which exists and is empty.
    pub(super) fn fresh(&self) -> (PgConnection, String) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut conn = self.connect(&name).expect("a connection");
        conn.batch(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")).expect("a schema");
        (conn, name)
    }
}
