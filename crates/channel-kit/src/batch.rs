//! Batches: the messages that one cursor covers, from their reading to the moment at which the cursor is kept.
//!
//! A source without acknowledgements of single messages is read by a cursor. The cursor is kept once each message of
//! the batch is settled: the agent has it on disk, or has refused it for good. If the agent cannot take one of them
//! now, the cursor stays, and the channel reads the same batch again after a pause. A repeated message has the key of
//! the first one, so it is recognised.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Ack, AckSender, ChannelId, Cursor, Cursors, Envelope, Inbound, Refusal, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

/// Maximum wait for the acknowledgements of a batch.
const ACK_DEADLINE: Duration = Duration::from_secs(30);

/// How long a batch is read again because a conversation is full. Then its message is given up: no later message can be
/// covered before it.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// The first and the longest pause before a batch is read again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The messages of one batch, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Batch {
    answers: Vec<oneshot::Receiver<Ack>>,
}

impl Batch {
    /// Adds a message, which the channel yields next. Give it a [key](Inbound::key): the batch may be read again.
    pub fn add(&mut self, inbound: Inbound) -> Envelope {
        let (ack, answer) = AckSender::channel();
        self.answers.push(answer);
        Envelope { inbound, ack }
    }

    /// The number of its messages.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether it has no message.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// The result of a batch.
#[derive(Debug)]
pub enum BatchEnd {
    /// The cursor is kept. The acknowledgements of the messages, in their order. Messages that were given up have
    /// [`Refusal::Busy`]: the channel tells their senders, for the agent does not.
    Kept(Vec<Ack>),
    /// The cursor stays. Read the batch again after this pause.
    Again(Duration),
}

/// Keeps the cursors of a source's batches, one batch after another.
pub struct Batches {
    channel: ChannelId,
    cursors: Arc<dyn Cursors>,
    /// Failures in a row.
    failures: u32,
    /// Since when the batch is read again because conversations are full, and for nothing else.
    busy_since: Option<Instant>,
}

impl Batches {
    /// The batches of a source of this channel.
    pub fn new(channel: ChannelId, cursors: Arc<dyn Cursors>) -> Self {
        Self { channel, cursors, failures: 0, busy_since: None }
    }

    /// The value of a cursor; `None`: nothing was read through it.
    ///
    /// # Errors
    /// The store fails.
    pub async fn position(&self, name: &str) -> Result<Option<Arc<str>>, StoreError> {
        self.cursors.cursor(&self.channel, name).await
    }

    /// Waits for the acknowledgements of all messages, and keeps the cursor if all are settled. Call it after the last
    /// message of the batch was yielded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the cursor may or may not be kept. The same batch can be read again.
    pub async fn end(&mut self, batch: Batch, cursor: &Cursor) -> BatchEnd {
        let deadline = Instant::now() + ACK_DEADLINE;
        let mut acks = Vec::with_capacity(batch.len());
        let mut hindrance = Hindrance::None;
        for answer in batch.answers {
            let ack = timeout_at(deadline, answer).await.ok().and_then(Result::ok);
            hindrance = hindrance.max(Hindrance::of(ack.as_ref()));
            acks.extend(ack);
        }
        self.busy_since = match hindrance {
            Hindrance::Busy(_) => self.busy_since.or_else(|| Some(Instant::now())),
            Hindrance::None | Hindrance::Later(_) => None,
        };
        let is_full_for_long = self.busy_since.is_some_and(|since| since.elapsed() >= BUSY_MAX);
        match hindrance {
            Hindrance::Later(after) => return self.again(after),
            Hindrance::Busy(after) if !is_full_for_long => return self.again(after),
            Hindrance::Busy(_) => warn!(channel = %self.channel, "a message was given up: its conversation stays full"),
            Hindrance::None => {}
        }
        if let Err(error) = self.cursors.keep_cursor(&self.channel, cursor).await {
            warn!(channel = %self.channel, %error, "a cursor was not kept; its messages are read again");
            return self.again(Duration::ZERO);
        }
        (self.failures, self.busy_since) = (0, None);
        BatchEnd::Kept(acks)
    }

    /// The next pause: it doubles with each failure in a row. `least`: that of the refusal.
    fn again(&mut self, least: Duration) -> BatchEnd {
        let pause = PAUSE.0.saturating_mul(1 << self.failures.min(6));
        self.failures = self.failures.saturating_add(1);
        BatchEnd::Again(pause.max(least).min(PAUSE.1))
    }
}

/// The reason for which a cursor stays, the weakest first, with the pause that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hindrance {
    None,
    Busy(Duration),
    Later(Duration),
}

impl Hindrance {
    /// `None`: the acknowledgement does not come.
    fn of(ack: Option<&Ack>) -> Self {
        match ack {
            Some(Ack::Refused(Refusal::Busy { retry_after, .. })) => Self::Busy(*retry_after),
            Some(Ack::Refused(refusal)) => refusal.again().map_or(Self::None, Self::Later),
            Some(_) => Self::None,
            None => Self::Later(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests;
