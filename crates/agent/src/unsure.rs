//! Deliveries whose result is unknown: whether a message is sent again, looked up or given up.

use std::time::Duration;

use belay_protocol::{Channel, DeliverError, Outbound, OutboxState, Repeat, UnixMillis};

/// Time left of a platform's memory below which no repetition begins.
const LEAST_LEFT: Duration = Duration::from_secs(1);

/// Longest pause that a platform may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(86_400);

/// The ways in which a message's channel settles an unknown result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsureRule {
    repeat: Repeat,
    looks_up: bool,
}

/// How an attempt begins after an unknown result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The message is sent.
    Send,
    /// The platform is asked first.
    LookUp,
    /// It is not sent: its result stays unknown.
    GiveUp,
}

/// The facts of an attempt that its result is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Its beginning.
    pub(crate) began: UnixMillis,
    /// The beginning of the first attempt with an unknown result; `None`: there is none.
    pub(crate) unsure_since: Option<UnixMillis>,
    /// The pieces that the platform had accepted before.
    pub(crate) pieces_sent: u32,
    /// Whether no other attempt follows.
    pub(crate) is_last: bool,
    /// The pause before another attempt.
    pub(crate) backoff: Duration,
}

impl UnsureRule {
    pub(crate) fn of(channel: &dyn Channel, message: &Outbound) -> Self {
        if message.callback.is_some() {
            return Self { repeat: Repeat::Harmless { for_: Duration::MAX }, looks_up: false }; // receivers recognise it
        }
        Self { repeat: channel.profile().repeat, looks_up: channel.sent().is_some() }
    }

    /// Whether a delivery with an unknown result continues, by a repetition or by a question to the platform.
    pub(crate) fn settles_unknown(channel: &dyn Channel) -> bool {
        channel.sent().is_some() || channel.profile().repeat != Repeat::Ambiguous
    }

    /// The beginning of an attempt. `since`: as [`Attempt::unsure_since`].
    pub(crate) fn begin(self, since: Option<UnixMillis>, now: UnixMillis, is_last: bool) -> Beginning {
        let Some(since) = since else { return Beginning::Send };
        match (self.repeat.is_harmless(since, now), self.looks_up) {
            (false, true) => Beginning::LookUp,
            (true, true) if is_last => Beginning::LookUp, // a further unknown result would be the end
            (true, _) => Beginning::Send,
            (false, false) => Beginning::GiveUp,
        }
    }

    /// The state after a failed attempt, and the outcome if it is the end.
    pub(crate) fn after(
        self,
        attempt: Attempt,
        error: &DeliverError,
        now: UnixMillis,
    ) -> (OutboxState, Option<&'static str>) {
        let Attempt { unsure_since, pieces_sent: before, .. } = attempt;
        // Whether an earlier unknown result is still unknown: the platform has not accepted that piece since.
        let unsure = |pieces_sent: u32| unsure_since.filter(|_| pieces_sent <= before);
        match *error {
            DeliverError::Retry { after, pieces_sent, .. } if !attempt.is_last => {
                let until = later(now, pause(after, attempt));
                (OutboxState::Waiting { until, pieces_sent, unsure_since: unsure(pieces_sent) }, None)
            }
            DeliverError::Ambiguous { pieces_sent, .. } => {
                let since = unsure(pieces_sent).unwrap_or(attempt.began);
                match self.pause(since, now, attempt.backoff).filter(|_| !attempt.is_last) {
                    Some(pause) => {
                        let (until, unsure_since) = (later(now, pause), Some(since));
                        (OutboxState::Waiting { until, pieces_sent, unsure_since }, None)
                    }
                    None => AMBIGUOUS,
                }
            }
            DeliverError::Retry { pieces_sent, .. } if unsure(pieces_sent).is_some() => AMBIGUOUS,
            DeliverError::Refused { .. } if unsure_since.is_some() => AMBIGUOUS,
            DeliverError::Retry { .. } | DeliverError::Refused { .. } => (OutboxState::Failed, Some("failed")),
        }
    }

    /// The state after the platform could not be asked, and the outcome if it is the end.
    pub(crate) fn not_asked(
        attempt: Attempt,
        after: Option<Duration>,
        now: UnixMillis,
    ) -> (OutboxState, Option<&'static str>) {
        let Attempt { unsure_since, pieces_sent, .. } = attempt;
        let until = later(now, pause(after, attempt));
        let waiting = OutboxState::Waiting { until, pieces_sent, unsure_since };
        if attempt.is_last { AMBIGUOUS } else { (waiting, None) }
    }

    /// The pause before another attempt; `None`: no attempt would begin with anything but the end.
    fn pause(self, since: UnixMillis, now: UnixMillis, backoff: Duration) -> Option<Duration> {
        if self.looks_up || self.repeat.is_harmless(since, later(now, backoff)) {
            return Some(backoff);
        }
        let Repeat::Harmless { for_ } = self.repeat else { return None };
        let age = u64::try_from(now.0.saturating_sub(since.0)).ok()?;
        let left = for_.checked_sub(Duration::from_millis(age))?;
        (left >= LEAST_LEFT).then_some(left / 2) // one more attempt before the platform forgets
    }
}

const AMBIGUOUS: (OutboxState, Option<&str>) = (OutboxState::Ambiguous, Some("ambiguous"));

/// The pause before another attempt. A platform may ask for a day at most: later messages of the conversation wait too.
fn pause(asked: Option<Duration>, attempt: Attempt) -> Duration {
    asked.unwrap_or(attempt.backoff).min(PAUSE_MAX)
}

pub(crate) fn later(now: UnixMillis, delay: Duration) -> UnixMillis {
    UnixMillis(now.0.saturating_add(delay.as_millis().min(i64::MAX as u128) as i64))
}

#[cfg(test)]
mod tests;
