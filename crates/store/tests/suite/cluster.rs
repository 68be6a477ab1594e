//! What a node of a cluster has beside its store: its lease and the hints.

mod hints;
mod lease;

use belay_protocol::BootId;
use belay_store::{ClusterOptions, PostgresLimits, PostgresUrl, SqlStore, StoreOptions};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};

use crate::kit::SECONDS;

const LIMITS: PostgresLimits = PostgresLimits { connections: 1, statement: SECONDS, lock: SECONDS };

/// An empty database.
struct Cluster {
    server: &'static PostgresServer,
    database: TestDatabase<'static>,
}

impl Cluster {
    /// `None`: there is no PostgreSQL here.
    async fn new() -> Option<Self> {
        let made = tokio::task::spawn_blocking(|| {
            let server = PostgresServer::shared(&Programs::for_test().unwrap()?).unwrap();
            Some(Self { server, database: TestDatabase::new(server).unwrap() })
        });
        made.await.unwrap()
    }

    /// The address with this port.
    fn url(&self, port: u16) -> PostgresUrl {
        let own = format!(":{}/", self.server.port());
        let address = self.database.url().replace(&own, &format!(":{port}/"));
        PostgresUrl::parse(&format!("{address}?sslmode=disable&connect_timeout=60")).unwrap()
    }

    /// The address without a proxy.
    fn direct(&self) -> PostgresUrl {
        self.url(self.server.port())
    }

    /// The store of a node.
    async fn store(&self) -> SqlStore {
        let (url, cluster) = (self.direct(), ClusterOptions { boot: BootId::new() });
        let open = move || SqlStore::connect_cluster(&url, LIMITS, StoreOptions::default(), cluster).unwrap();
        tokio::task::spawn_blocking(open).await.unwrap()
    }
}
