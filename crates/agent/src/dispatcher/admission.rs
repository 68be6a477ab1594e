//! Admission: limits the messages and bytes that were accepted and have not ended, for each sender and overall. Runs
//! that are paused on an approval request wait for a person, not for Belay. They are counted separately, with a limit
//! of their own.
//!
//! The dispatcher owns the count. It adds a message before the message goes to its lane, and subtracts it when its run
//! ends or was never accepted. A start rebuilds the count by one query. So a message costs two look-ups and no query of
//! the store.
//!
//! **Not counted**: commands, answers to questions and control, which must work when everything is full; and the runs
//! of jobs and routines, which have limits of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::store::UnfinishedRun;
use belay_protocol::{ChannelId, Inbound, Refusal, RunId, Work, json_bytes};

use crate::queue::Bounds;

/// Maximum number of unanswered approval requests in runs of one sender. 1000: nobody answers more, and each holds a
/// conversation.
const MAX_QUESTIONS: usize = 1000;

/// Time after which a refused sender may try again. 5 s: waiting messages leave the count as turns end, which takes
/// seconds.
const RETRY: Duration = Duration::from_secs(5);

/// Sender of a message: its principal within the channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sender {
    channel: ChannelId,
    id: Arc<str>,
}

impl Sender {
    /// The sender of a message; `None`: autonomous work of the agent itself, which is not counted.
    pub(super) fn of(inbound: &Inbound) -> Option<Self> {
        Self::named(inbound.work, &inbound.channel, inbound.principal.id.clone())
    }

    fn named(work: Work, channel: &ChannelId, id: Arc<str>) -> Option<Self> {
        (!work.is_autonomous()).then(|| Self { channel: channel.clone(), id })
    }
}

/// Numbers of messages and questions, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    messages: usize,
    /// Runs paused on an approval request. They are not in `messages`, but their bytes are in `bytes`.
    questions: usize,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    fn take_off(&mut self, bytes: u64, paused: bool) {
        let count = if paused { &mut self.questions } else { &mut self.messages };
        *count = count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Moves one run between `messages` and `questions`, when it is paused or resumed.
    fn pause(&mut self, paused: bool) {
        let (from, to) =
            if paused { (&mut self.messages, &mut self.questions) } else { (&mut self.questions, &mut self.messages) };
        *from = from.saturating_sub(1);
        *to += 1;
    }
}

/// The count of waiting messages.
pub(super) struct Admission {
    bounds: Bounds,
    overall: Amount,
    of_senders: HashMap<Sender, Amount>,
    /// The share of each counted run.
    of_runs: HashMap<RunId, Counted>,
}

/// The share of one run.
struct Counted {
    sender: Sender,
    bytes: u64,
    /// Whether it is paused on an approval request.
    paused: bool,
}

impl Admission {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, overall: Amount::default(), of_senders: HashMap::new(), of_runs: HashMap::new() }
    }

    /// The reason why a message of this size is refused now; `None`: it is accepted. A single message is always
    /// accepted if nothing else waits.
    pub(super) fn refusal(&self, sender: &Sender, bytes: u64) -> Option<Refusal> {
        let Bounds { messages_per_sender, bytes_per_sender, messages: most_messages, bytes: most } = self.bounds;
        let exceeds = |waits: u64, most: u64| waits > 0 && waits.saturating_add(bytes) > most;
        let own = self.of_senders.get(sender).copied().unwrap_or_default();
        if own.messages >= messages_per_sender {
            let what = format!("{} of your messages are waiting already", own.messages);
            return Some(Refusal::Busy { what, retry_after: RETRY });
        }
        if own.questions >= MAX_QUESTIONS {
            let what =
                format!("{} questions of your runs wait for an answer; answer some of them first", own.questions);
            return Some(Refusal::Busy { what, retry_after: RETRY });
        }
        if exceeds(own.bytes, bytes_per_sender) {
            let what = format!("{} bytes of your messages are waiting already", own.bytes);
            return Some(Refusal::Busy { what, retry_after: RETRY });
        }
        let all = self.overall.messages + self.overall.questions;
        if all >= most_messages {
            let what = format!("{all} messages are waiting already");
            return Some(Refusal::Overloaded { what, retry_after: RETRY });
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
        self.of_runs.insert(run, Counted { sender, bytes, paused: false });
    }

    /// Records that a run is paused on an approval request, or resumed.
    pub(super) fn pause(&mut self, run: RunId, paused: bool) {
        let Some(counted) = self.of_runs.get_mut(&run).filter(|counted| counted.paused != paused) else { return };
        counted.paused = paused;
        self.overall.pause(paused);
        if let Some(own) = self.of_senders.get_mut(&counted.sender) {
            own.pause(paused);
        }
    }

    /// Counts an unfinished run of an earlier start.
    pub(super) fn recall(&mut self, run: &UnfinishedRun) {
        if let Some(sender) = Sender::named(run.work, &run.channel, run.principal.as_str().into()) {
            self.add(run.run_id, sender, run.bytes);
        }
    }

    /// Removes a run that has ended or was never accepted.
    pub(super) fn remove(&mut self, run: RunId) {
        let Some(Counted { sender, bytes, paused }) = self.of_runs.remove(&run) else { return };
        self.overall.take_off(bytes, paused);
        if let Some(own) = self.of_senders.get_mut(&sender) {
            own.take_off(bytes, paused);
            if own.messages + own.questions == 0 {
                self.of_senders.remove(&sender);
            }
        }
    }
}

