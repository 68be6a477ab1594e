//! How much may wait: messages and bytes that were accepted and have not ended, counted for each sender and overall.
//!
//! The dispatcher owns the count. It adds a message before the message goes to its lane, and takes it off when the run ends or
//! was never accepted; a start rebuilds the count by one query. So a message costs two look-ups and no question to the store.
//!
//! **Not counted**: commands, answers to questions and control, which must work when everything is full; and the runs of jobs
//! and routines, which have limits of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::store::UnfinishedRun;
use belay_protocol::{ChannelId, Inbound, Purpose, Refusal, RunId};

use crate::queue::Bounds;

/// When a refused sender may try again. 5 s: what waits goes away as turns end, which takes seconds.
const RETRY: Duration = Duration::from_secs(5);

/// Whose message it is: the sender's id within the channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sender {
    channel: ChannelId,
    id: Arc<str>,
}

impl Sender {
    /// Who sends a message; `None`: the agent's own parts, which are not counted.
    pub(super) fn of(inbound: &Inbound) -> Option<Self> {
        Self::named(&inbound.channel, inbound.principal.id.clone())
    }

    fn named(channel: &ChannelId, id: Arc<str>) -> Option<Self> {
        (!Purpose::of(channel).is_autonomous()).then(|| Self { channel: channel.clone(), id })
    }
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    messages: usize,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    fn take_off(&mut self, bytes: u64) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The count.
pub(super) struct Admission {
    bounds: Bounds,
    overall: Amount,
    of_senders: HashMap<Sender, Amount>,
    /// What each counted run has added.
    of_runs: HashMap<RunId, (Sender, u64)>,
}

impl Admission {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, overall: Amount::default(), of_senders: HashMap::new(), of_runs: HashMap::new() }
    }

    /// Why a message of so many bytes cannot be taken now; `None`: it can. A single message is always taken where nothing
    /// else waits.
    pub(super) fn refusal(&self, sender: &Sender, bytes: u64) -> Option<Refusal> {
        let Bounds { messages_per_sender, bytes_per_sender, bytes: most } = self.bounds;
        let exceeds = |waits: u64, most: u64| waits > 0 && waits.saturating_add(bytes) > most;
        let own = self.of_senders.get(sender).copied().unwrap_or_default();
        if own.messages >= messages_per_sender {
            let what = format!("{} of your messages are waiting already", own.messages);
            return Some(Refusal::Busy { what, retry_after: RETRY });
        }
        if exceeds(own.bytes, bytes_per_sender) {
            let what = format!("{} bytes of your messages are waiting already", own.bytes);
            return Some(Refusal::Busy { what, retry_after: RETRY });
        }
        exceeds(self.overall.bytes, most).then(|| {
            let what = format!("{} bytes of messages are waiting already", self.overall.bytes);
            Refusal::Overloaded { what, retry_after: RETRY }
        })
    }

    /// Counts a message that goes to its lane.
    pub(super) fn add(&mut self, run: RunId, sender: Sender, bytes: u64) {
        self.overall.add(bytes);
        self.of_senders.entry(sender.clone()).or_default().add(bytes);
        self.of_runs.insert(run, (sender, bytes));
    }

    /// Counts a run that an earlier start left unfinished.
    pub(super) fn recall(&mut self, run: &UnfinishedRun) {
        if let Some(sender) = Sender::named(&run.channel, run.principal.as_str().into()) {
            self.add(run.run_id, sender, run.bytes);
        }
    }

    /// A run has ended, or never was.
    pub(super) fn remove(&mut self, run: RunId) {
        let Some((sender, bytes)) = self.of_runs.remove(&run) else { return };
        self.overall.take_off(bytes);
        if let Some(own) = self.of_senders.get_mut(&sender) {
            own.take_off(bytes);
            if own.messages == 0 {
                self.of_senders.remove(&sender);
            }
        }
    }
}

/// Bytes of a message, with the history that it brings along.
pub(super) fn bytes_of(text: &str, inbound: &Inbound) -> u64 {
    let history: usize = inbound.history.iter().map(|line| line.text.len()).sum();
    (text.len() as u64).saturating_add(history as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(id: &str) -> Sender {
        Sender::named(&"telegram".into(), id.into()).expect("a person")
    }

    fn admission() -> Admission {
        Admission::new(Bounds { messages_per_sender: 3, bytes_per_sender: 100, bytes: 150 })
    }

    /// What is answered: nothing, `busy` or `overloaded`.
    fn word(refusal: Option<Refusal>) -> &'static str {
        match refusal {
            None => "taken",
            Some(Refusal::Busy { .. }) => "busy",
            Some(Refusal::Overloaded { .. }) => "overloaded",
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_and_bytes_are_bounded_for_each_sender_and_bytes_overall() {
        for (name, waiting, who, bytes, expected) in [
            ("nothing waits", vec![], "ann", 10, "taken"),
            ("a first message is taken, however long", vec![], "ann", 1_000, "taken"),
            ("the third message", vec![("ann", 1), ("ann", 1)], "ann", 1, "taken"),
            ("the fourth", vec![("ann", 1), ("ann", 1), ("ann", 1)], "ann", 1, "busy"),
            ("the fourth, of another", vec![("ann", 1), ("ann", 1), ("ann", 1)], "bob", 1, "taken"),
            ("as many bytes as may be", vec![("ann", 60)], "ann", 40, "taken"),
            ("one more", vec![("ann", 60)], "ann", 41, "busy"),
            ("all together", vec![("ann", 90), ("bob", 60)], "eve", 1, "overloaded"),
            ("the sender's own bound comes first", vec![("ann", 100), ("bob", 50)], "ann", 1, "busy"),
        ] {
            let mut admission = admission();
            for (who, bytes) in waiting {
                admission.add(RunId::new(), sender(who), bytes);
            }
            assert_eq!(word(admission.refusal(&sender(who), bytes)), expected, "{name}");
        }
    }

    #[test]
    fn what_has_ended_makes_room_once_and_senders_without_messages_are_forgotten() {
        let mut admission = admission();
        let (one, two) = (RunId::new(), RunId::new());
        admission.add(one, sender("ann"), 60);
        admission.add(two, sender("bob"), 60);
        admission.remove(one);
        admission.remove(one);
        assert_eq!(admission.overall, Amount { messages: 1, bytes: 60 });
        admission.remove(two);
        assert_eq!((admission.overall, admission.of_senders.len(), admission.of_runs.len()), (Amount::default(), 0, 0));
    }

    #[test]
    fn the_agents_own_parts_are_not_counted() {
        assert_eq!(Sender::named(&"job".into(), "job".into()), None);
    }
}
