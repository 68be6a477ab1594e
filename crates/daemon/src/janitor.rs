//! Deletes what is too old by `[sessions]`: at the start, every six hours, and when an operator asks.
//!
//! In small pieces, each a write of its own among all others: no message waits for more than one of them, and two rounds that
//! meet share the work.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::SessionsConfig;
use belay_protocol::archive::KEYS_KEPT_MS;
use belay_protocol::{Archive, Clock, Janitor, OutputKeeper, Removed, Retention, StoreError, UnixMillis};
use belay_tools::KeptOutputs;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(6 * 3600);

/// Rows that one write deletes, or indexes. 200: a few milliseconds.
const PIECE: u32 = 200;

/// Pages that one write gives back to the disk: 400 kB.
const PAGES: u32 = 100;

/// Pause between two pieces, in which others write.
const BREATH: Duration = Duration::from_millis(20);

const DAY_MS: i64 = 24 * 3600 * 1000;

/// The janitor.
pub(crate) struct Caretaker {
    config: SessionsConfig,
    archive: Arc<dyn Archive>,
    outputs: KeptOutputs,
    clock: Arc<dyn Clock>,
}

impl Caretaker {
    /// One that has done nothing yet.
    pub(crate) fn new(
        config: SessionsConfig,
        archive: Arc<dyn Archive>,
        outputs: KeptOutputs,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { config, archive, outputs, clock }
    }

    /// Works until told to stop. Cancelled in the middle of a round, the next start goes on with it.
    pub(crate) async fn work(&self, stop: CancellationToken) {
        let rounds = async {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            self.index().await;
            loop {
                ticks.tick().await;
                match self.tidy(false).await {
                    Ok(removed) if removed.is_nothing() => {}
                    Ok(removed) => info!(%removed, "what was too old is deleted"),
                    Err(error) => error!(%error, "what is too old could not be deleted; it is tried again later"),
                }
            }
        };
        let _ = stop.run_until_cancelled(rounds).await; // cancelled is how it ends
    }

    /// Makes what an earlier version has stored ready to be found.
    async fn index(&self) {
        loop {
            match self.archive.index(PIECE).await {
                Ok(true) => sleep(BREATH).await,
                Ok(false) => return,
                Err(error) => {
                    return error!(%error, "older messages are not all found; the next start goes on with them");
                }
            }
        }
    }

    /// From when on things are kept, as of now.
    fn retention(&self) -> Retention {
        let before = |days: u32| (days > 0).then(|| self.days_ago(days));
        Retention {
            threads_before: before(self.config.keep_days),
            events_before: before(self.config.keep_events_days),
            keys_before: UnixMillis(self.clock.now().0.saturating_sub(KEYS_KEPT_MS)),
        }
    }

    fn days_ago(&self, days: u32) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_sub(i64::from(days).saturating_mul(DAY_MS)))
    }
}

#[async_trait]
impl Janitor for Caretaker {
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError> {
        let old = self.retention();
        if dry_run {
            return self.archive.prunable(old).await;
        }
        let mut all = Removed::default();
        loop {
            let mut removed = self.archive.prune(old, PIECE).await?;
            if removed.is_nothing() {
                break;
            }
            // The rows are gone: nobody can ask for these any more.
            self.outputs.forget(&std::mem::take(&mut removed.run_ids)).await;
            all.add(removed);
            self.archive.shrink(PAGES).await?;
            sleep(BREATH).await;
        }
        if self.config.keep_outputs_days > 0 {
            let outputs = self.outputs.forget_before(self.days_ago(self.config.keep_outputs_days)).await;
            if outputs > 0 {
                info!(outputs, "old outputs of tools are deleted");
            }
        }
        Ok(all)
    }
}
