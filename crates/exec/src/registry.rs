//! The trees there are, and what is wanted of them: the one thing that callers, spawner and keeper share.
//!
//! Requests are facts about trees rather than messages: asking never waits, asking twice is asking once, and nothing can
//! be lost in a full queue. The lock is held for map operations only.

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

/// Most trees at a time; a further one is refused. 256: as many tasks as the unit of the service allows in all.
pub(super) const MOST_TREES: usize = 256;

/// Which tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TreeId(u64);

/// The first process of a tree. It is reaped last of all, so that its number, which is the number of its group too,
/// belongs to the tree as long as there is one.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) pid: Pid,
    /// When it started; no process of the tree is older.
    pub(super) start: u64,
    /// What the environment of its descendants says.
    pub(super) mark: String,
    /// Whether its descendants live in a PID namespace.
    pub(super) isolated: bool,
    pub(super) cgroup: Option<Leaf>,
}

/// How far a tree has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nobody wants its end.
    Alive,
    /// From now on, what ends does so because of us.
    Ending,
    /// It has been told to end: its group at once, what has left the group with the look that follows.
    Signalled,
    /// It was looked at twice, and there was nothing.
    Empty(Exit),
    /// Something of it does not die; it is tried further.
    Stuck,
}

impl Progress {
    /// Whether waiting for the end is of no more use.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Empty(_) | Self::Stuck)
    }

    /// Whether everything has been told to end.
    pub(super) fn is_signalled(&self) -> bool {
        *self == Self::Signalled || self.is_over()
    }
}

/// Why a tree shall end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// It alone; others of its owner go on, and more may start.
    Alone,
    /// The run is being stopped; until that is done nothing starts for it.
    WithItsRun,
}

/// Whose a tree is: what ends it, besides whoever started it and a shutdown.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A run: its trees end with it, and none starts once it was stopped.
    Run { id: RunId, generation: Generation },
    /// A hook. It may look at a run that has ended, or at none, so that no run's end is the end of its programs.
    Hook,
}

impl Owner {
    fn is_run(&self, run: RunId) -> bool {
        matches!(self, Self::Run { id, .. } if *id == run)
    }

    /// Whether trees may be started for it still.
    fn is_current(&self) -> bool {
        match self {
            Self::Run { generation, .. } => generation.is_current(),
            Self::Hook => true,
        }
    }

    /// Makes whatever is about to be started for it be refused.
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
    /// `None` until it has been started.
    root: Option<Arc<Root>>,
    wanted: Option<Wanted>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct State {
    trees: BTreeMap<TreeId, Tree>,
    next: u64,
    closing: bool,
    /// Whether the keeper has something new to look at.
    news: bool,
    started: u64,
    ended: u64,
    killed: u64,
}

impl State {
    fn want(&mut self, choose: impl Fn(&TreeId, &Tree) -> bool, why: Wanted) -> Vec<watch::Receiver<Progress>> {
        let mut chosen = Vec::new();
        for (_, tree) in self.trees.iter_mut().filter(|(id, tree)| choose(id, tree)) {
            if why == Wanted::WithItsRun {
                tree.owner.end();
            }
            if tree.wanted != Some(Wanted::WithItsRun) {
                tree.wanted = Some(why);
            }
            chosen.push(tree.progress.subscribe());
        }
        self.news |= !chosen.is_empty();
        chosen
    }
}

/// What the keeper is to look after.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) id: TreeId,
    pub(super) root: Arc<Root>,
    pub(super) wanted: bool,
}

