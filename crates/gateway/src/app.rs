//! What all handlers share: the way to the agent, the readers, and waiting for a run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, AckSender, Archive, Body, ChannelId, Clock, CommandReply, Control, Envelope, EventLog, GateId,
    GateState, GateStore, Inbound, Janitor, JobReader, ModelInfo, Principal, RoutineReader, RunId, RunReader,
    RunRecord, RunStatus, RunWatch, SecretVault, SessionKey, SessionReader, StopTarget, StoreHealth,
};
use secrecy::SecretString;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;
use crate::config::GatewayConfig;
use crate::error::ApiError;
use crate::failed_auth::FailedAuthLimiter;
use crate::new_socket::NewSocket;
use crate::parts::{Metrics, QuestionWords, RoutineTimes, Trajectory};

/// Longest wait for the agent's acknowledgement. 30 s: a commit takes milliseconds, and a client that waited this long
/// should hear that something is wrong.
const ACK_LIMIT: Duration = Duration::from_secs(30);

/// Shortest pause between two looks at a run that is followed through the store.
const STORE_POLL: Duration = Duration::from_millis(20);

/// A wait that has no limit of its own: a year, which every clock can add.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a run is waited for.
enum Until {
    /// It has ended, or rests on a question.
    Rest,
    /// It has ended.
    End,
}

/// Shared by every handler.
pub(crate) type Shared = Arc<App>;

/// What handlers need. Constant after the start, but for the two flags and the queues.
pub(crate) struct App {
    pub(crate) config: GatewayConfig,
    pub(crate) auth: Arc<Auth>,
    pub(crate) webhook_secret: Option<SecretString>,
    pub(crate) runs: Arc<dyn RunReader>,
    pub(crate) sessions: Arc<dyn SessionReader>,
    pub(crate) health: Arc<dyn StoreHealth>,
    pub(crate) events: Arc<dyn EventLog>,
    pub(crate) gates: Arc<dyn GateStore>,
    pub(crate) archive: Arc<dyn Archive>,
    pub(crate) vault: Arc<dyn SecretVault>,
    pub(crate) jobs: Arc<dyn JobReader>,
    pub(crate) routines: Arc<dyn RoutineReader>,
    pub(crate) times: Arc<dyn RoutineTimes>,
    pub(crate) janitor: Arc<dyn Janitor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) model: ModelInfo,
    pub(crate) version: String,
    pub(crate) metrics: Metrics,
    pub(crate) trajectory: Trajectory,
    pub(crate) question: QuestionWords,
    /// The channel's name, on every message.
    pub(crate) channel: ChannelId,
    /// The session of control messages, which concern none.
    pub(crate) no_session: SessionKey,
    pub(crate) intake: mpsc::Sender<Envelope>,
    /// One permit for each event stream, and for each WebSocket whose other end is known.
    pub(crate) streams: Arc<Semaphore>,
    /// One permit for each WebSocket whose other end has yet to say who it is.
    pub(crate) failed_auth: Arc<Semaphore>,
    /// Who has shown wrong tokens.
    pub(crate) wrong_tokens: FailedAuthLimiter,
    /// Who has shown wrong secrets of webhooks.
    pub(crate) wrong_secrets: FailedAuthLimiter,
    /// Takes the WebSockets that have been accepted; the server gives each a task.
    pub(crate) sockets: mpsc::Sender<NewSocket>,
    /// Whether the agent takes messages.
    pub(crate) ready: watch::Receiver<bool>,
    /// Whether it ever did.
    pub(crate) started: AtomicBool,
    /// Cancelled when the gateway takes no new messages.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the gateway has ended: nobody is left who could read an answer.
    pub(crate) closed: CancellationToken,
    /// Takes the questions whose asker has gone away before the answer came.
    pub(crate) orphans: mpsc::Sender<AbandonedRequest>,
}

/// Questions that wait for the one who sees to them, who does nothing slow. Then: the run goes on to its end.
pub(crate) const ORPHAN_CAPACITY: usize = 256;

/// A message whose client is gone, and could have stopped its run only by going away.
pub(crate) struct AbandonedRequest {
    principal: Principal,
    answer: oneshot::Receiver<Ack>,
}

