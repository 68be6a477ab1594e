//! The service manager: notified when the daemon is ready and when it stops, and fed with watchdog messages while the
//! dispatcher answers.
//!
//! Does nothing without `NOTIFY_SOCKET`. Source: sd_notify(3), systemd.service(5) `WatchdogSec=`.

use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ack, AckSender, Body, Channel, ChannelError, ChannelId, ChannelProfile, Control, DeliverError, Envelope, Inbound,
    InboundStream, Outbound, Principal, SessionKey,
};
use futures_util::StreamExt;
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Notifies that messages are accepted, and where.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies that the settings are being reloaded; [`ready`] ends the reload.
pub fn reloading() {
    // systemd 253 and later require the time of the notification. Source: sd_notify(3), `MONOTONIC_USEC=`.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Notifies what the start waits for.
pub fn waiting(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Requests that the service manager lets the start take at least this time from now on.
///
/// Source: sd_notify(3), `EXTEND_TIMEOUT_USEC=`; systemd.service(5), `TimeoutStartSec=`.
pub fn extend_timeout(time: Duration) {
    notify(&[NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))]);
}

/// Notifies that the drain has begun.
pub fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        // The service manager decides what a missing notification means; the daemon continues.
        warn!(%error, "the service manager cannot be notified");
    }
}

/// Feeds the watchdog of the service manager by asking the dispatcher for its status, twice in each period.
///
/// It is a channel, and its request takes the way of every control message. If the dispatcher hangs, the request has no
/// answer, and the watchdog is not fed.
pub struct WatchdogChannel {
    id: ChannelId,
    period: Duration,
    feed: fn(),
}

impl WatchdogChannel {
    /// The watchdog that the service manager requests; `None`: it requests none.
    pub fn from_service_manager() -> Option<Self> {
        let period = sd_notify::watchdog_enabled()?;
        Some(Self::new(period, || notify(&[NotifyState::Watchdog])))
    }

    fn new(period: Duration, feed: fn()) -> Self {
        Self { id: "watchdog".into(), period, feed }
    }
}

/// The pending request, and the timer for the next one.
struct Feeding {
    ticks: Interval,
    answer: Option<oneshot::Receiver<Ack>>,
    feed: fn(),
}

impl Feeding {
    /// Waits for the answer to the last request, feeds the watchdog, waits for the next tick, and makes the next
    /// request.
    async fn next_question(mut self, id: ChannelId) -> (Envelope, Self) {
        if let Some(answer) = self.answer.take()
            && let Ok(Ack::Status(_)) = answer.await
        {
            (self.feed)();
        }
        self.ticks.tick().await;
        let (ack, answer) = AckSender::channel();
        self.answer = Some(answer);
        let inbound = Inbound::new(
            id.clone(),
            SessionKey::new("watchdog"),
            Principal::operator("watchdog"),
            Body::Control(Control::Status),
        );
        (Envelope { inbound, ack }, self)
    }
}

#[async_trait]
impl Channel for WatchdogChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        // Half the period, as sd_watchdog_enabled(3) recommends.
        let mut ticks = tokio::time::interval(self.period / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let id = self.id.clone();
        let feeding = Feeding { ticks, answer: None, feed: self.feed };
        let questions = futures_util::stream::unfold(feeding, move |feeding| {
            let id = id.clone();
            async move { Some(feeding.next_question(id).await) }
        });
        Ok(Box::pin(questions.take_until(intake.cancelled_owned())))
    }

    async fn deliver(&self, _message: &Outbound) -> Result<(), DeliverError> {
        Err(DeliverError::Refused { detail: "the watchdog has no reader".into() })
    }

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { keeps_alive: false, carries_people: false, ..ChannelProfile::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use belay_protocol::StatusReport;
    use belay_protocol::{BootId, ModelInfo, UnixMillis};

    use super::*;

    fn status() -> Ack {
        let model = ModelInfo {
            provider: "p".into(),
            model: "m".into(),
            context_tokens: 1,
            price: None,
            rehearsal: true,
            vision: false,
            sampling: belay_protocol::SamplingSupport::ALL,
        };
        Ack::Status(Box::new(StatusReport {
            version: "0".into(),
            boot_id: BootId::new(),
            started_at: UnixMillis(0),
            draining: false,
            model,
            sessions_awake: 0,
            running: Vec::new(),
            queued: 0,
            paused: 0,
            channels: Vec::new(),
            spent_today_micro_usd: 0,
            spent_today_for: Default::default(),
            limit_today_micro_usd: None,
            limit_today_for: Default::default(),
            open_reservations: Default::default(),
            degraded: Vec::new(),
            model_trouble: None,
            candidates: Vec::new(),
            tools: Vec::new(),
            frozen: Vec::new(),
            beside: Default::default(),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_only_while_the_dispatcher_answers() {
        static FED: AtomicU32 = AtomicU32::new(0);
        let channel = WatchdogChannel::new(Duration::from_secs(30), || {
            FED.fetch_add(1, Ordering::Relaxed);
        });
        let intake = CancellationToken::new();
        let mut questions = channel.start(intake.clone()).await.unwrap();

        for fed in 0..3 {
            let question = questions.next().await.unwrap();
            assert_eq!(question.inbound.body, Body::Control(Control::Status));
            assert_eq!(FED.load(Ordering::Relaxed), fed);
            question.ack.send(status());
        }
        let hanging = questions.next().await.unwrap();
        assert_eq!(FED.load(Ordering::Relaxed), 3);
        let silence = tokio::time::timeout(Duration::from_secs(300), questions.next()).await;
        assert!(silence.is_err(), "an unanswered question is never followed by another");
        assert_eq!(FED.load(Ordering::Relaxed), 3);

        drop(hanging);
        intake.cancel();
        assert!(questions.next().await.is_none(), "the end of intake ends the stream");
    }
}
