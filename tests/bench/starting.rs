//! The measurements of a start: on an empty directory, on an existing store, and on a large store with unfinished runs.
//!
//! The large store is made by a daemon: ten thousand conversations with one answered message each, and a thousand whose
//! run waits for the model when the daemon is killed. Each measured start gets a copy of it, because a start changes
//! the store: it counts the attempts of unfinished runs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Options;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, milliseconds};
use crate::http::Connection;
use crate::slow::SlowModel;

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);
/// Connections over which the store is filled.
const SENDERS: usize = 16;

/// The amount of work.
struct Size {
    starts: usize,
    sessions: usize,
    unfinished: usize,
}

impl Size {
    fn of(options: &Options) -> Self {
        match options.quick {
            true => Self { starts: 3, sessions: 500, unfinished: 50 },
            false => Self { starts: 9, sessions: 10_000, unfinished: 1000 },
        }
    }
}

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let size = Size::of(options);
    let model = SlowModel::start()?;
    let (mut new, mut existing, mut large) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.starts {
        let daemon = Daemon::start(options, model.address)?;
        new.push(milliseconds(daemon.ready_after));
        let daemon = Daemon::start_in(options, model.address, daemon.end()?)?;
        existing.push(milliseconds(daemon.ready_after));
    }
    let filled = fill(options, &model, &size).await?;
    for _ in 0..size.starts {
        // A new model server, so that the resumed runs wait again and take no processor time from the start.
        let model = SlowModel::start()?;
        let daemon = Daemon::start_in(options, model.address, copy(filled.path(), &options.data)?)?;
        large.push(milliseconds(daemon.ready_after));
        daemon.kill()?;
    }
    report.add("start to ready, new store", "ms", &new);
    report.add("start to ready, existing store", "ms", &existing).mark(Mark::AtMost(15.0));
    let Size { sessions, unfinished, .. } = size;
    let name = format!("start to ready, {sessions} sessions and {unfinished} unfinished runs");
    report.add(name, "ms", &large).mark(Mark::AtMost(30.0));
    Ok(())
}

/// Makes a store with answered and unfinished runs. Returns its directory.
async fn fill(options: &Options, model: &SlowModel, size: &Size) -> Result<TempDir> {
    let wide = options.with(&["agent.max_concurrent_turns=10000"]);
    let daemon = Daemon::start(&wide, model.address)?;
    let mut senders = JoinSet::new();
    let (address, sessions, all) = (daemon.address, size.sessions, size.sessions + size.unfinished);
    for sender in 0..SENDERS {
        senders.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for number in (sender..all).step_by(SENDERS) {
                let (text, wait_ms, expected) =
                    if number < sessions { ("mark:0", 30_000, 200) } else { ("hold", 0, 202) };
                let body = format!(r#"{{"session":"start-{number}","text":"{text}","wait_ms":{wait_ms}}}"#);
                let answer = connection.post("/api/v1/messages", body.as_bytes()).await?;
                let body = String::from_utf8_lossy(&answer.body);
                ensure!(answer.status == expected, "HTTP {}: {body}", answer.status);
            }
            anyhow::Ok(())
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender.context("a sender crashed")??;
    }
    let begin = Instant::now();
    while model.held() < size.unfinished {
        ensure!(begin.elapsed() < PATIENCE, "{} of {} runs asked the model", model.held(), size.unfinished);
        sleep(Duration::from_millis(20)).await;
    }
    daemon.kill()
}

/// A copy of a data directory, in a new directory in `parent`. Sockets are left out.
fn copy(from: &Path, parent: &Path) -> Result<TempDir> {
    let to = tempfile::tempdir_in(parent)?;
    copy_files(from, to.path())?;
    Ok(to)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            std::fs::create_dir(&target)?;
            std::fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy_files(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
