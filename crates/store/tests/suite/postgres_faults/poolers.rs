//! pgbouncer between the store and the server.

use belay_protocol::StoreHealth;
use belay_testkit::postgres::PoolMode;

use super::*;
use crate::kit::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_session_mode_works_and_one_in_transaction_mode_is_refused() {
    let Some(server) = shared() else { return };
    let database = TestDatabase::new(server).unwrap();
    for (mode, works) in [(PoolMode::Session, true), (PoolMode::Transaction, false)] {
        let Some(pooler) = server.pooler(mode).unwrap() else { return };
        let address = address(server, database.name(), pooler.port());
        match connect(&address, LONG).await {
            Ok(store) => {
                assert!(works, "{mode:?}");
                let mut lease = open(&store, "s").await.lease;
                turn(&store, &lease, "hi").await;
                // The pooler gives the session of a lost connection to the next one.
                let end = "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity
                           where datname = current_database() and application_name like 'belay %'";
                database.sql(end).unwrap();
                while is_unavailable(&store.ping().await) {}
                assert_eq!(texts(&reload(&store, &mut lease).await.thread.messages), ["hi", "re: hi"]);
                store.close().await;
                // The pooler resets the session, and releases the lock with it, some time after the end of the connection.
                let again = loop {
                    match connect(&address, LONG).await {
                        Err(OpenError::Locked { .. }) => {}
                        opened => break opened.unwrap(),
                    }
                };
                again.close().await;
            }
            Err(error) => {
                assert!(!works && error.to_string().contains("pool_mode = session"), "{mode:?}: {error}");
                // The refusal leaves no lock in the session that the pooler keeps.
                let direct = connect(&super::address(server, database.name(), server.port()), LONG).await.unwrap();
                direct.close().await;
            }
        }
    }
}