impl AbandonedRequest {
    /// Stops the run of the message, or the one that goes on because of it, if there is one.
    pub(crate) async fn see_to(self, app: Shared) {
        let run = match timeout(ACK_LIMIT, self.answer).await {
            Ok(Ok(Ack::Accepted(Accepted { run_id, .. }))) => run_id,
            Ok(Ok(Ack::Command(CommandReply { resumes: Some(run_id), .. }))) => run_id,
            _ => return,
        };
        app.tell(self.principal, Control::Stop(StopTarget::RunOfGoneClient(run)));
    }
}

/// Waits for an answer in the place of its [`AbandonedRequest`], which it leaves behind when it is dropped before.
struct Asking<'a> {
    app: &'a App,
    orphan: Option<AbandonedRequest>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(orphan) = self.orphan.take()
            && self.app.orphans.try_send(orphan).is_err()
        {
            tracing::warn!("too many clients went away at once; the run of one goes on to its end");
        }
    }
}

impl App {
    /// Hands a message to the agent and waits for its acknowledgement.
    ///
    /// # Errors
    /// The refusal, or 503 when the queue is full, the agent is gone, or no answer came in time.
    ///
    /// # Cancel safety
    /// Once sent, the message takes its course; only the answer is lost.
    pub(crate) async fn ask(&self, inbound: Inbound) -> Result<Ack, ApiError> {
        self.may_speak(&inbound).await?;
        answered(timeout(ACK_LIMIT, self.hand_over(inbound)?).await)
    }

    /// Like [`App::ask`], for a message whose run nobody but this caller could stop, and only by going away: when the
    /// caller is dropped, or has no answer in time, the run is stopped.
    pub(crate) async fn ask_while_there(&self, inbound: Inbound) -> Result<Ack, ApiError> {
        self.may_speak(&inbound).await?;
        let principal = inbound.principal.clone();
        let answer = self.hand_over(inbound)?;
        let mut asking = Asking { app: self, orphan: Some(AbandonedRequest { principal, answer }) };
        let Some(orphan) = &mut asking.orphan else { return Err(ApiError::internal()) }; // it was put there just now
        let answer = timeout(ACK_LIMIT, &mut orphan.answer).await;
        if answer.is_ok() {
            asking.orphan = None;
        }
        answered(answer)
    }

    /// Refuses what is said in a session that its sender is not shown, as if there were none. For a conversation this is known
    /// at once, so that messages keep their order.
    async fn may_speak(&self, inbound: &Inbound) -> Result<(), ApiError> {
        self.visibility(&inbound.principal).visible_session(inbound.session.clone()).await.map(|_visible| ())
    }

