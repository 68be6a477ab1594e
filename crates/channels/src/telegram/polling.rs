//! Long polling with `getUpdates`.
//!
//! A request with a higher offset confirms all updates before it. A batch is confirmed only after each of its messages
//! has been committed or given up. After a crash Telegram sends the batch again, and the store recognises the messages
//! that it has. At the end of intake, the settled updates are confirmed once more: the store knows messages but not
//! commands, and a repeated `/stop` would be carried out again.
//!
//! An update that the store cannot take, such as the new id of a group, is tried again, and those behind it wait.
//!
//! On a node of a cluster, the polling ends at a conflict: another node may be the poller now.
//!
//! While a message waits for its files, its turn or its acknowledgement, polling continues from that message on, so that
//! a later `/stop` arrives. Such an answer repeats updates; they are recognised by their numbers and skipped.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{AckSender, Envelope};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, future::OptionFuture};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::api::ApiError;
use super::arrivals::{Arrival, Arrivals};
use super::offers::{Offer, Offers, Place};
use super::router::{LATER, Settled, Sorted, UpdateRouter};
use super::setup::{self, ALLOWED, Pauses};
use super::wire::{GetUpdates, update_id};

/// How long Telegram holds the request before it returns an empty answer. 25 s: below the idle limits of common
/// proxies.
const HOLD: Duration = Duration::from_secs(25);

/// Deadline of the request: the hold time and the network time.
const DEADLINE: Duration = Duration::from_secs(35);

/// The same two while messages are unsettled. Short: the answer contains at least those messages and comes at once. It
/// is empty only if Telegram has dropped them.
const SHORT_HOLD: Duration = Duration::from_secs(1);
const SHORT_DEADLINE: Duration = Duration::from_secs(10);

/// Pause between two requests while messages are unsettled, and so about the delay of a `/stop`.
const PACE: Duration = Duration::from_secs(1);

/// Number of updates from the first unsettled one on at which polling stops. Telegram: getUpdates, `limit`: an answer
/// has at most 100 updates, so further ones would not arrive.
const RECEIVED_MAX: usize = 100;

/// Longest wait for an acknowledgement before the message is offered again. The store recognises a repeated message.
const ACK_DEADLINE: Duration = Duration::from_secs(30);

/// How long messages are offered to a conversation that stays full. Then they are given up and the person gets notices,
/// because no later update can be confirmed before them.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// Deadline of the last call. Short, because the end of the daemon waits for it. Without an answer, its updates come
/// again.
const LAST_DEADLINE: Duration = Duration::from_secs(2);

/// Pause after a 409.
const CONFLICT_PAUSE: Duration = Duration::from_secs(10);

/// Requests updates and offers their messages to the agent.
pub(super) struct Poller {
    router: Arc<UpdateRouter>,
    intake: CancellationToken,
    is_introduced: bool,
    is_set_up: bool,
    /// The pending request. It continues while messages are handed out.
    request: Option<Request>,
    /// Time of the last answer.
    answered_at: Instant,
    /// No request is sent before this time, because of an error.
    paused_until: Instant,
    /// All updates before this number have been received.
    offset: Option<i64>,
    /// The offset of the last request.
    requested_offset: Option<i64>,
    /// All updates before this number are confirmed.
    confirmed: Option<i64>,
    /// Updates that are not sorted yet. Nothing is requested before they are: a request would confirm them.
    batch: VecDeque<Box<RawValue>>,
    /// The next of them is not sorted before this time, because the store has failed.
    sorted_from: Instant,
    /// Messages whose files are being fetched, and those behind them.
    arrivals: Arrivals,
    /// The order of the messages for the agent.
    offers: Offers,
    /// Messages that were offered and are not yet acknowledged, and pauses before a further offer.
    open: FuturesUnordered<Pin<Box<dyn Future<Output = Progress> + Send>>>,
    /// The numbers of the unsettled updates.
    unsettled: BTreeSet<i64>,
    /// The numbers of received updates that may come again: those from `requested_offset` on.
    received: BTreeSet<i64>,
    pauses: Pauses,
    conflicts: Conflicts,
    /// Whether the polling has ended because of a conflict.
    is_displaced: bool,
}

