//! Two stores on one database.

use std::cell::Cell;
use std::sync::Arc;

use belay_store::{PostgresLimits, SqlStore, StoreOptions, StoreUrl, parse_url};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, spawn_blocking};

use super::holder::Holder;
use crate::kit::SECONDS;

/// Two stores of one database, which lives as long as the value.
pub(super) struct Two {
    pub(super) one: SqlStore,
    pub(super) other: SqlStore,
    /// The row of `other` in the table `writers`, as a condition. Its commits change the row.
    pub(super) of_other: String,
    pub(super) database: Arc<TestDatabase<'static>>,
}

/// `None`: there is no PostgreSQL here.
pub(super) async fn two() -> Option<Two> {
    let opened = spawn_blocking(|| {
        let programs = Programs::for_test().unwrap()?;
        let database = TestDatabase::new(PostgresServer::shared(&programs).unwrap()).unwrap();
        let Ok(StoreUrl::Postgres(url)) = parse_url(&format!("{}?sslmode=disable", database.url())) else {
            panic!("not an address")
        };
        let limits = PostgresLimits { connections: 1, statement: SECONDS, lock: SECONDS };
        let connect = || SqlStore::connect_beside_another(&url, limits, StoreOptions::default()).unwrap();
        let one = connect();
        let first = database.sql("SELECT encode(boot, 'hex') FROM writers").unwrap();
        let of_other = format!("boot <> decode('{}', 'hex')", first.trim());
        Some(Two { one, other: connect(), of_other, database: Arc::new(database) })
    });
    opened.await.unwrap()
}

impl Two {
    /// The first value of a query.
    pub(super) async fn value(&self, sql: &str) -> String {
        let (database, sql) = (self.database.clone(), sql.to_owned());
        spawn_blocking(move || database.sql(&sql).unwrap().trim().to_owned()).await.unwrap()
    }

    /// The condition that `other` has committed since now.
    pub(super) async fn committed(&self) -> String {
        let commits = format!("(SELECT commits FROM writers WHERE {})", self.of_other);
        let now = self.value(&format!("SELECT {commits}")).await;
        format!("{commits} > {now}")
    }

    /// Begins a transaction of a third session with the statements `first`, and returns when they are done. The transaction
    /// goes on when the condition holds: it executes `then` and commits. It fails if the condition never comes to hold,
    /// when the server ends its statement.
    pub(super) async fn hold(&self, first: &str, until: &str, then: &str) -> JoinHandle<()> {
        let holder = Holder::hold(&self.database, first).await;
        let (until, then) = (until.to_owned(), then.to_owned());
        tokio::spawn(async move {
            holder.until(&until).await;
            holder.execute(&then).await;
            holder.release().await;
            holder.close().await;
        })
    }

    /// Starts both operations, the second when the first one waits for the lock that the statement takes, and releases
    /// the lock when both wait.
    pub(super) async fn race<A, B>(
        &self,
        lock: &str,
        one: impl Future<Output = A>,
        other: impl Future<Output = B>,
    ) -> (A, B) {
        let holder = Holder::hold(&self.database, lock).await;
        let ended = Cell::new(0);
        let one = count(one, &ended);
        let other = async {
            holder.until_waiting(1, &ended).await;
            count(other, &ended).await
        };
        let release = async {
            holder.until_waiting(2, &ended).await;
            holder.release().await;
        };
        let (one, other, ()) = tokio::join!(one, other, release);
        holder.close().await;
        (one, other)
    }

    pub(super) async fn close(self) {
        self.one.close().await;
        self.other.close().await;
    }
}

/// Counts the end of an operation.
pub(super) async fn count<T>(operation: impl Future<Output = T>, ended: &Cell<i64>) -> T {
    let result = operation.await;
    ended.set(ended.get() + 1);
    result
}

/// Runs both at the same moment.
pub(super) async fn against<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let barrier = Barrier::new(2);
    let begin = async || {
        barrier.wait().await;
    };
    tokio::join!(
        async {
            begin().await;
            one.await
        },
        async {
            begin().await;
            other.await
        }
    )
}
