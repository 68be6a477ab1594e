//! Makes backups in the daemon: on request and by schedule, one at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_crash_point::crash_point;
use belay_gateway::{BackupFailure, BackupRefusal, BackupRequest, BackupStatus, Backups};
use belay_program::VERSION;
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::{Paths, private_directory};
use belay_protocol::{Clock, UnixMillis};
use belay_schedule::Schedule;
use belay_settings::{BackupConfig, Settings};
use belay_store::backup::{self, BackupError, Created, Label, Reason, Sources, Stop};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{OF_THE_SERVER, described, directory, sources};

/// Date of the last successful backup, in seconds since 1970.
const LAST_SUCCESS: &str = "belay_backup_last_success_timestamp_seconds";
/// Failed backups.
const FAILURES: &str = "belay_backup_failures_total";

/// Pause after a failed scheduled backup. 10 minutes: a full disk or an absent mount needs a person.
const RETRY: Duration = Duration::from_secs(600);

/// Pause before a backup is interrupted again when the daemon ends: SQLite ignores an interrupt before its statement.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(50);

/// Longest time until the schedule looks at the clock again.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

const HOUR_MS: i64 = 3600 * 1000;

/// Most backups of one list.
const LIST_MAX: usize = 1000;

/// Makes and lists backups.
pub struct BackupKeeper {
    /// `None`: the store is in memory.
    /// The inner error says why there is no backup of this store.
    sources: Result<Sources, &'static str>,
    directory: PathBuf,
    config: BackupConfig,
    /// The schedule of `backup.at`.
    daily: Option<Schedule>,
    clock: Arc<dyn Clock>,
    /// One permit: for the backup that is being made.
    slot: Arc<Semaphore>,
    /// Locked for an assignment.
    status: Mutex<BackupStatus>,
    /// Stopped when the daemon ends: a backup that is being made is given up.
    ending: Stop,
}

impl BackupKeeper {
    /// A keeper that has done nothing yet. The caller has the store.
    ///
    /// # Errors
    /// `store.url` or the schedule is invalid.
    pub fn open(settings: &Settings, env: &Environment, paths: &Paths, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let (sources, directory) = (sources(settings, env, paths)?, directory(settings, env, paths));
        let daily = settings.backup.daily();
        let daily = daily.map_err(|problem| Failure::new(Exit::Refused, format!("backup.at: {problem}")))?;
        // A schedule that is never carried out would be taken for backups.
        let of_server = matches!(&sources, Err(why) if *why == OF_THE_SERVER);
        if of_server && (settings.backup.every_hours > 0 || daily.is_some()) {
            return Err(Failure::new(Exit::Refused, format!("backup.every_hours and backup.at: {OF_THE_SERVER}")));
        }
        Ok(Self {
            sources,
            directory,
            daily,
            status: Mutex::default(),
            config: settings.backup.clone(),
            clock,
            slot: Arc::new(Semaphore::new(1)),
            ending: Stop::default(),
        })
    }

    /// Makes the scheduled backups until it is stopped. Then a backup that is being made is given up, and this waits
    /// for its thread.
    pub async fn work(&self, stop: CancellationToken) {
        // Here, because there is a recorder of metrics now.
        describe_gauge!(LAST_SUCCESS, "Date of the last successful backup, in seconds since 1970");
        describe_counter!(FAILURES, "Failed backups");
        let scheduled = async {
            // Not in the start of the daemon: the directory may be a mount that does not answer.
            self.sweep().await;
            self.find_last().await;
            self.schedule().await;
        };
        let _ = stop.run_until_cancelled(scheduled).await; // cancellation is the normal end
        loop {
            self.ending.stop();
            // An error of the permit would mean a closed semaphore, which nothing closes.
            if tokio::time::timeout(INTERRUPT_AGAIN, self.slot.acquire()).await.is_ok() {
                return;
            }
        }
    }

    /// Removes the leftovers of killed backups. A backup on request meanwhile removes them itself.
    async fn sweep(&self) {
        let (Ok(sources), Ok(slot)) = (self.sources.clone(), self.slot.clone().try_acquire_owned()) else { return };
        let directory = self.directory.clone();
        let swept = tokio::task::spawn_blocking(move || {
            let _slot = slot; // held to the end: a backup that is being made would lose its files
            backup::sweep(&sources.database, &directory).map_err(|error| words(&error))
        });
        if let Err(error) = swept.await.map_err(|broken| words(&broken)).and_then(|swept| swept) {
            warn!(error, "the leftovers of a killed backup cannot be removed");
        }
    }

