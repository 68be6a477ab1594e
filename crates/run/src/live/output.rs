//! The text of a run while it works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use belay_protocol::{Delta, Heard, Partial};
use tokio::sync::{Notify, broadcast};

use crate::chunking::Blocks;

/// Number of fragments kept for a watcher that lags. A slower watcher misses fragments and takes the text from the
/// reply.
const DELTA_CAPACITY: usize = 512;

/// The text of a run while it works: fragments for watchers, the partial text of the step, and blocks for channels that
/// take text in pieces.
#[derive(Debug)]
pub struct RunOutput {
    deltas: OnceLock<broadcast::Sender<Delta>>,
    /// The text of the current step. The lock is held for an append, never across an await. Fragments are published
    /// under the lock, so that a new watcher gets each word exactly once.
    partial: Mutex<Partial>,
    /// The text in blocks, if the channel takes text in pieces. The lock is held for an append, never across an await.
    blocks: OnceLock<Mutex<Blocks>>,
    /// Notifies the one task that shows the text about new text.
    changed: Notify,
    /// Number of model calls that have begun and whose text is shown.
    calls: AtomicU64,
    /// The last of these calls whose text a person has seen.
    seen: AtomicU64,
}

impl RunOutput {
    /// Empty output. With `want_deltas`, fragments are kept for a watcher from the first one.
    pub(super) fn new(want_deltas: bool) -> Self {
        let output = Self {
            deltas: OnceLock::new(),
            partial: Mutex::default(),
            blocks: OnceLock::new(),
            changed: Notify::new(),
            calls: AtomicU64::new(1), // greater than `seen`: nobody has seen text yet
            seen: AtomicU64::new(0),
        };
        if want_deltas {
            output.sender();
        }
        output
    }

    /// The text of the step so far, and the fragments that follow it.
    pub fn subscribe(&self) -> (Partial, broadcast::Receiver<Delta>) {
        let partial = self.partial();
        let deltas = self.sender().subscribe();
        (partial.clone(), deltas)
    }

    fn sender(&self) -> &broadcast::Sender<Delta> {
        self.deltas.get_or_init(|| broadcast::Sender::new(DELTA_CAPACITY))
    }

    /// The text of the model in the current step.
    pub fn partial(&self) -> MutexGuard<'_, Partial> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A model call begins: forgets the text of an earlier call of this step.
    pub(crate) fn begin_step(&self, step: u32) {
        self.partial().begin(step);
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(mut blocks) = self.blocks() {
            blocks.begin(step);
        }
        self.changed.notify_one();
    }

    /// Publishes text of the model. Returns whether anybody received it.
    pub fn say(&self, step: u32, text: &str, reasoning: &str) -> Heard {
        let mut heard = Heard::Nobody;
        let mut partial = self.partial();
        if !reasoning.is_empty() {
            partial.reasoning.push_str(reasoning);
            heard = self.publish(|| Delta::Reasoning { step, text: reasoning.to_owned() });
        }
        if !text.is_empty() {
            partial.text.push_str(text);
            if self.publish(|| Delta::Text { step, text: text.to_owned() }) == Heard::Somebody {
                heard = Heard::Somebody;
            }
            if self.blocks().is_some_and(|mut blocks| blocks.push(text)) {
                heard = Heard::Somebody;
            }
        }
        self.changed.notify_one();
        if self.seen.load(Ordering::Relaxed) == self.calls.load(Ordering::Relaxed) {
            heard = Heard::Somebody;
        }
        heard
    }

    /// The model call that is shown now, for [`Self::was_seen`].
    pub fn call_shown(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Records that a person has seen text of this call. [`Self::say`] then counts its text as received.
    pub fn was_seen(&self, call: u64) {
        self.seen.fetch_max(call, Ordering::Relaxed);
    }

    /// Marks the text of this step as complete. The text is not the answer.
    pub fn end_text(&self) {
        if let Some(mut blocks) = self.blocks() {
            blocks.end_text();
        }
        self.changed.notify_one();
    }

    /// From now on, text is also cut into blocks.
    pub fn say_in(&self, blocks: Blocks) {
        let _ = self.blocks.set(Mutex::new(blocks)); // a resumed run keeps the blocks that it has
    }

    /// The blocks, if text is cut into them.
    pub fn blocks(&self) -> Option<MutexGuard<'_, Blocks>> {
        self.blocks.get().map(|blocks| blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until text was added. Only one task may wait. Text that was added while it did not wait counts too.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Sends a fragment to the watchers, if there are any.
    pub(super) fn publish(&self, make: impl FnOnce() -> Delta) -> Heard {
        match self.deltas.get() {
            Some(deltas) if deltas.receiver_count() > 0 && deltas.send(make()).is_ok() => Heard::Somebody,
            _ => Heard::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_has_seen_counts_as_heard_until_the_next_call() {
        let output = RunOutput::new(false);
        assert_eq!(output.say(0, "nobody looks", ""), Heard::Nobody);
        output.begin_step(1);
        assert_eq!(output.say(1, "one", ""), Heard::Nobody);
        let earlier = output.call_shown();
        output.begin_step(1);
        output.was_seen(earlier);
        assert_eq!(output.say(1, "one", ""), Heard::Nobody, "the call that was seen is not this one");
        output.was_seen(output.call_shown());
        assert_eq!(output.say(1, " two", ""), Heard::Somebody);
        assert_eq!(output.say(1, " three", ""), Heard::Somebody);
        output.begin_step(2);
        assert_eq!(output.say(2, "four", ""), Heard::Nobody);
    }
}
