//! A gateway among stand-ins: an agent that does what the text of a message says, and a store in memory.

mod agent;
mod reports;
mod sign_ins;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use belay_gateway::{
    AgentTexts, BackupFailure, BackupRefusal, BackupRequest, BackupStatus, Backups, Gateway, GatewayConfig,
    GatewayError, GatewayParts, GatewaySecrets, HttpChannel, Judged, KeptSecrets, LINK_KEY_BYTES, Latency, Metrics,
    Models, SettingsReport, SignedLinks,
};
use belay_protocol::*;
use secrecy::SecretBox;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::agent::FakeAgent;
pub(crate) use self::sign_ins::FakeSignIns;
pub(crate) use self::store::{FILE, FakeArchive, FakeStore, blank, older};
use self::store::{FakeBlobs, FakeNotes};
use crate::work::{FakeTimes, FakeWork};

/// Longest wait for anything that a test expects; it only decides how long a failing test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The date that the clock shows, unless it is moved: 2026-11-20T19:43:00Z.
pub(crate) const NOW: i64 = 1_795_203_780_000;

pub(crate) struct FakeClock(pub(crate) AtomicI64);

impl Clock for FakeClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        provider: "rehearsal".into(),
        model: "some-model".into(),
        context_tokens: 8000,
        price: None,
        rehearsal: true,
        vision: false,
        sampling: belay_protocol::SamplingSupport::ALL,
    }
}

/// The secret of the webhook, where there are secrets.
pub(crate) const SECRET: &str = "It's a Secret to Everybody";

/// A gateway that serves, and what stands behind it.
pub(crate) struct Harness {
    pub(crate) addr: Option<SocketAddr>,
    pub(crate) store: Arc<FakeStore>,
    pub(crate) agent: Arc<FakeAgent>,
    pub(crate) work: Arc<FakeWork>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) ready: watch::Sender<bool>,
    pub(crate) stop: CancellationToken,
    pub(crate) intake: CancellationToken,
    /// The agent at its stream; aborted, it has let go of it.
    pub(crate) working: JoinHandle<()>,
    pub(crate) served: JoinHandle<Result<(), GatewayError>>,
    pub(crate) client: reqwest::Client,
}

impl Harness {
    /// On loopback, without any secret.
    pub(crate) async fn open() -> Self {
        Self::with(|_parts| {}).await
    }

    /// With both tokens (`client`, `operator`) and the webhook's secret.
    pub(crate) async fn locked() -> Self {
        Self::with(|parts| {
            let secret = |text: &str| Some(text.to_owned().into());
            parts.secrets = GatewaySecrets {
                token: secret("client"),
                operator_token: secret("operator"),
                webhook_secret: secret(SECRET),
            };
        })
        .await
    }

