//! Delivery: shows committed replies, in order within each conversation, conversations side by side.
//!
//! The outbox is the one truth: this task is told that something was committed, reads what is due, and marks what became
//! of it. A row is marked `sending` on disk before the platform is asked, so that a crash in between is seen by the next
//! start, which marks the row `ambiguous` instead of sending it twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Channel, ChannelId, Clock, DeliverError, EventKind, EventLog, NewEvent, Outbox, OutboxRow, OutboxState, ReplyRoute,
    UnixMillis,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::house::House;

/// Conversations that are delivered to at the same time. Then: the others follow as these end.
const MAX_PARALLEL: usize = 32;
/// Longest time one delivery may take; the platform adapters have limits of their own below this.
const DELIVERY_LIMIT: Duration = Duration::from_secs(120);
/// Attempts before a reply is given up.
const MAX_ATTEMPTS: u32 = 12;
/// First and longest pause between attempts; doubled each time. A platform's own delay wins.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// How long a reply to a channel that is not enabled waits before it is looked at again.
const CHANNEL_MISSING: Duration = Duration::from_secs(3600);

/// The delivery task.
pub(crate) struct Delivery {
    outbox: Arc<dyn Outbox>,
    events: Arc<dyn EventLog>,
    channels: HashMap<ChannelId, Arc<dyn Channel>>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    /// Deliveries under way; ends with the task.
    sending: JoinSet<ReplyRoute>,
    /// Their conversations.
    busy: Vec<ReplyRoute>,
}

impl Delivery {
    pub(crate) fn new(house: &House, stop: CancellationToken) -> Self {
        Self {
            outbox: house.store.outbox.clone(),
            events: house.store.events.clone(),
            channels: house.channels.clone(),
            clock: house.clock.clone(),
            stop,
            sending: JoinSet::new(),
            busy: Vec::new(),
        }
    }

    /// Delivers until told to stop; then what is due at that moment is still sent.
    pub(crate) async fn run(mut self) {
        self.settle_interrupted().await;
        let mut committed = self.outbox.committed();
        loop {
            committed.mark_unchanged();
            let more = self.begin_due().await;
            if self.stop.is_cancelled() && self.sending.is_empty() && !more {
                return;
            }
            let pause = self.until_next_due().await;
            tokio::select! {
                Some(done) = self.sending.join_next() => self.done(done),
                changed = committed.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => {}
            }
        }
    }

    /// A dead daemon was in the middle of these.
    async fn settle_interrupted(&self) {
        match self.outbox.settle_interrupted().await {
            Ok(rows) => {
                for row in rows {
                    tracing::warn!(run = ?row.message.run_id, "a reply may or may not have been delivered before a crash");
                    self.record(&row, "ambiguous").await;
                }
            }
            Err(error) => tracing::error!(%error, "interrupted deliveries could not be settled"),
        }
    }

    /// Begins what is due, as far as there is room. Returns whether anything was begun.
    async fn begin_due(&mut self) -> bool {
        let room = MAX_PARALLEL - self.sending.len();
        if room == 0 {
            return false;
        }
        let rows = match self.outbox.due(self.clock.now(), &self.busy, room as u32).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "the outbox could not be read");
                return false;
            }
        };
        let begun = !rows.is_empty();
        for row in rows {
            let route = row.message.route.clone();
            self.busy.push(route.clone());
            let sender = Sender {
                channel: self.channels.get(&route.channel).cloned(),
                outbox: self.outbox.clone(),
                events: self.events.clone(),
                clock: self.clock.clone(),
            };
            self.sending.spawn(async move {
                sender.send(row).await;
                route
            });
        }
        begun
    }

    fn done(&mut self, done: Result<ReplyRoute, tokio::task::JoinError>) {
        match done {
            Ok(route) => self.busy.retain(|busy| *busy != route),
            Err(error) => {
                // A channel's adapter crashed. Its row is `sending` and stays so until the next start settles it, and
                // its conversation stays busy, so that nothing overtakes it.
                tracing::error!(%error, "a delivery crashed");
            }
        }
    }

    async fn until_next_due(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(60);
        match self.outbox.next_due().await {
            Ok(Some(due)) => {
                let wait = due.0.saturating_sub(self.clock.now().0).clamp(1, LONG.as_millis() as i64);
                Duration::from_millis(wait as u64)
            }
            Ok(None) => LONG,
            Err(_) => Duration::from_secs(1), // begin_due says why
        }
    }

    async fn record(&self, row: &OutboxRow, outcome: &str) {
        record(&self.events, &self.clock, row, outcome).await;
    }
}

async fn record(events: &Arc<dyn EventLog>, clock: &Arc<dyn Clock>, row: &OutboxRow, outcome: &str) {
    let kind = EventKind::Delivered { outcome: outcome.into() };
    let event = NewEvent { at: clock.now(), session: None, run_id: row.message.run_id, kind };
    if let Err(error) = events.append(vec![event]).await {
        tracing::warn!(%error, "a delivery's fact was not stored");
    }
}

/// Sends one row.
struct Sender {
    channel: Option<Arc<dyn Channel>>,
    outbox: Arc<dyn Outbox>,
    events: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
}

impl Sender {
    async fn send(self, row: OutboxRow) {
        let Some(channel) = &self.channel else {
            let pieces_sent = row.message.pieces_sent;
            return self.mark(&row, OutboxState::Waiting { until: self.later(CHANNEL_MISSING), pieces_sent }).await;
        };
        if !self.try_mark(&row, OutboxState::Sending).await {
            sleep(BACKOFF.0).await; // the store is in trouble: not sent, and tried again
            return;
        }
        let result = timeout(DELIVERY_LIMIT, channel.deliver(&row.message)).await.unwrap_or_else(|_| {
            let detail = format!("no answer within {} s", DELIVERY_LIMIT.as_secs());
            Err(DeliverError::Ambiguous { detail, pieces_sent: row.message.pieces_sent })
        });
        let (state, outcome) = match result {
            Ok(()) => (OutboxState::Sent, Some("sent")),
            Err(error) => {
                tracing::warn!(run = ?row.message.run_id, channel = %row.message.route.channel, %error, "reply not delivered");
                self.after(&row, error)
            }
        };
        self.mark(&row, state).await;
        if let Some(outcome) = outcome {
            record(&self.events, &self.clock, &row, outcome).await;
        }
    }

    fn after(&self, row: &OutboxRow, error: DeliverError) -> (OutboxState, Option<&'static str>) {
        let attempt = row.attempts + 1;
        match error {
            DeliverError::Retry { after, pieces_sent, .. } if attempt < MAX_ATTEMPTS => {
                let backoff = BACKOFF.0.saturating_mul(1 << row.attempts.min(16)).min(BACKOFF.1);
                (OutboxState::Waiting { until: self.later(after.unwrap_or(backoff)), pieces_sent }, None)
            }
            DeliverError::Retry { .. } | DeliverError::Refused { .. } => (OutboxState::Failed, Some("failed")),
            DeliverError::Ambiguous { .. } => (OutboxState::Ambiguous, Some("ambiguous")),
        }
    }

    fn later(&self, delay: Duration) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_add(delay.as_millis().min(i64::MAX as u128) as i64))
    }

    async fn mark(&self, row: &OutboxRow, state: OutboxState) {
        // If it is not stored, the next start finds the row in `sending` and says honestly that it does not know.
        self.try_mark(row, state).await;
    }

    async fn try_mark(&self, row: &OutboxRow, state: OutboxState) -> bool {
        match self.outbox.mark(row.message.id, state).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "a delivery could not be marked");
                false
            }
        }
    }
}
