//! Delivery: sends committed replies, in order within each conversation, and conversations side by side.
//!
//! The outbox is the only source: this task is notified of commits, reads the due rows, and stores the result of each.
//! A row is marked `sending` on disk before the platform is asked. After a crash in between, the next start marks the
//! row `ambiguous` instead of sending it twice, unless its channel can settle an unknown result: `unsure`.
//!
//! A node of a cluster sends the messages of the channels whose leases it holds. Its deliveries of a channel end at once
//! when it loses the lease; the next holder settles their rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{
    Channel, ChannelId, Clock, DeliverError, EventLog, HeldLeases, LeasedWork, LookUp, NewEvent, Outbound, Outbox,
    OutboxId, OutboxRow, OutboxState, StoreError, UnixMillis, WorkLease,
};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent_services::AgentServices;
use crate::asked::WorkQuestions;
use crate::leased_delivery::LeasedDelivery;
use crate::own_texts;
use crate::unsure::{Attempt, Beginning, UnsureRule, later};
use belay_run::hooks::HookChain;
use belay_run::metrics;
use belay_run::restart::persist;
use belay_run::retry::{Backoff, until_stored};
use belay_run::rights::Channels;

/// Maximum number of conversations that are delivered to at the same time. The others follow as these end.
const MAX_PARALLEL: usize = 64;
/// Maximum number of callbacks that are posted at the same time, so that receivers that hang leave most of
/// [`MAX_PARALLEL`] to people.
const MAX_CALLBACKS: usize = 16;
/// Time limit of one delivery; the platform adapters have shorter limits of their own.
const DELIVERY_LIMIT: Duration = Duration::from_secs(120);
/// The same for a message with a file. 10 minutes: 50 MB at 83 kB/s.
const FILE_DELIVERY_LIMIT: Duration = Duration::from_secs(600);
/// Time limit of a question whether the platform has a message.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(60);
/// Number of attempts after which a reply is given up.
const MAX_ATTEMPTS: u32 = 12;
/// The same for callbacks. With the pauses of [`BACKOFF`], a day: 9 attempts in 9 minutes, then one every 5 minutes.
const MAX_CALLBACK_ATTEMPTS: u32 = 295;
/// Pauses between attempts. A delay that the platform asks for takes precedence.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Time after which a reply to a channel that is not enabled is checked again.
const CHANNEL_MISSING: Duration = Duration::from_secs(3600);
/// Time after which a reply is checked again whose channel can deliver nothing now.
const CHANNEL_AWAY: Duration = Duration::from_secs(30);
/// Pause after the store failed.
const STORE_TROUBLE: Duration = Duration::from_secs(1);
/// Shortest and longest interval of reading the outbox without a notification.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The delivery task.
pub(crate) struct Delivery {
    outbox: Arc<dyn Outbox>,
    events: Arc<dyn EventLog>,
    channels: Channels,
    clock: Arc<dyn Clock>,
    hooks: Arc<HookChain>,
    work_questions: Arc<WorkQuestions>,
    stop: CancellationToken,
    /// Deliveries in progress; they end with this task.
    sending: JoinSet<Ended>,
    /// The message of each delivery in progress.
    busy: HashMap<Id, Begun>,
    /// The channels that settle an unknown result: their interrupted messages wait for it.
    settling: Vec<ChannelId>,
    /// `None`: the daemon uses its database alone, and sends all messages.
    leased: Option<LeasedDelivery>,
    /// The leases under which it sends: those whose interrupted deliveries it has settled.
    leases: Vec<WorkLease>,
}

/// A delivery in progress.
struct Begun {
    message: Outbound,
    /// Since when its result is unknown, if its task crashes.
    unsure_since: UnixMillis,
    lease: Option<WorkLease>,
}

/// The end of a delivery's task.
enum Ended {
    Over,
    /// The lease was lost before its end. The row may be in `sending`.
    LeaseLost(WorkLease),
}