/// The reaction to a conflict: another program takes the updates of the bot.
#[derive(Clone)]
pub(super) enum Conflicts {
    /// The poller waits, and asks again.
    Wait,
    /// The poller ends. The flag tells whether a conflict was logged since the last answer with updates.
    End(Arc<AtomicBool>),
}

type Batch = Vec<Box<RawValue>>;
type Request = Pin<Box<dyn Future<Output = Result<Batch, ApiError>> + Send>>;

/// The result of an offered message.
enum Progress {
    /// The message is settled.
    Settled(Box<Offer>),
    /// The message may be accepted after this time.
    Refused(Box<Offer>, Duration),
    /// The message is to be offered again now.
    Again(Box<Offer>),
}

impl Poller {
    pub(super) fn new(
        router: Arc<UpdateRouter>,
        is_introduced: bool,
        conflicts: Conflicts,
        intake: CancellationToken,
    ) -> Self {
        Self {
            arrivals: Arrivals::new(Arc::clone(&router)),
            router,
            intake,
            is_introduced,
            is_set_up: false,
            request: None,
            answered_at: Instant::now(),
            paused_until: Instant::now(),
            offset: None,
            requested_offset: None,
            confirmed: None,
            batch: VecDeque::new(),
            sorted_from: Instant::now(),
            offers: Offers::default(),
            open: FuturesUnordered::new(),
            unsettled: BTreeSet::new(),
            received: BTreeSet::new(),
            pauses: Pauses::new(),
            conflicts,
            is_displaced: false,
        }
    }

    /// Returns the next message, or `None` when intake has ended, or when another poller has displaced this one. Messages
    /// without an acknowledgement at that time are not confirmed.
    pub(super) async fn next(&mut self) -> Option<Envelope> {
        let intake = self.intake.clone();
        let message = intake.run_until_cancelled(self.next_message()).await.flatten();
        if message.is_none() {
            self.arrivals.close().await;
            if !self.is_displaced {
                self.confirm_settled().await;
            }
        }
        message
    }

    /// The next message; `None`: another poller has displaced this one.
    async fn next_message(&mut self) -> Option<Envelope> {
        loop {
            if self.is_displaced {
                return None;
            }
            if let Some(offer) = self.offers.next() {
                return Some(self.offer(offer));
            }
            if let Some(update) = self.batch.front().filter(|_| self.sorted_from <= Instant::now()) {
                // Removed from the batch only afterwards: if cancelled midway, it is not settled.
                let sorted = self.router.sort(update).await;
                let update_id = update_id(update);
                if matches!(sorted, Sorted::Later) {
                    self.sorted_from = Instant::now() + LATER;
                    continue;
                }
                self.batch.pop_front();
                if let Sorted::Message(message) = sorted {
                    let update_id = update_id.unwrap_or_default(); // always present: the update was parsed
                    self.unsettled.insert(update_id);
                    let (message, more_updates, acks) = (*message, Vec::new(), Vec::new());
                    let arrival = Arrival { update_id, more_updates, message, acks };
                    if let Some(arrival) = self.arrivals.admit(arrival) {
                        self.offers.admit(arrival);
                    }
                }
                continue;
            }
            if !self.is_set_up {
                self.set_up().await;
            }
            let due = self.due();
            tokio::select! {
                biased; // settled updates first: they decide the next request
                Some(progress) = self.open.next() => match progress {
                    Progress::Settled(offer) => self.settled(&offer),
                    Progress::Refused(offer, after) => self.refused(*offer, after),
                    Progress::Again(offer) => return Some(self.offer(*offer)),
                },
                arrival = self.arrivals.next() => self.offers.admit(arrival),
                Some(answer) = OptionFuture::from(self.request.as_mut()) => {
                    self.request = None;
                    self.receive(answer);
                }
                () = sleep_until(self.sorted_from), if !self.batch.is_empty() => {}
                Some(()) = OptionFuture::from(due.map(sleep_until)) => self.request = Some(self.ask()),
            }
        }
    }

