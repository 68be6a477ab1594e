//! The context that runs get from the workspace and the machine: files for the prompt, skills, the date.
//!
//! **For**: implements the port [`ContextSource`] for the workspace. The files of prompts are looked at once a second at
//! most, and read again if they have changed. Unusable files are skipped, with a reason. All files are opened through the workspace, so nothing outside of it is read.
//!
//! **Does not know**: how a prompt is built from this, or which run gets it.
//!
//! Reading order: [`config`] → `read` → `cut` → `bootstrap` → `skills` → here.

mod bootstrap;
pub mod config;
mod cut;
mod read;
mod skills;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Bootstrap, ContextSource, Skills, Skipped, Tool, UnixMillis, Unusable};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::{Instant, sleep};

pub use self::config::{ContextConfig, SkillEntry, SkillsConfig};
pub use self::skills::SkillNeeds;
use self::skills::{Library, ReadSkill};
use crate::config::CommandsConfig;
use crate::error::ToolsError;
use crate::workspace::Workspace;

/// How long the files of prompts are taken for unchanged. A message does not wait for a look at the disk.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a file that cannot be opened is tried again, such as while no file descriptors are left.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const READ_AGAIN: Duration = Duration::from_millis(250);

/// The last look at the files of prompts.
#[derive(Debug, Default)]
struct Look {
    /// When it began. `None`: there was none.
    at: Option<Instant>,
    stamps: bootstrap::Stamps,
    files: Arc<Bootstrap>,
}

/// Provides the context of runs in this workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceContext {
    workspace: Arc<Workspace>,
    config: Arc<ContextConfig>,
    /// The time zone, found when a date is first needed: listing the zones of the system takes milliseconds.
    zone: Arc<OnceLock<TimeZone>>,
    /// Locked only for an assignment.
    look: Arc<Mutex<Look>>,
    library: Arc<Library>,
}

impl WorkspaceContext {
    /// Opens the workspace with these settings. `commands` and `needs` decide which skills can be used.
    ///
    /// # Errors
    /// [`ToolsError::Workspace`]: the workspace cannot be opened.
    pub fn open(
        workspace: &Path,
        config: &ContextConfig,
        skills: &SkillsConfig,
        commands: &CommandsConfig,
        needs: SkillNeeds,
    ) -> Result<Self, ToolsError> {
        Ok(Self {
            workspace: Arc::new(Workspace::open(workspace)?),
            config: Arc::new(config.clone()),
            zone: Arc::default(),
            look: Arc::default(),
            library: Arc::new(Library::new(skills, commands, needs)),
        })
    }

    /// The tool that reads skills outside of the workspace, if the settings name such directories.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.library.reaches_out() { vec![Arc::new(ReadSkill::new(self.library.clone()))] } else { Vec::new() }
    }

    /// Finds the time zone now instead of with the first date. Blocks.
    pub fn prepare(&self) {
        self.zone();
    }

    fn zone(&self) -> &TimeZone {
        self.zone.get_or_init(|| {
            // Validation has refused invalid time zones.
            let named = self.config.timezone.as_deref().and_then(|name| TimeZone::get(name).ok());
            named.unwrap_or_else(TimeZone::system)
        })
    }

    /// Returns the files, and reads them again if the stamp of any file has changed. Blocks.
    fn read(&self) -> Arc<Bootstrap> {
        let begun = Instant::now();
        let stamps = bootstrap::stamps(&self.workspace, &self.config);
        {
            let mut last = self.last_look();
            if last.stamps == stamps && last.files.skipped.iter().all(|skipped| !skipped.unread) {
                last.at = Some(begun);
                return last.files.clone();
            }
        }
        let read = bootstrap::read(&self.workspace, &self.config);
        let mut last = self.last_look();
        // A file may change between reading the stamps and reading the content, or be in the middle of being written. So
        // the next message looks again, until two looks agree.
        last.stamps = stamps;
        last.at = None;
        if *last.files != read {
            for skipped in read.skipped.iter().filter(|one| !last.files.skipped.contains(one)) {
                tracing::warn!(
                    file = skipped.what,
                    why = skipped.why,
                    "a file of the workspace is not part of prompts"
                );
            }
            last.files = Arc::new(read);
        }
        last.files.clone()
    }

    fn last_look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files of the last look, if it is recent.
    fn recent(&self) -> Option<Arc<Bootstrap>> {
        let last = self.last_look();
        last.at.is_some_and(|at| at.elapsed() < LOOK_INTERVAL).then(|| last.files.clone())
    }
}

