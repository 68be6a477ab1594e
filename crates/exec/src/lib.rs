//! Processes of runs and of hooks: started in one place, ended in one way.
//!
//! **For**: [`Processes`] starts a [`Launch`] as the first process of a *tree*, and ends trees: TERM, two seconds, KILL,
//! until nothing is left, also of what has left its parent, its group or its session. A stop, a time limit, a shutdown
//! and a crash of a turn all end trees by the same function, [`RunProcesses::end`].
//!
//! **Does not know**: what a program may do (that is the sandbox's), what its output means, or why it is stopped.
//!
//! ```text
//!   start ──▶ registry ──▶ spawner thread: the program, in a group (and control group) of its own
//!   end, drop ──▶ registry ──▶ keeper thread: walk, TERM, walk …, KILL, walk until twice nothing
//! ```
//!
//! Reading order: `launch` → `registry` (what is wanted of which tree) → `running` → `spawner` → `reaper` → `termination`
//! (the steps) → `members` (who belongs to a tree) → `adopted` (who
//! has lost every tie to one) → `table`, `signal`, `namespace`, `cgroup`.

mod adopted;
mod cgroup;
mod config;
mod error;
mod exit;
mod launch;
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
use self::cgroup::Groups;
use self::reaper::ProcessReaper;
use self::registry::{Owner, Progress, Registry};
use self::spawner::{JOBS, Job, Spawner};
use self::table::Table;

/// The environment variable that every process of a tree inherits; its value is random for each tree. Where nothing else
/// ties a process to its tree any more, this does.
pub const MARK: &str = "BELAY_RUN";

/// The processes of all runs and hooks. One for the daemon, shared.
///
/// It makes the daemon the reaper of orphans among its descendants: what leaves its parent comes to it, and is found.
#[derive(Debug)]
pub struct Processes {
    registry: Arc<Registry>,
    groups: Option<Arc<Groups>>,
    /// `None` once dropped, as the threads are.
    jobs: Option<mpsc::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// How many trees there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trees that were started.
    pub started: u64,
    /// Trees that have been found empty.
    pub ended: u64,
    /// Trees that are alive, or still being ended.
    pub alive: usize,
    /// Of the ended ones, those that needed KILL.
    pub killed: u64,
}

impl Processes {
    /// Gets ready to start and end processes: two threads, and the daemon as reaper of its orphans.
    ///
    /// # Errors
    /// [`ProcessesError`]: what is missing on this machine. A control group that cannot be made is no error; the log
    /// says why, and [`has_groups`](Self::has_groups) that.
    pub fn new(config: ProcessesConfig) -> Result<Self, ProcessesError> {
        if config.term_grace > MAX_TERM_GRACE {
            return Err(ProcessesError::Grace);
        }
        let me = rustix::process::getpid();
        let table = table::read(me).and_then(|_| Table::read(u64::MAX)).map_err(ProcessesError::NoProcessTable)?;
        pidfd_open(me, PidfdFlags::empty()).map_err(|error| ProcessesError::NoPidfd(error.into()))?;
        // Any number but zero switches it on.
        set_child_subreaper(Some(me)).map_err(|error| ProcessesError::NoSubreaper(error.into()))?;
        let groups = match config.cgroup {
            CgroupUse::Off => None,
            CgroupUse::Auto => {
                Groups::find().inspect_err(|why| tracing::info!(why, "no control groups for processes")).ok()
            }
        };
        let groups = groups.map(Arc::new);
        let registry = Arc::new(Registry::default());
        let (jobs, waiting) = mpsc::channel(JOBS);
        let spawner = Spawner { launcher: config.launcher, groups: groups.clone() };
        let adopted = Adopted::new(&table);
        let keeper = ProcessReaper { registry: registry.clone(), grace: config.term_grace };
        let mut processes = Self { registry, groups, jobs: Some(jobs), spawner: None, keeper: None };
        let begin = |name: &str| thread::Builder::new().name(name.to_owned());
        let spawner = begin("spawner").spawn(move || spawner.run(waiting));
        processes.spawner = Some(spawner.map_err(ProcessesError::NoThread)?);
        let keeper = begin("keeper").spawn(move || keeper.run(adopted));
        processes.keeper = Some(keeper.map_err(ProcessesError::NoThread)?);
        Ok(processes)
    }

