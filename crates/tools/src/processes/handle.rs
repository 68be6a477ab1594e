//! A background process as the registry knows it, and its state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use belay_exec::Running;
use belay_protocol::{RunId, SessionKey};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::{End, EndedBy};
use super::limits::KEPT_AFTER_END;
use super::output::Output;

/// What keeps a process alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The run that has started it: it ends with that run.
    Run,
    /// The conversation, after a person's approval: it goes on when the run ends.
    Session,
}

/// A background process. It exists from before its start until its output is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its name, which no other process of this daemon has.
    pub(super) name: String,
    pub(super) session: SessionKey,
    /// The run that has started it.
    pub(super) run: RunId,
    pub(super) keeper: Keeper,
    /// Its command line.
    pub(super) what: String,
    pub(super) since: Instant,
    /// The time after which it is ended.
    pub(super) limit: Duration,
    pub(super) output: Output,
    /// Its standard input, until it is closed.
    pub(super) input: Mutex<Option<ChildStdin>>,
    /// The offset behind the output that reads have shown without a gap.
    read_to: AtomicU64,
    pid: OnceLock<u32>,
    ended_by: OnceLock<EndedBy>,
    stop: CancellationToken,
    end: watch::Sender<Option<End>>,
    ended_at: OnceLock<Instant>,
    forgotten: AtomicBool,
}

impl Process {
    pub(super) fn new(name: String, wanted: super::Wanted<'_>, output: Output) -> Self {
        Self {
            name,
            session: wanted.context.session.clone(),
            run: wanted.context.run_id,
            keeper: wanted.keeper,
            what: wanted.what.to_owned(),
            since: Instant::now(),
            limit: wanted.limit,
            output,
            input: Mutex::default(),
            read_to: AtomicU64::new(0),
            pid: OnceLock::new(),
            ended_by: OnceLock::new(),
            stop: CancellationToken::new(),
            end: watch::Sender::new(None),
            ended_at: OnceLock::new(),
            forgotten: AtomicBool::new(false),
        }
    }

    /// Records that it has begun.
    pub(super) fn has_begun(&self, running: &mut Running) {
        let _ = self.pid.set(running.pid());
        // Nobody else knows the process yet.
        if let Ok(mut input) = self.input.try_lock() {
            *input = running.take_stdin();
        }
    }

    /// The number of its first process; `None`: it is being started.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }

    /// Whether a run of a conversation may use it.
    pub(super) fn is_of(&self, session: &SessionKey, run: RunId) -> bool {
        let may = self.keeper == Keeper::Session || self.run == run;
        self.session == *session && may && !self.forgotten.load(Ordering::SeqCst)
    }

    /// How it has ended; `None`: it runs, or is being started or ended.
    pub(super) fn ended(&self) -> Option<End> {
        *self.end.borrow()
    }

    /// Follows its end.
    pub(super) fn follow(&self) -> watch::Receiver<Option<End>> {
        self.end.subscribe()
    }

    /// Requests its end. The first reason counts.
    pub(super) fn request_end(&self, by: EndedBy) {
        let _ = self.ended_by.set(by);
        self.stop.cancel();
    }

    /// Whether its end was requested.
    pub(super) fn is_ending(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until its end is requested.
    pub(super) async fn end_requested(&self) -> EndedBy {
        self.stop.cancelled().await;
        *self.ended_by.get().unwrap_or(&EndedBy::Run)
    }

    /// Records that nothing of it is alive. Its end is recorded after that.
    pub(super) fn has_emptied(&self) {
        let _ = self.ended_at.set(Instant::now());
    }

    /// Whether nothing of it is alive.
    pub(super) fn is_empty(&self) -> bool {
        self.ended_at.get().is_some()
    }

    /// Makes it unknown to all runs.
    pub(super) fn forget(&self) {
        self.forgotten.store(true, Ordering::SeqCst);
    }

    /// Whether nobody has any use for it.
    pub(super) fn is_over(&self) -> bool {
        self.ended().is_some() && (self.is_expired() || self.forgotten.load(Ordering::SeqCst))
    }

    /// Records its end, once.
    pub(super) fn has_ended(&self, end: End) {
        self.has_emptied();
        self.end.send_if_modified(|known| {
            let is_new = known.is_none();
            *known = known.or(Some(end));
            is_new
        });
    }

    /// Whether it ended too long ago for its output to be kept.
    fn is_expired(&self) -> bool {
        self.ended_at.get().is_some_and(|at| at.elapsed() > KEPT_AFTER_END)
    }

    /// The offset from which a read without an offset begins.
    pub(super) fn unread(&self) -> u64 {
        self.read_to.load(Ordering::SeqCst)
    }

    /// Records that a read has shown this range.
    pub(super) fn was_shown(&self, from: u64, next: u64) {
        if from <= self.unread() {
            self.read_to.fetch_max(next, Ordering::SeqCst);
        }
    }
}
