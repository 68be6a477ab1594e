//! Deletes expired data by `[sessions]`, `routines.keep_routine_runs_days` and `gateway.openai_session_hours`: at the
//! start, every hour, and on request of an operator.
//!
//! It deletes in small batches, each in a write of its own among the other writes. So a message waits for at most one
//! batch, and two concurrent rounds share the work.
//!
//! Of several nodes over one database, the one with the lease for it prunes the database, the outputs of tools included.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::SessionsConfig;
use belay_crash_point::crash_point;
use belay_protocol::archive::KEYS_KEPT_MS;
use belay_protocol::{
    Archive, BlobStore, Clock, ClusterTask, HeldLeases, Janitor, LeasedWork, OutputKeeper, Removed, Retention,
    StoreError, UPLOADS_KEPT_MS, UnixMillis, UploadStore,
};
use belay_tools::KeptOutputs;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Interval of the rounds. The shortest retention setting is in hours.
const PERIOD: Duration = Duration::from_secs(3600);

/// Rows that one write deletes or indexes. 200: a few milliseconds.
const BATCH_ROWS: u32 = 200;

/// Pages that one write returns to the disk: 400 kB.
const PAGES: u32 = 100;

/// Pause between two batches, in which others write.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

const HOUR_MS: i64 = 3600 * 1000;

/// The janitor.
pub struct RetentionJanitor {
    config: SessionsConfig,
    /// Days that routine runs are kept; 0: as long as conversations.
    keep_routine_runs_days: u32,
    /// Hours that ephemeral sessions are kept; 0: as long as conversations.
    keep_ephemeral_hours: u32,
    archive: Arc<dyn Archive>,
    kept: Kept,
    clock: Arc<dyn Clock>,
    /// The leases of this node; `None`: the daemon uses its database alone.
    leases: Option<HeldLeases>,
}

/// The files that are kept: outside of the database, or in tables of their own.
pub struct Kept {
    /// Long outputs of tools.
    pub outputs: KeptOutputs,
    /// Files of messages.
    pub blobs: Arc<dyn BlobStore>,
    /// The rows that say which of them are in use.
    pub uploads: Arc<dyn UploadStore>,
}

impl Kept {
    /// Removes the files of messages that nothing refers to. Files that were written within the last hour stay, because
    /// their rows may be written now. Without such files, it costs a look at the directory.
    async fn sweep_blobs(&self, now: UnixMillis) -> Result<u64, StoreError> {
        let hour_ago = UnixMillis(now.0.saturating_sub(HOUR_MS));
        let old = self.blobs.older_than(hour_ago).await?;
        if old.is_empty() {
            return Ok(0);
        }
        // An hour longer than a message can name them, so that no message loses its file between both.
        self.uploads.forget_uploads(UnixMillis(hour_ago.0.saturating_sub(UPLOADS_KEPT_MS))).await?;
        let unused = self.uploads.unused_blobs(old).await?;
        self.blobs.remove(&unused, hour_ago).await
    }
}

impl RetentionJanitor {
    /// Creates a janitor that has done nothing yet.
    pub fn new(
        config: SessionsConfig,
        keep_routine_runs_days: u32,
        keep_ephemeral_hours: u32,
        archive: Arc<dyn Archive>,
        kept: Kept,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { config, keep_routine_runs_days, keep_ephemeral_hours, archive, kept, clock, leases: None }
    }

    /// The same janitor on a node of a cluster: it changes the database only while the node has the lease for it.
    #[must_use]
    pub fn under_lease(self, leases: Option<HeldLeases>) -> Self {
        Self { leases, ..self }
    }

    /// The error that tells that another node prunes the database, if that is so.
    fn refused(&self) -> Option<StoreError> {
        let work = LeasedWork::Task(ClusterTask::Janitor);
        let is_held = self.leases.as_ref().is_none_or(|leases| leases.of(&work).is_some());
        (!is_held).then_some(StoreError::WorkLost(work))
    }

    /// Deletes old outputs of tools.
    async fn tidy_outputs(&self) -> Result<(), StoreError> {
        if self.config.keep_details_days == 0 {
            return Ok(());
        }
        let outputs = self.kept.outputs.forget_before(self.days_ago(self.config.keep_details_days)).await?;
        if outputs > 0 {
            info!(outputs, "old outputs of tools are deleted");
        }
        Ok(())
    }