impl Delivery {
    pub(crate) fn new(services: &AgentServices, stop: CancellationToken) -> Self {
        Self {
            outbox: services.store.outbox.clone(),
            events: services.store.events.clone(),
            channels: services.channels.clone(),
            clock: services.clock.clone(),
            hooks: services.hooks.clone(),
            work_questions: services.work_questions.clone(),
            stop,
            sending: JoinSet::new(),
            busy: HashMap::new(),
            settling: settling(&services.channels),
            leased: services.leases.clone(),
            leases: Vec::new(),
        }
    }

    /// Delivers until `stop` is cancelled, and then also the rows that are due at that moment.
    pub(crate) async fn run(mut self) {
        if self.leased.is_none() {
            self.settle_interrupted().await;
        }
        let mut committed = self.outbox.committed();
        loop {
            committed.mark_unchanged();
            let pause = match self.begin().await {
                Ok(begun) if self.stop.is_cancelled() && self.sending.is_empty() && !begun => return,
                Ok(_) => self.until_next_due().await,
                Err(error) => {
                    tracing::error!(%error, "the outbox could not be read");
                    STORE_TROUBLE
                }
            };
            tokio::select! {
                Some(done) = self.sending.join_next_with_id() => self.done(done),
                changed = committed.changed() => if changed.is_err() { return },
                () = LeasedDelivery::changed(self.leased.as_mut()) => {}
                () = sleep(pause) => {}
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => {}
            }
        }
    }

    /// Settles the deliveries that an earlier start left unfinished. No row is sent before that, because these rows
    /// would block their conversations forever.
    async fn settle_interrupted(&self) {
        crash_point!("recovery.before-outbox");
        let settle = || self.outbox.settle_interrupted(self.clock.now(), None, &self.settling);
        let interrupted = until_stored(&self.stop, settle).await;
        self.report_interrupted(interrupted.unwrap_or_default());
    }

    fn report_interrupted(&self, interrupted: Vec<OutboxRow>) {
        for row in interrupted {
            tracing::warn!(
                run = row.message.run_id.map(tracing::field::display),
                "a reply may or may not have been delivered before a crash"
            );
            crash_point!("recovery.outbox-settled");
            self.hooks.message_sent(&row.message, "ambiguous");
        }
    }

    async fn begin(&mut self) -> Result<bool, StoreError> {
        self.follow_leases().await?;
        self.begin_due().await
    }

    /// Adopts the leases of the node. Before anything is sent under a new lease, the deliveries that its last holder left
    /// unfinished are settled; so are those of this task, which end when it loses the lease.
    async fn follow_leases(&mut self) -> Result<(), StoreError> {
        let Some(leased) = &mut self.leased else { return Ok(()) };
        leased.committed.mark_unchanged();
        let held = leased.held.mark_seen();
        self.leases.retain(|lease| held.contains(lease));
        let in_progress = |lease: &WorkLease| {
            self.busy.values().any(|begun| begun.lease.as_ref().is_some_and(|other| other.work == lease.work))
        };
        let is_new = |lease: &WorkLease| matches!(lease.work, LeasedWork::Channel(_)) && !self.leases.contains(lease);
        let new: Vec<_> = held.into_iter().filter(|lease| is_new(lease) && !in_progress(lease)).collect();
        if !new.is_empty() {
            let interrupted = self.outbox.settle_interrupted(self.clock.now(), Some(&new), &self.settling).await?;
            self.report_interrupted(interrupted);
            self.leases.extend(new);
        }
        Ok(())
    }

    /// The lease under which a message is sent; `None`: there are no leases.
    fn lease_of(&self, message: &Outbound) -> Option<WorkLease> {
        let of_channel = |lease: &&WorkLease| lease.work == LeasedWork::Channel(message.route.channel.clone());
        self.leases.iter().find(of_channel).cloned()
    }

    fn held(&self) -> Option<HeldLeases> {
        self.leased.as_ref().map(|leased| leased.held.clone())
    }

    fn leases(&self) -> Option<&[WorkLease]> {
        self.leased.as_ref().map(|_| &*self.leases)
    }

