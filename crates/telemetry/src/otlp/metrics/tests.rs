#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use ::metrics::{counter, gauge, histogram, with_local_recorder};
use tokio::time::Instant;

use super::*;
use crate::otlp::tests::stub::{OK, collector, nobody};

fn pusher(address: &str, interval: Duration) -> (MetricsPusher, Instruments) {
    MetricsPusher::open(&Collector::new(address, "belay", None).unwrap(), interval, HashMap::new()).unwrap()
}

/// Counts how often the agent and the figures are asked.
#[derive(Default)]
struct Asked {
    agent: AtomicUsize,
    figures: AtomicUsize,
}

fn refresh(asked: &Arc<Asked>) -> Refresh {
    let (agent, figures) = (asked.clone(), asked.clone());
    Refresh {
        agent: Box::new(move || {
            let agent = agent.clone();
            Box::pin(async move { _ = agent.agent.fetch_add(1, Ordering::Relaxed) })
        }),
        figures: Arc::new(move || _ = figures.figures.fetch_add(1, Ordering::Relaxed)),
    }
}

#[tokio::test]
async fn each_interval_and_the_end_push_the_sums() {
    let (address, mut requests) = collector(OK).await;
    let (pusher, instruments) = pusher(&address, Duration::from_millis(1));
    with_local_recorder(&instruments, || {
        counter!("calls_total").increment(1);
        gauge!("runs").set(1.0);
        histogram!("wait_seconds").record(1.0);
    });
    let (asked, stop) = (Arc::new(Asked::default()), CancellationToken::new());
    let work = tokio::spawn(pusher.work(refresh(&asked), stop.clone()));
    for _ in 0..2 {
        let request = requests.recv().await.unwrap();
        assert!(request.starts_with("POST /v1/metrics "), "{request}");
        for name in ["calls_total", "runs", "wait_seconds", "service.name"] {
            assert!(request.contains(name), "{name} in {request}");
        }
    }
    assert!(asked.agent.load(Ordering::Relaxed) >= 2 && asked.figures.load(Ordering::Relaxed) >= 2);
    stop.cancel();
    drop(requests);
    work.await.unwrap();
}

#[tokio::test]
async fn the_end_pushes_without_the_agent() {
    let (address, mut requests) = collector(OK).await;
    let (pusher, instruments) = pusher(&address, Duration::from_secs(60));
    with_local_recorder(&instruments, || counter!("calls_total").increment(1));
    let (asked, stop) = (Arc::new(Asked::default()), CancellationToken::new());
    stop.cancel();
    pusher.work(refresh(&asked), stop).await;
    assert!(requests.recv().await.unwrap().contains("calls_total"));
    assert_eq!((asked.agent.load(Ordering::Relaxed), asked.figures.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_silent_collector_within_its_limit() {
    // The kernel accepts the connection, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [format!("http://{}", silent.local_addr().unwrap()), nobody()] {
        let (pusher, _instruments) = pusher(&address, Duration::from_secs(60));
        let stop = CancellationToken::new();
        stop.cancel();
        let begun = Instant::now();
        pusher.work(refresh(&Arc::default()), stop).await;
        assert!(begun.elapsed() <= FLUSH + Duration::from_millis(10), "{:?}", begun.elapsed());
    }
}
