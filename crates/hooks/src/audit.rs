//! A built-in hook: writes events to a file, one JSON object on each line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use belay_protocol::{Hook, HookAnswer, HookEvent, HookPoint};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

/// Smallest limit of a file, in bytes. 64 KiB: a few hundred events.
const MIN_BYTES: u64 = 64 * 1024;
/// Most older files.
const MAX_KEEP: u32 = 100;

/// `audit = { file = "…" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// The file. Only its owner can read it. Its directory must exist. Older files are beside it: `.1`, `.2`, …
    pub file: PathBuf,
    /// Size in bytes at which a new file is begun, at least 65 536. A file with a single longer event may exceed it.
    pub max_bytes: u64,
    /// Number of older files that are kept, 0 to 100; 0: none.
    pub keep: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { file: PathBuf::new(), max_bytes: 10 * 1024 * 1024, keep: 3 }
    }
}

impl AuditConfig {
    /// The default points: every event that can no longer be changed, once.
    pub(crate) const POINTS: [HookPoint; 10] = [
        HookPoint::Command,
        HookPoint::AgentEnd,
        HookPoint::BeforeCompaction,
        HookPoint::AfterCompaction,
        HookPoint::AfterToolCall,
        HookPoint::MessageSent,
        HookPoint::SessionStart,
        HookPoint::SessionEnd,
        HookPoint::GatewayStart,
        HookPoint::GatewayStop,
    ];

    pub(crate) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.file.file_name().is_none() {
            problems.push((".audit.file", "name a file".to_owned()));
        }
        if self.max_bytes < MIN_BYTES {
            problems.push((".audit.max_bytes", format!("must be at least {MIN_BYTES}")));
        }
        if self.keep > MAX_KEEP {
            problems.push((".audit.keep", format!("must be 0 to {MAX_KEEP}")));
        }
        problems
    }
}

/// Writes events to a file.
#[derive(Debug)]
pub struct Audit {
    name: String,
    log: Arc<Mutex<LogFile>>,
    tasks: TaskTracker,
}

impl Audit {
    /// Makes a hook with this name. The file is opened at the first event.
    pub(crate) fn new(name: String, config: &AuditConfig, tasks: TaskTracker) -> Self {
        let log = LogFile { config: config.clone(), open: None };
        Self { name, log: Arc::new(Mutex::new(log)), tasks }
    }
}

#[async_trait]
impl Hook for Audit {
    fn name(&self) -> &str {
        &self.name
    }

    /// # Cancel safety
    /// If the future is dropped, the line is still written.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let mut line = serde_json::to_vec(event).map_err(|error| format!("the event is no JSON: {error}"))?;
        line.push(b'\n');
        let log = self.log.clone();
        // A write that panicked has left the file as it is. The next write opens it again.
        let write = move || log.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
        match self.tasks.spawn_blocking(write).await {
            Ok(Ok(())) => Ok(HookAnswer::Continue),
            Ok(Err(error)) => Err(format!("the event was not written: {error}")),
            Err(error) => Err(format!("the event was not written: {error}")),
        }
    }
}

/// The current file and the older ones. The lock is held while one line is written, on the blocking pool.
#[derive(Debug)]
struct LogFile {
    config: AuditConfig,
    /// The open file and its size.
    open: Option<(File, u64)>,
}

impl LogFile {
    /// Writes a line. After an error the file is not kept open, so the next line opens it again.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => open(&self.config.file)?,
        };
        if size > 0 && size.saturating_add(line.len() as u64) > self.config.max_bytes {
            self.rotate()?;
            (file, size) = open(&self.config.file)?;
        }
        file.write_all(line)?;
        self.open = Some((file, size + line.len() as u64));
        Ok(())
    }

    /// Renames each file to the next number. The oldest is overwritten.
    fn rotate(&self) -> io::Result<()> {
        let AuditConfig { file, keep, .. } = &self.config;
        if *keep == 0 {
            return fs::remove_file(file);
        }
        for place in (1..*keep).rev() {
            let (from, to) = (older(file, place), older(file, place + 1));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {} // moved, or not there yet
            }
        }
        fs::rename(file, older(file, 1))
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn older(file: &Path, place: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{place}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use belay_protocol::UnixMillis;
    use serde_json::{Value, json};

    use super::*;

    fn event(number: usize) -> HookEvent {
        let data = json!({ "number": number, "filler": "x".repeat(20_000) });
        HookEvent { hook: HookPoint::AgentEnd.word(), at: UnixMillis(0), session: None, run_id: None, data }
    }

    fn numbers(file: &Path) -> Vec<u64> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let number = |line: &str| serde_json::from_str::<Value>(line).expect("one object")["data"]["number"].as_u64();
        text.lines().filter_map(number).collect()
    }

    #[tokio::test]
    async fn each_event_is_a_line_and_files_are_turned_over_at_their_bound() {
        for (keep, expected) in [
            (2, vec![vec![9], vec![6, 7, 8], vec![3, 4, 5], vec![]]),
            (1, vec![vec![9], vec![6, 7, 8], vec![]]),
            (0, vec![vec![9], vec![]]),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("audit.jsonl");
            let config = AuditConfig { file: file.clone(), max_bytes: MIN_BYTES, keep };
            let audit = Audit::new("book".into(), &config, TaskTracker::new());
            for number in 0..10 {
                assert_eq!(audit.call(&event(number)).await, Ok(HookAnswer::Continue));
            }
            let found: Vec<_> = (0..expected.len() as u32)
                .map(|place| if place == 0 { numbers(&file) } else { numbers(&older(&file, place)) })
                .collect();
            assert_eq!(found, expected, "keep = {keep}");
            assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_a_failure_and_is_looked_for_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("later/audit.jsonl");
        let config = AuditConfig { file: file.clone(), ..AuditConfig::default() };
        let audit = Audit::new("book".into(), &config, TaskTracker::new());
        let refused = audit.call(&event(1)).await.expect_err("the directory is missing");
        assert!(refused.starts_with("the event was not written: "), "{refused}");
        fs::create_dir(directory.path().join("later")).expect("made");
        assert_eq!(audit.call(&event(2)).await, Ok(HookAnswer::Continue));
        assert_eq!(numbers(&file), [2]);
    }
}
