#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use belay_protocol::{NewEvent, RunFilter, RunRecord, RunStatus, RunUsage, SessionKey, StopReason, UnixMillis};

use tokio::time::Instant;

use super::*;
use crate::otlp::tests::stub::{OK, collector, nobody};
use crate::otlp::{GIVE_UP, REQUEST};

/// A log of the ends of these runs, and the runs.
struct Ends {
    runs: Mutex<Vec<RunRecord>>,
    tip: watch::Sender<Seq>,
    /// The run whose record cannot be read.
    broken_run: Mutex<Option<RunId>>,
    /// The event that cannot be read.
    broken_event: Mutex<Option<Seq>>,
    /// Whether the runs are deleted, but not their events.
    are_deleted: AtomicBool,
    /// Whether a fault is a panic.
    panics: AtomicBool,
    reads: AtomicUsize,
}

impl Ends {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            runs: Mutex::default(),
            tip: watch::Sender::new(Seq(0)),
            broken_run: Mutex::default(),
            broken_event: Mutex::default(),
            are_deleted: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
        })
    }

    /// Fails, or panics.
    fn fault(&self, what: &str) -> StoreError {
        assert!(!self.panics.load(Ordering::Relaxed), "{what}");
        StoreError::Unavailable(what.into())
    }

    /// Ends `number` more runs.
    fn end(&self, number: usize) {
        let mut runs = self.runs.lock().unwrap();
        runs.extend((0..number).map(|_| ended_run()));
        self.tip.send_replace(Seq(runs.len() as u64));
    }

    fn exporter(self: &Arc<Self>, endpoint: &str) -> TraceExporter {
        let collector = Collector::new(endpoint, "belay", None).unwrap();
        TraceExporter::open(&collector, false, &model(), self.clone(), self.clone()).unwrap()
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        provider: "test".into(),
        model: "test".into(),
        context_tokens: 1,
        price: None,
        rehearsal: false,
        vision: false,
        sampling: belay_protocol::SamplingSupport::ALL,
    }
}

fn ended_run() -> RunRecord {
    RunRecord {
        run_id: RunId::new(),
        session: SessionKey::from("alice"),
        status: RunStatus::Completed,
        reason: Some(StopReason::FinalText),
        evidence: serde_json::Map::new(),
        reply: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        attempt: 1,
        accepted_at: UnixMillis(1),
        started_at: None,
        ended_at: Some(UnixMillis(2)),
        waiting_for: None,
        files: Vec::new(),
    }
}

#[async_trait]
impl EventLog for Ends {
    async fn append(&self, _: Vec<NewEvent>) -> Result<(), StoreError> {
        unreachable!("an exporter reads")
    }

    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        let runs = self.runs.lock().unwrap().clone();
        let end = |(at, run): (usize, &RunRecord)| Event {
            seq: Seq(at as u64 + 1),
            at: UnixMillis(2),
            session: None,
            run_id: Some(run.run_id),
            kind: EventKind::RunEnded {
                status: run.status,
                reason: StopReason::FinalText,
                evidence: serde_json::Map::new(),
            },
        };
        let is_meant = |event: &Event| event.seq > query.after && query.run.is_none_or(|run| event.run_id == Some(run));
        self.reads.fetch_add(1, Ordering::Relaxed);
        let page: Vec<_> = runs.iter().enumerate().map(end).filter(is_meant).take(query.limit as usize).collect();
        let broken = *self.broken_event.lock().unwrap();
        if page.iter().any(|event| Some(event.seq) == broken) {
            return Err(self.fault("a damaged event"));
        }
        Ok(page)
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.tip.subscribe()
    }

    async fn newest(&self) -> Result<Seq, StoreError> {
        unreachable!("an exporter follows the tip")
    }
}

