//! What stays while daemons die: the clock, the disk, the platform that messages go to, and programs that call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::Agent;
use belay_agent::AgentParts;
use belay_automation::JobsConfig;
use belay_automation::RoutinesConfig;
use belay_protocol::{
    Ack, AckSender, ApprovalId, Body, Channel, ChannelError, ChannelId, Clock, DeliverError, Envelope, IdempotencyKey,
    Inbound, InboundStream, Outbound, Outbox, OutboxId, OutboxRow, OutboxState, Principal, Refusal, ReplyRoute, RunId,
    StoreError, UnixMillis, WorkLease,
};
use belay_run::AgentConfig;
use belay_run::approvals::ApprovalsConfig;
use belay_store::{SqlStore, StoreOptions};
use belay_testkit::faulty::{FaultPlan, Faulty};
use belay_testkit::scripted_model::ScriptedModel;
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::dice::Dice;
use super::model::NightModel;
use super::tool::Tools;
use crate::support::{Setup, ports};

/// The channel that everybody speaks through.
const CHANNEL: &str = "one";
/// Who makes everything. Every routine writes to one of so many conversations of theirs.
pub(super) const CONVERSATIONS: usize = 10;

/// The date, as paused time makes it pass.
pub(super) struct NightClock {
    began: Instant,
    dusk: UnixMillis,
}

impl Clock for NightClock {
    fn now(&self) -> UnixMillis {
        let gone = i64::try_from(self.began.elapsed().as_millis()).expect("a night");
        UnixMillis(self.dusk.0 + gone)
    }
}

/// What people have been sent, and what is known of every row of the outbox.
#[derive(Default)]
pub(super) struct Post {
    /// Every row that was ever about to be sent.
    pub(super) committed: BTreeMap<OutboxId, Outbound>,
    /// How often each was shown.
    pub(super) shown: BTreeMap<OutboxId, u32>,
    /// Those of which nobody knows whether they were.
    pub(super) ambiguous: BTreeSet<OutboxId>,
    /// Deliveries that the platform has refused for the moment.
    pub(super) refused: u64,
}

/// What daemons come and go in.
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) clock: Arc<NightClock>,
    pub(super) post: Arc<Mutex<Post>>,
    pub(super) model: Arc<NightModel>,
    pub(super) tools: Tools,
    line: watch::Sender<Option<mpsc::Sender<Envelope>>>,
    disk: tempfile::TempDir,
}

/// A daemon that lives.
pub(super) struct Life {
    task: JoinHandle<belay_agent::AgentExit>,
    stop: CancellationToken,
    pub(super) plan: FaultPlan,
    pub(super) store: Faulty<SqlStore>,
}