    /// Puts a message where the agent takes it.
    fn hand_over(&self, inbound: Inbound) -> Result<oneshot::Receiver<Ack>, ApiError> {
        if self.draining.is_cancelled() && matches!(inbound.body, Body::Text(_) | Body::Edit(_)) {
            return Err(ApiError::shutting_down());
        }
        let (ack, answer) = AckSender::channel();
        self.intake.try_send(Envelope { inbound, ack }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ApiError::busy("too many messages wait to be taken"),
            mpsc::error::TrySendError::Closed(_) => ApiError::shutting_down(),
        })?;
        Ok(answer)
    }

    /// Hands a request to the dispatcher and waits for its answer.
    pub(crate) async fn control(&self, principal: Principal, control: Control) -> Result<Ack, ApiError> {
        self.ask(self.control_message(principal, control)).await
    }

    /// Tells the dispatcher something whose answer nobody needs, from where nothing can wait.
    pub(crate) fn tell(&self, principal: Principal, control: Control) {
        let inbound = self.control_message(principal, control);
        if self.intake.try_send(Envelope { inbound, ack: AckSender::nobody() }).is_err() {
            tracing::warn!("the dispatcher was not notified that a client disconnected; its run continues to its end");
        }
    }

    fn control_message(&self, principal: Principal, control: Control) -> Inbound {
        self.without_session(principal, Body::Control(control))
    }

    /// What is said in no conversation.
    pub(crate) fn without_session(&self, principal: Principal, body: Body) -> Inbound {
        Inbound::new(self.channel.clone(), self.no_session.clone(), principal, body)
    }

    /// Follows a run while it is alive, with its fragments where somebody reads them: a call whose fragment was heard is
    /// not tried again. `None`: it is not alive, or the agent cannot say; the store knows more.
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

    /// A place for a stream, held until it is dropped.
    ///
    /// # Errors
    /// 503 when all of them are taken.
    pub(crate) fn stream_place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let place = self.streams.clone().try_acquire_owned();
        place.map_err(|_none_left| ApiError::busy("too many event streams are open"))
    }

    /// The run once it has ended, however often it rests before; as it stands when the time is up, or when the daemon
    /// ends. `None`: there is no such run.
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
                return Ok(record.clone());
            }
        }
        self.follow_in_store(run, by(deadline), Until::End).await
    }

    /// The run once it rests, or as it stands when the time is up; `None`: there is no such run.
    pub(crate) async fn wait_for_run(
        &self,
        run: RunId,
        watch: Option<RunWatch>,
        limit: Duration,
    ) -> Result<Option<Arc<RunRecord>>, ApiError> {
        let deadline = Instant::now() + limit;
        if let Some(mut watch) = watch {
            watch.deltas = None; // a receiver that nobody reads would only hold fragments
            if let Ok(Some(record)) = timeout_at(deadline, self.rest(&mut watch.finished)).await {
                return Ok(Some(record));
            }
        }
        self.follow_in_store(run, deadline, Until::Rest).await
    }

    /// The record of a living run as soon as it rests; `None`: nobody works on it any more. Cancel safe.
    pub(crate) async fn rest(&self, finished: &mut watch::Receiver<Option<Arc<RunRecord>>>) -> Option<Arc<RunRecord>> {
        let mut passed: Option<Arc<RunRecord>> = None;
        loop {
            let is_new = |record: &Option<Arc<RunRecord>>| match (record, &passed) {
                (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
                (record, _) => record.is_some(),
            };
            let record = finished.wait_for(is_new).await.ok()?.clone()?;
            if self.rests(&record).await {
                return Some(record);
            }
            passed = Some(record);
        }
    }

    /// Whether nothing more happens to a run by itself: it has ended, or waits for an answer that nobody has given yet.
    /// After the answer the run is about to go on, although its record may say for a moment that it rests.
    async fn rests(&self, run: &RunRecord) -> bool {
        match (run.status, &run.waiting_for) {
            (RunStatus::Paused, Some(question)) => self.waits(question.approval).await,
            (status, _) => status.is_rest(),
        }
    }

    /// Whether nobody has answered a question; one that cannot be read is taken to wait.
    async fn waits(&self, gate: GateId) -> bool {
        match self.gates.gate(gate).await {
            Ok(gate) => gate.is_none_or(|gate| gate.state == GateState::Waiting),
            Err(error) => {
                tracing::warn!(%error, %gate, "a question cannot be read");
                true
            }
        }
    }

    /// Reads the run whenever facts are committed, until it rests, or has ended, or the time is up.
    async fn follow_in_store(
        &self,
        run: RunId,
        deadline: Instant,
        until: Until,
    ) -> Result<Option<Arc<RunRecord>>, ApiError> {
        let mut tip = self.events.tip();
        loop {
            tip.borrow_and_update(); // seen before the read: a commit after it wakes us
            let Some(record) = self.runs.run(run).await? else { return Ok(None) };
            let done = match until {
                Until::Rest => self.rests(&record).await,
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

/// What came of waiting for an acknowledgement.
fn answered(answer: Result<Result<Ack, RecvError>, Elapsed>) -> Result<Ack, ApiError> {
    match answer {
        Ok(Ok(Ack::Refused(refusal))) => Err(refusal.into()),
        Ok(Ok(ack)) => Ok(ack),
        Ok(Err(_dropped)) => Err(ApiError::no_answer("the message was not accepted")),
        Err(_elapsed) => Err(ApiError::no_answer("no answer in time; the message may still be accepted")),
    }
}