    fn offer(&mut self, mut offer: Offer) -> Envelope {
        let (ack, answer) = AckSender::channel();
        let router = Arc::clone(&self.router);
        let inbound = offer.arrival.message.inbound.clone();
        self.open.push(Box::pin(async move {
            let ack = timeout(ACK_DEADLINE, answer).await.ok().and_then(Result::ok);
            crash_point!("telegram.before-confirmation");
            let message = &offer.arrival.message;
            let (is_busy, after) = match router.settle(&message.after, ack).await {
                Settled::Done => {
                    offer.busy_since = None;
                    return Progress::Settled(Box::new(offer));
                }
                Settled::Later { is_busy, after } => (is_busy, after),
            };
            offer.busy_since = is_busy.then(|| offer.busy_since.unwrap_or_else(Instant::now));
            if offer.busy_since.is_some_and(|since| since.elapsed() >= BUSY_MAX) {
                warn!(session = %message.inbound.session, "a message was given up: its conversation stays full");
                router.notify_not_accepted(message).await;
                return Progress::Settled(Box::new(offer));
            }
            Progress::Refused(Box::new(offer), after)
        }));
        Envelope { inbound, ack }
    }

    /// Offers a message again after a pause, but not before earlier messages of its conversation.
    fn refused(&mut self, offer: Offer, after: Duration) {
        if let Some(offer) = self.offers.refused(offer) {
            self.open.push(Box::pin(async move {
                sleep(after).await;
                Progress::Again(Box::new(offer))
            }));
        }
    }

    fn settled(&mut self, offer: &Offer) {
        self.offers.settled(offer);
        if offer.place != Place::Extra {
            let Arrival { update_id, more_updates, .. } = &offer.arrival;
            self.unsettled.remove(update_id);
            more_updates.iter().for_each(|part| _ = self.unsettled.remove(part));
        }
    }

    async fn set_up(&mut self) {
        let router = &*self.router;
        setup::until_reachable(router, self.is_introduced, None).await;
        setup::again_and_again(router, "deleteWebhook", || setup::delete_webhook(router)).await;
        self.is_set_up = true;
    }

    /// When to send the next request; `None`: not before something else has happened.
    fn due(&self) -> Option<Instant> {
        if self.request.is_some() || !self.batch.is_empty() {
            return None;
        }
        let Some(&first) = self.unsettled.first() else {
            return Some(self.paused_until);
        };
        let may_ask = self.received.range(first..).count() < RECEIVED_MAX;
        may_ask.then(|| self.paused_until.max(self.answered_at + PACE))
    }

    /// Requests the updates after the settled ones, which confirms the settled ones.
    fn ask(&mut self) -> Request {
        self.requested_offset = self.unsettled.first().copied().or(self.offset);
        if let Some(requested_offset) = self.requested_offset {
            self.received = self.received.split_off(&requested_offset); // only now: the answer before may still have contained them
        }
        let is_all_settled = self.unsettled.is_empty();
        let (hold, deadline) = if is_all_settled { (HOLD, DEADLINE) } else { (SHORT_HOLD, SHORT_DEADLINE) };
        let (offset, timeout) = (self.requested_offset, hold.as_secs());
        let parameters = GetUpdates { offset, timeout, allowed_updates: ALLOWED, limit: None };
        let router = Arc::clone(&self.router);
        Box::pin(async move { router.api.call("getUpdates", &parameters, deadline).await })
    }

