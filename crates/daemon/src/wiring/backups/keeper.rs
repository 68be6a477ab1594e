//! Makes backups in the daemon: on request and by schedule, one at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_gateway::{BackupRefusal, BackupRequest, Backups};
use belay_protocol::{Clock, UnixMillis};
use belay_store::backup::{self, Created, Sources};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{described, directory, sources};
use crate::backup_config::BackupConfig;
use crate::client::seconds_of;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::paths::{Paths, private_directory};
use crate::settings::Settings;
use crate::wiring::{VERSION, words};

/// Date of the last successful backup, in seconds since 1970.
const LAST_SUCCESS: &str = "belay_backup_last_success_timestamp_seconds";
/// Failed backups.
const FAILURES: &str = "belay_backup_failures_total";

/// Pause after a failed scheduled backup. 10 minutes: a full disk or an absent mount needs a person.
const RETRY: Duration = Duration::from_secs(600);

const HOUR_MS: i64 = 3600 * 1000;

/// Most backups of one list.
const LIST_MAX: usize = 1000;

/// Makes and lists backups.
pub(crate) struct BackupKeeper {
    /// `None`: the store is in memory.
    sources: Option<Sources>,
    directory: PathBuf,
    config: BackupConfig,
    clock: Arc<dyn Clock>,
    /// One permit: for the backup that is being made.
    slot: Arc<Semaphore>,
    /// The last failure since the last success. Locked for an assignment.
    failure: Mutex<Option<LastFailure>>,
    /// Cancelled when the daemon ends: a backup that is being made is given up.
    ending: CancellationToken,
}

#[derive(Clone, Serialize)]
struct LastFailure {
    at: UnixMillis,
    detail: String,
}

impl BackupKeeper {
    /// A keeper that has done nothing yet.
    ///
    /// # Errors
    /// `store.url` is invalid.
    pub(crate) fn open(
        settings: &Settings,
        env: &Environment,
        paths: &Paths,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        describe_gauge!(LAST_SUCCESS, "Date of the last successful backup, in seconds since 1970");
        describe_counter!(FAILURES, "Failed backups");
        Ok(Self {
            sources: sources(settings, env, paths)?,
            directory: directory(settings, env, paths),
            config: settings.backup.clone(),
            clock,
            slot: Arc::new(Semaphore::new(1)),
            failure: Mutex::default(),
            ending: CancellationToken::new(),
        })
    }

