//! Orphaned processes without any tie to their tree.
//!
//! A process may leave its parent and its session and clear its environment before the first look. The only sign of
//! such a process is that the daemon, as the reaper of orphans, has become its parent. It was started by some tree that
//! is not younger than itself. It is ended together with the last tree that could have started it, so that the end of
//! one tree never ends a process of another.
//!
//! A child of the daemon that was not started here is left alone if it stays in the daemon's session, as processes of
//! `tokio::process` do, or if it existed before.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid};

use super::cgroup::{Leaf, group_of};
use super::registry::Tracked;
use super::signal;
use super::table::{self, Identity, Process, Table};

/// How long a process must belong to no tree before it is killed, or reaped. 1 s: a tree that has just been started may
/// not be in the registry yet, and the parent of a zombie may be about to reap it.
const UNASSIGNED_GRACE: Duration = Duration::from_secs(1);

/// Number of looks at the remaining processes after everything else has ended, and the pause between two looks: half a
/// second in total. KILL takes effect at once; a process that it does not end remains.
const FINAL_SCANS: usize = 50;
const FINAL_SCAN_INTERVAL: Duration = Duration::from_millis(10);

/// The processes that the daemon has adopted.
#[derive(Debug)]
pub(super) struct Adopted {
    me: Pid,
    /// The session of the daemon, as the table shows it; `None` if its leader is outside of this PID namespace (a
    /// container).
    session: Option<Pid>,
    /// Children that existed before anything was started here.
    before: HashSet<Identity>,
    /// The time at which each process was first seen.
    seen: HashMap<Identity, Instant>,
}

impl Adopted {
    /// Starts without adopted processes. The current children were started by other code.
    ///
    /// # Errors
    /// The process table cannot be read.
    pub(super) fn new() -> io::Result<Self> {
        let me = getpid();
        let session = table::read(me)?.session;
        let before = match table::children() {
            Some(children) => children.into_iter().filter_map(|pid| table::read(pid).ok()).collect(),
            None => Table::read(u64::MAX)?.into_children_of(me),
        };
        let before = before.iter().map(Process::identity).collect();
        Ok(Self { me, session, before, seen: HashMap::new() })
    }

    /// Whether there is certainly no adopted process: this process has no child. A walk over the process table is not
    /// needed then.
    pub(super) fn none_possible(&self) -> bool {
        self.seen.is_empty() && table::children().is_some_and(|children| children.is_empty())
    }

    /// Whether there are no adopted processes.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Assigns each adopted process to its tree if that tree is being ended. Ends the processes that can belong to no
    /// tree.
    pub(super) fn assign<'t>(&mut self, table: &'t Table, tracked_trees: &[Tracked], members: &mut [Vec<&'t Process>]) {
        let found = self.find(table, members);
        self.seen.retain(|identity, _| found.iter().any(|process| process.identity() == *identity));
        for process in found {
            // The control group identifies the tree, even of a process that ended before the first look: TERM can reach
            // a process that is about to leave its session, and then its zombie has no other tie.
            let group = group_of(process.pid);
            let in_group = |tracked: &Tracked| tracked.root.cgroup.as_ref().is_some_and(|leaf| leaf.holds(&group));
            if let Some(tree) = tracked_trees.iter().position(in_group) {
                members[tree].push(process);
                continue;
            }
            let since = *self.seen.entry(process.identity()).or_insert_with(Instant::now);
            let mut candidates =
                tracked_trees.iter().enumerate().filter(|(_, tracked)| may_own_orphan(tracked, process));
            match (candidates.next(), candidates.next()) {
                (Some((only, tracked)), None) if tracked.end_requested => members[only].push(process),
                _ if since.elapsed() < UNASSIGNED_GRACE => {}
                _ if !process.lives() => signal::reap(process.pid),
                (None, _) => {
                    tracing::warn!(pid = %process.pid, "a process that outlived its tree is killed");
                    signal::send(process.identity(), Signal::KILL);
                }
                _ => {}
            }
        }
    }

    /// Ends all remaining processes. No tree exists any more that they could belong to.
    pub(super) fn end_all(&self) {
        for _ in 0..FINAL_SCANS {
            // Without a table nothing can be done, and no caller waits for a retry.
            let Ok(table) = Table::read(u64::MAX) else { return };
            let found = self.find(&table, &[]);
            if found.is_empty() {
                return;
            }
            for process in found {
                if process.lives() {
                    signal::send(process.identity(), Signal::KILL);
                } else {
                    signal::reap(process.pid);
                }
            }
            std::thread::sleep(FINAL_SCAN_INTERVAL);
        }
    }

    fn find<'t>(&self, table: &'t Table, members: &[Vec<&'t Process>]) -> Vec<&'t Process> {
        let taken: HashSet<Pid> = members.iter().flatten().map(|process| process.pid).collect();
        let adopted = |process: &&Process| {
            process.parent == Some(self.me)
                && process.session != self.session
                && !taken.contains(&process.pid)
                && !self.before.contains(&process.identity())
                // A process with a mark belongs to a tree that other code in this process manages.
                && process.mark().is_none()
        };
        table.iter().filter(adopted).collect()
    }
}

/// Whether a process can belong to a tree. The orphans of a PID namespace stay in it. If a tree was started in a
/// control group, its orphans stay in that group.
fn may_own_orphan(tracked: &Tracked, process: &Process) -> bool {
    let held = tracked.root.isolated || tracked.root.cgroup.as_ref().is_some_and(Leaf::is_complete);
    tracked.root.start <= process.start && !held
}
