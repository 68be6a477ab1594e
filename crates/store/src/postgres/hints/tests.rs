use belay_protocol::BootId;
use belay_protocol::cluster::Topic;
use belay_testkit::postgres::{PoolMode, PostgresServer, Programs, TestDatabase};

use super::*;
use crate::postgres::{Limits, Opening, PgConnection, open_schema};

fn address(database: &TestDatabase<'_>, server: &PostgresServer, port: u16) -> PostgresUrl {
    let (own, other) = (format!(":{}/", server.port()), format!(":{port}/"));
    PostgresUrl::parse(&format!("{}?sslmode=disable", database.url().replace(&own, &other))).expect("an address")
}

#[test]
fn each_schema_has_a_channel_of_its_own() {
    let long = |last: char| channel(&format!("{}{last}", "a".repeat(62)));
    assert_eq!(channel("belay"), "belay_belay");
    assert!(long('a') != long('b') && long('a').len() <= NAME_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_in_transaction_mode_commits_are_seen_by_polling() {
    let Some(programs) = Programs::for_test().expect("programs") else { return };
    let server = PostgresServer::shared(&programs).expect("a server");
    let Some(pooler) = server.pooler(PoolMode::Transaction).expect("a pooler") else { return };
    let database = TestDatabase::new(server).expect("a database");
    let direct = address(&database, server, server.port());
    tokio::task::block_in_place(|| {
        let limits =
            Limits { statement: Duration::from_secs(60), lock: Duration::from_secs(60), idle: crate::postgres::IDLE };
        let mut conn = PgConnection::connect(&direct, &limits, "test").expect("a connection");
        open_schema(&mut conn, direct.schema(), Opening::ALONE).expect("a schema");
    });

    let (board, tip) = (Arc::new(HintBoard::shared()), watch::Sender::new(Seq(0)));
    let pooled = address(&database, server, pooler.port());
    let history = Arc::new(History::new(BootId::new()));
    let hinter = Hinter::start(pooled, board.clone(), tip.clone(), history.clone()).expect("a thread");
    let hearing = *board.hearing().wait_for(|hearing| *hearing != Hearing::Unknown).await.expect("a board");
    assert_eq!(hearing, Hearing::Polled);
    database
        .sql(&format!("INSERT INTO {}.events (seq, at, kind) VALUES (41, 1, '{{}}')", direct.schema()))
        .expect("an event");
    let mut seen = tip.subscribe();
    seen.wait_for(|tip| *tip == Seq(41)).await.expect("the tip");
    let mut mail = board.changes(Topic::Mail);
    mail.changed().await.expect("each topic changes by itself");
    assert!(!history.is_lost());

    database.sql(&format!("DELETE FROM {}.events", direct.schema())).expect("no event");
    history.lost().wait_for(|lost| *lost).await.expect("the history");
    let lost = format!("SELECT lost, lost_at > 0, kept_until FROM {}.writers", direct.schema());
    assert_eq!(database.sql(&lost).expect("a row"), "0|t|");
    tokio::task::block_in_place(|| drop(hinter));
}
