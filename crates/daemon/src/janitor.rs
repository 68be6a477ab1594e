//! Deletes what is too old by `[sessions]`, `routines.keep_routine_runs_days` and `gateway.openai_session_hours`: at the start, every hour,
//! and when an operator asks.
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

/// How often it looks. The shortest setting is in hours.
const PERIOD: Duration = Duration::from_secs(3600);

/// Rows that one write deletes, or indexes. 200: a few milliseconds.
const PIECE: u32 = 200;

/// Pages that one write gives back to the disk: 400 kB.
const PAGES: u32 = 100;

/// Pause between two pieces, in which others write.
const BREATH: Duration = Duration::from_millis(20);

const HOUR_MS: i64 = 3600 * 1000;

/// The janitor.
pub(crate) struct Caretaker {
    config: SessionsConfig,
    /// Days that routine runs of routines are kept; 0: as conversations are.
    keep_routine_runs_days: u32,
    /// Hours that ephemeral sessions are kept; 0: as conversations are.
    keep_ephemeral_hours: u32,
    archive: Arc<dyn Archive>,
    outputs: KeptOutputs,
    clock: Arc<dyn Clock>,
}

impl Caretaker {
    /// One that has done nothing yet.
    pub(crate) fn new(
        config: SessionsConfig,
        keep_routine_runs_days: u32,
        keep_ephemeral_hours: u32,
        archive: Arc<dyn Archive>,
        outputs: KeptOutputs,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { config, keep_routine_runs_days, keep_ephemeral_hours, archive, outputs, clock }
    }

    /// Works until told to stop. Cancelled in the middle of a round, the next start goes on with it.
    pub(crate) async fn work(&self, stop: CancellationToken) {
        let rounds = async {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

    /// From when on things are kept, as of now.
    fn retention(&self) -> Retention {
        let before = |days: u32| (days > 0).then(|| self.days_ago(days));
        Retention {
            threads_before: before(self.config.keep_days),
            events_before: before(self.config.keep_events_days),
            ended_routine_runs_before: before(self.keep_routine_runs_days),
            ephemeral_before: (self.keep_ephemeral_hours > 0).then(|| self.hours_ago(self.keep_ephemeral_hours)),
            keys_before: UnixMillis(self.clock.now().0.saturating_sub(KEYS_KEPT_MS)),
        }
    }

    fn days_ago(&self, days: u32) -> UnixMillis {
        self.hours_ago(days.saturating_mul(24))
    }

    fn hours_ago(&self, hours: u32) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_sub(i64::from(hours).saturating_mul(HOUR_MS)))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

    use belay_protocol::{BootId, LaneStore, RunId, SessionFilter, SessionLifetime, SessionReader};
    use belay_store::SqliteStore;
    use belay_tools::ToolsConfig;

    use super::*;

    const DAY_MS: i64 = 24 * HOUR_MS;

    struct Today(i64);

    impl Clock for Today {
        fn now(&self) -> UnixMillis {
            UnixMillis(self.0)
        }
    }

    /// Some day after every id that a test makes: 2100-01-01.
    const TODAY: i64 = 4_102_444_800_000;

    async fn house(config: SessionsConfig) -> (Caretaker, Arc<SqliteStore>, tempfile::TempDir) {
        let (store, directory) = (Arc::new(SqliteStore::in_memory().unwrap()), tempfile::tempdir().unwrap());
        for (session, days) in [("long ago", 31), ("lately", 29)] {
            store
                .open_lane(&session.into(), SessionLifetime::Lasting, BootId::new(), UnixMillis(TODAY - days * DAY_MS))
                .await
                .unwrap();
        }
        let outputs = KeptOutputs::open(directory.path(), &ToolsConfig::default().outputs).unwrap();
        outputs.keep(RunId::new(), &"call".into(), "a long output").await.unwrap();
        (Caretaker::new(config, 0, 24, store.clone(), outputs, Arc::new(Today(TODAY))), store, directory)
    }

    fn kept_outputs(directory: &tempfile::TempDir) -> usize {
        std::fs::read_dir(directory.path()).unwrap().count()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_settings_say_is_counted_and_then_deleted() {
        let config = SessionsConfig { keep_days: 30, keep_outputs_days: 7, ..SessionsConfig::default() };
        let (janitor, store, directory) = house(config).await;
        let expected = Removed { sessions: 1, threads: 1, ..Removed::default() };
        assert_eq!(janitor.tidy(true).await.unwrap(), expected);
        assert_eq!((store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), kept_outputs(&directory)), (2, 1));
        assert_eq!(janitor.tidy(false).await.unwrap(), expected);
        let left = store.sessions(SessionFilter::lasting(9)).await.unwrap();
        assert_eq!(left.iter().map(|session| session.session.as_str()).collect::<Vec<_>>(), ["lately"]);
        assert_eq!(kept_outputs(&directory), 0);
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn unless_it_is_told_otherwise_it_keeps_everything() {
        let (janitor, store, directory) = house(SessionsConfig::default()).await;
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
        assert_eq!((store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), kept_outputs(&directory)), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ephemeral_session_goes_after_its_hours_whatever_else_is_kept() {
        let (janitor, store, _directory) = house(SessionsConfig::default()).await;
        for (session, hours) in [("a day ago", 25), ("today", 23)] {
            let at = UnixMillis(TODAY - hours * HOUR_MS);
            store.open_lane(&session.into(), SessionLifetime::Ephemeral, BootId::new(), at).await.unwrap();
        }
        let expected = Removed { sessions: 1, threads: 1, ..Removed::default() };
        assert_eq!(janitor.tidy(true).await.unwrap(), expected);
        assert_eq!(janitor.tidy(false).await.unwrap(), expected);
        let left = store.sessions(SessionFilter::all(9)).await.unwrap();
        assert_eq!(
            left.iter().map(|session| session.session.as_str()).collect::<Vec<_>>(),
            ["today", "lately", "long ago"]
        );

        let (janitor, store, _directory) = house(SessionsConfig::default()).await;
        let janitor = Caretaker { keep_ephemeral_hours: 0, ..janitor };
        let old = UnixMillis(TODAY - 40 * DAY_MS);
        store.open_lane(&"kept".into(), SessionLifetime::Ephemeral, BootId::new(), old).await.unwrap();
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn it_works_at_the_start_and_every_hour_until_it_is_told_to_stop() {
        let config = SessionsConfig { keep_days: 30, ..SessionsConfig::default() };
        let (janitor, store, _directory) = house(config).await;
        let stop = CancellationToken::new();
        let watch = async {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1, "at the start");
            let old = UnixMillis(TODAY - 40 * DAY_MS);
            store.open_lane(&"older still".into(), SessionLifetime::Lasting, BootId::new(), old).await.unwrap();
            sleep(PERIOD).await;
            assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1, "and again");
            stop.cancel();
        };
        tokio::join!(janitor.work(stop.clone()), watch);
    }
}