/// The result of a look that failed before any file was seen: no run begins with it.
fn unread_at_all() -> Bootstrap {
    let (what, why) = ("the files of the workspace".to_owned(), "they could not be read".to_owned());
    Bootstrap { skipped: vec![Skipped { what, why, unread: true }], ..Bootstrap::default() }
}

#[async_trait]
impl ContextSource for WorkspaceContext {
    async fn bootstrap(&self) -> Arc<Bootstrap> {
        if let Some(files) = self.recent() {
            return files;
        }
        let context = self.clone();
        tokio::task::spawn_blocking(move || context.read()).await.unwrap_or_else(|error| {
            tracing::error!(%error, "the files of the workspace could not be read");
            let last = self.last_look().files.clone();
            if last.files.is_empty() { Arc::new(unread_at_all()) } else { last }
        })
    }

    async fn skills(&self) -> Arc<Skills> {
        let (library, workspace) = (self.library.clone(), self.workspace.clone());
        tokio::task::spawn_blocking(move || library.scan(&workspace)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "skills could not be looked for");
            self.library.known()
        })
    }

    fn known_skills(&self) -> Arc<Skills> {
        self.library.known()
    }

    async fn file(&self, path: &str, max_bytes: u64) -> Result<Option<String>, Unusable> {
        let (workspace, path) = (self.workspace.clone(), path.to_owned());
        let read = move || match workspace.stamped(&path)? {
            Some((file, stamp)) => read::text(file, &stamp, max_bytes).map(Some),
            None => Ok(None),
        };
        until_read(read).await
    }

    async fn file_start(&self, path: &str, max_bytes: u64) -> Result<Option<(String, bool)>, Unusable> {
        let (workspace, path) = (self.workspace.clone(), path.to_owned());
        let read = move || match workspace.stamped(&path)? {
            Some((file, _)) => read::start(file, max_bytes).map(Some),
            None => Ok(None),
        };
        until_read(read).await
    }

    fn today(&self, now: UnixMillis) -> Option<String> {
        let zone = self.zone();
        let now = Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone());
        let zone = zone.iana_name().map_or_else(|| now.strftime("UTC%:z").to_string(), str::to_owned);
        Some(format!("{} ({zone})", now.strftime("%A, %-d %B %Y")))
    }
}