/// Size of a message in bytes, including its history, declared outputs, options, and the texts of its files.
pub(super) fn bytes_of(text: &str, inbound: &Inbound) -> u64 {
    let history: usize = inbound.history.iter().map(|line| line.text.len()).sum();
    let outputs = if inbound.outputs.is_empty() { 0 } else { json_bytes(&inbound.outputs) };
    let options = if inbound.options.is_default() { 0 } else { inbound.options.bytes() };
    let files = inbound.provenance.as_ref().map_or(0, |provenance| provenance.file_bytes());
    [text.len(), history, outputs, options, files]
        .into_iter()
        .fold(0, |sum: u64, bytes| sum.saturating_add(bytes as u64))
}

#[cfg(test)]
mod tests {
    use belay_protocol::JobId;

    use super::*;

    fn sender(id: &str) -> Sender {
        Sender::named(Work::Chat, &"telegram".into(), id.into()).expect("a person")
    }

    fn admission() -> Admission {
        Admission::new(Bounds { messages_per_sender: 3, bytes_per_sender: 100, messages: 5, bytes: 150 })
    }

    /// The answer as a word: taken, `busy` or `overloaded`.
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
            (
                "too many of all together",
                vec![("ann", 1), ("ann", 1), ("bob", 1), ("bob", 1), ("bob", 1)],
                "eve",
                1,
                "overloaded",
            ),
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
        assert_eq!(admission.overall, Amount { messages: 1, questions: 0, bytes: 60 });
        admission.remove(two);
        assert_eq!((admission.overall, admission.of_senders.len(), admission.of_runs.len()), (Amount::default(), 0, 0));
    }

    #[test]
    fn a_run_that_is_paused_on_a_question_is_no_waiting_message_and_its_bytes_stay() {
        let mut admission = admission();
        let run = RunId::new();
        admission.add(run, sender("ann"), 60);
        for (paused, messages, questions) in [(true, 0, 1), (true, 0, 1), (false, 1, 0), (true, 0, 1)] {
            admission.pause(run, paused);
            let expected = Amount { messages, questions, bytes: 60 };
            assert_eq!((admission.overall, admission.of_senders[&sender("ann")]), (expected, expected), "{paused}");
        }
        assert_eq!(word(admission.refusal(&sender("ann"), 41)), "busy", "its bytes are still held");
        admission.remove(run);
        assert_eq!((admission.overall, admission.of_senders.len()), (Amount::default(), 0));
        for _ in 0..MAX_QUESTIONS {
            let run = RunId::new();
            admission.add(run, sender("ann"), 0);
            admission.pause(run, true);
        }
        let refusal = admission.refusal(&sender("ann"), 1).expect("too many").to_string();
        assert!(refusal.contains("1000 questions of your runs wait for an answer"), "{refusal}");
    }

    #[test]
    fn the_agents_own_parts_are_not_counted() {
        let work = Work::Job { job: JobId::new(), attempt: Some(1) };
        assert_eq!(Sender::named(work, &"job".into(), "ann".into()), None);
    }
}