    /// Works until it is stopped. If it is cancelled in the middle of a round, the next start continues.
    pub async fn work(&self, stop: CancellationToken) {
        let rounds = async {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                match self.tidy(false).await {
                    Ok(removed) if removed.is_nothing() => {}
                    Ok(removed) => info!(%removed, "what was too old is deleted"),
                    Err(StoreError::WorkLost(_)) => {} // another node does it
                    Err(error) => error!(%error, "what is too old could not be deleted; it is tried again later"),
                }
            }
        };
        let _ = stop.run_until_cancelled(rounds).await; // cancellation is the normal end
    }

    /// The oldest dates to keep, as of now.
    fn retention(&self) -> Retention {
        let before = |days: u32| (days > 0).then(|| self.days_ago(days));
        Retention {
            threads_before: before(self.config.keep_days),
            events_before: before(self.config.keep_details_days),
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
impl Janitor for RetentionJanitor {
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError> {
        let old = self.retention();
        if dry_run {
            return self.archive.prunable(old).await;
        }
        if let Some(refused) = self.refused() {
            return Err(refused);
        }
        self.tidy_outputs().await?;
        let mut all = Removed::default();
        loop {
            if let Some(refused) = self.refused() {
                return Err(refused);
            }
            crash_point!("prune.before-batch");
            let mut removed = self.archive.prune(old, BATCH_ROWS).await?;
            crash_point!("prune.batch-deleted");
            if removed.is_nothing() {
                break;
            }
            // Their rows are deleted: nobody can ask for these outputs any more.
            self.kept.outputs.forget(&std::mem::take(&mut removed.run_ids)).await;
            all.add(removed);
            self.archive.shrink(PAGES).await?;
            sleep(BATCH_PAUSE).await;
        }
        let files = self.kept.sweep_blobs(self.clock.now()).await?;
        if files > 0 {
            info!(files, "files of deleted messages and old uploads are deleted");
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

    use belay_protocol::{
        Attachment, AttachmentContent, BootId, LaneClaim, LaneStore, RunId, SessionFilter, SessionLifetime,
        SessionReader, Upload, Uploader, WorkLease,
    };
    use belay_store::{Blobs, SqlStore};
    use belay_tools::ToolsConfig;

    use super::*;

    const DAY_MS: i64 = 24 * HOUR_MS;

    struct Today(i64);

    impl Clock for Today {
        fn now(&self) -> UnixMillis {
            UnixMillis(self.0)
        }
    }

    /// A date after every id that a test makes: 2100-01-01.
    const TODAY: i64 = 4_102_444_800_000;

    async fn fixture(config: SessionsConfig) -> (RetentionJanitor, Arc<SqlStore>, tempfile::TempDir) {
        let (store, directory) = (Arc::new(SqlStore::in_memory().unwrap()), tempfile::tempdir().unwrap());
        for (session, days) in [("long ago", 31), ("lately", 29)] {
            store
                .open_lane(
                    &session.into(),
                    SessionLifetime::Lasting,
                    LaneClaim::free(BootId::new()),
                    UnixMillis(TODAY - days * DAY_MS),
                )
                .await
                .unwrap();
        }
        let outputs = KeptOutputs::open(directory.path(), &ToolsConfig::default().outputs).unwrap();
        outputs.keep(RunId::new(), &"call".into(), "a long output").await.unwrap();
        let kept = Kept { outputs, blobs: Arc::new(Blobs::in_memory()), uploads: store.clone() };
        (RetentionJanitor::new(config, 0, 24, store.clone(), kept, Arc::new(Today(TODAY))), store, directory)
    }

    fn kept_outputs(directory: &tempfile::TempDir) -> usize {
        std::fs::read_dir(directory.path()).unwrap().count()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_settings_say_is_counted_and_then_deleted() {
        let config = SessionsConfig { keep_days: 30, keep_details_days: 7, ..SessionsConfig::default() };
        let (janitor, store, directory) = fixture(config).await;
        let expected = Removed { sessions: 1, threads: 1, ..Removed::default() };
        assert_eq!(janitor.tidy(true).await.unwrap(), expected);
        assert_eq!((store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), kept_outputs(&directory)), (2, 1));
        assert_eq!(janitor.tidy(false).await.unwrap(), expected);
        let left = store.sessions(SessionFilter::lasting(9)).await.unwrap();
        assert_eq!(left.iter().map(|session| session.session.as_str()).collect::<Vec<_>>(), ["lately"]);
        assert_eq!(kept_outputs(&directory), 0);
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
    }

    #[tokio::test]
    async fn files_that_nothing_refers_to_are_removed() {
        let (mut janitor, store, directory) = fixture(SessionsConfig::default()).await;
        let blobs = Arc::new(Blobs::in_directory(directory.path().join("files")));
        janitor.kept.blobs = blobs.clone();
        let put = async |text: &'static [u8]| {
            let mut writer = blobs.begin().await.unwrap();
            writer.write(&text.into()).await.unwrap();
            writer.finish().await.unwrap()
        };
        let (used, unused) = (put(b"used").await, put(b"unused").await);
        let content = AttachmentContent::Named { detail: String::new() };
        let attachment =
            Attachment { name: "a".into(), media_type: "text/plain".into(), bytes: 4, digest: used.clone(), content };
        let (from, upload) =
            (Uploader { channel: "http".into(), principal: "p".into() }, Upload { id: Default::default(), attachment });
        let uploaded_at = UnixMillis(TODAY - 24 * HOUR_MS);
        assert!(store.record_upload(&from, &upload, uploaded_at, uploaded_at, 10).await.unwrap());
        janitor.tidy(false).await.unwrap();
        assert!(blobs.read(&used).await.unwrap().is_some() && blobs.read(&unused).await.unwrap().is_none());
        janitor.clock = Arc::new(Today(TODAY + 2 * HOUR_MS));
        janitor.tidy(false).await.unwrap();
        assert!(blobs.read(&used).await.unwrap().is_none(), "its upload has expired");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_the_lease_deletes_nothing() {
        let config = SessionsConfig { keep_days: 30, keep_details_days: 7, ..SessionsConfig::default() };
        let (janitor, store, directory) = fixture(config).await;
        let (leases, book) = HeldLeases::new();
        let janitor = janitor.under_lease(Some(leases));
        let work = LeasedWork::Task(ClusterTask::Janitor);
        assert_eq!(janitor.tidy(true).await.unwrap().sessions, 1, "a count needs no lease");
        assert_eq!(kept_outputs(&directory), 1);
        let refused = janitor.tidy(false).await.unwrap_err().to_string();
        assert_eq!(refused, "this node does not have the task janitor any more");
        assert_eq!((store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), kept_outputs(&directory)), (2, 1));
        book.held.send_replace(vec![WorkLease { work, owner: BootId::new(), epoch: 1 }]);
        assert_eq!(janitor.tidy(false).await.unwrap().sessions, 1);
        assert_eq!(kept_outputs(&directory), 0);
        drop(book);
        janitor.tidy(false).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn by_default_it_keeps_everything() {
        let (janitor, store, directory) = fixture(SessionsConfig::default()).await;
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
        assert_eq!((store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), kept_outputs(&directory)), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ephemeral_session_is_deleted_after_its_hours_independent_of_other_settings() {
        let (janitor, store, _directory) = fixture(SessionsConfig::default()).await;
        for (session, hours) in [("a day ago", 25), ("today", 23)] {
            let at = UnixMillis(TODAY - hours * HOUR_MS);
            store
                .open_lane(&session.into(), SessionLifetime::Ephemeral, LaneClaim::free(BootId::new()), at)
                .await
                .unwrap();
        }
        let expected = Removed { sessions: 1, threads: 1, ..Removed::default() };
        assert_eq!(janitor.tidy(true).await.unwrap(), expected);
        assert_eq!(janitor.tidy(false).await.unwrap(), expected);
        let left = store.sessions(SessionFilter::all(9)).await.unwrap();
        assert_eq!(
            left.iter().map(|session| session.session.as_str()).collect::<Vec<_>>(),
            ["today", "lately", "long ago"]
        );

        let (janitor, store, _directory) = fixture(SessionsConfig::default()).await;
        let janitor = RetentionJanitor { keep_ephemeral_hours: 0, ..janitor };
        let old = UnixMillis(TODAY - 40 * DAY_MS);
        store.open_lane(&"kept".into(), SessionLifetime::Ephemeral, LaneClaim::free(BootId::new()), old).await.unwrap();
        assert!(janitor.tidy(false).await.unwrap().is_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn it_works_at_the_start_and_every_hour_until_it_is_stopped() {
        let config = SessionsConfig { keep_days: 30, ..SessionsConfig::default() };
        let (janitor, store, _directory) = fixture(config).await;
        let stop = CancellationToken::new();
        let watch = async {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1, "at the start");
            let old = UnixMillis(TODAY - 40 * DAY_MS);
            store
                .open_lane(&"older still".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), old)
                .await
                .unwrap();
            sleep(PERIOD).await;
            assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1, "and again");
            stop.cancel();
        };
        tokio::join!(janitor.work(stop.clone()), watch);
    }
}
