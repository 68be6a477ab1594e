//! The state that all handlers share: the queue to the agent, the readers, and waiting for a run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, AckSender, ApprovalId, ApprovalState, ApprovalStore, Archive, AttachmentIntake, BlobStore, Body,
    ChannelId, Clock, CommandReply, Control, EndReader, Envelope, EventLog, IdempotencyKey, Inbound, Janitor,
    JobReader, NoteArchive, OrderId, Principal, RoutineReader, RunId, RunReader, RunRecord, RunStatus, RunWatch, Seq,
    SessionKey, SessionReader, SpendReader, StopTarget, StoreHealth,
};
use secrecy::SecretString;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;
use crate::channel::CONTROL_SLOTS;
use crate::config::GatewayConfig;
use crate::error::{ApiError, ErrorCode};
use crate::fact_pages::FactPages;
use crate::failed_auth::FailedAuthLimiter;
use crate::file_links::SignedLinks;
use crate::first_attempts::FirstAttempts;
use crate::new_socket::NewSocket;
use crate::parts::{
    Backups, ClusterView, DatabaseLoss, JudgeOfRules, KeptSecrets, Metrics, Models, RoutineTimes, SettingsSource,
    Trajectory,
};
use crate::readers::Readers;
use crate::sign_ins::SignIns;
use crate::sign_ins::cookie::Cookies;
use crate::slots::Slots;
use crate::texts::AgentTexts;

/// Longest wait for the agent's acknowledgement. 30 s: a commit takes milliseconds, and a client should learn of a
/// fault after this time.
const ACK_LIMIT: Duration = Duration::from_secs(30);

/// Shortest pause between two reads of a run that is followed through the store.
pub(crate) const STORE_POLL: Duration = Duration::from_millis(20);

/// A wait without a limit: a year, which every clock can add.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The event that ends a wait for a run.
enum Until {
    /// The run has ended or waits for approval.
    EndOrPause,
    /// The run has ended.
    End,
}

/// Shared by every handler.
pub(crate) type Shared = Arc<App>;

/// The state of the handlers. Constant after the start, except the two flags and the queues.
pub(crate) struct App {
    pub(crate) config: GatewayConfig,
    pub(crate) auth: Arc<Auth>,
    /// The browsers that are signed in.
    pub(crate) sign_ins: SignIns,
    /// The cookies of this daemon.
    pub(crate) cookies: Cookies,
    /// The address that it listens on, as a browser of this machine reaches it.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) webhook_secret: Option<SecretString>,
    pub(crate) runs: Arc<dyn RunReader>,
    pub(crate) sessions: Arc<dyn SessionReader>,
    pub(crate) health: Arc<dyn StoreHealth>,
    pub(crate) events: Arc<dyn EventLog>,
    /// New facts of [`App::events`], written once for all readers.
    pub(crate) fact_pages: FactPages,
    pub(crate) approvals: Arc<dyn ApprovalStore>,
    pub(crate) archive: Arc<dyn Archive>,
    pub(crate) notes: Arc<dyn NoteArchive>,
    pub(crate) kept: KeptSecrets,
    pub(crate) jobs: Arc<dyn JobReader>,
    pub(crate) routines: Arc<dyn RoutineReader>,
    pub(crate) times: Arc<dyn RoutineTimes>,
    pub(crate) spending: Arc<dyn SpendReader>,
    pub(crate) ends: Arc<dyn EndReader>,
    pub(crate) janitor: Arc<dyn Janitor>,
    pub(crate) backups: Arc<dyn Backups>,
    pub(crate) database_losses: Vec<DatabaseLoss>,
    pub(crate) cluster: Option<ClusterView>,
    pub(crate) attachments: Arc<dyn AttachmentIntake>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) links: Arc<SignedLinks>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) models: Models,
    pub(crate) version: String,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) trajectory: Trajectory,
    pub(crate) judge: JudgeOfRules,
    pub(crate) slots: Slots,
    pub(crate) settings: SettingsSource,
    pub(crate) texts: AgentTexts,
    /// The channel's name, on every message.
    pub(crate) channel: ChannelId,
    /// The session key of control messages, which belong to no session.
    pub(crate) no_session: SessionKey,
    pub(crate) intake: mpsc::Sender<Envelope>,
    /// One permit for each event stream, and for each authenticated WebSocket.
    pub(crate) streams: Arc<Semaphore>,
    /// One permit for each WebSocket that is not yet authenticated.
    pub(crate) failed_auth: Arc<Semaphore>,
    /// Counts wrong tokens by address.
    pub(crate) wrong_tokens: FailedAuthLimiter,
    /// Counts wrong webhook secrets by address.
    pub(crate) wrong_secrets: FailedAuthLimiter,
    /// Queue of accepted WebSockets; the server starts a task for each.
    #[cfg_attr(not(feature = "websocket"), expect(dead_code, reason = "a build without sockets"))]
    pub(crate) sockets: mpsc::Sender<NewSocket>,
    /// Whether the agent accepts messages.
    pub(crate) ready: watch::Receiver<bool>,
    /// Whether the agent has ever accepted messages.
    pub(crate) started: AtomicBool,
    /// Cancelled when the gateway accepts no new messages.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the gateway has ended: nobody can read an answer any more.
    pub(crate) closed: CancellationToken,
    /// Clients that wait for runs of the OpenAI-compatible API.
    pub(crate) readers: Readers,
    /// Requests of that API that may be sent again.
    pub(crate) first_attempts: FirstAttempts,
    /// Queue of requests whose client disconnected before the answer came.
    pub(crate) abandoned: mpsc::Sender<AbandonedRequest>,
}

