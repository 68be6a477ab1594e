//! The existing trees and the requests to end them. Callers, spawner and reaper share this registry.
//!
//! A request is a state of a tree and not a message. So a request never waits, a repeated request changes nothing, and
//! no request is lost in a full queue. The lock is held for map operations only.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{Generation, RunId, StillRunning};
use rustix::process::Pid;
use tokio::sync::watch;

use super::Counts;
use super::cgroup::Leaf;
use super::error::StartError;
use super::exit::Exit;

/// Most trees at a time; a further one is refused. 256: the number of tasks that the unit of the service allows in
/// total.
pub(super) const MAX_TREES: usize = 256;

/// Identifies a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TreeId(u64);

/// The first process of a tree. It is reaped after all others. So its number, which is also the number of its group,
/// belongs to the tree as long as the tree exists.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) pid: Pid,
    /// Its start time. No process of the tree is older.
    pub(super) start: u64,
    /// The value of the mark in the environment of its descendants.
    pub(super) mark: String,
    /// Whether its descendants are in a PID namespace.
    pub(super) isolated: bool,
    pub(super) cgroup: Option<Leaf>,
}

/// The state of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its end was not requested.
    Alive,
    /// Its end has begun: every process that ends from now on ends because of us.
    Ending,
    /// It has got TERM: its group at once, processes outside of the group with the following look.
    Signalled,
    /// It was found empty in two looks.
    Empty(Exit),
    /// A process of it does not die. Further attempts are made.
    Stuck,
}

impl Progress {
    /// Whether waiting for the end is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Empty(_) | Self::Stuck)
    }

    /// Whether all its processes have got TERM.
    pub(super) fn is_signalled(&self) -> bool {
        *self == Self::Signalled || self.is_over()
    }
}

/// The extent of a request to end a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndRequest {
    /// Only this tree. Other trees of its owner continue, and more may be started.
    Alone,
    /// The whole run is being stopped. Until that is done, nothing is started for it.
    WithItsRun,
}

/// The owner of a tree. It decides what ends the tree, in addition to the caller that started it and a shutdown.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A run. Its trees end with it, and none is started after it was stopped.
    Run { id: RunId, generation: Generation },
    /// A hook. It may concern a run that has ended, or no run, so its programs do not end with a run.
    Hook,
}

impl Owner {
    fn is_run(&self, run: RunId) -> bool {
        matches!(self, Self::Run { id, .. } if *id == run)
    }

    /// Whether trees may still be started for it.
    fn is_current(&self) -> bool {
        match self {
            Self::Run { generation, .. } => generation.is_current(),
            Self::Hook => true,
        }
    }

    /// Refuses all further starts for it.
    fn end(&self) {
        match self {
            Self::Run { generation, .. } => generation.end(),
            Self::Hook => {}
        }
    }
}

#[derive(Debug)]
struct Tree {
    owner: Owner,
    what: String,
    /// `None` until it was started.
    root: Option<Arc<Root>>,
    end_requested: Option<EndRequest>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct State {
    trees: BTreeMap<TreeId, Tree>,
    next: u64,
    closing: bool,
    /// Whether there is something new for the reaper.
    wake_reaper: bool,
    started: u64,
    ended: u64,
    killed: u64,
}

impl State {
    fn request_end(
        &mut self,
        choose: impl Fn(&TreeId, &Tree) -> bool,
        why: EndRequest,
    ) -> Vec<watch::Receiver<Progress>> {
        let mut chosen = Vec::new();
        for (_, tree) in self.trees.iter_mut().filter(|(id, tree)| choose(id, tree)) {
            if why == EndRequest::WithItsRun {
                tree.owner.end();
            }
            if tree.end_requested != Some(EndRequest::WithItsRun) {
                tree.end_requested = Some(why);
            }
            chosen.push(tree.progress.subscribe());
        }
        self.wake_reaper |= !chosen.is_empty();
        chosen
    }
}

/// A tree that the reaper watches.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) id: TreeId,
    pub(super) root: Arc<Root>,
    pub(super) end_requested: bool,
}