    /// Whether each tree gets a control group of its own.
    pub fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Starts a program for a run; `what` names it for whoever asks what still runs.
    ///
    /// The tree is entered before it exists, and the generation looked at after that, so that a stop either sees the
    /// tree or prevents it.
    ///
    /// # Errors
    /// [`StartError`], with a text for a model to read.
    ///
    /// # Cancel safety
    /// Dropped, nothing is started, or what was started is ended.
    pub async fn start(
        &self,
        launch: Launch,
        run: RunId,
        generation: &Generation,
        what: &str,
    ) -> Result<Running, StartError> {
        self.start_for(launch, Owner::Run { id: run, generation: generation.clone() }, what).await
    }

    /// Starts the program of a hook. It belongs to no run, not even where the hook was asked about one: it ends when what
    /// is returned is dropped or [ended](Running::end), and at a shutdown.
    ///
    /// # Errors
    /// [`StartError`], all but [`StartError::Stopped`].
    ///
    /// # Cancel safety
    /// Dropped, nothing is started, or what was started is ended.
    pub async fn start_hook(&self, launch: Launch, what: &str) -> Result<Running, StartError> {
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

    /// Begins to end every process of a run, at once. From here on nothing is started for the run until it has ended.
    pub fn stop(&self, run: RunId) -> Stopping {
        Stopping { trees: self.registry.end_run(run) }
    }

    /// Ends every tree and accepts no more. Returns when all have ended, or when something does not even die of KILL.
    ///
    /// # Cancel safety
    /// Dropped, the ending goes on.
    pub async fn shutdown(&self) {
        Stopping { trees: self.registry.close() }.empty().await;
    }

    /// Reaps orphans that come to the daemon while it keeps no tree, such as those of programs that something else here has
    /// started. Never ends; drop it to stop. It sleeps until a child ends.
    ///
    /// # Cancel safety
    /// Nothing is lost but an orphan's last look, until the next one.
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

    /// The sums since the start.
    pub fn counts(&self) -> Counts {
        self.registry.counts()
    }
}

/// Ends every tree, as [`Processes::shutdown`] does; blocks until that is done, which takes no time after a shutdown.
/// So a daemon that panics leaves nothing behind either.
impl Drop for Processes {
    fn drop(&mut self) {
        self.registry.close();
        // The keeper first: the end of the spawner's thread is a signal to what it started.
        let kept = self.keeper.take().map(JoinHandle::join);
        self.jobs = None;
        let spawned = self.spawner.take().map(JoinHandle::join);
        if kept.into_iter().chain(spawned).any(|joined| joined.is_err()) {
            tracing::error!("a thread that keeps processes has panicked");
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

/// The end of a run's processes, on its way. Dropped, it goes on.
#[derive(Debug)]
pub struct Stopping {
    trees: Vec<watch::Receiver<Progress>>,
}

impl Stopping {
    /// Waits until every tree has been told to end: its process group; what has left that follows within milliseconds.
    /// Nothing is started for the run after that.
    pub async fn signalled(&mut self) {
        for tree in &mut self.trees {
            // An error means that the tree is not in the registry any more: it has ended, or was never started.
            let _ = tree.wait_for(Progress::is_signalled).await;
        }
    }

    /// Waits until every tree is verified empty, or does not even die of KILL.
    pub async fn empty(mut self) {
        for tree in &mut self.trees {
            let _ = tree.wait_for(Progress::is_over).await;
        }
    }
}