    /// Makes the scheduled backups until it is stopped. Then a backup that is being made is given up, and this waits
    /// for its thread.
    pub(crate) async fn work(&self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.schedule()).await; // cancellation is the normal end
        self.ending.cancel();
        let _ = self.slot.acquire().await; // an error would mean a closed semaphore, which nothing closes
    }

    async fn schedule(&self) {
        if self.config.every_hours == 0 || self.sources.is_none() {
            // Its end would give up the backups that are made on request.
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.until_next().await).await;
            let request = BackupRequest { to: None, with_key: self.config.with_key };
            match self.make(request).await {
                Ok(_) => self.remove_old().await,
                Err(_logged) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// The time until the next scheduled backup. Files tell when the last one was, so a restart changes nothing.
    async fn until_next(&self) -> Duration {
        let names = self.names().await.unwrap_or_default();
        due_in(names.first().map(String::as_str), self.config.every_hours, self.clock.now())
    }

    /// The names of the backups in the directory, newest first.
    async fn names(&self) -> Result<Vec<String>, String> {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || names(&directory)).await;
        read.map_err(|broken| words(&broken))?
    }

    async fn remove_old(&self) {
        let keep = usize::try_from(self.config.keep).unwrap_or(usize::MAX);
        for old in self.names().await.unwrap_or_default().into_iter().skip(keep) {
            let path = self.directory.join(old);
            match tokio::fs::remove_file(&path).await {
                Ok(()) => info!(path = %path.display(), "an old backup is removed"),
                Err(error) => error!(%error, path = %path.display(), "an old backup cannot be removed"),
            }
        }
    }

    /// Makes one backup, and records its success or failure.
    async fn make(&self, request: BackupRequest) -> Result<Created, BackupRefusal> {
        let made = self.try_make(request).await;
        match &made {
            Ok(created) => {
                self.record(None);
                gauge!(LAST_SUCCESS).set(self.clock.now().0 as f64 / 1000.0);
                info!(path = %created.path.display(), bytes = created.bytes, "backup made and verified");
            }
            Err(BackupRefusal::Failed(detail)) => {
                self.record(Some(LastFailure { at: self.clock.now(), detail: detail.clone() }));
                counter!(FAILURES).increment(1);
                error!(detail, "the backup failed");
            }
            Err(_refused) => {}
        }
        made
    }

    async fn try_make(&self, request: BackupRequest) -> Result<Created, BackupRefusal> {
        let in_memory =
            || BackupRefusal::Invalid("the store is in memory (store.url): there is nothing to back up".into());
        let sources = self.sources.clone().ok_or_else(in_memory)?;
        let slot = self.slot.clone().try_acquire_owned().map_err(|_taken| BackupRefusal::Busy)?;
        let now = self.clock.now();
        let target = target(request.to.as_deref(), &self.directory, now).map_err(BackupRefusal::Invalid)?;
        let sources = with_or_without_key(sources, request.with_key).map_err(BackupRefusal::Invalid)?;
        let (default, ending) = (self.directory.clone(), self.ending.clone());
        let made = tokio::task::spawn_blocking(move || {
            let _slot = slot; // held to the end, also if nobody waits for the answer any more
            if target.starts_with(&default) {
                private_directory(&default).map_err(|error| words(&error))?;
            }
            let made = backup::create(&sources, &target, VERSION, now, &mut |_, _| !ending.is_cancelled());
            made.map_err(|error| words(&error))
        });
        match made.await {
            Ok(made) => made.map_err(BackupRefusal::Failed),
            Err(broken) => Err(BackupRefusal::Failed(words(&broken))),
        }
    }

    fn record(&self, failure: Option<LastFailure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

#[async_trait]
impl Backups for BackupKeeper {
    async fn create(&self, request: BackupRequest) -> Result<Json, BackupRefusal> {
        self.make(request).await.map(|created| described(&created))
    }

    async fn list(&self) -> Result<Json, BackupRefusal> {
        let (directory, now) = (self.directory.clone(), self.clock.now());
        let listed = tokio::task::spawn_blocking(move || listed(&directory)).await;
        let backups =
            listed.map_err(|broken| words(&broken)).and_then(|listed| listed).map_err(BackupRefusal::Failed)?;
        let next = if self.config.every_hours > 0 && self.sources.is_some() {
            let until = i64::try_from(self.until_next().await.as_millis()).unwrap_or(i64::MAX);
            Some(UnixMillis(now.0.saturating_add(until)))
        } else {
            None
        };
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(json!({ "backups": backups, "next": next, "last_failure": failure }))
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

fn date_in(name: &str) -> Option<&str> {
    name.strip_prefix("belay-")?.strip_suffix("Z.tar.gz").filter(|date| {
        date.len() == 18
            && date.bytes().enumerate().all(|(at, byte)| if at == 8 { byte == b'T' } else { byte.is_ascii_digit() })
    })
}

fn is_name(name: &str) -> bool {
    date_in(name).is_some()
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

/// The time until the backup after the one with this name.
fn due_in(newest: Option<&str>, every_hours: u32, now: UnixMillis) -> Duration {
    let every = i64::from(every_hours).saturating_mul(HOUR_MS);
    let last = newest.and_then(date_in).and_then(|date| {
        let part = |from: usize, to: usize| date.get(from..to);
        let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
        let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
        let seconds = seconds_of(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))?;
        i64::try_from(seconds).ok().map(|seconds| UnixMillis(seconds.saturating_mul(1000)))
    });
    // A date in the future, of a clock that was wrong, must not defer a backup for longer than one period.
    let wait = last.map_or(0, |last| last.0.saturating_add(every).saturating_sub(now.0)).clamp(0, every);
    Duration::from_millis(u64::try_from(wait).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_next_backup_is_due_a_period_after_the_newest_file() {
        let now = UnixMillis(1_795_000_000_000);
        let ago = |hours: i64| name_of(UnixMillis(now.0 - hours * HOUR_MS));
        let hours = |newest: Option<&str>| due_in(newest, 24, now).as_secs() / 3600;
        assert_eq!(hours(None), 0);
        for (age, expected) in [(0, 24), (1, 23), (24, 0), (99, 0), (-1, 24), (-99, 24)] {
            assert_eq!(hours(Some(&ago(age))), expected, "{age} hours old");
        }
        assert!(!is_name("belay-backup.tar.gz") && !is_name("belay-.tar.gz") && is_name(&ago(1)), "{}", ago(1));
    }

    #[tokio::test]
    async fn the_schedule_keeps_the_newest_and_a_failure_is_shown_until_a_success() {
        let data = tempfile::tempdir().unwrap();
        let database = data.path().join("belay.db");
        let store = belay_store::SqliteStore::open(&database, belay_store::StoreOptions::default()).unwrap();
        struct Moving(std::sync::atomic::AtomicI64);
        impl Clock for Moving {
            fn now(&self) -> UnixMillis {
                UnixMillis(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            }
        }
        let mut keeper = BackupKeeper {
            sources: Some(Sources { database, files: data.path().join("attachments"), key: None, settings: vec![] }),
            directory: data.path().join("backups"),
            config: BackupConfig { every_hours: 24, keep: 2, ..BackupConfig::default() },
            clock: Arc::new(Moving(1_795_000_000_000.into())),
            slot: Arc::new(Semaphore::new(1)),
            failure: Mutex::default(),
            ending: CancellationToken::new(),
        };
        for _ in 0..3 {
            keeper.make(BackupRequest::default()).await.unwrap();
            keeper.remove_old().await;
        }
        let list = keeper.list().await.unwrap();
        assert_eq!(list["backups"].as_array().map(Vec::len), Some(2), "{list}");
        assert!(list["next"].is_string() && list["last_failure"].is_null(), "{list}");
        // A directory that cannot be made: a file is in its place.
        let directory = std::mem::replace(&mut keeper.directory, data.path().join("belay.db/backups"));
        assert!(matches!(keeper.make(BackupRequest::default()).await, Err(BackupRefusal::Failed(_))));
        keeper.directory = directory;
        assert!(keeper.list().await.unwrap()["last_failure"]["detail"].is_string());
        keeper.make(BackupRequest::default()).await.unwrap();
        assert!(keeper.list().await.unwrap()["last_failure"].is_null());
        store.close().await;
    }
}
