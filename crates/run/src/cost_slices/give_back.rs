//! Gives unused money back to the other nodes: after a minute without a call, and at the drain.
//!
//! The node names the amount that it keeps, so that a request whose outcome is unknown can be repeated. The money is out of
//! the slice before the request is sent: it is never spent here and by another node.

use std::time::Duration;

use belay_protocol::{Purpose, StoreError};
use tokio::time::{Instant, sleep_until};

use super::{IDLE, PoisonError, Slice, Slices};

/// Pause before money is given back again after the store has failed.
const RETRY: Duration = Duration::from_secs(5);

impl Slice {
    /// When the slice is to be given back, if no call comes before; `None`: there is nothing to give.
    fn due(&self) -> Option<Instant> {
        (self.rest() > 0 || self.unclear).then(|| self.changed.map_or_else(Instant::now, |changed| changed + IDLE))
    }

    /// Takes the unused money out, and returns the amount that is kept.
    fn shrink(&mut self) -> u64 {
        let rest = self.rest();
        self.granted -= rest;
        self.left = self.left.map(|(left, at)| (left.saturating_add(rest), at));
        self.unclear = true;
        self.granted
    }
}

impl Slices {
    /// Gives each slice back that no call has changed for [`IDLE`]. Never returns.
    ///
    /// # Cancel safety
    /// If the future is dropped, money may be given back later: by the next call of this function or of
    /// [`Slices::give_back`].
    pub(crate) async fn return_idle(&self) {
        let mut failed = false;
        loop {
            let next = self.next_due();
            // A slice that is drawn from now on is due after this sleep.
            sleep_until(next.unwrap_or_else(|| Instant::now() + IDLE)).await;
            match self.give_back_where(|slice| slice.due().is_some_and(|due| due <= Instant::now())).await {
                Ok(()) => failed = false,
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "unused money cannot be given back to the other nodes; it is tried again");
                    }
                    sleep_until(Instant::now() + RETRY).await;
                }
            }
        }
    }

    /// Gives the unused money of all slices back.
    ///
    /// # Errors
    /// The store fails. The next call gives the money back; if there is none, it counts as spent until this node has ended
    /// and its slices are reconciled.
    ///
    /// # Cancel safety
    /// As after an error.
    pub(crate) async fn give_back(&self) -> Result<(), StoreError> {
        self.give_back_where(|slice| slice.due().is_some()).await
    }

    async fn give_back_where(&self, is_meant: impl Fn(&Slice) -> bool) -> Result<(), StoreError> {
        let _drawing = self.drawing.lock().await; // no draw comes between the amount and its request
        let (utc_day, kept) = {
            let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
            let meant = day.of.iter_mut().filter(|(_, slice)| is_meant(slice));
            let kept: Vec<(Option<Purpose>, u64)> = meant.map(|(budget, slice)| (*budget, slice.shrink())).collect();
            (day.utc_day, kept)
        };
        for (budget, keep) in kept {
            self.source.slices.give_back(utc_day, budget, self.source.boot, keep).await?;
            self.change(utc_day, budget, |slice| slice.unclear = false);
        }
        Ok(())
    }

    /// When the next slice is to be given back; `None`: there is none.
    fn next_due(&self) -> Option<Instant> {
        let day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        day.of.values().filter_map(Slice::due).min()
    }
}