    /// Starts due deliveries, as far as there is capacity. Returns whether it started any.
    async fn begin_due(&mut self) -> Result<bool, StoreError> {
        let room = MAX_PARALLEL - self.sending.len();
        if room == 0 || self.leases().is_some_and(<[_]>::is_empty) {
            return Ok(false);
        }
        let busy: Vec<_> = self.busy.values().map(|begun| begun.message.route.clone()).collect();
        let callbacks = self.busy.values().filter(|begun| begun.message.callback.is_some()).count();
        let callbacks = MAX_CALLBACKS.saturating_sub(callbacks);
        let (now, leases) = (self.clock.now(), self.leases());
        let rows = self.outbox.due(now, &busy, leases, room as u32, callbacks as u32).await?;
        let begun = !rows.is_empty();
        for row in rows {
            let message = row.message.clone();
            let lease = self.lease_of(&message);
            let sender = self.sender(self.channels.get(&message.route.channel).cloned(), lease.clone());
            let begun = Begun { message, unsure_since: row.unsure_since.unwrap_or(now), lease };
            self.spawn(begun, sender.send(row));
        }
        Ok(begun)
    }

    /// Runs a delivery until its end, or until the lease of its channel is lost.
    fn spawn(&mut self, begun: Begun, work: impl Future<Output = ()> + Send + 'static) {
        let leased = self.held().zip(begun.lease.clone());
        let task = self.sending.spawn(async move {
            let Some((mut held, lease)) = leased else {
                work.await;
                return Ended::Over;
            };
            tokio::select! {
                biased; // nothing begins after the loss
                () = held.lost(&lease) => Ended::LeaseLost(lease),
                () = work => Ended::Over,
            }
        });
        self.busy.insert(task.id(), begun);
    }

    fn done(&mut self, done: Result<(Id, Ended), JoinError>) {
        let crashed = match done {
            Ok((id, ended)) => {
                self.busy.remove(&id);
                if let Ended::LeaseLost(lost) = ended {
                    self.leases.retain(|lease| *lease != lost); // its rows are settled before it is used again
                }
                return;
            }
            Err(error) => error,
        };
        tracing::error!(error = %crashed, "a delivery crashed");
        if let Some(begun) = self.busy.remove(&crashed.id()) {
            // Nobody knows whether the platform has the message. Its conversation stays busy until that is stored.
            let sender = self.sender(None, begun.lease.clone());
            let (unsure, stop) = (begun.message.clone(), self.stop.clone());
            let state = match self.settling.contains(&unsure.route.channel) {
                true => OutboxState::Waiting {
                    until: later(self.clock.now(), BACKOFF.after(0)),
                    pieces_sent: unsure.pieces_sent,
                    unsure_since: Some(begun.unsure_since),
                },
                false => OutboxState::Ambiguous,
            };
            self.spawn(begun, async move {
                let settle = || sender.settle(unsure.id, state.clone());
                // If the daemon ends first, the next start finds the row in `sending`.
                let is_settled =
                    persist("delivery_settlement", &stop, settle).await.is_some_and(|is_settled| is_settled);
                if is_settled && state == OutboxState::Ambiguous {
                    sender.hooks.message_sent(&unsure, "ambiguous");
                }
            });
        }
    }

    fn sender(&self, channel: Option<Arc<dyn Channel>>, lease: Option<WorkLease>) -> Sender {
        Sender {
            channel,
            lease: self.held().zip(lease),
            outbox: self.outbox.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
            hooks: self.hooks.clone(),
            work_questions: self.work_questions.clone(),
            stop: self.stop.clone(),
        }
    }

    async fn until_next_due(&self) -> Duration {
        match self.outbox.next_due(self.leases()).await {
            // A date in the past belongs to a row that cannot start now. The end of a delivery wakes this task for it.
            Ok(Some(due)) => {
                let wait = due.0.saturating_sub(self.clock.now().0).max(0) as u64;
                Duration::from_millis(wait).clamp(LOOK.0, LOOK.1)
            }
            Ok(None) => LOOK.1,
            Err(_) => STORE_TROUBLE, // begin_due logs the error
        }
    }
}

