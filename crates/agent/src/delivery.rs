//! Delivery: sends committed replies, in order within each conversation, and conversations side by side.
//!
//! The outbox is the only source: this task is notified of commits, reads the due rows, and stores the result of each.
//! A row is marked `sending` on disk before the platform is asked. After a crash in between, the next start marks the
//! row `ambiguous` instead of sending it twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Channel, Clock, DeliverError, EventKind, EventLog, NewEvent, Outbound, Outbox, OutboxId, OutboxRow, OutboxState,
    StoreError, UnixMillis,
};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent_services::AgentServices;
use crate::asked::WorkQuestions;
use crate::own_texts;
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
/// Number of attempts after which a reply is given up.
const MAX_ATTEMPTS: u32 = 12;
/// The same for callbacks. With the pauses of [`BACKOFF`], a day: 9 attempts in 9 minutes, then one every 5 minutes.
const MAX_CALLBACK_ATTEMPTS: u32 = 295;
/// Pauses between attempts. A delay that the platform asks for takes precedence.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Time after which a reply to a channel that is not enabled is checked again.
const CHANNEL_MISSING: Duration = Duration::from_secs(3600);
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
    sending: JoinSet<()>,
    /// The message of each delivery in progress.
    busy: HashMap<Id, Outbound>,
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
        }
    }

    /// Delivers until `stop` is cancelled, and then also the rows that are due at that moment.
    pub(crate) async fn run(mut self) {
        self.settle_interrupted().await;
        let mut committed = self.outbox.committed();
        loop {
            committed.mark_unchanged();
            let pause = match self.begin_due().await {
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
                () = sleep(pause) => {}
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => {}
            }
        }
    }

    /// Settles the deliveries that an earlier start left unfinished. No row is sent before that, because these rows
    /// would block their conversations forever.
    async fn settle_interrupted(&self) {
        let interrupted = until_stored(&self.stop, || self.outbox.settle_interrupted()).await;
        for row in interrupted.into_iter().flatten() {
            tracing::warn!(run = ?row.message.run_id, "a reply may or may not have been delivered before a crash");
            self.sender(None).tell(&row.message, "ambiguous").await;
        }
    }

    /// Starts due deliveries, as far as there is capacity. Returns whether it started any.
    async fn begin_due(&mut self) -> Result<bool, StoreError> {
        let room = MAX_PARALLEL - self.sending.len();
        if room == 0 {
            return Ok(false);
        }
        let busy: Vec<_> = self.busy.values().map(|message| message.route.clone()).collect();
        let callbacks = self.busy.values().filter(|message| message.callback.is_some()).count();
        let callbacks = MAX_CALLBACKS.saturating_sub(callbacks);
        let rows = self.outbox.due(self.clock.now(), &busy, room as u32, callbacks as u32).await?;
        let begun = !rows.is_empty();
        for row in rows {
            let message = row.message.clone();
            let sender = self.sender(self.channels.get(&message.route.channel).cloned());
            let task = self.sending.spawn(sender.send(row));
            self.busy.insert(task.id(), message);
        }
        Ok(begun)
    }

    fn done(&mut self, done: Result<(Id, ()), JoinError>) {
        let crashed = match done {
            Ok((id, ())) => {
                self.busy.remove(&id);
                return;
            }
            Err(error) => error,
        };
        tracing::error!(error = %crashed, "a delivery crashed");
        if let Some(message) = self.busy.remove(&crashed.id()) {
            // Nobody knows whether the platform has the message. Its conversation stays busy until that is stored.
            let sender = self.sender(None);
            let (unsure, stop) = (message.clone(), self.stop.clone());
            let task = self.sending.spawn(async move {
                let settle = || sender.settle(unsure.id, OutboxState::Ambiguous);
                // If the daemon ends first, the next start finds the row in `sending`.
                if persist("delivery_settlement", &stop, settle).await.is_some() {
                    persist("delivery_report", &stop, || sender.tell(&unsure, "ambiguous")).await;
                }
            });
            self.busy.insert(task.id(), message);
        }
    }

    fn sender(&self, channel: Option<Arc<dyn Channel>>) -> Sender {
        Sender {
            channel,
            outbox: self.outbox.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
            hooks: self.hooks.clone(),
            work_questions: self.work_questions.clone(),
            stop: self.stop.clone(),
        }
    }

    async fn until_next_due(&self) -> Duration {
        match self.outbox.next_due().await {
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

/// The outcome of an attempt, as the metrics name it.
fn tried(result: &Result<(), DeliverError>) -> &'static str {
    match result {
        Ok(()) => "sent",
        Err(DeliverError::Retry { .. }) => "retry",
        Err(DeliverError::Ambiguous { .. }) => "ambiguous",
        Err(DeliverError::Refused { .. }) => "refused",
    }
}

/// Sends one row.
struct Sender {
    channel: Option<Arc<dyn Channel>>,
    outbox: Arc<dyn Outbox>,
    events: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    hooks: Arc<HookChain>,
    work_questions: Arc<WorkQuestions>,
    stop: CancellationToken,
}

impl Sender {
    async fn send(self, mut row: OutboxRow) {
        let Some(channel) = &self.channel else {
            let pieces_sent = row.message.pieces_sent;
            return self
                .settle(row.message.id, OutboxState::Waiting { until: self.later(CHANNEL_MISSING), pieces_sent })
                .await;
        };
        if let Err(error) = self.check(&mut row.message).await {
            tracing::error!(%error, "a text that hooks have checked could not be stored; its delivery is not begun");
            return sleep(STORE_TROUBLE).await;
        }
        if let Err(error) = self.outbox.mark(row.message.id, OutboxState::Sending).await {
            tracing::error!(%error, "a delivery could not be marked; it is not begun");
            return sleep(STORE_TROUBLE).await;
        }
        let limit = if row.message.file.is_some() { FILE_DELIVERY_LIMIT } else { DELIVERY_LIMIT };
        let begun = Instant::now();
        let result = timeout(limit, channel.deliver(&row.message)).await.unwrap_or_else(|_| {
            let detail = format!("no answer within {} s", limit.as_secs());
            Err(DeliverError::Ambiguous { detail, pieces_sent: row.message.pieces_sent })
        });
        metrics::delivery_tried(tried(&result), begun.elapsed());
        self.work_questions.delivered(&row.message); // also a part of it may be shown
        let (state, outcome) = match result {
            Ok(()) => (OutboxState::Sent, Some("sent")),
            Err(error) => {
                tracing::warn!(run = ?row.message.run_id, channel = %row.message.route.channel, %error, "reply not delivered");
                self.after(&row, error)
            }
        };
        self.settle(row.message.id, state).await;
        if let Some(outcome) = outcome {
            self.tell(&row.message, outcome).await;
        }
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

    /// Reports the outcome of a delivery as an event and to hooks.
    async fn tell(&self, message: &Outbound, outcome: &'static str) {
        self.hooks.message_sent(message, outcome);
        let kind = EventKind::Delivered { outcome: outcome.into() };
        let event = NewEvent { at: self.clock.now(), session: None, run_id: message.run_id, kind };
        if let Err(error) = self.events.append(vec![event]).await {
            tracing::warn!(%error, "the event of a delivery was not stored");
        }
    }

    fn after(&self, row: &OutboxRow, error: DeliverError) -> (OutboxState, Option<&'static str>) {
        let attempt = row.attempts + 1;
        let most = if row.message.callback.is_some() { MAX_CALLBACK_ATTEMPTS } else { MAX_ATTEMPTS };
        match error {
            DeliverError::Retry { after, pieces_sent, .. } if attempt < most => {
                let backoff = BACKOFF.after(row.attempts);
                (OutboxState::Waiting { until: self.later(after.unwrap_or(backoff)), pieces_sent }, None)
            }
            DeliverError::Retry { .. } | DeliverError::Refused { .. } => (OutboxState::Failed, Some("failed")),
            DeliverError::Ambiguous { .. } => (OutboxState::Ambiguous, Some("ambiguous")),
        }
    }

    fn later(&self, delay: Duration) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_add(delay.as_millis().min(i64::MAX as u128) as i64))
    }

    /// Stores the result of an attempt, and retries until the store accepts it or the daemon ends: a row in `sending`
    /// blocks its conversation.
    async fn settle(&self, id: OutboxId, state: OutboxState) {
        // If the daemon shuts down first, the next start finds the row in `sending` and marks it `ambiguous`.
        until_stored(&self.stop, || self.outbox.mark(id, state.clone())).await;
    }
}
