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
        let config = TelemetryConfig { otlp_endpoint: endpoint.into(), ..TelemetryConfig::default() };
        TraceExporter::open(&config, None, &model(), self.clone(), self.clone()).unwrap().unwrap()
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

/// A collector that gives each request this answer. Returns its address and the requests, as text.
async fn collector(answer: &'static [u8]) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let request = read_request(&mut peer).await;
            peer.write_all(answer).await.unwrap();
            peer.shutdown().await.unwrap();
            if requests.send(request).await.is_err() {
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
    let sent = timeout(Duration::from_secs(20), requests.recv()).await.unwrap().unwrap();
    assert!(sent.contains(&ends.runs.lock().unwrap()[1].run_id.to_string()));
    stop.cancel();
    work.await.unwrap();
}

#[tokio::test]
async fn headers_that_are_no_settings_are_not_sent() {
    let (address, mut requests) = collector(OK).await;
    let headers = parse_headers(&SecretString::from("api-key=ours")).unwrap();
    let client = Client::new(&address, headers, REQUEST, Arc::default()).unwrap();
    let request = opentelemetry_http::Request::post(&address)
        .header("content-type", "application/x-protobuf")
        .header("user-agent", "exporter")
        .header("api-key", "of the environment")
        .header("x-other", "of the environment");
    let request = request.body(opentelemetry_http::Bytes::new()).unwrap();
    opentelemetry_http::HttpClient::send_bytes(&client, request).await.unwrap();
    let sent = requests.recv().await.unwrap().to_ascii_lowercase();
    for line in ["api-key: ours", "content-type: application/x-protobuf", "user-agent: exporter"] {
        assert!(sent.contains(line), "{line} in {sent}");
    }
    assert!(!sent.contains("of the environment"), "{sent}");
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

#[test]
fn a_refusal_to_open_names_the_setting() {
    let ends = Ends::new();
    let config = TelemetryConfig { otlp_endpoint: "http://127.0.0.1:4318".into(), ..TelemetryConfig::default() };
    let headers = SecretString::from("s3cret");
    let opened = TraceExporter::open(&config, Some(&headers), &model(), ends.clone(), ends);
    assert_eq!(opened.err().unwrap(), "telemetry.otlp_headers: header 1 is not of the form name=value");
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
    assert_eq!(exporter.last_status.rejected(), 300);
    for body in [&b""[..], b"\x0a", b"\x0a\x00", b"\x0a\x7f\x08", b"\x0a\x04\x12\x02no", &[0xff; 20]] {
        exporter.last_status.set_answer(body);
        assert_eq!(exporter.last_status.rejected(), 0, "{body:?}");
    }
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
    assert_eq!((&headers["api-key"], &headers["x-tenant"]), (&"s3cret".parse().unwrap(), &"a=b".parse().unwrap()));
    assert!(headers["api-key"].is_sensitive(), "no debug output shows it");
    assert!(parse("").unwrap().is_empty());
    for wrong in ["a=1,s3cret", "a=1,na me=s3cret", "a=1,b=s3\ncret", "a=1,=s3cret"] {
        assert_eq!(parse(wrong).unwrap_err(), "header 2 is not of the form name=value", "{wrong}");
    }
}

#[test]
fn a_refusal_is_told_from_a_fault_that_passes() {
    let status = LastStatus::default();
    assert!(!status.is_refusal(), "there was no answer");
    for (code, refused) in [
        (200, false),
        (302, true),
        (308, true),
        (400, true),
        (401, true),
        (408, false),
        (413, true),
        (429, false),
        (503, false),
    ] {
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