/// The channels that settle an unknown result.
fn settling(channels: &Channels) -> Vec<ChannelId> {
    channels.iter().filter(|(_, channel)| UnsureRule::settles_unknown(&***channel)).map(|(id, _)| id.clone()).collect()
}

/// The outcome of an attempt, as the metrics name it.
fn tried(result: &Result<(), DeliverError>) -> &'static str {
    match result {
        Ok(()) => "sent",
        Err(DeliverError::Retry { .. }) => "retry",
        Err(DeliverError::Ambiguous { .. }) => "ambiguous",
        Err(DeliverError::Refused { .. }) => "refused",
    }
}

/// The number of attempts after which a message is given up.
fn most_attempts(message: &Outbound) -> u32 {
    if message.callback.is_some() { MAX_CALLBACK_ATTEMPTS } else { MAX_ATTEMPTS }
}

/// Sends one row.
struct Sender {
    channel: Option<Arc<dyn Channel>>,
    /// The lease of the channel, of those of the node; `None`: there are no leases.
    lease: Option<(HeldLeases, WorkLease)>,
    outbox: Arc<dyn Outbox>,
    events: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    hooks: Arc<HookChain>,
    work_questions: Arc<WorkQuestions>,
    stop: CancellationToken,
}

impl Sender {
    async fn send(self, mut row: OutboxRow) {
        let Some(channel) = &self.channel else { return self.wait(&row, CHANNEL_MISSING).await };
        if !channel.health().can_deliver {
            return self.wait(&row, CHANNEL_AWAY).await;
        }
        let (rule, mut attempt) = (UnsureRule::of(&**channel, &row.message), self.attempt(&row));
        let beginning = match row.attempts < most_attempts(&row.message) {
            true => rule.begin(row.unsure_since, attempt.began, attempt.is_last),
            false => Beginning::GiveUp, // it crashed in each of them
        };
        if beginning == Beginning::GiveUp {
            return self.end(&row.message, (OutboxState::Ambiguous, Some("ambiguous"))).await;
        }
        crash_point!("outbox.before-mark");
        if let Err(error) = self.check(&mut row.message).await {
            tracing::error!(%error, "a text that hooks have checked could not be stored; its delivery is not begun");
            return sleep(STORE_TROUBLE).await;
        }
        if let Err(error) = self.mark(row.message.id, OutboxState::Sending).await {
            belay_run::log_failure!(error, error, %error, "a delivery could not be marked; it is not begun");
            if let (StoreError::WorkLost(_), Some((held, lease))) = (&error, &self.lease) {
                held.give_up(lease);
            }
            return sleep(STORE_TROUBLE).await;
        }
        crash_point!("outbox.marked-sending");
        if beginning == Beginning::LookUp
            && let Some(ended) = self.look_up(&**channel, &mut row.message, &mut attempt).await
        {
            return self.end(&row.message, ended).await;
        }
        let limit = if row.message.file.is_some() { FILE_DELIVERY_LIMIT } else { DELIVERY_LIMIT };
        let begun = Instant::now();
        let result = timeout(limit, channel.deliver(&row.message)).await.unwrap_or_else(|_| {
            let detail = format!("no answer within {} s", limit.as_secs());
            Err(DeliverError::Ambiguous { detail, pieces_sent: row.message.pieces_sent })
        });
        crash_point!("outbox.after-wire");
        metrics::delivery_tried(tried(&result), begun.elapsed());
        self.work_questions.delivered(&row.message); // also a part of it may be shown
        let ended = match result {
            Ok(()) => (OutboxState::Sent, Some("sent")),
            Err(error) => {
                let run = row.message.run_id.map(tracing::field::display);
                tracing::warn!(run, channel = %row.message.route.channel, detail = %error, "reply not delivered");
                rule.after(attempt, &error, self.clock.now())
            }
        };
        self.end(&row.message, ended).await;
    }

    /// Lets a row wait. It has not been `sending`, so no attempt is counted.
    async fn wait(&self, row: &OutboxRow, pause: Duration) {
        let (pieces_sent, unsure_since) = (row.message.pieces_sent, row.unsure_since);
        let until = later(self.clock.now(), pause);
        self.settle(row.message.id, OutboxState::Waiting { until, pieces_sent, unsure_since }).await;
    }