impl World {
    pub(super) fn new(seed: u64, dusk: UnixMillis) -> Self {
        let dice = Dice(seed);
        Self {
            dice,
            clock: Arc::new(NightClock { began: Instant::now(), dusk }),
            post: Arc::default(),
            model: Arc::new(NightModel::new(dice)),
            tools: Tools::default(),
            line: watch::Sender::new(None),
            disk: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(super) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// Begins a life on the disk as it is.
    pub(super) async fn begin(&self) -> Life {
        let store = Arc::new(SqlStore::open(&self.path(), StoreOptions::default()).expect("the store opens"));
        let store = Faulty::new(store);
        store.plan().hold_time();
        let mut ports = ports(Arc::new(store.clone()));
        ports.outbox = Arc::new(WatchedOutbox { outbox: ports.outbox.clone(), post: self.post.clone() });
        let setup = Setup::new(ScriptedModel::new([]));
        let (tx, inbound) = mpsc::channel(256);
        let channel = Arc::new(Platform {
            id: CHANNEL.into(),
            inbound: Mutex::new(Some(inbound)),
            post: self.post.clone(),
            dice: self.dice,
        });
        let parts = AgentParts {
            leases: None,
            callbacks: None,
            pairing: None,
            config: AgentConfig { drain_s: 5, ..AgentConfig::default() },
            routines: RoutinesConfig { webhooks_per_minute: 100, max_per_person: 1000, ..RoutinesConfig::default() },
            jobs: JobsConfig {
                max_parallel: 8,
                max_parallel_per_user: 8,
                job_timeout_s: 6 * 3600,
                max_steps: 100,
                ..JobsConfig::default()
            },
            // Nobody answers in the night: each question soon becomes a no.
            approvals: ApprovalsConfig { autonomous_expires_s: 60, ..ApprovalsConfig::default() },
            model: self.model.clone(),
            tools: self.tools.all(),
            channels: vec![channel],
            store: ports,
            clock: self.clock.clone(),
            ..setup.parts()
        };
        let stop = CancellationToken::new();
        let agent = Agent::start(parts).await.expect("the agent starts");
        let task = tokio::spawn(agent.run(stop.clone()));
        self.line.send_replace(Some(tx));
        Life { task, stop, plan: store.plan().clone(), store }
    }

    fn path(&self) -> PathBuf {
        self.disk.path().join("night.db")
    }

    /// Ends a life as a crash would: nothing is written or sent from here on.
    pub(super) async fn crash(&self, life: Life) {
        self.line.send_replace(None);
        life.task.abort();
        assert!(life.task.await.is_err_and(|error| error.is_cancelled()), "a daemon has ended by itself");
        life.store.inner().close().await;
    }

    /// Ends the last one in good order.
    pub(super) async fn shut_down(&self, life: Life) {
        self.line.send_replace(None);
        life.stop.cancel();
        life.task.await.expect("no panic");
        life.store.inner().close().await;
    }

    /// A message under this key, in one of the conversations.
    pub(super) fn inbound(&self, key: &str, conversation: usize, body: Body) -> Inbound {
        let session = format!("talk-{}", conversation % CONVERSATIONS);
        Inbound {
            key: Some(IdempotencyKey {
                channel: CHANNEL.into(),
                account: session.as_str().into(),
                message_id: key.into(),
            }),
            reply_to: Some(ReplyRoute {
                channel: CHANNEL.into(),
                conversation: session.as_str().into(),
                reply_to: None,
            }),
            ..Inbound::new(CHANNEL.into(), session.as_str().into(), Principal::operator("tester"), body)
        }
    }

    /// Says something to whichever daemon lives, again and again under its key, until one has answered for good.
    pub(super) async fn tell(&self, inbound: Inbound) -> Ack {
        let mut line = self.line.subscribe();
        loop {
            let open = line.wait_for(Option::is_some).await.expect("the world goes on").clone().expect("open");
            let (ack, answer) = AckSender::channel();
            if open.send(Envelope { inbound: inbound.clone(), ack }).await.is_ok()
                && let Ok(Ok(answer)) = timeout(Duration::from_secs(120), answer).await
            {
                match answer {
                    Ack::Refused(Refusal::Busy { retry_after, .. }) => sleep(retry_after).await,
                    Ack::Refused(Refusal::Store(_) | Refusal::ShuttingDown) => {}
                    answer => return answer,
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Keeps an eye on what is to be sent.
struct WatchedOutbox {
    outbox: Arc<dyn Outbox>,
    post: Arc<Mutex<Post>>,
}

fn lock(post: &Mutex<Post>) -> MutexGuard<'_, Post> {
    post.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Outbox for WatchedOutbox {
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError> {
        self.outbox.enqueue(message).await
    }

    async fn due(
        &self,
        now: UnixMillis,
        busy: &[ReplyRoute],
        leases: Option<&[WorkLease]>,
        limit: u32,
        callbacks: u32,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let rows = self.outbox.due(now, busy, leases, limit, callbacks).await?;
        let messages = rows.iter().map(|row| (row.message.id, row.message.clone()));
        lock(&self.post).committed.extend(messages);
        Ok(rows)
    }

    async fn next_due(&self, leases: Option<&[WorkLease]>) -> Result<Option<UnixMillis>, StoreError> {
        self.outbox.next_due(leases).await
    }

    async fn mark(
        &self,
        id: OutboxId,
        state: OutboxState,
        at: UnixMillis,
        lease: Option<&WorkLease>,
    ) -> Result<(), StoreError> {
        let ambiguous = state == OutboxState::Ambiguous;
        self.outbox.mark(id, state, at, lease).await?;
        if ambiguous {
            lock(&self.post).ambiguous.insert(id);
        }
        Ok(())
    }

    async fn put_checked(&self, message: &Outbound) -> Result<(), StoreError> {
        self.outbox.put_checked(message).await
    }

    async fn settle_interrupted(
        &self,
        at: UnixMillis,
        leases: Option<&[WorkLease]>,
        settling: &[ChannelId],
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let rows = self.outbox.settle_interrupted(at, leases, settling).await?;
        lock(&self.post).ambiguous.extend(rows.iter().map(|row| row.message.id));
        Ok(rows)
    }

    async fn shown_last(&self, route: &ReplyRoute, run: RunId) -> Result<Option<ApprovalId>, StoreError> {
        self.outbox.shown_last(route, run).await
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.outbox.committed()
    }
}

/// Where messages are shown. One delivery in thirty is to be tried again.
struct Platform {
    id: ChannelId,
    inbound: Mutex<Option<mpsc::Receiver<Envelope>>>,
    post: Arc<Mutex<Post>>,
    dice: Dice,
}

#[async_trait]
impl Channel for Platform {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let receiver = self.inbound.lock().unwrap_or_else(PoisonError::into_inner).take().expect("started once");
        Ok(ReceiverStream::new(receiver).take_until(intake.cancelled_owned()).boxed())
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        sleep(Duration::from_millis(200)).await;
        let mut post = lock(&self.post);
        if self.dice.roll(&format!("deliver {}", message.text), post.refused, 30) == 0 {
            post.refused += 1;
            return Err(DeliverError::Retry { after: None, detail: "busy".into(), pieces_sent: 0 });
        }
        *post.shown.entry(message.id).or_default() += 1;
        Ok(())
    }
}