/// Capacity of the queue of abandoned requests. Its consumer does nothing slow. When it is full, the run continues to
/// its end.
pub(crate) const ABANDONED_CAPACITY: usize = 256;

/// A message whose client has disconnected. Disconnecting was the client's only way to stop the run.
pub(crate) struct AbandonedRequest {
    principal: Principal,
    run: AbandonedRun,
    /// How long the run goes on, in case the client sends the message again.
    grace: Duration,
}

/// The run of such a message.
enum AbandonedRun {
    Known(RunId),
    /// The acknowledgement has not come yet.
    Asked(oneshot::Receiver<Ack>),
}

impl AbandonedRequest {
    /// A run whose last client has disconnected.
    pub(crate) fn of_run(principal: Principal, run: RunId, grace: Duration) -> Self {
        Self { principal, run: AbandonedRun::Known(run), grace }
    }

    /// Stops the run that the message started or resumed, if there is one and no client waits for it again.
    pub(crate) async fn stop_run(self, app: Shared) {
        let run = match self.run {
            AbandonedRun::Known(run) => run,
            AbandonedRun::Asked(answer) => match timeout(ACK_LIMIT, answer).await {
                Ok(Ok(Ack::Accepted(Accepted { run_id, .. }))) => run_id,
                Ok(Ok(Ack::Command(CommandReply { resumes: Some(run_id), .. }))) => run_id,
                _ => return,
            },
        };
        if !self.grace.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(self.grace) => {}
                () = app.draining.cancelled() => return, // the run goes on after the restart
            }
        }
        if app.readers.has(run) {
            return;
        }
        app.send_control(self.principal, Control::Stop(StopTarget::RunOfGoneClient(run)));
    }
}

/// Waits for the answer of an [`AbandonedRequest`]. If dropped before the answer, it queues that request.
struct PendingAnswer<'a> {
    app: &'a App,
    request: Option<AbandonedRequest>,
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.app.abandon(request);
        }
    }
}

impl App {
    /// Hands a message to the agent and waits for its acknowledgement.
    ///
    /// # Errors
    /// The refusal; or 503 when the queue is full, the agent has ended, or no answer came in time.
    ///
    /// # Cancel safety
    /// Once sent, the agent handles the message; only the answer is lost.
    pub(crate) async fn ask(&self, inbound: Inbound) -> Result<Ack, ApiError> {
        self.check_visible(&inbound).await?;
        self.answered(timeout(ACK_LIMIT, self.hand_over(inbound)?).await)
    }

    /// Converts the result of waiting for an acknowledgement.
    fn answered(&self, answer: Result<Result<Ack, RecvError>, Elapsed>) -> Result<Ack, ApiError> {
        match answer {
            Ok(Ok(Ack::Refused(refusal))) => Err(self.judged(refusal.into())),
            Ok(Ok(ack)) => Ok(ack),
            Ok(Err(_dropped)) => Err(ApiError::no_answer("the message was not accepted")),
            Err(_elapsed) => Err(ApiError::no_answer("no answer in time; the message may still be accepted")),
        }
    }

    /// Says of an error of the store that no attempt succeeds before a restart, if that is so.
    fn judged(&self, error: ApiError) -> ApiError {
        if error.code == ErrorCode::Store && self.health.trouble().is_some() { ApiError::lost_store() } else { error }
    }

    /// Like [`App::ask`], for a message whose run only this caller can stop, by disconnecting. If the caller is dropped
    /// or gets no answer in time, the run is stopped.
    /// `grace`: how long the run goes on before.
    pub(crate) async fn ask_while_there(&self, inbound: Inbound, grace: Duration) -> Result<Ack, ApiError> {
        self.check_visible(&inbound).await?;
        let principal = inbound.principal.clone();
        let answer = self.hand_over(inbound)?;
        let mut pending = PendingAnswer {
            app: self,
            request: Some(AbandonedRequest { principal, run: AbandonedRun::Asked(answer), grace }),
        };
        let Some(AbandonedRequest { run: AbandonedRun::Asked(answer), .. }) = &mut pending.request else {
            return Err(ApiError::internal()); // set two lines above
        };
        let answer = timeout(ACK_LIMIT, answer).await;
        if answer.is_ok() {
            pending.request = None;
        }
        self.answered(answer)
    }

