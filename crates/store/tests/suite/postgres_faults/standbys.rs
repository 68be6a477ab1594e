//! A standby that becomes the primary server.

use belay_protocol::{LaneStore, StoreHealth};
use belay_testkit::postgres::{Durability, PostgresOptions, Shutdown};

use super::*;
use crate::kit::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_promotion_that_lost_a_commit_nothing_more_is_written_and_the_next_opening_reports_the_loss() {
    let Some(programs) = Programs::for_test().unwrap() else { return };
    let options = PostgresOptions { durability: Durability::NoFsync, ..PostgresOptions::default() };
    let mut primary = PostgresServer::start(&programs, &options).unwrap();
    primary.create_database("d").unwrap();
    let standby = primary.standby().unwrap();
    let one = format!("127.0.0.1:{}", primary.port());
    let two = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let url = address(&primary, "d", primary.port()).replace(&one, &two);
    let store = connect(&url, SHORT).await.unwrap();
    assert_eq!(store.losses(), []);
    let lease = open(&store, "s").await.lease;
    accept(&store, &lease, queued("one")).await;
    standby.catch_up_with(&primary).unwrap();
    standby.fall_behind().unwrap();
    accept(&store, &lease, queued("two")).await;

    primary.kill().unwrap();
    standby.promote().unwrap();
    let lost = tokio::spawn(store.history_lost());
    while !lost.is_finished() {
        let refused = store.accept(&lease, queued("three")).await;
        assert!(is_unavailable(&refused), "{refused:?}");
    }
    for text in ["three", "four"] {
        let refused = store.accept(&lease, queued(text)).await;
        assert!(is_unavailable(&refused), "{refused:?}");
    }
    store.close().await;

    let next = connect(&url, SHORT).await.unwrap();
    let losses = next.losses();
    assert_eq!((losses.len(), losses[0].transactions), (1, 1), "{losses:?}");
    assert!(losses[0].kept_until.is_some_and(|date| date <= losses[0].noticed_at), "{losses:?}");
    let opened = open(&next, "s").await;
    let found: Vec<&str> = opened.unfinished.iter().map(|run| run.text.as_str()).collect();
    assert_eq!(found, ["one"]);
    accept(&next, &opened.lease, queued("three")).await;
    next.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_is_found_and_has_all_that_was_answered() {
    let Some(programs) = Programs::for_test().unwrap() else { return };
    let options = PostgresOptions { durability: Durability::NoFsync, ..PostgresOptions::default() };
    let mut primary = PostgresServer::start(&programs, &options).unwrap();
    primary.create_database("d").unwrap();
    let mut standby = primary.standby().unwrap();
    primary.synchronous_to(&standby).unwrap();

    let alone = address(&standby, "d", standby.port());
    let refused = connect(&alone, SHORT).await.unwrap_err().to_string();
    assert!(refused.contains("standby") && refused.contains("name the primary server"), "{refused}");

    let one = format!("127.0.0.1:{}", primary.port());
    let two = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), primary.port());
    let store = connect(&address(&primary, "d", primary.port()).replace(&one, &two), SHORT).await.unwrap();
    let lease = open(&store, "s").await.lease;
    accept(&store, &lease, queued("one")).await;

    // Without its standby, the primary shows a commit that a promotion would lose: nobody gets an answer to it.
    standby.stop(Shutdown::Fast).unwrap();
    let waiting = store.accept(&lease, queued("two")).await;
    assert!(is_unavailable(&waiting), "{waiting:?}");
    standby.restart().unwrap();
    while is_unavailable(&store.ping().await) {}
    accept(&store, &lease, queued("three")).await;

    primary.kill().unwrap();
    assert!(is_unavailable(&store.ping().await));
    standby.promote().unwrap();
    while is_unavailable(&store.ping().await) {}
    accept(&store, &lease, queued("four")).await;
    let opened = open(&store, "s").await;
    let found: Vec<&str> = opened.unfinished.iter().map(|run| run.text.as_str()).collect();
    // The second one was committed, and its caller was told that nobody knows.
    assert_eq!(found, ["one", "two", "three", "four"]);
    store.close().await;
}
