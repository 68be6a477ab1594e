//! Processes of runs and of hooks: started in one place and ended in one way.
//!
//! **For**: [`Processes`] starts a [`Launch`] as the first process of a *tree*, and ends trees: TERM, two seconds,
//! KILL, until no process is left, including processes that have left their parent, their group or their session. A
//! stop, a time limit, a shutdown and a crash of a turn all end trees by the same function, [`RunProcesses::end`].
//!
//! **Does not know**: what a program may do (the sandbox decides that), what its output means, or why it is stopped.
//!
//! ```text
//!   start ──▶ registry ──▶ spawner thread: the program, in a group (and control group) of its own
//!   end, drop ──▶ registry ──▶ keeper thread: walk, TERM, walk …, KILL, walk until twice nothing
//! ```
//!
//! Reading order: `launch` → `registry` (the requests for each tree) → `running` → `spawner` → `reaper` → `termination`
//! (the steps) → `members` (the processes of a tree) → `adopted` (processes that have lost every tie to a tree) →
//! `left_behind` (processes of a daemon that was killed) → `table`, `signal`, `namespace`, `cgroup`.

mod adopted;
mod cgroup;
mod config;
mod error;
mod exit;
mod launch;
mod left_behind;
mod members;
mod namespace;
mod reaper;
mod registry;
mod running;
mod sealed;
mod signal;
mod spawner;
mod table;
mod termination;

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use belay_protocol::{Generation, RunId, RunProcesses, StillRunning};
use rustix::process::{PidfdFlags, pidfd_open, set_child_subreaper};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

pub use self::cgroup::enter_group;
pub use self::config::{CgroupUse, MAX_TERM_GRACE, ProcessesConfig};
pub use self::error::{ProcessesError, StartError};
pub use self::exit::Exit;
pub use self::launch::{Launch, Stdin};
pub use self::running::Running;
pub use self::sealed::SealedProgram;

use self::adopted::Adopted;
use self::cgroup::LazyGroups;
use self::left_behind::Origin;
use self::reaper::ProcessReaper;
use self::registry::{Owner, Progress, Registry};
use self::spawner::{JOBS, Job, Spawner};

/// The environment variable that every process of a tree inherits. Its value names the daemon and is random for each
/// tree. It identifies a process that has lost all other ties to its tree, or whose daemon was killed.
pub const MARK: &str = "BELAY_RUN";

/// Starts and ends the processes of all runs and hooks. The daemon has one, which is shared.
///
/// It makes the daemon the reaper of orphans among its descendants: a process that leaves its parent becomes a child of
/// the daemon, where it is found.
#[derive(Debug)]
pub struct Processes {
    registry: Arc<Registry>,
    groups: Arc<LazyGroups>,
    origin: Origin,
    /// `None` once dropped, like the threads.
    jobs: Option<mpsc::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    reaper: Option<JoinHandle<()>>,
}

/// Numbers of trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trees that were started.
    pub started: u64,
    /// Trees that were verified to be empty.
    pub ended: u64,
    /// Trees that are alive, or still being ended.
    pub alive: usize,
    /// The ended trees that needed KILL.
    pub killed: u64,
}

impl Processes {
    /// Prepares to start and end processes: starts two threads, and makes the daemon the reaper of its orphans.
    ///
    /// # Errors
    /// [`ProcessesError`]: the missing requirement of this machine. A control group that cannot be created is not an error: the log contains the reason, and [`has_groups`](Self::has_groups) returns false.
    pub fn new(config: ProcessesConfig) -> Result<Self, ProcessesError> {
        if config.term_grace > MAX_TERM_GRACE {
            return Err(ProcessesError::Grace);
        }
        let me = rustix::process::getpid();
        let origin = Origin::current().map_err(ProcessesError::NoProcessTable)?;
        let adopted = Adopted::new().map_err(ProcessesError::NoProcessTable)?;
        pidfd_open(me, PidfdFlags::empty()).map_err(|error| ProcessesError::NoPidfd(error.into()))?;
        // Any number except zero turns it on.
        set_child_subreaper(Some(me)).map_err(|error| ProcessesError::NoSubreaper(error.into()))?;
        let groups = Arc::new(LazyGroups::new(config.cgroup));
        let registry = Arc::new(Registry::default());
        let (jobs, waiting) = mpsc::channel(JOBS);
        let spawner = Spawner { launcher: config.launcher, groups: groups.clone(), origin };
        let reaper = ProcessReaper { registry: registry.clone(), grace: config.term_grace };
        let mut processes = Self { registry, groups, origin, jobs: Some(jobs), spawner: None, reaper: None };
        let begin = |name: &str| thread::Builder::new().name(name.to_owned());
        let spawner = begin("spawner").spawn(move || spawner.run(waiting));
        processes.spawner = Some(spawner.map_err(ProcessesError::NoThread)?);
        let reaper = begin("keeper").spawn(move || reaper.run(adopted));
        processes.reaper = Some(reaper.map_err(ProcessesError::NoThread)?);
        Ok(processes)
    }