    /// Finds the date of the last success before this start.
    async fn find_last(&self) {
        let (directory, now) = (self.directory.clone(), self.clock.now());
        let found = tokio::task::spawn_blocking(move || newest(&directory, now)).await;
        let found = found.ok().flatten();
        let last = {
            let mut status = self.status();
            status.last_success_at = status.last_success_at.max(found); // one on request may be newer
            status.last_success_at
        };
        if let Some(at) = last {
            gauge!(LAST_SUCCESS).set(at.0 as f64 / 1000.0);
        }
    }

    async fn schedule(&self) {
        loop {
            let Some(wait) = self.until_next().await else {
                // Its end would give up the backups that are made on request.
                return std::future::pending().await;
            };
            // In parts: the clock may be set, and the machine may sleep.
            if !wait.is_zero() {
                tokio::time::sleep(wait.min(LOOK_AGAIN)).await;
                continue;
            }
            let request = BackupRequest { to: None, with_key: self.config.with_key };
            match self.make(request, Reason::Schedule).await {
                Ok(made) => self.remove_old(made.path).await,
                Err(_logged) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// The time until the next scheduled backup. Files tell when the last one was, so a restart changes nothing.
    /// `None`: there is no schedule.
    async fn until_next(&self) -> Option<Duration> {
        if self.sources.is_err() || (self.config.every_hours == 0 && self.daily.is_none()) {
            return None;
        }
        let now = self.clock.now();
        let dates = self.scheduled().await.unwrap_or_default().into_iter().map(|(created, _)| created);
        // A date in the future is of a clock that was wrong.
        let last = dates.filter(|created| *created <= now).max();
        let due = due(last, self.config.every_hours, self.daily.as_ref(), now);
        self.status().next_at = Some(due);
        Some(Duration::from_millis(u64::try_from(due.0.saturating_sub(now.0)).unwrap_or(0)))
    }

    /// The backups of the schedule in the directory, with their dates.
    async fn scheduled(&self) -> Result<Vec<(UnixMillis, PathBuf)>, String> {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || scheduled(&directory)).await;
        read.map_err(|broken| words(&broken))?
    }

    /// Removes the old backups of the schedule. The new one stays.
    async fn remove_old(&self, new: PathBuf) {
        let keep = usize::try_from(self.config.keep).unwrap_or(usize::MAX);
        let found = self.scheduled().await.unwrap_or_default();
        for path in old(found, &new, keep, self.clock.now()) {
            match tokio::fs::remove_file(&path).await {
                Ok(()) => info!(path = %path.display(), "an old backup is removed"),
                Err(error) => error!(%error, path = %path.display(), "an old backup cannot be removed"),
            }
        }
    }

    /// Makes one backup, and records its success or failure.
    async fn make(&self, request: BackupRequest, reason: Reason) -> Result<Created, BackupRefusal> {
        let made = self.try_make(request, reason).await;
        match &made {
            Ok(created) => {
                let now = self.clock.now();
                {
                    let mut status = self.status();
                    (status.last_success_at, status.last_failure) = (Some(now), None);
                }
                gauge!(LAST_SUCCESS).set(now.0 as f64 / 1000.0);
                info!(path = %created.path.display(), bytes = created.bytes, "backup made and verified");
            }
            Err(BackupRefusal::Failed(detail)) => {
                let failure = BackupFailure { at: self.clock.now(), detail: detail.clone() };
                self.status().last_failure = Some(failure);
                counter!(FAILURES).increment(1);
                error!(detail, "the backup failed");
            }
            Err(_refused) => {}
        }
        made
    }

    async fn try_make(&self, request: BackupRequest, reason: Reason) -> Result<Created, BackupRefusal> {
        let sources = self.sources.clone().map_err(|why| BackupRefusal::Invalid(why.into()))?;
        let slot = self.slot.clone().try_acquire_owned().map_err(|_taken| BackupRefusal::Busy)?;
        let now = self.clock.now();
        let target = target(request.to.as_deref(), &self.directory, now).map_err(BackupRefusal::Invalid)?;
        let sources = with_or_without_key(sources, request.with_key).map_err(BackupRefusal::Invalid)?;
        let (default, ending) = (self.directory.clone(), self.ending.clone());
        let made = tokio::task::spawn_blocking(move || {
            let _slot = slot; // held to the end, also if nobody waits for the answer any more
            if target.starts_with(&default) {
                private_directory(&default).map_err(|error| BackupRefusal::Failed(words(&error)))?;
            }
            let label = Label { program: VERSION, reason, now };
            crash_point!("backup.before-copy");
            let made = backup::create(&sources, &target, label, &ending, &mut |_, _| {
                crash_point!("backup.writing");
            });
            crash_point!("backup.made");
            made.map_err(|error| match error {
                BackupError::Stopped => BackupRefusal::ShuttingDown,
                error => BackupRefusal::Failed(words(&error)),
            })
        });
        made.await.unwrap_or_else(|broken| Err(BackupRefusal::Failed(words(&broken))))
    }

    fn status(&self) -> MutexGuard<'_, BackupStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backups for BackupKeeper {
    async fn create(&self, request: BackupRequest) -> Result<Json, BackupRefusal> {
        self.make(request, Reason::Request).await.map(|created| described(&created))
    }

    async fn list(&self) -> Result<Json, BackupRefusal> {
        let directory = self.directory.clone();
        let listed = tokio::task::spawn_blocking(move || listed(&directory)).await;
        let backups =
            listed.map_err(|broken| words(&broken)).and_then(|listed| listed).map_err(BackupRefusal::Failed)?;
        self.until_next().await; // updates the date of the next one
        let status = self.status().clone();
        Ok(json!({ "backups": backups, "next": status.next_at, "last_failure": status.last_failure }))
    }

    fn status(&self) -> Option<BackupStatus> {
        self.sources.as_ref().ok().map(|_| self.status().clone())
    }
}

/// The backups of a directory, newest first.
pub(crate) fn listed(directory: &Path) -> Result<Vec<Json>, String> {
    let mut backups = Vec::new();
    for name in names(directory)?.into_iter().take(LIST_MAX) {
        let path = directory.join(name);
        let bytes = std::fs::metadata(&path).map_or(0, |found| found.len());
        backups.push(match backup::manifest_of(&path) {
            // A file has its final name after its verification only.
            Ok(manifest) => described(&Created { path, bytes, manifest }),
            Err(error) => json!({ "file": path, "bytes": bytes, "verified": false, "problem": words(&error) }),
        });
    }
    Ok(backups)
}

/// The names of backups in a directory, newest first. Other files, and backups under names of one's own, are left out.
fn names(directory: &Path) -> Result<Vec<String>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", directory.display())),
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_name(name))
        .collect();
    names.sort_by(|a, b| b.cmp(a)); // a name is a date
    Ok(names)
}