/// The trees there are.
#[derive(Debug, Default)]
pub(super) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change below is complete before anything can panic, so the state of a poisoned lock is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a tree that is about to be started. From here on a stop of the run sees it.
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
        let stopping = |tree: &Tree| of_same_run(tree) && tree.wanted == Some(Wanted::WithItsRun);
        if !owner.is_current() || state.trees.values().any(stopping) {
            return Err(StartError::Stopped);
        }
        if state.trees.len() >= MOST_TREES {
            return Err(StartError::TooMany { most: MOST_TREES });
        }
        let id = TreeId(state.next);
        state.next += 1;
        let (progress, seen) = watch::channel(Progress::Alive);
        let what = what.to_owned();
        state.trees.insert(id, Tree { owner, what, root: None, wanted: None, progress });
        Ok((Handle { registry: self.clone(), id }, seen))
    }

    /// Whether an entered tree may be started still.
    pub(super) fn may_start(&self, id: TreeId) -> bool {
        self.state().trees.get(&id).is_some_and(|tree| tree.wanted.is_none() && tree.owner.is_current())
    }

    /// Takes note that a tree has been started. `false`: its run was stopped meanwhile, and it is being ended.
    pub(super) fn started(&self, id: TreeId, root: Root) -> bool {
        let mut state = self.state();
        state.started += 1;
        state.news = true;
        let Some(tree) = state.trees.get_mut(&id) else { return false };
        tree.root = Some(Arc::new(root));
        if !tree.owner.is_current() && tree.wanted.is_none() {
            tree.wanted = Some(Wanted::Alone);
        }
        let goes_on = tree.wanted.is_none();
        self.changed.notify_all();
        goes_on
    }

    /// Wants the end of one tree; of one that was never started, forgets it.
    pub(super) fn end_tree(&self, id: TreeId) {
        let mut state = self.state();
        if state.trees.get(&id).is_some_and(|tree| tree.root.is_none()) {
            state.trees.remove(&id);
            state.news = true;
        } else {
            state.want(|other, _| *other == id, Wanted::Alone);
        }
        self.changed.notify_all();
    }

    /// Wants the end of every tree of a run: how each of them is doing.
    pub(super) fn end_run(&self, run: RunId) -> Vec<watch::Receiver<Progress>> {
        let chosen = self.state().want(|_, tree| tree.owner.is_run(run), Wanted::WithItsRun);
        self.changed.notify_all();
        chosen
    }

    /// Accepts nothing more, and wants the end of every tree.
    pub(super) fn close(&self) -> Vec<watch::Receiver<Progress>> {
        let mut state = self.state();
        state.closing = true;
        let chosen = state.want(|_, _| true, Wanted::WithItsRun);
        state.news = true;
        self.changed.notify_all();
        chosen
    }

    /// Whether nothing more is accepted, and nothing is left that can be ended.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.closing && state.trees.values().all(|tree| *tree.progress.borrow() == Progress::Stuck)
    }

    /// What of a run is alive.
    pub(super) fn alive(&self, run: RunId) -> Vec<StillRunning> {
        let of_run = |tree: &&Tree| tree.owner.is_run(run) && tree.root.is_some();
        let told = |tree: &Tree| StillRunning {
            run_id: run,
            pid: tree.root.as_ref().map(|root| root.pid.as_raw_pid().unsigned_abs()),
            what: tree.what.clone(),
        };
        self.state().trees.values().filter(of_run).map(told).collect()
    }

    /// The sums.
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
            Some(Tracked { id: *id, root: tree.root.clone()?, wanted: tree.wanted.is_some() })
        };
        self.state().trees.iter().filter_map(tracked).collect()
    }

    /// Tells how far a tree has come.
    pub(super) fn report(&self, id: TreeId, progress: Progress) {
        let mut state = self.state();
        if let Some(tree) = state.trees.get(&id) {
            tree.progress.send_if_modified(|now| std::mem::replace(now, progress) != progress);
        }
        if matches!(progress, Progress::Empty(_)) && state.trees.remove(&id).is_some() {
            state.ended += 1;
        }
    }

    /// Has the keeper look once while no tree keeps it looking.
    pub(super) fn look_once(&self) {
        let mut state = self.state();
        if state.trees.is_empty() {
            state.news = true;
            self.changed.notify_all();
        }
    }

    /// Counts a tree that had to be killed.
    pub(super) fn count_kill(&self) {
        self.state().killed += 1;
    }

    /// Waits for news, at most as long as given (`None`: for ever).
    pub(super) fn wait(&self, most: Option<Duration>) {
        let state = self.state();
        let mut state = match most {
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, |state| !state.news);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait_while(state, |state| !state.news).unwrap_or_else(PoisonError::into_inner),
        };
        state.news = false;
    }
}

/// A tree's place in the registry. Dropped, the tree is ended, or forgotten when it was never started.
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