    /// Accepts the new updates of an answer; after an error, starts a pause.
    fn receive(&mut self, answer: Result<Batch, ApiError>) {
        self.answered_at = Instant::now();
        let batch = match answer {
            Ok(batch) => batch,
            Err(error) => {
                self.router.set_trouble(Some(&error));
                self.paused_until = self.answered_at + self.pause_after(&error);
                return;
            }
        };
        self.pauses = Pauses::new();
        self.router.set_trouble(None);
        if let Conflicts::End(is_logged) = &self.conflicts {
            is_logged.store(false, Ordering::Relaxed);
        }
        let numbers = || batch.iter().filter_map(|update| update_id(update));
        let last = numbers().max();
        if !batch.is_empty() && last.is_none() {
            warn!("a batch of updates without numbers");
            self.paused_until = self.answered_at + CONFLICT_PAUSE; // it cannot be confirmed and would come again at once
        }
        self.confirmed = numbers().min().or(self.requested_offset);
        self.offset = last.map(|last| last + 1).or(self.offset);
        let mut is_new = |update: &RawValue| update_id(update).is_none_or(|number| self.received.insert(number));
        self.batch = batch.into_iter().filter(|update| is_new(update)).collect();
    }

    /// Confirms all updates before the first unsettled one. Best effort: without it, those updates come again at the
    /// next start.
    async fn confirm_settled(&mut self) {
        self.request = None; // Telegram answers one request at a time
        while let Some(Some(progress)) = self.open.next().now_or_never() {
            if let Progress::Settled(offer) = progress {
                self.settled(&offer);
            }
        }
        let waiting = self.batch.iter().filter_map(|update| update_id(update)).min();
        let settled = self.unsettled.first().copied().into_iter().chain(waiting).chain(self.offset).min();
        if settled == self.confirmed {
            return;
        }
        // Telegram: getUpdates, `offset`: updates before it are confirmed. The updates that this call returns are not.
        let parameters = GetUpdates { offset: settled, limit: Some(1), timeout: 0, allowed_updates: ALLOWED };
        let answer = self.router.api.call::<_, IgnoredAny>("getUpdates", &parameters, LAST_DEADLINE).await;
        if let Err(error) = answer {
            info!(detail = %error, "the last updates could not be confirmed; they come again at the next start");
        }
    }

    /// The pause after an error. Of several conflicts under leases, the first is logged.
    fn pause_after(&mut self, error: &ApiError) -> Duration {
        if error.is_conflict() {
            let is_logged = match &self.conflicts {
                Conflicts::Wait => false,
                Conflicts::End(is_logged) => {
                    self.is_displaced = true;
                    is_logged.swap(true, Ordering::Relaxed)
                }
            };
            if !is_logged {
                error!(detail = %error, "somebody else takes this bot's updates: another daemon with the same token, or a webhook");
            }
            return CONFLICT_PAUSE;
        }
        let pause = self.pauses.after(error);
        warn!(detail = %error, pause_ms = pause.as_millis() as u64, "no updates from telegram");
        pause
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::telegram::unreachable_router;

    #[tokio::test(start_paused = true)]
    async fn a_conflict_and_a_429_are_waited_for_as_long_as_they_demand() {
        let mut poller = Poller::new(Arc::new(unreachable_router()), true, Conflicts::Wait, CancellationToken::new());
        let conflict = ApiError::Refused { code: 409, description: "Conflict".into(), migrate_to: None };
        for (error, seconds) in [(conflict, 10), (ApiError::Flood(Duration::from_secs(17)), 17)] {
            let demand = error.to_string();
            let begun = Instant::now();
            poller.receive(Err(error));
            assert_eq!(poller.due(), Some(begun + Duration::from_secs(seconds)), "{demand}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_about_a_minute_and_never_end() {
        let mut pauses = Pauses::new();
        let error = ApiError::NotSent("away".into());
        let all: Vec<u64> = (0..50).map(|_| pauses.after(&error).as_secs()).collect();
        assert!((1..=2).contains(&all[0]), "{all:?}");
        assert!(all[10..].iter().all(|pause| (60..=120).contains(pause)), "{all:?}");
    }
}