/// The name of a backup of that date: `belay-20261126T111800123Z.tar.gz`.
fn name_of(at: UnixMillis) -> String {
    let date: String = at.to_rfc3339().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    format!("belay-{date}.tar.gz")
}

fn is_name(name: &str) -> bool {
    name.strip_prefix("belay-").and_then(|rest| rest.strip_suffix("Z.tar.gz")).is_some_and(|date| {
        date.len() == 18
            && date.bytes().enumerate().all(|(at, byte)| if at == 8 { byte == b'T' } else { byte.is_ascii_digit() })
    })
}

/// The path of a new backup.
pub(crate) fn target(to: Option<&Path>, directory: &Path, now: UnixMillis) -> Result<PathBuf, String> {
    let Some(to) = to else { return Ok(directory.join(name_of(now))) };
    if !to.is_absolute() {
        return Err(format!("to: {} is not an absolute path", to.display()));
    }
    if to.is_dir() {
        return Ok(to.join(name_of(now)));
    }
    let in_directory = to.parent().is_some_and(Path::is_dir);
    if in_directory && to.to_str().is_some_and(|path| path.ends_with(".tar.gz")) {
        return Ok(to.to_owned());
    }
    Err(format!("to: {} is neither a directory nor a new file in one that ends in .tar.gz", to.display()))
}

