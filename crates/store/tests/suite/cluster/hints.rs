//! Hints between two nodes.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use belay_protocol::store::{Hints, MailStore};
use belay_protocol::{BootId, EventKind, EventLog, MailId, NewEvent, NodeMail, Outbox, Seq, Topic};
use belay_store::{Hearing, SqlStore};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::Cluster;
use crate::kit::*;

async fn hears(store: &SqlStore) {
    store.hearing().wait_for(|hearing| *hearing == Hearing::Notified).await.unwrap();
}

fn mail() -> NodeMail {
    NodeMail { id: MailId::new(), session: "s".into(), source: BootId::new(), at: at(1), run: None, body: json!({}) }
}

fn event(at_ms: i64) -> NewEvent {
    let kind = EventKind::ToolStateChanged {
        name: "clock".into(),
        on: true,
        actor: "rule".into(),
        detail: String::new(),
        until_ms: None,
    };
    NewEvent { at: at(at_ms), session: None, run_id: None, kind }
}

/// The maximum number of payloads that wait for the test; then the session waits.
const PAYLOADS: usize = 4_096;

/// A third session that listens to the channel of the schema.
struct Listener {
    client: Client,
    payloads: mpsc::Receiver<String>,
    connection: JoinHandle<()>,
}

impl Listener {
    async fn new(cluster: &Cluster) -> Self {
        let (client, mut connection) = tokio_postgres::connect(&cluster.database.url(), NoTls).await.unwrap();
        let (heard, payloads) = mpsc::channel(PAYLOADS);
        let connection = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = heard.send(notification.payload().to_owned()).await; // the test may have ended
                }
            }
        });
        client.batch_execute("LISTEN belay_belay").await.unwrap();
        Self { client, payloads, connection }
    }

    /// The payloads up to the first with this topic.
    async fn until(&mut self, letter: char) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let payload = self.payloads.recv().await.unwrap();
            if payload.starts_with("test ") {
                continue; // a store has begun to listen
            }
            let found = payload.split(' ').next().unwrap().contains(letter);
            heard.push(payload);
            if found {
                return heard;
            }
        }
    }

    /// Sends a number of an event that no event has, until the store has heard it: no poll can find it.
    async fn until_heard(&self, store: &SqlStore, seq: u64) {
        let mut tip = store.tip();
        while *tip.borrow_and_update() != Seq(seq) {
            self.client.batch_execute(&format!("NOTIFY belay_belay, ' {seq}'")).await.unwrap();
            // The thread of the store may be between two connections, and no time is too long.
            let _ = tokio::time::timeout(Duration::from_millis(100), tip.changed()).await;
        }
    }

    async fn close(self) {
        drop(self.client);
        self.connection.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_one_node_wake_the_readers_of_both() {
    let Some(cluster) = Cluster::new().await else { return };
    let (one, other) = (cluster.store().await, cluster.store().await);
    hears(&one).await;
    hears(&other).await;
    let mut listener = Listener::new(&cluster).await;
    let mut own = one.changes(Topic::Mail);
    own.mark_unchanged();
    one.send(mail()).await.unwrap();
    assert!(own.has_changed().unwrap(), "at once on its own node");
    assert_eq!(listener.until('m').await.last().map(String::as_str), Some("m"));

    one.append(vec![event(1)]).await.unwrap();
    let newest = *one.tip().wait_for(|tip| *tip > Seq(0)).await.unwrap();
    other.tip().wait_for(|tip| *tip >= newest).await.unwrap();
    one.enqueue(outbound("c", "hi")).await.unwrap();
    listener.until('o').await;
    listener.until_heard(&other, 1_000_000).await;
    listener.close().await;
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_opened_again_and_misses_nothing() {
    let Some(cluster) = Cluster::new().await else { return };
    let (one, other) = (cluster.store().await, cluster.store().await);
    hears(&other).await;
    let listener = Listener::new(&cluster).await;
    let lost = "SELECT COUNT(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'belay hints'";
    let mut questions = other.changes(Topic::Questions);
    listener.client.query_one(lost, &[]).await.unwrap();
    one.append(vec![event(1)]).await.unwrap();
    let newest = *one.tip().wait_for(|tip| *tip > Seq(0)).await.unwrap();
    other.tip().wait_for(|tip| *tip >= newest).await.unwrap();
    questions.changed().await.unwrap();
    listener.until_heard(&other, 1_000_000).await;
    listener.close().await;
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commits_share_few_notifications() {
    const COMMITS: u64 = 1_000;
    let Some(cluster) = Cluster::new().await else { return };
    let store = cluster.store().await;
    hears(&store).await;
    let mut listener = Listener::new(&cluster).await;
    let (begun, before) = (Instant::now(), store.stats().commits);
    for _ in 0..COMMITS {
        store.enqueue(outbound("c", "hi")).await.unwrap();
    }
    store.send(mail()).await.unwrap();
    let heard = listener.until('m').await.len() as u128;
    let (took, commits) = (begun.elapsed(), store.stats().commits - before);
    eprintln!("{commits} commits in {} ms made {heard} notifications", took.as_millis());
    assert_eq!(commits, COMMITS + 1);
    assert!(heard <= took.as_millis() / 10 + 2, "at most one each 10 ms");
    listener.close().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_alone_has_no_connection_for_hints() {
    let Some((store, database)) = postgres().await else { return };
    let changes = store.changes(Topic::Mail);
    store.send(mail()).await.unwrap();
    assert!(!changes.has_changed().expect("it lives as long as the store"));
    assert_eq!(*store.hearing().borrow(), Hearing::Unknown);
    let sql =
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'belay hints'";
    assert_eq!(tokio::task::block_in_place(|| database.sql(sql)).unwrap(), "0");
    store.close().await;
}
