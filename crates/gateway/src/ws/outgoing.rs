//! The outgoing queue of one connection. Adding to it never waits.
//!
//! Facts and responses are never dropped: a reader that is too slow for them loses the connection. Deltas are dropped
//! long before that.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// An outgoing frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A text.
    Text(String),
    /// A ping.
    Ping,
}

impl Frame {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ping => 0,
        }
    }
}

/// The queue of a connection.
pub(crate) struct Outgoing {
    queue: Mutex<Queue>,
    /// Wakes the writer.
    more: Notify,
    /// Wakes the task that closes the connection.
    overflow: Notify,
    /// Most bytes that may wait.
    max_bytes: usize,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Bytes of the queued frames and of the one that is being written.
    bytes: usize,
    writing: usize,
    /// Nothing more is accepted.
    ended: bool,
}

impl Outgoing {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { queue: Mutex::default(), more: Notify::new(), overflow: Notify::new(), max_bytes }
    }

    /// Queues a fact or a response. If the limit is exceeded, the connection ends.
    pub(crate) fn send(&self, text: String) {
        let mut queue = self.queue();
        if queue.ended {
            return;
        }
        if queue.bytes + text.len() > self.max_bytes {
            queue.ended = true;
            queue.frames.clear();
            queue.bytes = queue.writing;
            self.overflow.notify_one();
        } else {
            queue.push(Frame::Text(text));
        }
        self.more.notify_one();
    }

    /// Queues a delta, unless more than a quarter of the limit is in use. Returns whether it was queued.
    pub(crate) fn offer(&self, text: String) -> bool {
        let mut queue = self.queue();
        let taken = !queue.ended && queue.bytes + text.len() <= self.max_bytes / 4;
        if taken {
            queue.push(Frame::Text(text));
            self.more.notify_one();
        }
        taken
    }

    /// Queues a ping, which the client's library answers, unless one is queued already.
    pub(crate) fn ping(&self) {
        let mut queue = self.queue();
        if !queue.ended && !queue.frames.contains(&Frame::Ping) {
            queue.push(Frame::Ping);
            self.more.notify_one();
        }
    }

    /// Accepts nothing more; queued frames are still written.
    pub(crate) fn end(&self) {
        self.queue().ended = true;
        self.more.notify_one();
    }

    /// Returns the next frame to write. The call also means that the previous frame has been written. `None` after the
    /// last one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&self) -> Option<Frame> {
        loop {
            {
                let mut queue = self.queue();
                queue.bytes -= std::mem::take(&mut queue.writing);
                if let Some(frame) = queue.frames.pop_front() {
                    queue.writing = frame.bytes();
                    return Some(frame);
                }
                if queue.ended {
                    return None;
                }
            }
            self.more.notified().await;
        }
    }

    /// Returns when the queue has exceeded its limit.
    pub(crate) async fn overflowed(&self) {
        self.overflow.notified().await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, frame: Frame) {
        self.bytes += frame.bytes();
        self.frames.push_back(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Frame {
        Frame::Text(text.into())
    }

    #[tokio::test]
    async fn fragments_are_dropped_first_and_what_counts_is_kept_up_to_the_limit() {
        let outgoing = Outgoing::new(16);
        assert!(outgoing.offer("1234".into()));
        assert!(!outgoing.offer("5".into()), "a quarter is full");
        outgoing.send("fact".into());
        outgoing.ping();
        assert_eq!(outgoing.next().await, Some(text("1234")));
        assert!(!outgoing.offer("5".into()), "what is being written counts");
        assert_eq!(outgoing.next().await, Some(text("fact")));
        outgoing.ping();
        assert_eq!(outgoing.next().await, Some(Frame::Ping), "one for two, also behind other frames");
        outgoing.send("the rest".into());
        outgoing.send("full".into());
        assert_eq!(outgoing.next().await, Some(text("the rest")));
        outgoing.end();
        outgoing.send("late".into());
        assert_eq!(outgoing.next().await, Some(text("full")));
        assert_eq!(outgoing.next().await, None);
    }

    #[tokio::test]
    async fn one_fact_too_many_ends_it() {
        let outgoing = Outgoing::new(8);
        outgoing.send("12345678".into());
        outgoing.send("9".into());
        outgoing.overflowed().await;
        assert_eq!(outgoing.next().await, None);
        assert!(!outgoing.offer(String::new()));
    }
}