/// The sources with the key of the vault, if it is wanted.
pub(crate) fn with_or_without_key(sources: Sources, with_key: bool) -> Result<Sources, String> {
    match sources.key.as_deref() {
        _ if !with_key => Ok(Sources { key: None, ..sources }),
        Some(key) if key.exists() => Ok(sources),
        _ => {
            Err("with_key: there is no key file; a key from a credential is in the hands of the service manager".into())
        }
    }
}

/// The backups of the schedule in a directory, with their dates. Unreadable files are left out.
fn scheduled(directory: &Path) -> Result<Vec<(UnixMillis, PathBuf)>, String> {
    let paths = names(directory)?.into_iter().map(|name| directory.join(name));
    let scheduled = paths.filter_map(|path| {
        let manifest = backup::manifest_of(&path).ok()?;
        (manifest.reason == Reason::Schedule).then_some((manifest.created, path))
    });
    Ok(scheduled.collect())
}

/// The backups that are removed, so that this many are left, the new one included. A backup with a date in the future, of
/// a clock that was wrong, counts as older than all others.
fn old(mut found: Vec<(UnixMillis, PathBuf)>, new: &Path, keep: usize, now: UnixMillis) -> Vec<PathBuf> {
    found.retain(|(_, path)| path != new);
    found.sort_by_key(|(created, _)| std::cmp::Reverse((*created <= now, *created)));
    found.into_iter().skip(keep.saturating_sub(1)).map(|(_, path)| path).collect()
}

/// The date of the newest backup in a directory.
fn newest(directory: &Path, now: UnixMillis) -> Option<UnixMillis> {
    let names = names(directory).unwrap_or_default().into_iter();
    let dates = names.filter_map(|name| backup::manifest_of(&directory.join(name)).ok()).map(|found| found.created);
    dates.filter(|created| *created <= now).max()
}

