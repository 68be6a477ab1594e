#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use belay_protocol::{NewEvent, RunFilter, RunRecord, RunStatus, RunUsage, SessionKey, StopReason, UnixMillis};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

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
            reads: AtomicUsize::new(0),
        })
    }

    /// Ends `number` more runs.
    fn end(&self, number: usize) {
        let mut runs = self.runs.lock().unwrap();
        runs.extend((0..number).map(|_| ended_run()));
        self.tip.send_replace(Seq(runs.len() as u64));
    }

    fn exporter(self: &Arc<Self>, endpoint: &str) -> TraceExporter {
        let config = TelemetryConfig { otlp_endpoint: endpoint.into(), ..TelemetryConfig::default() };
        let model = ModelInfo {
            provider: "test".into(),
            model: "test".into(),
            context_tokens: 1,
            price: None,
            rehearsal: false,
            vision: false,
            sampling: belay_protocol::SamplingSupport::ALL,
        };
        TraceExporter::open(&config, None, &model, self.clone(), self.clone()).unwrap().unwrap()
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
        let runs = self.runs.lock().unwrap();
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
            return Err(StoreError::Unavailable("a damaged event".into()));
        }
        Ok(page)
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.tip.subscribe()
    }
}

#[async_trait]
impl RunReader for Ends {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        if *self.broken_run.lock().unwrap() == Some(id) {
            return Err(StoreError::Unavailable("a damaged run".into()));
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

/// A collector that gives each request this answer. Returns its address and the requests, as text.
async fn collector(answer: &'static [u8]) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let request = read_request(&mut peer).await;
            peer.write_all(answer).await.unwrap();
            peer.shutdown().await.unwrap();
            if requests.send(request).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// Reads one request with its body.
async fn read_request(peer: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= head.len() + 4 + length.unwrap_or(0_usize) {
                return text;
            }
        }
        assert!(peer.read_buf(&mut bytes).await.unwrap() > 0, "the request is cut: {text}");
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_run_that_cannot_be_read_is_skipped_and_the_runs_around_it_are_exported() {
    let (address, mut requests) = collector(OK).await;
    let ends = Ends::new();
    let mut exporter = ends.exporter(&address);
    ends.end(3);
    let ids: Vec<_> = ends.runs.lock().unwrap().iter().map(|run| run.run_id).collect();
    *ends.broken_run.lock().unwrap() = Some(ids[1]);
    timeout(Duration::from_secs(20), exporter.catch_up()).await.unwrap();
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

/// An address where nothing listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn headers_are_parsed_and_a_mistake_shows_no_value() {
    let parse = |text: &str| parse_headers(&SecretString::from(text));
    let headers = parse("api-key = s3cret, x-tenant=a=b,").unwrap();
    assert_eq!(headers.len(), 2);
    assert_eq!((headers["api-key"].as_str(), headers["x-tenant"].as_str()), ("s3cret", "a=b"));
    assert!(parse("").unwrap().is_empty());
    for wrong in ["a=1,s3cret", "a=1,na me=s3cret", "a=1,b=s3\ncret", "a=1,=s3cret"] {
        assert_eq!(parse(wrong).unwrap_err(), "header 2 is not of the form name=value", "{wrong}");
    }
}

#[test]
fn a_refusal_is_told_from_a_fault_that_passes() {
    let status = LastStatus::default();
    assert!(!status.is_refusal(), "there was no answer");
    for (code, refused) in
        [(200, false), (400, true), (401, true), (408, false), (413, true), (429, false), (503, false)]
    {
        status.set(code);
        assert_eq!(status.is_refusal(), refused, "{code}");
    }
    status.forget();
    assert!(!status.is_refusal());
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
