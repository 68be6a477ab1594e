//! The topics of the hints: their readers on this node, and what the other nodes are to be told. `postgres/hints` exchanges them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::Seq;
use belay_protocol::cluster::Topic;
use tokio::sync::{Notify, watch};

/// The letter of each topic in a notification, in the order of [`Topic::ALL`].
const LETTERS: [char; Topic::ALL.len()] = ['m', 's', 'n', 'o', 'j', 'r', 'q', 'f', 'p', 't', 'i'];

/// How a store notices the commits of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// The store has no connection for it, or is alone.
    Unknown,
    /// By notifications.
    Notified,
    /// By polling alone, up to a second later: the database sends no notifications through this address.
    Polled,
}

/// The topics. Of a store without hints, they never change.
#[derive(Debug)]
pub(crate) struct HintBoard {
    topics: [watch::Sender<u64>; Topic::ALL.len()],
    /// What is not sent yet. `None`: the store has no hints.
    outgoing: Option<Outgoing>,
    /// How commits of other nodes are noticed.
    pub(crate) hearing: watch::Sender<Hearing>,
}

#[derive(Debug, Default)]
struct Outgoing {
    pending: Mutex<Pending>,
    wake: Notify,
}

/// Hints that are not sent yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// A bit for each topic.
    topics: u16,
    /// The newest event; 0: none.
    tip: u64,
}

impl Pending {
    /// The letters of the topics, and the newest event behind a space.
    pub(crate) fn payload(self) -> String {
        let topics = LETTERS.iter().enumerate().filter(|(at, _)| self.topics & (1 << at) != 0);
        let mut payload: String = topics.map(|(_, letter)| *letter).collect();
        if self.tip > 0 {
            payload.push_str(&format!(" {}", self.tip));
        }
        payload
    }

    fn add(&mut self, other: Self) {
        self.topics |= other.topics;
        self.tip = self.tip.max(other.tip);
    }
}

impl HintBoard {
    fn new(outgoing: Option<Outgoing>) -> Self {
        let topics = std::array::from_fn(|_| watch::Sender::new(0));
        Self { topics, outgoing, hearing: watch::Sender::new(Hearing::Unknown) }
    }

    /// The topics of a store without hints.
    pub(crate) fn alone() -> Self {
        Self::new(None)
    }

    /// The topics of a store that shares its database.
    pub(crate) fn shared() -> Self {
        Self::new(Some(Outgoing::default()))
    }

    /// How commits of other nodes are noticed.
    pub(crate) fn hearing(&self) -> watch::Receiver<Hearing> {
        self.hearing.subscribe()
    }

    /// See [`Hints::changes`](belay_protocol::store::Hints::changes).
    pub(crate) fn changes(&self, topic: Topic) -> watch::Receiver<u64> {
        self.topics[topic as usize].subscribe()
    }

    /// Wakes the readers of the topic on this node, and soon those of the other nodes. Without hints it is nothing.
    pub(crate) fn hint(&self, topic: Topic) {
        if let Some(outgoing) = &self.outgoing {
            self.change(topic as usize);
            outgoing.add(Pending { topics: 1 << topic as usize, tip: 0 });
        }
    }

    /// The same for a commit. `tip`: its last event; `outbox`: whether it has messages to deliver.
    pub(crate) fn committed(&self, tip: Option<u64>, outbox: bool) {
        if outbox {
            self.hint(Topic::Outbox);
        }
        if let (Some(outgoing), Some(tip)) = (&self.outgoing, tip) {
            outgoing.add(Pending { topics: 0, tip });
        }
    }

    fn change(&self, topic: usize) {
        if let Some(changes) = self.topics.get(topic) {
            changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
    }

    /// Wakes the readers of every topic on this node.
    pub(crate) fn change_all(&self) {
        (0..self.topics.len()).for_each(|topic| self.change(topic));
    }

    /// Wakes the readers on this node of what another node has sent. Returns its newest event. Letters that this version does
    /// not know are skipped, and so is a payload with other characters.
    pub(crate) fn receive(&self, payload: &str) -> Option<u64> {
        let (letters, tip) = payload.split_once(' ').unwrap_or((payload, ""));
        let tip = if tip.is_empty() { None } else { Some(tip.parse().ok()?) };
        for letter in letters.chars() {
            if let Some(topic) = LETTERS.iter().position(|known| *known == letter) {
                self.change(topic);
            }
        }
        tip
    }

    /// Waits until there is something to send.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn until_pending(&self) {
        let Some(outgoing) = &self.outgoing else { return std::future::pending().await };
        while *outgoing.pending() == Pending::default() {
            outgoing.wake.notified().await;
        }
    }

    /// Takes what is to be sent.
    pub(crate) fn take_pending(&self) -> Option<Pending> {
        let pending = std::mem::take(&mut *self.outgoing.as_ref()?.pending());
        (pending != Pending::default()).then_some(pending)
    }

    /// Puts back what could not be sent.
    pub(crate) fn put_back(&self, pending: Pending) {
        if let Some(outgoing) = &self.outgoing {
            outgoing.add(pending);
        }
    }
}

impl Outgoing {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, more: Pending) {
        self.pending().add(more);
        self.wake.notify_one();
    }
}

/// Raises the newest event. An announcement that comes late changes nothing.
pub(crate) fn raise(tip: &watch::Sender<Seq>, seq: u64) {
    tip.send_if_modified(|tip| {
        let newer = seq > tip.0;
        tip.0 = tip.0.max(seq);
        newer
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_arrives_as_itself_with_the_newest_event() {
        for topic in Topic::ALL {
            let (sender, receiver) = (HintBoard::shared(), HintBoard::shared());
            let readers: Vec<_> = Topic::ALL.iter().map(|topic| (*topic, receiver.changes(*topic))).collect();
            let own = sender.changes(topic);
            sender.hint(topic);
            sender.committed(Some(7), false);
            sender.committed(Some(5), false);
            assert!(own.has_changed().expect("a sender"), "its own node learns it at once");
            let payload = sender.take_pending().expect("pending").payload();
            assert_eq!((receiver.receive(&payload), sender.take_pending()), (Some(7), None));
            let changed: Vec<_> =
                readers.iter().filter(|(_, reader)| reader.has_changed().expect("a sender")).collect();
            assert_eq!(changed.iter().map(|(changed, _)| *changed).collect::<Vec<_>>(), [topic], "{payload}");
        }
    }

    #[test]
    fn foreign_payloads_are_skipped_and_a_store_without_hints_never_changes() {
        let (board, alone) = (HintBoard::shared(), HintBoard::alone());
        let (reader, still) = (board.changes(Topic::Mail), alone.changes(Topic::Mail));
        for (payload, tip) in [("", None), ("XYZ", None), ("X 12", Some(12)), ("m ?", None), ("test 00ff", None)] {
            assert_eq!(board.receive(payload), tip, "{payload}");
        }
        assert!(!reader.has_changed().expect("a sender"), "no payload was one of its topic");
        alone.hint(Topic::Mail);
        alone.committed(Some(1), true);
        assert!(!still.has_changed().expect("a sender") && alone.take_pending().is_none());
    }

    #[test]
    fn the_newest_event_never_goes_back() {
        let tip = watch::Sender::new(Seq(5));
        let reader = tip.subscribe();
        raise(&tip, 4);
        assert!(!reader.has_changed().expect("a sender"));
        raise(&tip, 6);
        assert_eq!(*reader.borrow(), Seq(6));
    }
}