/// The date of the backup after the last one: a period later, or at the time of day, whichever is first. The first backup,
/// and one that was missed, is due now.
fn due(last: Option<UnixMillis>, every_hours: u32, daily: Option<&Schedule>, now: UnixMillis) -> UnixMillis {
    let Some(last) = last else { return now };
    let every = i64::from(every_hours).saturating_mul(HOUR_MS);
    let period = (every > 0).then(|| UnixMillis(last.0.saturating_add(every)));
    let daily = daily.and_then(|daily| daily.next_after(last));
    period.into_iter().chain(daily).min().unwrap_or(now).max(now)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_next_backup_is_due_a_period_after_the_last_one() {
        let now = UnixMillis(1_795_000_000_000);
        let ago = |hours: i64| UnixMillis(now.0 - hours * HOUR_MS);
        let hours = |last| (due(last, 24, None, now).0 - now.0) / HOUR_MS;
        assert_eq!(hours(None), 0);
        for (age, expected) in [(0, 24), (1, 23), (24, 0), (99, 0)] {
            assert_eq!(hours(Some(ago(age))), expected, "{age} hours old");
        }
        let name = name_of(now);
        assert!(!is_name("belay-backup.tar.gz") && !is_name("belay-.tar.gz") && is_name(&name), "{name}");
    }

    #[test]
    fn a_time_of_day_is_of_the_zone_and_a_missed_one_is_made_up() {
        let daily = |zone: &str| {
            let config = BackupConfig { at: Some("03:30".into()), zone: zone.into(), ..BackupConfig::default() };
            config.daily().unwrap()
        };
        let at = |text: &str| UnixMillis(i64::try_from(belay_cli::client::seconds_of(text).unwrap()).unwrap() * 1000);
        let next =
            |last: &str, every, zone, now: &str| due(Some(at(last)), every, daily(zone).as_ref(), at(now)).to_rfc3339();
        let (evening, night) = ("2026-07-01T20:00:00Z", "2026-07-02T03:30:00.000Z");
        assert_eq!(next("2026-07-01T03:30:01Z", 0, "UTC", evening), night);
        assert_eq!(next("2026-07-01T03:30:01Z", 0, "Europe/Berlin", evening), "2026-07-02T01:30:00.000Z");
        assert_eq!(next("2026-06-30T03:30:01Z", 0, "UTC", evening), "2026-07-01T20:00:00.000Z", "missed");
        assert_eq!(next("2026-07-01T18:00:00Z", 6, "UTC", evening), "2026-07-02T00:00:00.000Z", "the period is first");
        assert_eq!(next("2026-07-01T18:00:00Z", 24, "UTC", evening), night, "the time of day is first");
    }

    #[test]
    fn old_backups_go_by_their_dates_and_the_new_one_and_no_future_one_takes_its_place() {
        let found = |dates: &[i64]| dates.iter().map(|at| (UnixMillis(*at), at.to_string().into())).collect();
        let gone = |dates: &[i64], new: &str, keep| {
            let old = old(found(dates), Path::new(new), keep, UnixMillis(100));
            old.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(gone(&[10, 90, 50, 100], "100", 2), ["50", "10"]);
        assert_eq!(gone(&[10, 500, 90, 100], "100", 2), ["10", "500"], "a date in the future is the oldest");
        assert_eq!(gone(&[900, 800, 500], "500", 1), ["900", "800"], "the new one stays, whatever its date");
        assert!(gone(&[10, 100], "100", 2).is_empty());
    }

    #[tokio::test]
    async fn the_schedule_keeps_the_newest_and_a_failure_is_shown_until_a_success() {
        let data = tempfile::tempdir().unwrap();
        let database = data.path().join("belay.db");
        let store = belay_store::SqlStore::open(&database, belay_store::StoreOptions::default()).unwrap();
        struct Moving(std::sync::atomic::AtomicI64);
        impl Clock for Moving {
            fn now(&self) -> UnixMillis {
                UnixMillis(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            }
        }
        let mut keeper = BackupKeeper {
            sources: Ok(Sources { database, files: data.path().join("attachments"), key: None, settings: vec![] }),
            directory: data.path().join("backups"),
            config: BackupConfig { every_hours: 24, keep: 2, ..BackupConfig::default() },
            daily: None,
            status: Mutex::default(),
            clock: Arc::new(Moving(1_795_000_000_000.into())),
            slot: Arc::new(Semaphore::new(1)),
            ending: Stop::default(),
        };
        keeper.make(BackupRequest::default(), Reason::Request).await.unwrap();
        for _ in 0..3 {
            let made = keeper.make(BackupRequest::default(), Reason::Schedule).await.unwrap();
            keeper.remove_old(made.path).await;
        }
        let list = keeper.list().await.unwrap();
        let reasons: Vec<_> =
            list["backups"].as_array().unwrap().iter().map(|backup| backup["reason"].clone()).collect();
        assert_eq!(reasons, ["schedule", "schedule", "request"], "{list}");
        assert!(list["next"].is_string() && list["last_failure"].is_null(), "{list}");
        // The end of the daemon is no failure.
        keeper.ending.stop();
        let stopped = keeper.make(BackupRequest::default(), Reason::Request).await.err();
        assert_eq!(stopped, Some(BackupRefusal::ShuttingDown));
        assert!(Backups::status(&keeper).unwrap().last_failure.is_none());
        keeper.ending = Stop::default();
        // A directory that cannot be made: a file is in its place.
        let directory = std::mem::replace(&mut keeper.directory, data.path().join("belay.db/backups"));
        assert!(matches!(keeper.make(BackupRequest::default(), Reason::Request).await, Err(BackupRefusal::Failed(_))));
        keeper.directory = directory;
        assert!(keeper.list().await.unwrap()["last_failure"]["detail"].is_string());
        let status = Backups::status(&keeper).unwrap();
        assert!(status.last_success_at.is_some() && status.next_at.is_some() && status.last_failure.is_some());
        keeper.make(BackupRequest::default(), Reason::Request).await.unwrap();
        assert!(keeper.list().await.unwrap()["last_failure"].is_null());
        assert!(Backups::status(&keeper).unwrap().last_failure.is_none());
        assert!(newest(&keeper.directory, UnixMillis(i64::MAX)).is_some(), "the metric survives a restart");
        assert_eq!(newest(&keeper.directory, UnixMillis(1)), None, "a date in the future is of a wrong clock");
        // The leftovers of a killed backup.
        let left = keeper.directory.join(".belay-backup-one.tar.gz.part");
        std::fs::write(&left, "half").unwrap();
        keeper.sweep().await;
        assert!(!left.exists() && keeper.slot.available_permits() == 1);
        store.close().await;
    }
}
