//! A third session, which holds locks until the operations of the stores have come to them.

use std::cell::Cell;

use belay_testkit::postgres::TestDatabase;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// A transaction that holds locks.
pub(super) struct Holder {
    client: Client,
    connection: JoinHandle<()>,
}

impl Holder {
    /// Begins a transaction with these statements.
    pub(super) async fn hold(database: &TestDatabase<'_>, sql: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
        let connection = tokio::spawn(async { connection.await.unwrap() });
        let holder = Self { client, connection };
        holder.execute(&format!("SET statement_timeout = '30s'; BEGIN; {sql}")).await;
        holder
    }

    /// Executes statements in the transaction.
    pub(super) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    /// Waits until the condition holds. Fails if it never does, when the server ends the statement.
    pub(super) async fn until(&self, condition: &str) {
        self.execute(&format!(
            "DO $$ BEGIN
                 WHILE NOT ({condition}) LOOP PERFORM pg_sleep(0.005); PERFORM pg_stat_clear_snapshot(); END LOOP;
             END $$"
        ))
        .await;
    }

    /// Waits until so many operations wait for a lock or have ended.
    pub(super) async fn until_waiting(&self, operations: i64, ended: &Cell<i64>) {
        let waiting = "SELECT COUNT(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                       WHERE NOT l.granted AND a.datname = current_database()";
        loop {
            let row = self.client.query_one(waiting, &[]).await.unwrap();
            if row.get::<_, i64>(0) + ended.get() >= operations {
                return;
            }
        }
    }

    /// Releases the locks.
    pub(super) async fn release(&self) {
        self.execute("COMMIT").await;
    }

    /// Closes the session.
    pub(super) async fn close(self) {
        drop(self.client);
        self.connection.await.unwrap();
    }
}

/// The condition that so many sessions wait for a lock.
pub(super) fn waiting(sessions: u32) -> String {
    format!(
        "(SELECT COUNT(*) FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock') >= {sessions}"
    )
}