    /// Queues a request whose client has disconnected.
    pub(crate) fn abandon(&self, request: AbandonedRequest) {
        if self.abandoned.try_send(request).is_err() {
            tracing::warn!("too many clients went away at once; the run of one goes on to its end");
        }
    }

    /// Refuses a message in a session that its sender may not see, as if the session did not exist. For a conversation
    /// this needs no store read, so messages keep their order.
    async fn check_visible(&self, inbound: &Inbound) -> Result<(), ApiError> {
        self.visibility(&inbound.principal).visible_session(inbound.session.clone()).await.map(|_visible| ())
    }

    /// Puts a message into the agent's queue.
    fn hand_over(&self, inbound: Inbound) -> Result<oneshot::Receiver<Ack>, ApiError> {
        if matches!(inbound.body, Body::Text(_) | Body::Edit(_)) {
            if self.draining.is_cancelled() {
                return Err(ApiError::shutting_down());
            }
            if self.intake.capacity() <= CONTROL_SLOTS {
                return Err(ApiError::busy("the message queue is full"));
            }
        }
        let (ack, answer) = AckSender::channel();
        self.intake.try_send(Envelope { inbound, ack }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ApiError::busy("the message queue is full"),
            mpsc::error::TrySendError::Closed(_) => ApiError::shutting_down(),
        })?;
        Ok(answer)
    }

    /// Sends a control message to the dispatcher and waits for its answer.
    pub(crate) async fn control(&self, principal: Principal, control: Control) -> Result<Ack, ApiError> {
        self.ask(self.control_message(principal, control)).await
    }

    /// The same for a message that may be sent again. `id`: the same each time; `None`: it is not repeated.
    pub(crate) async fn repeated_control(
        &self,
        principal: Principal,
        control: Control,
        id: Option<OrderId>,
    ) -> Result<Ack, ApiError> {
        let key = id.map(|id| IdempotencyKey {
            channel: self.channel.clone(),
            account: "control".into(),
            message_id: id.to_string().into(),
        });
        self.ask(Inbound { key, ..self.control_message(principal, control) }).await
    }

    /// Sends a control message whose answer nobody needs. Never waits.
    pub(crate) fn send_control(&self, principal: Principal, control: Control) {
        let inbound = self.control_message(principal, control);
        if self.intake.try_send(Envelope { inbound, ack: AckSender::nobody() }).is_err() {
            tracing::warn!("the dispatcher was not notified that a client disconnected; its run continues to its end");
        }
    }

    fn control_message(&self, principal: Principal, control: Control) -> Inbound {
        self.without_session(principal, Body::Control(control))
    }

    /// Makes a message that belongs to no session.
    pub(crate) fn without_session(&self, principal: Principal, body: Body) -> Inbound {
        Inbound::new(self.channel.clone(), self.no_session.clone(), principal, body)
    }

    /// Watches a live run. `want_deltas` also subscribes to its deltas; a model call with a received delta is not
    /// retried. `None`: the run is not live, or the agent cannot answer. Then the store has its state.
    pub(crate) async fn watch(
        &self,
        principal: Principal,
        run: RunId,
        want_deltas: bool,
    ) -> Result<Option<RunWatch>, ApiError> {
        let message = Inbound { want_deltas, ..self.control_message(principal, Control::Watch(run)) };
        match self.ask(message).await {
            Ok(Ack::Watch(watch)) => Ok(watch),
            Ok(other) => Err(ApiError::unexpected(&other)),
            Err(error) if error.retryable => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of the newest event, against which a cursor is checked. Another node may have given the cursor before
    /// this one has noticed the event. So the store is read, but only for a cursor beyond the tip.
    ///
    /// # Errors
    /// 503: the store cannot be read.
    pub(crate) async fn newest_for(&self, cursor: Option<Seq>) -> Result<Seq, ApiError> {
        let tip = *self.events.tip().borrow();
        match cursor {
            Some(cursor) if cursor > tip => Ok(self.events.newest().await?.max(tip)),
            _ => Ok(tip),
        }
    }

    /// The number of the newest event that any node has committed. Without other nodes, or if the store cannot be read, that
    /// of the tip.
    pub(crate) async fn newest_beside_others(&self) -> Seq {
        let tip = *self.events.tip().borrow();
        if self.cluster.is_none() {
            return tip;
        }
        match self.events.newest().await {
            Ok(newest) => newest.max(tip),
            Err(error) => {
                tracing::warn!(%error, "the newest event cannot be read");
                tip
            }
        }
    }

    /// Takes a permit for a stream; dropping it frees the slot.
    ///
    /// # Errors
    /// 503 when all permits are taken.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = self.streams.clone().try_acquire_owned();
        permit.map_err(|_none_left| ApiError::busy("too many event streams are open"))
    }

    /// Returns the run when it has ended; pauses before that are ignored. At the deadline, or when the daemon ends,
    /// returns the current record. `None`: there is no such run.
    pub(crate) async fn wait_for_end(
        &self,
        run: RunId,
        finished: Option<watch::Receiver<Option<Arc<RunRecord>>>>,
        deadline: Option<Instant>,
    ) -> Result<Option<Arc<RunRecord>>, ApiError> {
        let by = |deadline: Option<Instant>| deadline.unwrap_or_else(|| Instant::now() + FOREVER);
        if let Some(mut finished) = finished {
            let is_end = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|run| run.status.is_end());
            if let Ok(Ok(record)) = timeout_at(by(deadline), finished.wait_for(is_end)).await {
                return Ok(record.clone().map(|record| self.links.linked(record)));
            }
        }
        self.follow_in_store(run, by(deadline), Until::End).await
    }

    /// Returns the run when it has ended or waits for approval. At the end of the time, returns the current record.
    /// `None`: there is no such run.
    pub(crate) async fn wait_for_run(
        &self,
        run: RunId,
        watch: Option<RunWatch>,
        limit: Duration,
    ) -> Result<Option<Arc<RunRecord>>, ApiError> {
        let deadline = Instant::now() + limit;
        if let Some(mut watch) = watch {
            watch.deltas = None; // an unread receiver would only hold deltas
            if let Ok(Some(record)) = timeout_at(deadline, self.end_or_pause(&mut watch.finished)).await {
                return Ok(Some(record));
            }
        }
        self.follow_in_store(run, deadline, Until::EndOrPause).await
    }

    /// The record of a live run when it has ended or waits for approval; `None`: the run is no longer live. Cancel
    /// safe.
    pub(crate) async fn end_or_pause(
        &self,
        finished: &mut watch::Receiver<Option<Arc<RunRecord>>>,
    ) -> Option<Arc<RunRecord>> {
        let mut passed: Option<Arc<RunRecord>> = None;
        loop {
            let is_new = |record: &Option<Arc<RunRecord>>| match (record, &passed) {
                (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
                (record, _) => record.is_some(),
            };
            let record = finished.wait_for(is_new).await.ok()?.clone()?;
            if self.is_ended_or_paused(&record).await {
                return Some(self.links.linked(record));
            }
            passed = Some(record);
        }
    }

    /// Whether a run makes no progress by itself: it has ended, or waits for approval. After the answer the run is
    /// about to continue, although its record may still say "paused" for a moment.
    async fn is_ended_or_paused(&self, run: &RunRecord) -> bool {
        match (run.status, &run.waiting_for) {
            (RunStatus::Paused, Some(question)) => self.is_open(question.approval).await,
            (status, _) => status.is_ended_or_paused(),
        }
    }

    /// Whether an approval request is open. A request that cannot be read counts as open.
    async fn is_open(&self, approval: ApprovalId) -> bool {
        match self.approvals.approval(approval).await {
            Ok(approval) => approval.is_none_or(|approval| approval.state == ApprovalState::Waiting),
            Err(error) => {
                tracing::warn!(%error, %approval, "a question cannot be read");
                true
            }
        }
    }

    /// Reads the run after each commit of facts, until the condition holds or the deadline passes.
    async fn follow_in_store(
        &self,
        run: RunId,
        deadline: Instant,
        until: Until,
    ) -> Result<Option<Arc<RunRecord>>, ApiError> {
        let mut tip = self.events.tip();
        loop {
            tip.borrow_and_update(); // marked before the read: a later commit wakes this task
            let Some(record) = self.runs.run(run).await? else { return Ok(None) };
            let done = match until {
                Until::EndOrPause => self.is_ended_or_paused(&record).await,
                Until::End => record.status.is_end(),
            };
            if done || Instant::now() >= deadline || self.draining.is_cancelled() {
                return Ok(Some(Arc::new(record)));
            }
            tokio::select! {
                changed = timeout_at(deadline, tip.changed()) => {
                    if let Ok(Err(_closed)) = changed {
                        return Ok(Some(Arc::new(record)));
                    }
                }
                () = self.draining.cancelled() => {}
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + STORE_POLL)).await;
        }
    }
}
