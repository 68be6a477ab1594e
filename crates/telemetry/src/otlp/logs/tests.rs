#![allow(clippy::unwrap_used)]

use tokio::time::Instant;
use tracing::subscriber::with_default;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::otlp::LogLayer;
use crate::otlp::tests::stub::{OK, collector, nobody};

/// A sender to this address, whose queue has these lines.
fn sender(address: &str, lines: impl FnOnce()) -> LogSender {
    let (layer, queue) = LogLayer::new(false);
    with_default(Registry::default().with(layer), || {
        lines();
    });
    LogSender::open(&Collector::new(address, "belay", None).unwrap(), queue).unwrap()
}

fn stopped() -> CancellationToken {
    let stop = CancellationToken::new();
    stop.cancel();
    stop
}

#[tokio::test]
async fn the_end_sends_the_lines_that_wait_in_batches() {
    let (address, mut requests) = collector(OK).await;
    let sender = sender(&address, || {
        for _ in 0..=BATCH {
            tracing::info!(target: "test", session = "alice", "a-line");
        }
    });
    sender.work(stopped()).await;
    for expected in [BATCH, 1] {
        let request = requests.recv().await.unwrap();
        assert!(request.starts_with("POST /v1/logs "), "{request}");
        assert_eq!(request.matches("a-line").count(), expected);
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn lines_are_sent_while_the_daemon_works() {
    let (address, mut requests) = collector(OK).await;
    let sender = sender(&address, || tracing::info!(target: "test", "a-line"));
    let stop = CancellationToken::new();
    let work = tokio::spawn(sender.work(stop.clone()));
    assert!(requests.recv().await.unwrap().contains("a-line"));
    stop.cancel();
    work.await.unwrap();
    assert!(requests.try_recv().is_err(), "no line is sent twice");
}

#[tokio::test]
async fn a_refused_batch_is_dropped_and_counted() {
    let (address, mut requests) =
        collector(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let mut sender = sender(&address, || {
        tracing::info!(target: "test", "a-line");
        tracing::info!(target: "test", "a-line");
    });
    sender.send_rest().await;
    assert_eq!(requests.recv().await.unwrap().matches("a-line").count(), 2);
    assert_eq!((sender.dropped.load(Ordering::Relaxed), sender.reported, sender.batch.len()), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_an_unreachable_collector_within_its_limit_and_counts_the_lines() {
    let sender = sender(&nobody(), || {
        for _ in 0..BATCH + 3 {
            tracing::info!(target: "test", "a-line");
        }
    });
    let (begun, dropped) = (Instant::now(), sender.dropped.clone());
    sender.work(stopped()).await;
    assert!(begun.elapsed() <= FLUSH + Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(dropped.load(Ordering::Relaxed), BATCH as u64 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_stays_away_loses_the_batch_after_ten_minutes() {
    let mut sender = sender(&nobody(), || tracing::info!(target: "test", "a-line"));
    let begun = Instant::now();
    sender.send_rest().await;
    assert!(begun.elapsed() >= crate::otlp::GIVE_UP, "{:?}", begun.elapsed());
    assert_eq!(sender.dropped.load(Ordering::Relaxed), 1);
}