    /// With other parts.
    pub(crate) async fn with(change: impl FnOnce(&mut GatewayParts)) -> Self {
        let store = Arc::new(FakeStore::default());
        let clock = Arc::new(FakeClock(AtomicI64::new(NOW)));
        let (ready, ready_seen) = watch::channel(true);
        let work = Arc::new(FakeWork { store: Some(store.clone()), ..FakeWork::default() });
        let mut parts =
            GatewayParts { jobs: work.clone(), routines: work.clone(), ..parts(&store, &clock, ready_seen) };
        change(&mut parts);
        let (gateway, channel) = Gateway::bind(parts).await.unwrap();
        let addr = gateway.addr();
        let agent = Arc::new(FakeAgent::new(store.clone(), work.clone()));
        let (stop, intake) = (CancellationToken::new(), CancellationToken::new());
        let stream = start(&channel, intake.clone()).await;
        let working = tokio::spawn(agent.clone().work(stream));
        let served = tokio::spawn(gateway.serve(stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { addr, store, agent, work, clock, ready, stop, intake, working, served, client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(self.url(path))).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        read(self.client.post(self.url(path)).json(&body)).await
    }

    /// Sends a message whose run waits for approval, and returns the run's record and the question's id.
    pub(crate) async fn ask(&self, session: &str, text: &str) -> (Value, ApprovalId) {
        let message = serde_json::json!({"session": session, "text": text, "wait_ms": 30_000});
        let (status, run) = self.post("/api/v1/messages", message).await;
        assert_eq!((status, run["status"].as_str()), (200, Some("paused")), "{run}");
        let approval = run["waiting_for"]["approval"].as_str().unwrap().parse().unwrap();
        (run, approval)
    }

    /// The run that began last.
    pub(crate) async fn newest_run(&self) -> RunId {
        self.get("/api/v1/runs").await.1["runs"][0]["run_id"].as_str().unwrap().parse().unwrap()
    }

    /// Begins a run that does not end by itself.
    pub(crate) async fn hold(&self, session: &str) -> RunId {
        let (status, body) =
            self.post("/api/v1/messages", serde_json::json!({"session": session, "text": "hold"})).await;
        assert_eq!(status, 202, "{body}");
        body["run_id"].as_str().unwrap().parse().unwrap()
    }
}

pub(crate) async fn start(channel: &HttpChannel, intake: CancellationToken) -> InboundStream {
    channel.start(intake).await.unwrap()
}

pub(crate) fn parts(store: &Arc<FakeStore>, clock: &Arc<FakeClock>, ready: watch::Receiver<bool>) -> GatewayParts {
    GatewayParts {
        metrics: Some(Metrics {
            render: Arc::new(|| "belay_test 1\n".to_owned()),
            latencies: Arc::new(|| vec![Latency { kind: "wait", periods: Vec::new() }]),
        }),
        trajectory: Arc::new(|messages, compactions| {
            let messages = messages.iter().map(|message| message.text().to_owned());
            let facts = compactions.iter().map(|fact| format!("fact {}", fact.seq.0));
            messages.chain(facts).map(|line| line + "\n").collect()
        }),
        // An end that waits for its whole limit is longer than any test waits.
        config: GatewayConfig {
            listen: "127.0.0.1:0".into(),
            max_body_bytes: 200_000,
            drain_s: 600,
            ..GatewayConfig::default()
        },
        secrets: GatewaySecrets::default(),
        runs: store.clone(),
        sessions: store.clone(),
        health: store.clone(),
        events: store.clone(),
        approvals: store.clone(),
        archive: Arc::new(FakeArchive { store: Some(store.clone()) }),
        notes: Arc::new(FakeNotes::default()),
        kept: KeptSecrets::new(Arc::new(FakeArchive::default()), None),
        jobs: Arc::new(FakeWork::default()),
        routines: Arc::new(FakeWork::default()),
        times: Arc::new(FakeTimes),
        // Strikes at a message that contains the rules.
        judge: Arc::new(|rules| {
            let rules = rules.to_owned();
            if rules.contains("nonsense") {
                return Err("nonsense: unknown key".to_owned());
            }
            Ok(Arc::new(move |messages: &[Arc<Message>], _: &[Event]| {
                let at = messages.iter().position(|message| message.text().contains(&rules));
                Judged { stopped: at.is_some(), at_event: at.map(|at| at as u64), ..Judged::default() }
            }))
        }),
        settings: Arc::new(|| SettingsReport { problems: vec!["a.b: wrong".into()], ..SettingsReport::default() }),
        spending: Arc::new(FakeArchive::default()),
        sign_ins: Arc::new(FakeSignIns::default()),
        ends: Arc::new(FakeArchive::default()),
        janitor: Arc::new(FakeArchive::default()),
        backups: Arc::new(NoBackups),
        database_losses: vec![],
        cluster: None,
        attachments: Arc::new(NoAttachments),
        blobs: Arc::new(FakeBlobs),
        links: Arc::new(SignedLinks::new(SecretBox::new(Box::new([7; LINK_KEY_BYTES])), 24, clock.clone())),
        texts: AgentTexts {
            question: Arc::new(|approval, _now| format!("May I {}?", approval.summary)),
            are_checked: false,
        },
        clock: clock.clone(),
        models: Models { chat: model(), embedder: None },
        version: "0.0.0".into(),
        extra: vec![],
        control_socket: None,
        ready,
    }
}

/// A client that opens a connection for each request.
pub(crate) fn fresh_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap()
}

/// Status and body; a body that is not JSON is an assertion of its own, as a string.
pub(crate) async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// There are no backups here; the scenarios make real ones.
struct NoBackups;

#[async_trait::async_trait]
impl Backups for NoBackups {
    async fn create(&self, request: BackupRequest) -> Result<Value, BackupRefusal> {
        Err(if request.with_key { BackupRefusal::Busy } else { BackupRefusal::Invalid("there is no database".into()) })
    }

    async fn list(&self) -> Result<Value, BackupRefusal> {
        Ok(serde_json::json!({"backups": []}))
    }

    fn status(&self) -> Option<BackupStatus> {
        let failure = BackupFailure { at: UnixMillis(1000), detail: "the disk is full".into() };
        Some(BackupStatus { last_failure: Some(failure), ..BackupStatus::default() })
    }
}