    /// Stores the result of an attempt, and tells the outcome if it is the end of the delivery.
    async fn end(&self, message: &Outbound, (state, outcome): (OutboxState, Option<&'static str>)) {
        let is_settled = self.settle(message.id, state).await;
        crash_point!("outbox.settled");
        if let Some(outcome) = outcome.filter(|_| is_settled) {
            self.hooks.message_sent(message, outcome);
        }
    }

    fn attempt(&self, row: &OutboxRow) -> Attempt {
        Attempt {
            began: self.clock.now(),
            unsure_since: row.unsure_since,
            pieces_sent: row.message.pieces_sent,
            is_last: row.attempts + 1 >= most_attempts(&row.message),
            backoff: BACKOFF.after(row.attempts),
        }
    }

    /// Asks the platform for a message with an unknown result. Returns the result of the attempt, unless the message is
    /// to be sent from `pieces_sent` on.
    async fn look_up(
        &self,
        channel: &dyn Channel,
        message: &mut Outbound,
        attempt: &mut Attempt,
    ) -> Option<(OutboxState, Option<&'static str>)> {
        let since = attempt.unsure_since?;
        let late = |_| LookUp::Later { after: None, detail: "no answer in time".into() };
        let answer = match channel.sent() {
            Some(sent) => timeout(LOOK_UP_LIMIT, sent.look_up(message, since)).await.unwrap_or_else(late),
            None => LookUp::Unknown,
        };
        tracing::info!(channel = %message.route.channel, detail = ?answer, "a message with an unknown result was looked up");
        match answer {
            LookUp::Sent { pieces } => message.pieces_sent = message.pieces_sent.max(pieces),
            LookUp::NotSent => {}
            LookUp::Unknown => return Some((OutboxState::Ambiguous, Some("ambiguous"))),
            LookUp::Later { after, .. } => return Some(UnsureRule::not_asked(*attempt, after, self.clock.now())),
        }
        (attempt.unsure_since, attempt.pieces_sent) = (None, message.pieces_sent);
        None
    }

    /// Lets hooks check a text that they have not checked yet. A change is stored before anything is sent, so that every
    /// attempt sends the same text.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, hooks may check the text again.
    async fn check(&self, message: &mut Outbound) -> Result<(), StoreError> {
        if message.pieces_sent > 0 {
            return Ok(()); // a part was sent before the hook was configured
        }
        let (checked, facts) = own_texts::checked(&self.hooks, message).await;
        if let Some(checked) = checked {
            self.outbox.put_checked(&checked).await?;
            *message = checked;
        }
        if facts.is_empty() {
            return Ok(());
        }
        let (at, run_id) = (self.clock.now(), message.run_id);
        let events = facts.into_iter().map(|kind| NewEvent { at, session: None, run_id, kind }).collect();
        if let Err(error) = self.events.append(events).await {
            tracing::warn!(%error, "the events of hooks were not stored");
        }
        Ok(())
    }

    async fn mark(&self, id: OutboxId, state: OutboxState) -> Result<(), StoreError> {
        self.outbox.mark(id, state, self.clock.now(), self.lease.as_ref().map(|(_, lease)| lease)).await
    }

    /// Stores the result of an attempt, and retries until the store accepts it or the daemon ends: a row in `sending`
    /// blocks its conversation. `false`: the next holder of the lease has settled it.
    async fn settle(&self, id: OutboxId, state: OutboxState) -> bool {
        let mark = async || match self.mark(id, state.clone()).await {
            Err(error @ (StoreError::WorkLost(_) | StoreError::NotFound(_))) if self.lease.is_some() => {
                tracing::info!(%error, "the result of a delivery is not stored: another node has settled it");
                Ok(false)
            }
            result => result.map(|()| true),
        };
        // If the daemon shuts down first, the next start finds the row in `sending` and marks it `ambiguous`.
        until_stored(&self.stop, mark).await.unwrap_or(true)
    }
}
