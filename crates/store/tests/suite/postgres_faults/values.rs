//! Values at the limits of the database.

use belay_protocol::{
    Archive, EventKind, EventLog, EventQuery, Message, NewEvent, SearchQuery, Seq, SessionReader, StoreHealth,
};

use crate::kit::*;

/// PostgreSQL has no such texts: they come back with U+FFFD, in columns and within JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_character_nul_harms_no_row() {
    let Some((store, database)) = postgres().await else { return };
    let mut lease = open(&store, "a\0b").await.lease;
    turn(&store, &lease, "x\0y").await;
    let run = accept(&store, &lease, input("z\0")).await;
    let mut note = Message::system("s\0t");
    note.untrusted = true;
    belay_protocol::JournalStore::checkpoint(&store, &lease, checkpoint(run, vec![note, Message::assistant("\0")]))
        .await
        .unwrap();
    belay_protocol::RunStore::finish_runs(&store, &lease, vec![finished(run, "w\0")]).await.unwrap();
    let opened = reload(&store, &mut lease).await;
    let all = texts(&opened.thread.messages);
    assert!(all.first().is_some_and(|text| text.starts_with('x') && text.ends_with('y')), "{all:?}");
    SessionReader::history(&store, &lease.session, 0, 100).await.unwrap();
    store.search(SearchQuery { words: "x".into(), ..SearchQuery::default() }).await.unwrap();
    store.close().await;
    drop(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_of_fifty_megabytes_comes_back() {
    let Some((store, database)) = postgres().await else { return };
    let mut lease = open(&store, "s").await.lease;
    let long = "\u{1f4d6}".repeat(12_500_000);
    assert_eq!(long.len(), 50_000_000);
    let run = accept(&store, &lease, input(&long)).await;
    let opened = reload(&store, &mut lease).await;
    assert!(opened.unfinished[0].text == long);
    belay_protocol::RunStore::finish_runs(&store, &lease, vec![finished(run, "re")]).await.unwrap();
    store.close().await;
    drop(database);
}

/// More different words than the index of a message has space for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_with_too_many_words_is_found_by_its_first_ones() {
    let Some((store, database)) = postgres().await else { return };
    let lease = open(&store, "s").await.lease;
    let long: String = (0..200_000).map(|n| format!("w{n:08} ")).collect();
    turn(&store, &lease, &long).await;
    let found = store.search(SearchQuery { words: "w00000007".into(), ..SearchQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 2, "the question and the reply");
    store.close().await;
    drop(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_events_of_one_transaction_keep_their_order() {
    let Some((store, database)) = postgres().await else { return };
    let events = (1..=10_000).map(|attempt| NewEvent {
        at: at(1),
        session: None,
        run_id: None,
        kind: EventKind::RunStarted { attempt },
    });
    store.append(events.collect()).await.unwrap();
    store.ping().await.unwrap();
    let mut found = Vec::new();
    loop {
        let after = found.last().map_or(Seq(0), |event: &belay_protocol::Event| event.seq);
        let page = store.read(EventQuery { after, limit: 1_000, ..EventQuery::default() }).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let attempts: Vec<u32> = found
        .iter()
        .map(|event| match event.kind {
            EventKind::RunStarted { attempt } => attempt,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(attempts, (1..=10_000).collect::<Vec<_>>());
    assert!(found.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!(*store.tip().borrow(), Seq(found.last().unwrap().seq.0));
    store.close().await;
    drop(database);
}
