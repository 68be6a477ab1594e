//! Which runs' replies have been shown.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use belay_protocol::RunId;
use tokio::sync::watch;

/// How many of the last deliveries are remembered. 64: several times what one channel has outstanding.
const REMEMBERED: usize = 64;

/// Remembers the last deliveries, since a reply may be shown before anyone waits for it.
pub(super) struct Deliveries {
    recent: Mutex<VecDeque<RunId>>,
    changed: watch::Sender<()>,
}

impl Deliveries {
    pub(super) fn new() -> Self {
        Self { recent: Mutex::new(VecDeque::with_capacity(REMEMBERED)), changed: watch::Sender::new(()) }
    }

    /// Notes that the reply of a run has been shown, or can never be.
    pub(super) fn note(&self, run: RunId) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(run);
        drop(recent);
        self.changed.send_replace(());
    }

    /// Waits until that has been noted.
    pub(super) async fn wait_for(&self, run: RunId) {
        let mut changed = self.changed.subscribe(); // before looking, so that no note falls between
        while !self.has(run) && changed.changed().await.is_ok() {}
    }

    fn has(&self, run: RunId) -> bool {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_delivery_is_seen_whether_it_was_noted_before_or_after_the_wait_began() {
        let deliveries = Deliveries::new();
        let (early, late) = (RunId::new(), RunId::new());
        deliveries.note(early);
        deliveries.wait_for(early).await;
        tokio::join!(deliveries.wait_for(late), async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            deliveries.note(RunId::new());
            deliveries.note(late);
        });
    }
}