/// The existing trees.
#[derive(Debug, Default)]
pub(super) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything can panic, so the state behind a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a tree that is about to be started. From now on, a stop of the run sees it.
    pub(super) fn enter(
        self: &Arc<Self>,
        owner: Owner,
        what: &str,
    ) -> Result<(Handle, watch::Receiver<Progress>), StartError> {
        let mut state = self.state();
        if state.closing {
            return Err(StartError::ShuttingDown);
        }
        let of_same_run = |tree: &Tree| matches!(owner, Owner::Run { id, .. } if tree.owner.is_run(id));
        let stopping = |tree: &Tree| of_same_run(tree) && tree.end_requested == Some(EndRequest::WithItsRun);
        if !owner.is_current() || state.trees.values().any(stopping) {
            return Err(StartError::Stopped);
        }
        if state.trees.len() >= MAX_TREES {
            return Err(StartError::TooMany { most: MAX_TREES });
        }
        let id = TreeId(state.next);
        state.next += 1;
        let (progress, seen) = watch::channel(Progress::Alive);
        let what = what.to_owned();
        state.trees.insert(id, Tree { owner, what, root: None, end_requested: None, progress });
        Ok((Handle { registry: self.clone(), id }, seen))
    }

    /// Whether a registered tree may still be started.
    pub(super) fn may_start(&self, id: TreeId) -> bool {
        self.state().trees.get(&id).is_some_and(|tree| tree.end_requested.is_none() && tree.owner.is_current())
    }

    /// Records that a tree was started. `false`: its run was stopped in the meantime, and the tree is being ended.
    pub(super) fn started(&self, id: TreeId, root: Root) -> bool {
        let mut state = self.state();
        state.started += 1;
        state.wake_reaper = true;
        let Some(tree) = state.trees.get_mut(&id) else { return false };
        tree.root = Some(Arc::new(root));
        if !tree.owner.is_current() && tree.end_requested.is_none() {
            tree.end_requested = Some(EndRequest::Alone);
        }
        let goes_on = tree.end_requested.is_none();
        self.changed.notify_all();
        goes_on
    }

    /// Requests the end of one tree. Removes a tree that was never started.
    pub(super) fn end_tree(&self, id: TreeId) {
        let mut state = self.state();
        if state.trees.get(&id).is_some_and(|tree| tree.root.is_none()) {
            state.trees.remove(&id);
            state.wake_reaper = true;
        } else {
            state.request_end(|other, _| *other == id, EndRequest::Alone);
        }
        self.changed.notify_all();
    }

    /// Requests the end of every tree of a run. Returns the progress of each.
    pub(super) fn end_run(&self, run: RunId) -> Vec<watch::Receiver<Progress>> {
        let chosen = self.state().request_end(|_, tree| tree.owner.is_run(run), EndRequest::WithItsRun);
        self.changed.notify_all();
        chosen
    }

    /// Accepts no more trees, and requests the end of every tree.
    pub(super) fn close(&self) -> Vec<watch::Receiver<Progress>> {
        let mut state = self.state();
        state.closing = true;
        let chosen = state.request_end(|_, _| true, EndRequest::WithItsRun);
        state.wake_reaper = true;
        self.changed.notify_all();
        chosen
    }

    /// Whether the registry is closed and no tree is left that can be ended.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.closing && state.trees.values().all(|tree| *tree.progress.borrow() == Progress::Stuck)
    }

    /// The trees of a run, also those that are just being started: they have no number yet, and their program may begin
    /// before the end that was requested reaches it.
    pub(super) fn alive(&self, run: RunId) -> Vec<StillRunning> {
        let of_run = |tree: &&Tree| tree.owner.is_run(run);
        let still_running = |tree: &Tree| StillRunning {
            run_id: run,
            pid: tree.root.as_ref().map(|root| root.pid.as_raw_pid().unsigned_abs()),
            what: tree.what.clone(),
        };
        self.state().trees.values().filter(of_run).map(still_running).collect()
    }

    /// The totals.
    pub(super) fn counts(&self) -> Counts {
        let state = self.state();
        Counts {
            started: state.started,
            ended: state.ended,
            alive: state.trees.values().filter(|tree| tree.root.is_some()).count(),
            killed: state.killed,
        }
    }

    /// Every started tree.
    pub(super) fn tracked_trees(&self) -> Vec<Tracked> {
        let tracked = |(id, tree): (&TreeId, &Tree)| {
            Some(Tracked { id: *id, root: tree.root.clone()?, end_requested: tree.end_requested.is_some() })
        };
        self.state().trees.iter().filter_map(tracked).collect()
    }

    /// Reports the progress of a tree.
    pub(super) fn report(&self, id: TreeId, progress: Progress) {
        let mut state = self.state();
        if let Some(tree) = state.trees.get(&id) {
            tree.progress.send_if_modified(|now| std::mem::replace(now, progress) != progress);
        }
        if matches!(progress, Progress::Empty(_)) && state.trees.remove(&id).is_some() {
            state.ended += 1;
        }
    }

    /// Makes the reaper look once, if there are no trees that make it look.
    pub(super) fn look_once(&self) {
        let mut state = self.state();
        if state.trees.is_empty() {
            state.wake_reaper = true;
            self.changed.notify_all();
        }
    }

    /// Counts a tree that needed KILL.
    pub(super) fn count_kill(&self) {
        self.state().killed += 1;
    }

    /// Waits for something new, at most for the given time (`None`: without a limit).
    pub(super) fn wait(&self, most: Option<Duration>) {
        let state = self.state();
        let mut state = match most {
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, |state| !state.wake_reaper);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait_while(state, |state| !state.wake_reaper).unwrap_or_else(PoisonError::into_inner),
        };
        state.wake_reaper = false;
    }
}

/// The registration of a tree. Dropping it ends the tree, or removes a tree that was never started.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) registry: Arc<Registry>,
    pub(super) id: TreeId,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.registry.end_tree(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moment between the registration of a tree and the start of its first process, which the spawner may be in.
    #[tokio::test]
    async fn a_tree_that_is_being_started_when_its_run_is_stopped_counts_as_alive_until_it_is_given_up() {
        let (registry, run) = (Arc::new(Registry::default()), RunId::new());
        let owner = Owner::Run { id: run, generation: Generation::default() };
        let (handle, _) = registry.enter(owner, "a command").expect("registered");
        let mut ends = registry.end_run(run);
        let still = StillRunning { run_id: run, pid: None, what: "a command".to_owned() };
        assert_eq!(registry.alive(run), [still]);
        assert!(!registry.may_start(handle.id));
        drop(handle);
        assert_eq!(registry.alive(run), []);
        assert!(ends[0].wait_for(Progress::is_over).await.is_err(), "it has left the registry");
    }
}