#[async_trait]
impl RunReader for Ends {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        if *self.broken_run.lock().unwrap() == Some(id) {
            return Err(self.fault("a damaged run"));
        }
        let is_there = !self.are_deleted.load(Ordering::Relaxed);
        Ok(self.runs.lock().unwrap().iter().find(|run| is_there && run.run_id == id).cloned())
    }

    async fn runs(&self, _: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        unreachable!("an exporter reads single runs")
    }

    async fn run_messages(&self, _: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        unreachable!("content is off")
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_read_is_skipped_and_the_runs_around_it_are_exported() {
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    let mut exporter = ends.exporter(&address);
    ends.end(3);
    let ids: Vec<_> = ends.runs.lock().unwrap().iter().map(|run| run.run_id).collect();
    *ends.broken_run.lock().unwrap() = Some(ids[1]);
    timeout(Duration::from_secs(300), exporter.catch_up()).await.unwrap();
    assert_eq!(exporter.cursor, Seq(3));
    let (first, second) = (requests.recv().await.unwrap(), requests.recv().await.unwrap());
    assert!(first.contains(&ids[0].to_string()), "what was read before the fault is sent");
    assert!(second.contains(&ids[2].to_string()), "the run after it is sent");
    assert!(![first, second].iter().any(|request| request.contains(&ids[1].to_string())));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_read_is_skipped_with_pauses() {
    let ends = Ends::new();
    let mut exporter = ends.exporter(&nobody());
    ends.end(3);
    ends.are_deleted.store(true, Ordering::Relaxed);
    *ends.broken_event.lock().unwrap() = Some(Seq(3));
    let begun = Instant::now();
    exporter.catch_up().await;
    assert_eq!(exporter.cursor, Seq(3));
    assert!(begun.elapsed() >= FIRST_PAUSE * 3, "failed reads are repeated after pauses: {:?}", begun.elapsed());
    assert!(ends.reads.load(Ordering::Relaxed) < 20, "{}", ends.reads.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_run_whose_trace_panics_is_skipped() {
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    let mut exporter = ends.exporter(&address);
    ends.end(2);
    let ids: Vec<_> = ends.runs.lock().unwrap().iter().map(|run| run.run_id).collect();
    *ends.broken_run.lock().unwrap() = Some(ids[0]);
    ends.panics.store(true, Ordering::Relaxed);
    exporter.catch_up().await;
    assert_eq!(exporter.cursor, Seq(2));
    assert!(requests.recv().await.unwrap().contains(&ids[1].to_string()));
}

#[tokio::test]
async fn the_export_goes_on_after_a_panic() {
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    let exporter = ends.exporter(&address);
    ends.panics.store(true, Ordering::Relaxed);
    *ends.broken_event.lock().unwrap() = Some(Seq(1));
    ends.end(1);
    let stop = CancellationToken::new();
    let work = tokio::spawn(exporter.work(stop.clone()));
    // The first read panics.
    while ends.reads.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    ends.end(1);
    let sent = timeout(Duration::from_secs(300), requests.recv()).await.unwrap().unwrap();
    assert!(sent.contains(&ends.runs.lock().unwrap()[1].run_id.to_string()));
    stop.cancel();
    work.await.unwrap();
}

/// The test runs once more in a process with these variables, because those of this process are shared.
#[tokio::test]
async fn variables_of_the_environment_have_no_effect() {
    const MARK: &str = "OTEL_RESOURCE_ATTRIBUTES";
    if std::env::var_os(MARK).is_none() {
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "traces::tests::variables_of_the_environment_have_no_effect"])
            .env(MARK, "team=of-the-environment,service.name=of-the-environment")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "x-other=of-the-environment")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("http_proxy", "http://127.0.0.1:9")
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    let mut exporter = ends.exporter(&address);
    ends.end(1);
    timeout(REQUEST, exporter.catch_up()).await.unwrap();
    let sent = requests.recv().await.unwrap();
    assert!(sent.contains("service.name") && sent.contains("telemetry.sdk.name"), "{sent}");
    assert!(!sent.contains("of-the-environment"), "{sent}");
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_counted() {
    // Field 1 of the answer: { rejected_spans (1): 300, error_message (2): "no" }.
    let (address, _requests) =
        collector(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n\x0a\x07\x08\xac\x02\x12\x02no")
            .await;
    let ends = Ends::new();
    let mut exporter = ends.exporter(&address);
    ends.end(1);
    exporter.catch_up().await;
    assert_eq!(exporter.delivery.last_status().rejected(), 300);
}

#[tokio::test]
async fn a_request_has_a_limited_number_of_spans() {
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    ends.end(1);
    let mut exporter = ends.exporter(&address);
    let run = ends.runs.lock().unwrap()[0].run_id;
    let span = exporter.trace(run).await.unwrap().remove(0);
    assert!(exporter.send_all(&vec![span; BATCH * 2 + 1]).await);
    for expected in [BATCH, BATCH, 1] {
        let request = requests.recv().await.unwrap();
        assert_eq!(request.matches("invoke_agent belay").count(), expected);
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_collector_loses_the_traces_of_ten_minutes_and_not_more_memory() {
    let ends = Ends::new();
    ends.end(1);
    let mut exporter = ends.exporter(&nobody());
    assert_eq!(exporter.cursor, Seq(1), "runs that have ended before are not exported");
    ends.end(600);
    let begun = Instant::now();
    exporter.catch_up().await;
    let took = begun.elapsed();
    assert!(took >= GIVE_UP && took < GIVE_UP + LONGEST_PAUSE + REQUEST * 20, "{took:?}");
    assert_eq!(exporter.cursor, Seq(601), "what has ended until then is given up");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_daemon_waits_for_an_unreachable_collector_within_its_limit() {
    let ends = Ends::new();
    let exporter = ends.exporter(&nobody());
    ends.end(1);
    let stop = CancellationToken::new();
    stop.cancel();
    let begun = Instant::now();
    exporter.work(stop).await;
    assert!(begun.elapsed() <= FLUSH + Duration::from_millis(10), "{:?}", begun.elapsed());
}