/// Reads a file, and tries again for a while if it cannot be opened or read at this moment. `read` blocks.
async fn until_read<T: Send + 'static>(
    read: impl Fn() -> Result<T, Unusable> + Clone + Send + 'static,
) -> Result<T, Unusable> {
    let until = Instant::now() + READ_LIMIT;
    loop {
        let done = tokio::task::spawn_blocking(read.clone()).await;
        match done.unwrap_or_else(|error| Err(format!("it could not be read: {error}").into())) {
            Err(unusable) if unusable.is_unread() && Instant::now() < until => sleep(READ_AGAIN).await,
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn open(dir: &Path, config: &ContextConfig) -> WorkspaceContext {
        let (skills, commands) = (SkillsConfig::default(), CommandsConfig::default());
        WorkspaceContext::open(dir, config, &skills, &commands, SkillNeeds::default()).unwrap()
    }

    /// After this time the next message sees what has changed.
    async fn a_second() {
        tokio::time::advance(LOOK_INTERVAL).await;
    }

    fn texts(bootstrap: &Bootstrap) -> Vec<&str> {
        bootstrap.files.iter().map(|file| &*file.text).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn files_are_the_same_until_one_of_them_changes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("AGENTS.md"), "one").unwrap();
        let context = open(dir.path(), &ContextConfig::default());
        let first = context.bootstrap().await;
        assert_eq!(texts(&first), ["one"]);
        a_second().await;
        assert!(Arc::ptr_eq(&first, &context.bootstrap().await));
        std::fs::write(dir.path().join("AGENTS.md"), "two!").unwrap();
        assert!(Arc::ptr_eq(&first, &context.bootstrap().await), "within the second nobody looks");
        a_second().await;
        assert_eq!(texts(&*context.bootstrap().await), ["two!"]);
        std::fs::write(dir.path().join("SOUL.md"), " ").unwrap();
        a_second().await;
        let same = context.bootstrap().await;
        a_second().await;
        assert!(Arc::ptr_eq(&same, &context.bootstrap().await));
    }

    /// The first message after a second sees each change of a file.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_vanishes_or_turns_into_something_else_is_seen_after_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let (rules, other) = (dir.path().join("AGENTS.md"), dir.path().join("other"));
        std::fs::write(&other, "linked").unwrap();
        let context = open(dir.path(), &ContextConfig::default());
        assert!(texts(&*context.bootstrap().await).is_empty());
        type Change<'a> = &'a dyn Fn();
        let changes: [(Change<'_>, &[&str], &[&str]); 5] = [
            (&|| std::fs::write(&rules, "here").unwrap(), &["here"], &[]),
            (&|| std::fs::remove_file(&rules).unwrap(), &[], &[]),
            (&|| std::fs::create_dir(&rules).unwrap(), &[], &["AGENTS.md"]),
            (
                &|| {
                    std::fs::remove_dir(&rules).unwrap();
                    std::os::unix::fs::symlink("other", &rules).unwrap();
                },
                &["linked"],
                &[],
            ),
            (&|| std::fs::write(&other, vec![b'x'; 100_000]).unwrap(), &[], &[]),
        ];
        for (number, (change, expected, skipped)) in changes.iter().enumerate() {
            change();
            a_second().await;
            let seen = context.bootstrap().await;
            if number == 4 {
                assert!(seen.files[0].cut && seen.files[0].whole_chars == 100_000, "all of the new text was read");
                continue;
            }
            assert_eq!(texts(&seen), *expected, "{number}");
            assert_eq!(seen.skipped.iter().map(|one| &*one.what).collect::<Vec<_>>(), *skipped, "{number}");
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_long_file_is_read_to_a_whole_character() {
        let dir = tempfile::tempdir().unwrap();
        let context = open(dir.path(), &ContextConfig::default());
        for (written, expected) in [
            ("abc", Ok(Some(("abc".to_owned(), false)))),
            ("abcd", Ok(Some(("abcd".to_owned(), false)))),
            ("abcde", Ok(Some(("abcd".to_owned(), true)))),
            ("abc\u{e4}\u{e4}", Ok(Some(("abc".to_owned(), true)))),
            ("a\0", Err("it is not text: it has zero bytes".to_owned().into())),
        ] {
            std::fs::write(dir.path().join("HEARTBEAT.md"), written).unwrap();
            assert_eq!(context.file_start("HEARTBEAT.md", 4).await, expected, "{written:?}");
        }
        std::fs::write(dir.path().join("HEARTBEAT.md"), b"ab\xffde").unwrap();
        assert!(context.file_start("HEARTBEAT.md", 4).await.unwrap_err().why.contains("byte 2"));
        assert_eq!(context.file_start("none.md", 4).await, Ok(None));
    }

    #[test]
    fn the_date_is_that_of_the_zone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |zone: &str| {
            let config = ContextConfig { timezone: Some(zone.to_owned()), ..ContextConfig::default() };
            open(dir.path(), &config).today(UnixMillis(1_793_836_800_000)).unwrap() // 2026-11-05T00:00:00Z
        };
        assert_eq!(at("UTC"), "Thursday, 5 November 2026 (UTC)");
        assert_eq!(at("Pacific/Honolulu"), "Wednesday, 4 November 2026 (Pacific/Honolulu)");
    }

    #[test]
    fn without_directories_of_the_operator_there_is_no_tool_for_them() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open(dir.path(), &ContextConfig::default()).tools().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_opened_now_is_tried_again_and_one_that_is_no_text_is_not() {
        for (fails, expected, attempts) in
            [(3, Ok("here"), 4), (usize::MAX, Err(Unusable::not_now("no descriptors")), 41)]
        {
            let tried = Arc::new(AtomicUsize::new(0));
            let count = tried.clone();
            let read = move || match count.fetch_add(1, Ordering::SeqCst) < fails {
                true => Err(Unusable::not_now("no descriptors")),
                false => Ok("here"),
            };
            assert_eq!((until_read(read).await, tried.load(Ordering::SeqCst)), (expected, attempts));
        }
        let begun = Instant::now();
        let no_text = || Err::<(), _>(Unusable::from("it is not text".to_owned()));
        assert!(until_read(no_text).await.is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
