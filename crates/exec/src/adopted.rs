//! Processes that have lost every tie to their tree.
//!
//! One that leaves parent and session and clears its environment, all before anybody looks, can be told from nothing but
//! this: the daemon, as the reaper of orphans, has become its parent. It was started by some tree that is not younger
//! than it is. It is ended with the last tree that could have been it, so that no tree loses a process to another's end.
//!
//! A child of the daemon that was not started here is left alone as long as it stays in the daemon's session, as what
//! `tokio::process` starts does, or was there before.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid};

use super::cgroup::{Leaf, group_of};
use super::registry::Tracked;
use super::signal;
use super::table::{Identity, Process, Table};

/// How long one has to be nobody's before it is killed, or reaped. 1 s: a tree that has been started a moment ago may
/// not have been entered yet, and whoever has a zombie may be about to reap it.
const DOUBT: Duration = Duration::from_secs(1);

/// Looks at what is left when everything else has ended, and the pause between two of them: half a second in all. KILL
/// takes no time; what it does not end stays.
const LAST_LOOKS: usize = 50;
const BETWEEN_LAST_LOOKS: Duration = Duration::from_millis(10);

/// What the daemon has adopted.
#[derive(Debug)]
pub(super) struct Adopted {
    me: Pid,
    /// The one of the daemon, as the table shows it; `None` when its leader is outside of this PID namespace (a container).
    session: Option<Pid>,
    /// Children that were there before anything was started here.
    before: HashSet<Identity>,
    /// Since when one has been seen.
    seen: HashMap<Identity, Instant>,
}

impl Adopted {
    /// Nothing yet. Children in this table are somebody else's.
    pub(super) fn new(table: &Table) -> Self {
        let me = getpid();
        let before = table.iter().filter(|process| process.parent == Some(me)).map(Process::identity).collect();
        Self { me, session: table.get(me).and_then(|own| own.session), before, seen: HashMap::new() }
    }

    /// Whether there is anything to look after.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Gives each adopted process to the tree it must be of, when that one is being ended; ends what can be of none.
    pub(super) fn assign<'t>(&mut self, table: &'t Table, tracked_trees: &[Tracked], members: &mut [Vec<&'t Process>]) {
        let found = self.find(table, members);
        self.seen.retain(|identity, _| found.iter().any(|process| process.identity() == *identity));
        for process in found {
            // Its control group tells, even of one that ended before anybody looked: TERM reaches a process that is
            // about to leave its session, and its zombie has no tie but this.
            let group = group_of(process.pid);
            let in_group = |tracked: &Tracked| tracked.root.cgroup.as_ref().is_some_and(|leaf| leaf.holds(&group));
            if let Some(tree) = tracked_trees.iter().position(in_group) {
                members[tree].push(process);
                continue;
            }
            let since = *self.seen.entry(process.identity()).or_insert_with(Instant::now);
            let mut candidates =
                tracked_trees.iter().enumerate().filter(|(_, tracked)| may_have_lost(tracked, process));
            match (candidates.next(), candidates.next()) {
                (Some((only, tracked)), None) if tracked.wanted => members[only].push(process),
                _ if since.elapsed() < DOUBT => {}
                _ if !process.lives() => signal::reap(process.pid),
                (None, _) => {
                    tracing::warn!(pid = %process.pid, "a process that outlived its tree is killed");
                    signal::send(process.identity(), Signal::KILL);
                }
                _ => {}
            }
        }
    }

    /// Ends whatever is left, for there are no trees any more that it could be of.
    pub(super) fn end_all(&self) {
        for _ in 0..LAST_LOOKS {
            // Without a table nothing can be done, and nobody waits for a better moment.
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
            std::thread::sleep(BETWEEN_LAST_LOOKS);
        }
    }

    fn find<'t>(&self, table: &'t Table, members: &[Vec<&'t Process>]) -> Vec<&'t Process> {
        let taken: HashSet<Pid> = members.iter().flatten().map(|process| process.pid).collect();
        let adopted = |process: &&Process| {
            process.parent == Some(self.me)
                && process.session != self.session
                && !taken.contains(&process.pid)
                && !self.before.contains(&process.identity())
                // With a mark it is of a tree that somebody else in this process looks after.
                && process.mark().is_none()
        };
        table.iter().filter(adopted).collect()
    }
}

/// Whether a process can be of a tree. The orphans of a namespace stay in it, and those of a control group that the tree
/// was started in.
fn may_have_lost(tracked: &Tracked, process: &Process) -> bool {
    let held = tracked.root.isolated || tracked.root.cgroup.as_ref().is_some_and(Leaf::is_complete);
    tracked.root.start <= process.start && !held
}
