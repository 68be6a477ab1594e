//! Records which replies and approval requests of runs have been shown.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use belay_protocol::{ApprovalId, RunId};
use tokio::sync::watch;

/// Number of deliveries that are remembered. 64: several times the number of open deliveries of one channel.
const REMEMBERED: usize = 64;

/// A run and what was shown for it: the approval request with this id, or without an id the run's reply.
pub(super) type Shown = (RunId, Option<ApprovalId>);

/// Remembers the last deliveries, because a reply may be shown before anyone waits for it.
pub(super) struct Deliveries {
    recent: Mutex<VecDeque<Shown>>,
    changed: watch::Sender<()>,
}

impl Deliveries {
    pub(super) fn new() -> Self {
        Self { recent: Mutex::new(VecDeque::with_capacity(REMEMBERED)), changed: watch::Sender::new(()) }
    }

    /// Records that a reply or an approval request has been shown, or can never be shown.
    pub(super) fn note(&self, shown: Shown) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(shown);
        drop(recent);
        self.changed.send_replace(());
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
}
