//! Records which replies and approval requests of runs have been shown.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::{ApprovalId, IdEnd, RunId};
use tokio::sync::watch;

/// Number of deliveries that are remembered. 64: several times the number of open deliveries of one channel.
const REMEMBERED: usize = 64;

/// A run and what was shown for it: the approval request with this id, or without an id the run's reply.
pub(super) type Shown = (RunId, Option<ApprovalId>);

/// Remembers the last deliveries, because a reply may be shown before anyone waits for it.
pub(super) struct Deliveries {
    recent: Mutex<VecDeque<Shown>>,
    /// Approval requests that no line has answered. The reply of their run removes them.
    asked: Mutex<VecDeque<Shown>>,
    changed: watch::Sender<()>,
}

impl Deliveries {
    pub(super) fn new() -> Self {
        let recent = Mutex::new(VecDeque::with_capacity(REMEMBERED));
        Self { recent, asked: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Records that a reply or an approval request has been shown, or can never be shown.
    pub(super) fn note(&self, shown: Shown) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(shown);
        drop(recent);
        let mut asked = self.asked();
        match shown {
            (_, Some(_)) if asked.len() < REMEMBERED && !asked.contains(&shown) => asked.push_back(shown),
            (_, Some(_)) => {} // a reminder
            (run, None) => asked.retain(|(asking, _)| *asking != run),
        }
        drop(asked);
        self.changed.send_replace(());
    }

    /// Whether an approval request has been shown that no line has answered.
    pub(super) fn has_question(&self) -> bool {
        !self.asked().is_empty()
    }

    /// Whether such a request is one of a run that fits.
    pub(super) fn has_question_of(&self, fits: impl Fn(RunId) -> bool) -> bool {
        self.asked().iter().any(|(run, _)| fits(*run))
    }

    /// Whether this is one of them. Only the prompt asks.
    #[cfg(any(test, feature = "line-editor"))]
    pub(super) fn is_open(&self, approval: ApprovalId) -> bool {
        self.asked().iter().any(|(_, asked)| *asked == Some(approval))
    }

    /// Records that a line answers one of them: that whose id it names, or else the oldest.
    pub(super) fn answered(&self, line: &str) {
        let mut asked = self.asked();
        match line.split_whitespace().nth(1).and_then(IdEnd::parse) {
            Some(end) => asked.retain(|(_, approval)| !approval.is_some_and(|id| end.ends(id.as_uuid()))),
            None => {
                asked.pop_front();
            }
        }
    }

    /// Follows the deliveries from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<Shown>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until [`note`](Self::note) has recorded this delivery.
    pub(super) async fn wait_for(&self, shown: Shown) {
        let mut changed = self.changed.subscribe(); // subscribes before the check, so no note is missed in between
        while !self.has(shown) && changed.changed().await.is_ok() {}
    }

    fn has(&self, shown: Shown) -> bool {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).contains(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_delivery_is_seen_whether_it_was_noted_before_or_after_the_wait_began() {
        let deliveries = Deliveries::new();
        let (early, late) = (RunId::new(), RunId::new());
        let question = Some(ApprovalId::new());
        deliveries.note((early, question));
        deliveries.wait_for((early, question)).await;
        tokio::join!(deliveries.wait_for((late, None)), async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            deliveries.note((RunId::new(), None));
            deliveries.note((late, None));
        });
        let reply = tokio::time::timeout(std::time::Duration::from_secs(1), deliveries.wait_for((early, None)));
        assert!(reply.await.is_err(), "its question is not its reply");
    }

    #[test]
    fn a_question_waits_for_a_line_until_one_answers_it_or_its_run_replies() {
        let deliveries = Deliveries::new();
        let (one, other) = (RunId::new(), RunId::new());
        let question = |run| (run, Some(ApprovalId::new()));
        let first = question(one);
        deliveries.note(first);
        deliveries.note(first); // a reminder
        deliveries.note(question(other));
        deliveries.answered("yes");
        assert!(deliveries.has_question(), "that of the other run");
        deliveries.note((one, None));
        assert!(deliveries.has_question());
        deliveries.note((other, None));
        assert!(!deliveries.has_question());
    }

    #[test]
    fn a_line_that_names_a_question_answers_that_one() {
        let deliveries = Deliveries::new();
        let [first, second] = [ApprovalId::new(), ApprovalId::new()];
        [first, second].into_iter().for_each(|question| deliveries.note((RunId::new(), Some(question))));
        deliveries.answered(&format!("/approve {second}"));
        assert_eq!([first, second].map(|question| deliveries.is_open(question)), [true, false]);
        deliveries.answered("/deny");
        assert!(!deliveries.is_open(first));
    }
}
