//! All background processes of the daemon, by their handles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{BackgroundProcess, RunId, SessionKey, ToolFailure};
use tokio_util::task::TaskTracker;

use super::end::EndedBy;
use super::handle::{Keeper, Process};
use super::limits::Limits;
use super::output::Output;
use super::parts::BackgroundParts;
use super::slot::{Slot, Wanted};
use crate::files::blocking;

/// The background processes of all runs. Share one instance; [`BackgroundProcesses::close`] ends them all.
#[derive(Debug)]
pub struct BackgroundProcesses {
    pub(super) parts: BackgroundParts,
    pub(super) limits: Limits,
    next: AtomicU64,
    /// At most [`Limits::in_all`] that run, and [`Limits::ended`] that have ended, oldest first. Held for a look-up or a
    /// change, never across an await.
    known: Mutex<Vec<Arc<Process>>>,
    /// One task for each process that runs.
    pub(super) tasks: TaskTracker,
}

impl BackgroundProcesses {
    /// No processes yet.
    pub fn new(parts: BackgroundParts, limits: Limits) -> Self {
        Self { parts, limits, next: AtomicU64::new(1), known: Mutex::default(), tasks: TaskTracker::new() }
    }

    /// Whether there can be any.
    pub(crate) fn is_enabled(&self) -> bool {
        self.limits.of_session > 0
    }

    /// Takes a place for a process. From now on, a stop of its conversation sees it.
    ///
    /// # Errors
    /// There are too many, or its output cannot be stored; the model reads why.
    pub(crate) async fn slot(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<Slot, ToolFailure> {
        let (directory, kept_bytes) = (self.parts.directory.clone(), self.limits.kept_bytes);
        let output = blocking(move || {
            Output::create(&directory, kept_bytes)
                .map_err(|error| ToolFailure::failed(format!("Not started: its output cannot be stored: {error}.")))
        });
        let output = output.await?;
        let mut known = self.pruned();
        let running = || known.iter().filter(|process| process.ended().is_none());
        let of_session = running().filter(|process| process.session == wanted.context.session).count();
        if of_session >= self.limits.of_session {
            let most = self.limits.of_session;
            return Err(ToolFailure::failed(format!(
                "Not started: {most} background processes of this conversation run already, the most that the operator \
                 allows. End one first: process with the action kill."
            )));
        }
        if running().count() >= self.limits.in_all {
            let most = self.limits.in_all;
            return Err(ToolFailure::failed(format!("Not started: {most} background processes run already, in all.")));
        }
        let name = format!("p{}", self.next.fetch_add(1, Ordering::Relaxed));
        let process = Arc::new(Process::new(name, wanted, output));
        known.push(process.clone());
        Ok(Slot::new(self.clone(), process))
    }

    /// The process with this name that a run of a conversation may use; without a run, any of the conversation.
    pub(super) fn find(&self, name: &str, session: &SessionKey, run: Option<RunId>) -> Option<Arc<Process>> {
        let is_it =
            |process: &&Arc<Process>| process.name == name && process.is_of(session, run.unwrap_or(process.run));
        self.pruned().iter().find(is_it).cloned()
    }

    /// The processes that a run may use, oldest first.
    pub(super) fn of(&self, session: &SessionKey, run: RunId) -> Vec<Arc<Process>> {
        self.pruned().iter().filter(|process| process.is_of(session, run)).cloned().collect()
    }

    /// Whether a run may use any process.
    pub(super) fn has_any(&self, session: &SessionKey, run: RunId) -> bool {
        self.pruned().iter().any(|process| process.is_of(session, run))
    }

    /// Takes a process out.
    pub(super) fn remove(&self, process: &Arc<Process>) {
        self.known().retain(|known| !Arc::ptr_eq(known, process));
    }

    /// Waits until the processes that end with this run have ended, and drops their outputs. The trees of the run must
    /// have been ended.
    pub(crate) async fn run_ended(&self, run: RunId) {
        let is_of_it = |process: &Arc<Process>| process.run == run && process.keeper == Keeper::Run;
        let of_run: Vec<_> = self.known().iter().filter(|process| is_of_it(process)).cloned().collect();
        for process in of_run {
            // The process has the sender, and is held here.
            let _ = process.follow().wait_for(Option::is_some).await;
        }
        self.known().retain(|process| !is_of_it(process) || process.ended().is_none());
    }

    /// Ends all processes; returns when they have ended. No more must be started.
    pub async fn close(&self) {
        self.known().iter().for_each(|process| process.request_end(EndedBy::Run));
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The number of processes that run.
    pub fn running(&self) -> usize {
        self.pruned().iter().filter(|process| process.ended().is_none()).count()
    }

    /// The processes that run, for people.
    pub(crate) fn shown(&self) -> Vec<BackgroundProcess> {
        self.pruned().iter().filter(|process| process.ended().is_none()).map(|process| process.shown()).collect()
    }

    /// Drops those that nobody has any use for.
    pub(super) fn drop_over(&self) {
        drop(self.pruned());
    }

    /// All but those that nobody has any use for: each look drops these.
    fn pruned(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        let mut known = self.known();
        prune(&mut known, self.limits.ended);
        known
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops outputs that are too old, and the oldest of too many.
fn prune(known: &mut Vec<Arc<Process>>, most: usize) {
    known.retain(|process| !process.is_over());
    let ended = known.iter().filter(|process| process.ended().is_some()).count();
    let mut too_many = ended.saturating_sub(most);
    known.retain(|process| {
        let goes = too_many > 0 && process.ended().is_some();
        too_many -= usize::from(goes);
        !goes
    });
}