    /// Whether each tree gets a control group of its own. The first call, or the first start of a tree, tries that out.
    pub fn has_groups(&self) -> bool {
        self.groups.get().is_some()
    }

    /// Kills the processes of daemons that were killed, as far as they are visible and may be signalled: most end with
    /// their daemon, but a sandbox that was just being made may live on. Returns their number. A daemon calls this before
    /// it is ready, once no other one can be starting for the same data. Blocks for one walk over the process table, and
    /// while killed processes end, at most 2 s.
    pub fn end_left_behind(&self) -> usize {
        self.origin.end_left_behind()
    }

    /// Starts a program for a run. `what` names it in lists of running programs.
    ///
    /// The tree is registered before it is started, and the generation is checked after that. So a stop either sees the
    /// tree or prevents its start.
    ///
    /// # Errors
    /// [`StartError`], with a text for a model.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is started, or the started tree is ended.
    pub async fn start(
        &self,
        launch: Launch,
        run: RunId,
        generation: &Generation,
        what: &str,
    ) -> Result<Running, StartError> {
        self.start_for(launch, Owner::Run { id: run, generation: generation.clone() }, what).await
    }

    /// Starts a program that belongs to no run, such as a hook, even one that was asked about a run, or a process that a
    /// conversation keeps. It ends when the returned value is dropped or [ended](Running::end), and at a shutdown.
    ///
    /// # Errors
    /// [`StartError`], all but [`StartError::Stopped`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is started, or the started tree is ended.
    pub async fn start_without_run(&self, launch: Launch, what: &str) -> Result<Running, StartError> {
        self.start_for(launch, Owner::Hook, what).await
    }

    async fn start_for(&self, launch: Launch, owner: Owner, what: &str) -> Result<Running, StartError> {
        let (handle, progress) = self.registry.enter(owner, what)?;
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StartError::ShuttingDown)?;
        jobs.send(Job { launch, handle, answer }).await.map_err(|_| StartError::ShuttingDown)?;
        let spawned = answered.await.map_err(|_| StartError::ShuttingDown)??;
        Running::new(spawned, progress)
    }

    /// Begins to end every process of a run, at once. Until they have ended, nothing is started for the run.
    pub fn stop(&self, run: RunId) -> Stopping {
        Stopping { trees: self.registry.end_run(run) }
    }

    /// Ends every tree and accepts no more. Returns when all have ended, or when a process does not die even after
    /// KILL.
    ///
    /// # Cancel safety
    /// If the future is dropped, the trees are still ended.
    pub async fn shutdown(&self) {
        Stopping { trees: self.registry.close() }.empty().await;
    }

    /// Reaps orphans that the daemon adopts while it manages no tree, such as those of programs that other code has
    /// started. Never returns; drop the future to stop it. It sleeps until a child ends.
    ///
    /// # Cancel safety
    /// An orphan that has just ended stays a zombie until the next call. Nothing else is lost.
    pub async fn reap_orphans(&self) -> Infallible {
        let mut children = match signal(SignalKind::child()) {
            Ok(children) => children,
            Err(error) => {
                tracing::warn!(%error, "orphans may stay as zombies until the next program is started");
                return std::future::pending().await;
            }
        };
        loop {
            self.registry.look_once();
            children.recv().await;
        }
    }

    /// The totals since the start.
    pub fn counts(&self) -> Counts {
        self.registry.counts()
    }
}

/// Ends every tree, like [`Processes::shutdown`]. Blocks until that is done, which takes no time after a shutdown. So
/// even a daemon that panics leaves no processes behind.
impl Drop for Processes {
    fn drop(&mut self) {
        self.registry.close();
        // The reaper thread is joined first: the end of the spawner thread sends a signal to the processes that it
        // started.
        let kept = self.reaper.take().map(JoinHandle::join);
        self.jobs = None;
        let spawned = self.spawner.take().map(JoinHandle::join);
        if kept.into_iter().chain(spawned).any(|joined| joined.is_err()) {
            tracing::error!("a process management thread panicked");
        }
    }
}

#[async_trait]
impl RunProcesses for Processes {
    async fn end(&self, run: RunId) {
        self.stop(run).empty().await;
    }

    fn alive(&self, run: RunId) -> Vec<StillRunning> {
        self.registry.alive(run)
    }
}

/// The end of a run's processes, in progress. It continues if this is dropped.
#[derive(Debug)]
pub struct Stopping {
    trees: Vec<watch::Receiver<Progress>>,
}

impl Stopping {
    /// Waits until every tree has got TERM: its process group at once, processes outside of the group within
    /// milliseconds. After that, nothing is started for the run.
    pub async fn signalled(&mut self) {
        for tree in &mut self.trees {
            // An error means that the tree is not in the registry any more: it has ended, or was never started.
            let _ = tree.wait_for(Progress::is_signalled).await;
        }
    }

    /// Waits until every tree is verified to be empty, or does not die even after KILL.
    pub async fn empty(mut self) {
        for tree in &mut self.trees {
            let _ = tree.wait_for(Progress::is_over).await;
        }
    }
}
